// Compares our declarations of CUPTI's interface with its headers, if they are installed.
#if __has_include(<cupti.h>)

#  include <cupti.h>

#  include <type_traits>

#  include "runtime/cuda/called_alike.h"
#  include "runtime/cuda/cupti.h"

namespace muo::cupti {
namespace {

static_assert(sizeof(Result) == sizeof(CUptiResult) &&
              sizeof(Domain) == sizeof(CUpti_CallbackDomain) &&
              sizeof(Activity) == sizeof(CUpti_ActivityKind) &&
              std::is_same_v<Subscriber, CUpti_SubscriberHandle>);
static_assert(kSuccess == CUPTI_SUCCESS &&
              kMultipleSubscribers == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED &&
              static_cast<int>(Domain::kRuntimeApi) == CUPTI_CB_DOMAIN_RUNTIME_API &&
              static_cast<int>(Domain::kResource) == CUPTI_CB_DOMAIN_RESOURCE &&
              kNodeCreated == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED &&
              kNodeCloned == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED &&
              kGraphLaunch == CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000 &&
              kApiEnter == CUPTI_API_ENTER &&
              static_cast<int>(Activity::kCopy) == CUPTI_ACTIVITY_KIND_MEMCPY &&
              static_cast<int>(Activity::kFill) == CUPTI_ACTIVITY_KIND_MEMSET &&
              static_cast<int>(Activity::kKernel) == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL &&
              kForcedFlush == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);

#  define MUO_SAME_PLACE(Ours, ours, Theirs, theirs)                  \
    static_assert(offsetof(Ours, ours) == offsetof(Theirs, theirs) && \
                  sizeof(Ours::ours) == sizeof(Theirs::theirs))
MUO_SAME_PLACE(ResourceData, descriptor, CUpti_ResourceData, resourceDescriptor);
MUO_SAME_PLACE(GraphData, node, CUpti_GraphData, node);
MUO_SAME_PLACE(GraphData, original_node, CUpti_GraphData, originalNode);
MUO_SAME_PLACE(CallbackData, site, CUpti_CallbackData, callbackSite);
MUO_SAME_PLACE(CallbackData, correlation, CUpti_CallbackData, correlationId);
#  define MUO_SAME_RECORD(Ours, Theirs)                       \
    MUO_SAME_PLACE(Ours, kind, Theirs, kind);                 \
    MUO_SAME_PLACE(Ours, start, Theirs, start);               \
    MUO_SAME_PLACE(Ours, end, Theirs, end);                   \
    MUO_SAME_PLACE(Ours, correlation, Theirs, correlationId); \
    MUO_SAME_PLACE(Ours, graph_node, Theirs, graphNodeId);    \
    static_assert(sizeof(Ours) <= sizeof(Theirs))
MUO_SAME_RECORD(KernelRecord, CUpti_ActivityKernel9);
MUO_SAME_PLACE(KernelRecord, name, CUpti_ActivityKernel9, name);
MUO_SAME_RECORD(TransferRecord, CUpti_ActivityMemcpy6);
MUO_SAME_RECORD(TransferRecord, CUpti_ActivityMemset4);

#  define MUO_CALLED_ALIKE(ours, theirs) \
    static_assert(called_alike_v<decltype(Functions::ours), decltype(&theirs)>)
MUO_CALLED_ALIKE(subscribe, cuptiSubscribe);
MUO_CALLED_ALIKE(enable_callback, cuptiEnableCallback);
MUO_CALLED_ALIKE(register_callbacks, cuptiActivityRegisterCallbacks);
MUO_CALLED_ALIKE(enable, cuptiActivityEnable);
MUO_CALLED_ALIKE(disable, cuptiActivityDisable);
MUO_CALLED_ALIKE(flush, cuptiActivityFlushAll);
MUO_CALLED_ALIKE(next_record, cuptiActivityGetNextRecord);
MUO_CALLED_ALIKE(dropped_records, cuptiActivityGetNumDroppedRecords);
MUO_CALLED_ALIKE(timestamp, cuptiGetTimestamp);
MUO_CALLED_ALIKE(node_id, cuptiGetGraphNodeId);
MUO_CALLED_ALIKE(executable_id, cuptiGetGraphExecId);
MUO_CALLED_ALIKE(result_text, cuptiGetResultString);
static_assert(std::is_same_v<RequestBuffer, CUpti_BuffersCallbackRequestFunc> &&
              std::is_same_v<CompleteBuffer, CUpti_BuffersCallbackCompleteFunc>);

}  // namespace
}  // namespace muo::cupti

#endif
