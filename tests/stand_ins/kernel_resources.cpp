// Resources of the project's kernels as nvcc compiled them.

#include <algorithm>
#include <string_view>

#include "emulator/gpu.h"

namespace muo::simt {
namespace {

struct Named {
  std::string_view kernel;
  KernelResources resources;
};

// Sorted by name.
constexpr Named kTable[] = {
#include "stand_ins/kernel_resources.inc"
};

}  // namespace

std::optional<KernelResources> find_resources(const std::string& kernel) {
  const auto* found = std::ranges::lower_bound(kTable, kernel, {}, &Named::kernel);
  if (found == std::end(kTable) || found->kernel != kernel) return std::nullopt;
  return found->resources;
}

}  // namespace muo::simt
