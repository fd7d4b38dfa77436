#include "runtime/memory/common_memory.h"

#include "base/check.h"

namespace muo {

std::byte* CommonMemory::take(Device& device, std::int64_t bytes, std::string_view what) {
  const std::lock_guard lock(mutex_);
  const std::size_t piece = taken_.at(static_cast<std::size_t>(device.rank()))++;
  if (piece == pieces_.size()) pieces_.push_back(device.allocate(bytes, what));
  MUO_CHECK(pieces_[piece]->bytes() == bytes, what, ": rank ", device.rank(), " asks for ", bytes,
            " bytes, another for ", pieces_[piece]->bytes());
  return pieces_[piece]->data();
}

}  // namespace muo
