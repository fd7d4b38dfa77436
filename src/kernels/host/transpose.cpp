#include "kernels/transpose.h"

#include <algorithm>

#include "kernels/dispatch.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

constexpr std::int64_t kTile = 32;  // small enough that data read along columns stays in the cache

template <class To, class From>
void transpose_matrix(To* __restrict y, const From* __restrict x, std::int64_t rows,
                      std::int64_t columns) {
  for (std::int64_t j0 = 0; j0 < columns; j0 += kTile)
    for (std::int64_t i0 = 0; i0 < rows; i0 += kTile)
      for (std::int64_t j = j0; j < std::min(j0 + kTile, columns); ++j)
        for (std::int64_t i = i0; i < std::min(i0 + kTile, rows); ++i)
          y[j * rows + i] = from_f32<To>(to_f32(x[i * columns + j]));
}

void transpose(const TransposeArgs& args) {
  const std::int64_t rows = args.x.shape[1];
  const std::int64_t columns = args.x.shape[2];
  dispatch(args.y.dtype, [&]<class To>() {
    dispatch(args.x.dtype, [&]<class From>() {
      for (std::int64_t k = 0; k < args.x.shape[0]; ++k)
        transpose_matrix(args.y.as<To>() + k * rows * columns,
                         args.x.as<From>() + k * rows * columns, rows, columns);
    });
  });
}

const KernelRegistration kRegistration(&transpose);

}  // namespace
}  // namespace muo::host
