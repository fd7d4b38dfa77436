#include "runtime/cuda/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "runtime/cuda/find_function.h"

namespace muo::nccl {
namespace {

constexpr const char* kAdvice = "; or use --comm peer";

// The first function that the library lacks, or null.
const char* find_all(void* library, Functions& f) {
  const char* lacks = nullptr;
  const auto get = [&](const char* name, auto*& function) {
    if (!cuda::find_function(library, name, function) && lacks == nullptr) lacks = name;
  };
  get("ncclGetVersion", f.get_version);
  get("ncclGetUniqueId", f.get_unique_id);
  get("ncclCommInitRankConfig", f.init_rank);
  get("ncclCommFinalize", f.finalize);
  get("ncclCommDestroy", f.destroy);
  get("ncclCommAbort", f.abort);
  get("ncclCommGetAsyncError", f.get_async_error);
  get("ncclGetErrorString", f.get_error_string);
  get("ncclGetLastError", f.get_last_error);
  get("ncclReduce", f.reduce);
  get("ncclBroadcast", f.broadcast);
  get("ncclAllReduce", f.all_reduce);
  get("ncclReduceScatter", f.reduce_scatter);
  get("ncclAllGather", f.all_gather);
  get("ncclSend", f.send);
  get("ncclRecv", f.receive);
  get("ncclGroupStart", f.group_start);
  get("ncclGroupEnd", f.group_end);
  return lacks;
}

}  // namespace

std::string version_text(int version) {
  return concat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

Library load(const char* path) {
  Library library;
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe)
    library.missing = concat("NCCL does not load: ", why, "; install version ",
                             version_text(kOldestVersion), " or newer", kAdvice);
    return library;
  }
  const char* lacks = find_all(handle, library.functions);
  const bool has_version = library.functions.get_version != nullptr &&
                           library.functions.get_version(&library.version) == Result::kSuccess;
  if (!has_version || library.version < kOldestVersion)
    library.missing =
        concat("NCCL ", has_version ? version_text(library.version) : "of an unknown version", " (",
               path, ") is too old: install ", version_text(kOldestVersion), " or newer", kAdvice);
  else if (lacks != nullptr)
    library.missing = concat("NCCL ", version_text(library.version), " (", path, ") lacks ", lacks,
                             ": reinstall it", kAdvice);
  return library;
}

bool may_share_gpus(const Library& library) {
  const char* set = std::getenv(kSharingVariable);  // NOLINT(concurrency-mt-unsafe)
  return library.version >= kOldestSharingVersion && set != nullptr && std::string_view(set) == "1";
}

void set_environment() {
  constexpr std::pair<const char*, const char*> kSettings[] = {{"NCCL_ALGO", "Ring"},
                                                               {"NCCL_PROTO", "Simple"},
                                                               {"NCCL_NVLS_ENABLE", "0"},
                                                               {"NCCL_GRAPH_MIXING_SUPPORT", "0"}};
  for (const auto& [name, value] : kSettings)  // before the ranks' threads begin
    setenv(name, value, /*overwrite=*/0);      // NOLINT(concurrency-mt-unsafe)
}

}  // namespace muo::nccl
