// Compares our declarations of NCCL's interface with its header, if that is installed.
#if __has_include(<nccl.h>)

#  include <type_traits>

#  include <nccl.h>

#  include "runtime/cuda/called_alike.h"
#  include "runtime/cuda/nccl_library.h"

namespace muo::nccl {
namespace {

template <class Ours, class Theirs>
constexpr bool equal(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}

static_assert(sizeof(Result) == sizeof(ncclResult_t) && sizeof(Type) == sizeof(ncclDataType_t) &&
              sizeof(Op) == sizeof(ncclRedOp_t) && sizeof(UniqueId) == sizeof(ncclUniqueId) &&
              std::is_same_v<Comm, ncclComm_t> && std::is_same_v<NativeStream, cudaStream_t>);
static_assert(equal(Result::kSuccess, ncclSuccess) && equal(Result::kInProgress, ncclInProgress) &&
              equal(Result::kRemoteError, ncclRemoteError) &&
              equal(Result::kInvalidUsage, ncclInvalidUsage));
static_assert(equal(Type::kUint8, ncclUint8) && equal(Type::kInt32, ncclInt32) &&
              equal(Type::kInt64, ncclInt64) && equal(Type::kFloat32, ncclFloat32) &&
              equal(Type::kFloat64, ncclFloat64) && equal(Type::kBfloat16, ncclBfloat16) &&
              equal(Op::kSum, ncclSum));
static_assert(NCCL_CONFIG_UNDEF_INT == Config::kUnset);

#  define MUO_SAME_PLACE(ours, theirs)                                        \
    static_assert(offsetof(Config, ours) == offsetof(ncclConfig_t, theirs) && \
                  std::is_same_v<decltype(Config::ours), decltype(ncclConfig_t::theirs)>)
MUO_SAME_PLACE(size, size);
MUO_SAME_PLACE(magic, magic);
MUO_SAME_PLACE(version, version);
MUO_SAME_PLACE(blocking, blocking);
MUO_SAME_PLACE(max_ctas, maxCTAs);
#  if NCCL_VERSION_CODE >= 22800
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));
MUO_SAME_PLACE(comm_name, commName);
MUO_SAME_PLACE(nvlink_centric_sched, nvlinkCentricSched);
#  endif
#  undef MUO_SAME_PLACE

#  define MUO_CALLED_ALIKE(ours, theirs) \
    static_assert(called_alike_v<decltype(Functions::ours), decltype(&(theirs))>)
MUO_CALLED_ALIKE(get_version, ncclGetVersion);
MUO_CALLED_ALIKE(get_unique_id, ncclGetUniqueId);
MUO_CALLED_ALIKE(init_rank, ncclCommInitRankConfig);
MUO_CALLED_ALIKE(finalize, ncclCommFinalize);
MUO_CALLED_ALIKE(destroy, ncclCommDestroy);
MUO_CALLED_ALIKE(abort, ncclCommAbort);
MUO_CALLED_ALIKE(get_async_error, ncclCommGetAsyncError);
MUO_CALLED_ALIKE(get_error_string, ncclGetErrorString);
MUO_CALLED_ALIKE(get_last_error, ncclGetLastError);
MUO_CALLED_ALIKE(reduce, ncclReduce);
MUO_CALLED_ALIKE(broadcast, ncclBroadcast);
MUO_CALLED_ALIKE(all_reduce, ncclAllReduce);
MUO_CALLED_ALIKE(reduce_scatter, ncclReduceScatter);
MUO_CALLED_ALIKE(all_gather, ncclAllGather);
MUO_CALLED_ALIKE(send, ncclSend);
MUO_CALLED_ALIKE(receive, ncclRecv);
MUO_CALLED_ALIKE(group_start, ncclGroupStart);
MUO_CALLED_ALIKE(group_end, ncclGroupEnd);
#  undef MUO_CALLED_ALIKE

}  // namespace
}  // namespace muo::nccl

#endif
