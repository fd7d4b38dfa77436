#include "app/report/operation_times.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "runtime/comm/collective.h"

namespace muo {
namespace {

// Reduced precision names the arithmetic: weight gradients of bf16 are fp32.
DType dtype_of_node(const GraphTrace::Node& node) {
  for (const DType dtype : {DType::kBF16, DType::kF32})
    if (std::ranges::find(node.accesses, dtype, &Access::dtype) != node.accesses.end())
      return dtype;
  return node.accesses.empty() ? DType::kBytes : node.accesses.front().dtype;
}

double bytes_of(const GraphTrace::Node& node) {
  if (node.cost.bytes > 0) return node.cost.bytes;
  double bytes = 0;
  for (const Access& access : node.accesses)
    bytes += static_cast<double>(access.bytes) * (access.reads_too ? 2 : 1);
  return bytes;
}

OperationTime& row_of(std::vector<OperationTime>& rows, const OperationTime& kind) {
  for (OperationTime& row : rows)
    if (row.name == kind.name && row.shape == kind.shape && row.phase == kind.phase &&
        row.dtype == kind.dtype)
      return row;
  return rows.emplace_back(OperationTime{
      .name = kind.name, .shape = kind.shape, .phase = kind.phase, .dtype = kind.dtype});
}

}  // namespace

bool OperationTime::is_collective() const {
  for (int kind = 0; kind <= static_cast<int>(CollectiveKind::kAllToAll); ++kind)
    if (name == name_of(static_cast<CollectiveKind>(kind))) return true;
  return false;
}

void add_operations(std::vector<OperationTime>& rows, const GraphTrace& trace,
                    std::span<const NodeTime> times) {
  MUO_CHECK(trace.nodes.size() == times.size(), trace.nodes.size(), " nodes, times of ",
            times.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    const GraphTrace::Node& node = trace.nodes[i];
    OperationTime& row = row_of(rows, {.name = node.name.substr(0, node.name.find(" #")),
                                       .shape = node.cost.shape,
                                       .phase = std::string(node.phase),
                                       .dtype = dtype_of_node(node)});
    const auto calls = static_cast<double>(times[i].calls);
    row.calls += times[i].calls;
    row.seconds += times[i].thread;
    row.waited += times[i].wall - times[i].thread;
    row.flops += calls * node.cost.flops;
    row.bytes += calls * bytes_of(node);
  }
}

void add_operations(std::vector<OperationTime>& rows, std::span<const OperationTime> more) {
  for (const OperationTime& other : more) {
    OperationTime& row = row_of(rows, other);
    row.calls += other.calls;
    row.seconds += other.seconds;
    row.waited += other.waited;
    row.flops += other.flops;
    row.bytes += other.bytes;
  }
}

}  // namespace muo
