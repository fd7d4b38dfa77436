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

// The kernel of each backend for one type of arguments; null if a backend has none.
struct Kernels {
  using AnyFunction = void (*)();
  AnyFunction host = nullptr;  // void (*)(const Args&)
  AnyFunction cuda = nullptr;  // void (*)(NativeStream, const Args&)
};
// Returns the entry for a type of arguments, which is created at first use.
Kernels& kernels_of(std::type_index arguments);

// Registers the kernels in a backend's file when the library that contains them is loaded; at most
// one kernel per type of arguments. Define it at the end of the file.
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

// An operation, one per type of arguments. all() lists them so that a test can find those that a
// backend lacks.
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

// The tensors that an operation writes, updates in place (in-out) and reads. Absent
// tensors are skipped.
struct Touched {
  std::initializer_list<Tensor> writes;
  std::initializer_list<Tensor> updates = {};
  std::initializer_list<Tensor> reads;
};

// An operation: a POD of arguments and a kernel per backend. Define one object per operation at
// namespace scope in its .cpp; the public function checks the arguments, then calls submit.
// Dispatch happens once, at capture; a replay calls the kernel directly.
template <class Args>
class Operation final : public OperationBase {
  static_assert(std::is_trivially_copyable_v<Args>);

 public:
  using CostOf = Cost (*)(const Args&);  // cost of the host's kernel

  // Give `cost` if memory bandwidth does not bound the operation, or if the operation does not move
  // all bytes of its tensors.
  explicit Operation(std::string_view name, CostOf cost = nullptr)
      : OperationBase(name, typeid(Args)), cost_(cost) {}

  void submit(Stream& stream, const Args& args, const Touched& touched) const {
    const bool host = stream.is_host();
    MUO_CHECK(host ? has_host() : has_cuda(), "operation '", name(), "' has no ",
              host ? "host" : "CUDA", " kernel");
    std::array<Access, 32> list;  // more than any operation has; .at() checks
    std::size_t count = 0;
    for (const Tensor& t : touched.writes)
      if (t) list.at(count++) = access_of(t, true);
    for (const Tensor& t : touched.updates)
      if (t) list.at(count++) = access_of(t, true, /*reads_too=*/true);
    for (const Tensor& t : touched.reads)
      if (t) list.at(count++) = access_of(t, false);
    bool has_cost = cost_ != nullptr;
    if (host) {
      using Host = void (*)(const Args&);
      const auto kernel = reinterpret_cast<Host>(kernels_.host);
      stream.enqueue_host(name(), {list.data(), count}, [kernel, args] { kernel(args); });
    } else {
      has_cost &= stream.add_node(name(), {list.data(), count});
      using Cuda = void (*)(NativeStream, const Args&);
      reinterpret_cast<Cuda>(kernels_.cuda)(stream.native(), args);
    }
    if (has_cost) stream.note_cost(cost_(args));
  }

 private:
  CostOf cost_;
};

}  // namespace muo
