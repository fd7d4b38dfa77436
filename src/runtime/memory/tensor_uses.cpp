#include "runtime/memory/tensor_uses.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace muo {

void for_each_use(const TraceArena& arena, const GraphTrace& graph, const TensorUse& visit) {
  const auto tensors = arena.tensors();  // by ascending address
  if (tensors.empty()) return;
  for (std::uint32_t node = 0; node < graph.nodes.size(); ++node) {
    for (const bool write : {false, true}) {
      for (const Access& access : graph.nodes[node].accesses) {
        if (access.write != write || access.bytes == 0 || !arena.owns(access.data)) continue;
        const auto after = std::upper_bound(
            tensors.begin(), tensors.end(), access.data,
            [](const std::byte* address, const Tensor& t) { return address < t.data; });
        const auto index = static_cast<std::size_t>(std::distance(tensors.begin(), after)) - 1;
        const std::int64_t offset = access.data - tensors[index].data;
        MUO_CHECK(offset + access.bytes <= tensors[index].bytes(), "'", graph.nodes[node].name,
                  "' (node ", node, ") touches bytes [", offset, ", ", offset + access.bytes,
                  ") of '", arena.specs()[index].name, "', which has ", tensors[index].bytes());
        visit(node, index, offset, access);
      }
    }
  }
}

}  // namespace muo
