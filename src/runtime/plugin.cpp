#include "runtime/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/check.h"
#include "runtime/plugin_entry.h"

namespace muo {
namespace {

// Folder of the plug-ins, which is that of the core library; builds of the core for newer CPUs are
// in glibc-hwcaps/<level> there.
std::filesystem::path folder_of_plugins() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&load_cuda), &info) == 0) return {};
  const auto folder = std::filesystem::path(info.dli_fname).parent_path();
  const auto above = folder.parent_path();
  return above.filename() == "glibc-hwcaps" ? above.parent_path() : folder;
}

LoadedPlugin open_plugin(const std::string& file) {
  LoadedPlugin loaded;
  void* library = open_beside_core(file, loaded.missing);
  if (library == nullptr) return loaded;
  using Entry = const BackendPlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "muograph_backend_plugin"));
  loaded.plugin = of_this_build(entry);
  if (loaded.plugin == nullptr)
    loaded.missing = concat((folder_of_plugins() / file).string(),
                            " belongs to another version of muograph: rebuild all of it");
  return loaded;
}

// Keeps values that the user has set. CUDA reads them once, at its first call; no other thread runs
// yet.
// NOLINTBEGIN(concurrency-mt-unsafe)
void set_environment_for_cuda() {
  // Hardware queues: with the default of 8, kernels of one stream can hold up another's.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // Loads only the used parts of cuBLASLt and cuDNN, instead of gigabytes and seconds per process.
  // No kernel remains to be loaded when collectives run: warm_up_and_capture() ensures that.
  setenv("CUDA_MODULE_LOADING", "LAZY", 0);
}
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace

void* open_beside_core(const std::string& file, std::string& missing) {
  const std::filesystem::path path = folder_of_plugins() / file;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    missing = concat("this build has no ", file);
    return nullptr;
  }
  // Never unloaded: functions that it registered, or threads that it started, may run until the
  // process ends.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr)
    missing = concat(file, " does not load: ", dlerror());  // NOLINT(concurrency-mt-unsafe)
  return library;
}

LoadedPlugin load_plugin(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, LoadedPlugin, std::less<>> loaded;
  const std::lock_guard lock(mutex);
  const auto found = loaded.find(name);
  if (found != loaded.end()) return found->second;
  return loaded.emplace(name, open_plugin(concat("lib", name, ".so"))).first->second;
}

LoadedPlugin load_cuda() {
  set_environment_for_cuda();
  const char* stand_in = std::getenv("MUO_CUDA_PLUGIN");  // NOLINT(concurrency-mt-unsafe)
  LoadedPlugin cuda = load_plugin(stand_in != nullptr ? stand_in : "muograph_cuda");
  if (cuda.plugin == nullptr) {
    if (cuda.missing.find("cannot open shared object file") != std::string::npos)
      cuda.missing += "; install CUDA 13's libraries, or add their folder to LD_LIBRARY_PATH";
    return cuda;
  }
  std::string missing = cuda.plugin->missing();
  if (!missing.empty()) return {.plugin = nullptr, .missing = std::move(missing)};
  return cuda;
}

}  // namespace muo
