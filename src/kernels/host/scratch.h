#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace muo::host {

// Memory of one thread that a kernel keeps between its calls: make it thread_local. On a cache
// line, as vectors across two lines cost twice. It grows at the first calls only.
class Scratch {
 public:
  // At least `count` floats, of any value.
  float* floats(std::int64_t count) {
    if (count > size_) {
      memory_.reset();  // before the new one is there: the peak is the larger of both
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
