#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <typeindex>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// What an operation runs, by backend: the kernel for one type of arguments.
struct Kernels {
  using AnyFunction = void (*)();
  AnyFunction host = nullptr;  // void (*)(const Args&)
  AnyFunction cuda = nullptr;  // void (*)(NativeStream, const Args&)
};
// The one entry of a type of arguments, made where it is first asked for.
Kernels& kernels_of(std::type_index arguments);

// At the end of a backend's file: makes its kernels known when the library that holds them is
// loaded. One for each type of arguments.
struct KernelRegistration {
  template <class... Args>
  explicit KernelRegistration(void (*... kernels)(const Args&)) {
    ((kernels_of(typeid(Args)).host = reinterpret_cast<Kernels::AnyFunction>(kernels)), ...);
  }
  template <class... Args>
  explicit KernelRegistration(void (*... kernels)(NativeStream, const Args&)) {
    ((kernels_of(typeid(Args)).cuda = reinterpret_cast<Kernels::AnyFunction>(kernels)), ...);
  }
};

// The operations of the program, one per type of arguments. The list exists so that a test can name
// those that a backend lacks.
class OperationBase {
 public:
  OperationBase(std::string_view name, std::type_index arguments);
  OperationBase(const OperationBase&) = delete;
  OperationBase& operator=(const OperationBase&) = delete;
  ~OperationBase() = default;

  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] std::type_index arguments() const { return arguments_; }
  [[nodiscard]] bool has_host() const { return kernels_.host != nullptr; }
  [[nodiscard]] bool has_cuda() const { return kernels_.cuda != nullptr; }

  static std::span<OperationBase* const> all();

 protected:
  const Kernels& kernels_;

 private:
  std::string_view name_;
  std::type_index arguments_;
};

// What an operation writes, reads, and does both to (in-out); absent tensors are skipped.
struct Touched {
  std::initializer_list<Tensor> writes;
  std::initializer_list<Tensor> updates = {};
  std::initializer_list<Tensor> reads;
};

// An operation is a POD of arguments and a kernel per backend. Define one per operation at
// namespace scope in the family's .cpp; the front function checks the arguments, then submits.
// Dispatch happens once, at capture; a replay calls the kernel directly.
template <class Args>
class Operation final : public OperationBase {
  static_assert(std::is_trivially_copyable_v<Args>);

 public:
  using CostOf = Cost (*)(const Args&);  // of the host's kernel

  // `cost`: of an operation that memory does not bind, or that does not move all that it accesses.
  explicit Operation(std::string_view name, CostOf cost = nullptr)
      : OperationBase(name, typeid(Args)), cost_(cost) {}

  void submit(Stream& stream, const Args& args, const Touched& touched) const {
    const bool host = stream.is_host();
    MUO_CHECK(host ? has_host() : has_cuda(), "operation '", name(), "' has no ",
              host ? "host" : "CUDA", " kernel");
    if (!host) {
      using Cuda = void (*)(NativeStream, const Args&);
      reinterpret_cast<Cuda>(kernels_.cuda)(stream.native(), args);
      return;
    }
    std::array<Access, 32> list;  // more than any operation has; .at() checks
    std::size_t count = 0;
    for (const Tensor& t : touched.writes)
      if (t) list.at(count++) = access_of(t, true);
    for (const Tensor& t : touched.updates)
      if (t) list.at(count++) = access_of(t, true, /*reads_too=*/true);
    for (const Tensor& t : touched.reads)
      if (t) list.at(count++) = access_of(t, false);
    using Host = void (*)(const Args&);
    const auto kernel = reinterpret_cast<Host>(kernels_.host);
    stream.enqueue_host(name(), {list.data(), count}, [kernel, args] { kernel(args); });
    if (cost_ != nullptr) stream.note_cost(cost_(args));
  }

 private:
  CostOf cost_;
};

}  // namespace muo
