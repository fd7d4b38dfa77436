#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "runtime/stream.h"

struct ncclComm;  // NCCL's own

// The part of NCCL's C interface that is used. It is declared here and loaded at run time, so that
// building needs no NCCL; if its header is found, nccl_interface.cpp compares the two.
namespace muo::nccl {

using Comm = ncclComm*;

struct UniqueId {
  char bytes[128];
};

enum class Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};
enum class Type : int {
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};
enum class Op : int { kSum = 0 };

// Layout of version 2.28; later versions recognise it by its size.
struct Config {
  static constexpr int kUnset = std::numeric_limits<int>::min();

  std::size_t size = sizeof(Config);
  unsigned magic = 0xCAFEBEEF;
  unsigned version = 22800;
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;
  int max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
  int traffic_class = kUnset;
  const char* comm_name = nullptr;
  int collnet_enable = kUnset;
  int cta_policy = kUnset;
  int shrink_share = kUnset;
  int nvls_ctas = kUnset;
  int channels_per_net_peer = kUnset;
  int nvlink_centric_sched = kUnset;
};

struct Functions {
  Result (*get_version)(int* version);
  Result (*get_unique_id)(UniqueId* id);
  Result (*init_rank)(Comm* comm, int world, UniqueId id, int rank, Config* config);
  Result (*finalize)(Comm comm);
  Result (*destroy)(Comm comm);
  Result (*abort)(Comm comm);
  Result (*get_async_error)(Comm comm, Result* error);
  const char* (*get_error_string)(Result result);
  const char* (*get_last_error)(Comm comm);
  Result (*reduce)(const void* in, void* out, std::size_t count, Type type, Op op, int root,
                   Comm comm, NativeStream stream);
  Result (*broadcast)(const void* in, void* out, std::size_t count, Type type, int root, Comm comm,
                      NativeStream stream);
  Result (*all_reduce)(const void* in, void* out, std::size_t count, Type type, Op op, Comm comm,
                       NativeStream stream);
  Result (*reduce_scatter)(const void* in, void* out, std::size_t out_count, Type type, Op op,
                           Comm comm, NativeStream stream);
  Result (*all_gather)(const void* in, void* out, std::size_t in_count, Type type, Comm comm,
                       NativeStream stream);
  Result (*send)(const void* in, std::size_t count, Type type, int peer, Comm comm,
                 NativeStream stream);
  Result (*receive)(void* out, std::size_t count, Type type, int peer, Comm comm,
                    NativeStream stream);
  Result (*group_start)();
  Result (*group_end)();
};

inline constexpr int kOldestVersion = 22800;
std::string version_text(int version);  // 22809: "2.28.9"

struct Library {
  Functions functions{};
  int version = 0;
  std::string missing = {};  // empty, or one line: the problem and the remedy
};

// Loads the library for the life of the process. `path`: as for dlopen.
Library load(const char* path);

// Several ranks on one GPU: since this version, if the variable is 1 in the environment.
inline constexpr int kOldestSharingVersion = 23000;
inline constexpr const char* kSharingVariable = "NCCL_MULTI_RANK_GPU_ENABLE";
bool may_share_gpus(const Library& library);

// Sets environment variables that NCCL reads when the first communicator is made, except those
// already set. A fixed algorithm and protocol, and no NVLS, whose order depends on memory
// addresses, give the same sums in every run. A communicator is used either by graphs or eagerly,
// so NCCL need not order the two by events.
void set_environment();

}  // namespace muo::nccl
