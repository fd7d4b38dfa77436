#include "kernels/take_row.h"

#include <cstring>

#include "kernels/operation.h"

namespace muo::host {
namespace {

void take_row(const TakeRowArgs& args) {
  const std::int64_t index = *args.index.as<std::int64_t>();
  MUO_CHECK(0 <= index && index < args.rows.shape[0], "take_row: index ", index, " of ",
            args.rows.shape[0], " rows");
  std::memcpy(args.out.data, args.rows.row(index).data, static_cast<std::size_t>(args.out.bytes()));
}

const KernelRegistration kRegistration(&take_row);

}  // namespace
}  // namespace muo::host
