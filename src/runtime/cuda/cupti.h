#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// The part of CUPTI's C interface that is used, declared here because builds need not have its
// headers. cupti_interface.cpp compares it with them where they are installed.

struct CUpti_Subscriber_st;  // CUPTI's own
struct CUctx_st;
struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphExec_st;

namespace muo::cupti {

using Result = int;  // CUptiResult
inline constexpr Result kSuccess = 0, kMultipleSubscribers = 39;

using Subscriber = CUpti_Subscriber_st*;
enum class Domain : int { kRuntimeApi = 2, kResource = 3 };
inline constexpr std::uint32_t kNodeCreated = 13, kNodeCloned = 20;  // of kResource
inline constexpr std::uint32_t kGraphLaunch = 311;                   // of kRuntimeApi
inline constexpr int kApiEnter = 0;

struct ResourceData {
  CUctx_st* context;
  void* resource;
  void* descriptor;  // a GraphData
};
struct GraphData {
  CUgraph_st* graph;
  CUgraph_st* original_graph;
  CUgraphNode_st* node;
  CUgraphNode_st* original_node;
};
struct CallbackData {
  int site;
  const char* function_name;
  const void* parameters;
  void* return_value;
  const char* symbol_name;
  CUctx_st* context;
  std::uint32_t context_id;
  std::uint64_t* correlation_data;
  std::uint32_t correlation;
};

enum class Activity : int { kCopy = 1, kFill = 2, kKernel = 10 };

// Prefixes of activity records: of CUpti_ActivityKernel9, ActivityMemcpy6, ActivityMemset4 and
// later ones. Times are in nanoseconds; 0: unknown.
struct Record {
  Activity kind;
};
struct [[gnu::packed, gnu::aligned(8)]] KernelRecord {
  Activity kind;
  std::byte before_start[12];
  std::uint64_t start, end;
  std::byte before_correlation[60];
  std::uint32_t correlation;
  std::int64_t grid;
  const char* name;
  std::byte before_node[32];
  std::uint64_t graph_node;  // 0: not of a graph
};
struct [[gnu::packed, gnu::aligned(8)]] TransferRecord {  // of a copy or a fill
  Activity kind;
  std::byte before_start[12];
  std::uint64_t start, end;
  std::byte before_correlation[12];
  std::uint32_t correlation;
  std::byte before_node[16];
  std::uint64_t graph_node;
};
using Callback = void (*)(void* user_data, Domain domain, std::uint32_t id, const void* data);
using RequestBuffer = void (*)(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records);
using CompleteBuffer = void (*)(CUctx_st* context, std::uint32_t stream, std::uint8_t* buffer,
                                std::size_t size, std::size_t valid);
inline constexpr std::uint32_t kForcedFlush = 1;

struct Functions {
  Result (*subscribe)(Subscriber* subscriber, Callback callback, void* user_data) = nullptr;
  Result (*enable_callback)(std::uint32_t enable, Subscriber subscriber, Domain domain,
                            std::uint32_t id) = nullptr;
  Result (*register_callbacks)(RequestBuffer request, CompleteBuffer complete) = nullptr;
  Result (*enable)(Activity kind) = nullptr;
  Result (*disable)(Activity kind) = nullptr;
  Result (*flush)(std::uint32_t flags) = nullptr;
  Result (*next_record)(std::uint8_t* buffer, std::size_t valid, Record** record) = nullptr;
  Result (*dropped_records)(CUctx_st* context, std::uint32_t stream, std::size_t* count) = nullptr;
  Result (*timestamp)(std::uint64_t* nanoseconds) = nullptr;
  Result (*node_id)(CUgraphNode_st* node, std::uint64_t* id) = nullptr;
  Result (*executable_id)(CUgraphExec_st* executable, std::uint32_t* id) = nullptr;
  Result (*result_text)(Result result, const char** text) = nullptr;
};

// Loads libcupti.so for the life of the process. Returns an empty string, or one line that says why
// that is not possible.
std::string load(Functions& functions);

}  // namespace muo::cupti
