// What the self-test's kernels take of a GPU, for which nobody compiles them: little, but for the
// planted bugs.

#include "emulator/gpu.h"
#include "emulator/selftest/cases.h"

namespace muo::simt {

std::optional<KernelResources> find_resources(const std::string& kernel) {
  const auto has = [&kernel](const char* part) { return kernel.find(part) != std::string::npos; };
  if (has("of_no_table")) return std::nullopt;
  const unsigned registers = has("many_registers") ? selftest::kManyRegisters : 32;
  const unsigned most_threads = has("bounded") ? selftest::kValues : 0;
  const std::size_t shared_bytes = has("shared_in_kernel") ? selftest::kSharedInKernel : 0;
  return KernelResources{
      .most_threads = most_threads,
      .parameter_bytes = std::nullopt,
      .on = {
          {registers, shared_bytes}, {registers, shared_bytes}, {registers, shared_bytes}, {1, 0}}};
}

}  // namespace muo::simt
