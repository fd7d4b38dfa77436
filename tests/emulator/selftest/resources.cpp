// Resources of the self-test's kernels, which are not compiled for a GPU: small, except in planted
// bugs.

#include "emulator/gpu.h"
#include "emulator/selftest/cases.h"

namespace muo::simt {

std::optional<KernelResources> find_resources(const std::string& kernel) {
  const auto has = [&kernel](const char* part) { return kernel.find(part) != std::string::npos; };
  if (has("of_no_table")) return std::nullopt;
  const unsigned registers = has("many_registers") ? selftest::kManyRegisters : 32;
  const unsigned max_threads = has("bounded") ? selftest::kValues : 0;
  const std::size_t shared_bytes = has("shared_in_kernel") ? selftest::kSharedInKernel : 0;
  return KernelResources{
      .max_threads = max_threads,
      .parameter_bytes = std::nullopt,
      .on = {
          {registers, shared_bytes}, {registers, shared_bytes}, {registers, shared_bytes}, {1, 0}}};
}

}  // namespace muo::simt
