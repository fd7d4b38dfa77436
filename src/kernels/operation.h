#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <typeindex>
#include <vector>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// The operations of the program, one per type of arguments. The list exists so that the CUDA
// plug-in can register its kernels and a test can name those that lack one.
class OperationBase {
 public:
  OperationBase(std::string_view name, std::type_index arguments);
  OperationBase(const OperationBase&) = delete;
  OperationBase& operator=(const OperationBase&) = delete;
  ~OperationBase() = default;

  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] std::type_index arguments() const { return arguments_; }
  [[nodiscard]] bool has_cuda() const { return cuda_ != nullptr; }

  static std::span<OperationBase* const> all();

 protected:
  using AnyFunction = void (*)();
  AnyFunction cuda_ = nullptr;

 private:
  std::string_view name_;
  std::type_index arguments_;

  template <class Args>
  friend void register_cuda_kernel(void (*kernel)(NativeStream, const Args&));
};

// What an operation writes, reads, and does both to (in-out); absent tensors are skipped.
struct Touched {
  std::initializer_list<Tensor> writes;
  std::initializer_list<Tensor> updates = {};
  std::initializer_list<Tensor> reads;
};

// An operation is a POD of arguments and one function per backend. Define one per operation at
// namespace scope in the family's .cpp; the front function checks the arguments, then submits.
// Dispatch happens once, at capture; a replay calls the implementation directly.
template <class Args>
class Operation final : public OperationBase {
  static_assert(std::is_trivially_copyable_v<Args>);

 public:
  using HostKernel = void (*)(const Args&);
  using CudaKernel = void (*)(NativeStream, const Args&);
  using CostOf = Cost (*)(const Args&);  // of the host's kernel

  // `cost`: of an operation that memory does not bind, or that does not move all that it accesses.
  Operation(std::string_view name, HostKernel host, CostOf cost = nullptr)
      : OperationBase(name, typeid(Args)), host_(host), cost_(cost) {}

  void submit(Stream& stream, const Args& args, const Touched& touched) const {
    if (stream.is_host()) {
      std::array<Access, 32> list;  // more than any operation has; .at() checks
      std::size_t count = 0;
      for (const Tensor& t : touched.writes)
        if (t) list.at(count++) = access_of(t, true);
      for (const Tensor& t : touched.updates)
        if (t) list.at(count++) = access_of(t, true, /*reads_too=*/true);
      for (const Tensor& t : touched.reads)
        if (t) list.at(count++) = access_of(t, false);
      stream.enqueue_host(name(), {list.data(), count}, [host = host_, args] { host(args); });
      if (cost_ != nullptr) stream.note_cost(cost_(args));
    } else {
      MUO_CHECK(has_cuda(), "operation '", name(), "' has no CUDA kernel");
      reinterpret_cast<CudaKernel>(cuda_)(stream.native(), args);
    }
  }

 private:
  HostKernel host_;
  CostOf cost_;
};

template <class Args>
void register_cuda_kernel(void (*kernel)(NativeStream, const Args&)) {
  for (OperationBase* operation : OperationBase::all())
    if (operation->arguments() == std::type_index(typeid(Args)))
      operation->cuda_ = reinterpret_cast<OperationBase::AnyFunction>(kernel);
}

}  // namespace muo
