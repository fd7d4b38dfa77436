#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace muo::host {

// Scratch memory of a kernel that is reused between calls; declare it thread_local. It only
// grows. It is aligned to cache lines, because accesses to vectors that straddle two lines
// cost twice as much.
class Scratch {
 public:
  // Returns at least `count` uninitialised floats, valid until the next call.
  float* floats(std::int64_t count) {
    if (count > size_) {
      memory_.reset();  // before the allocation, so that the two never coexist
      memory_.reset(static_cast<float*>(
          ::operator new(static_cast<std::size_t>(count) * sizeof(float), kAlignment)));
      size_ = count;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<float, Free> memory_;
  std::int64_t size_ = 0;
};

}  // namespace muo::host
