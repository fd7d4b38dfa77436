// A profiler for tests. NVTX loads it from NVTX_INJECTION64_PATH. It writes the ranges of every
// domain to the file NVTX_RECORDER_FILE, one event per line, with fields separated by tabs:
//   push  thread  domain  category  payload, or -  name
//   pop   thread  domain

#include <atomic>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <nvtx3/nvToolsExt.h>

namespace {

struct Domain {
  std::string name;
  std::map<std::uint32_t, std::string> categories;
};

std::mutex mutex;  // guards the file and the domains' categories
std::ofstream& file() {
  static std::ofstream out(std::getenv("NVTX_RECORDER_FILE"));  // NOLINT(concurrency-mt-unsafe)
  return out;
}

int this_thread() {
  static std::atomic<int> threads = 0;
  thread_local const int number = threads++;
  return number;
}

// The object to which handles point. Never destroyed, because ranges may end late.
template <class T>
T* keep(T value) {
  static auto& all = *new std::deque<T>;
  const std::lock_guard lock(mutex);
  return &all.emplace_back(std::move(value));
}

// NVTX's handles are opaque to the program.
Domain& domain_of(nvtxDomainHandle_t handle) { return *reinterpret_cast<Domain*>(handle); }
const std::string& text_of(nvtxStringHandle_t handle) {
  return *reinterpret_cast<const std::string*>(handle);
}

nvtxDomainHandle_t create(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(keep(Domain{name, {}}));
}

void name_category(nvtxDomainHandle_t domain, std::uint32_t category, const char* name) {
  const std::lock_guard lock(mutex);
  domain_of(domain).categories[category] = name;
}

nvtxStringHandle_t register_string(nvtxDomainHandle_t /*domain*/, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(keep(std::string(text)));
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  const std::lock_guard lock(mutex);
  file() << "push\t" << this_thread() << '\t' << domain_of(domain).name << '\t'
         << domain_of(domain).categories[range->category] << '\t';
  if (range->payloadType == NVTX_PAYLOAD_TYPE_INT64)
    file() << range->payload.llValue;
  else
    file() << '-';
  file() << '\t'
         << (range->messageType == NVTX_MESSAGE_TYPE_REGISTERED ? text_of(range->message.registered)
                                                                : "(not registered)")
         << std::endl;
  return 0;
}

int pop(nvtxDomainHandle_t domain) {
  const std::lock_guard lock(mutex);
  file() << "pop\t" << this_thread() << '\t' << domain_of(domain).name << std::endl;
  return 0;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NVTX looks for it by this name.
extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table);
extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  // NOLINTEND(readability-identifier-naming)
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size < NVTX_CBID_CORE2_SIZE || !file())
    return 0;
  const auto set = [&](NvtxCallbackIdCore2 id, auto* function) {
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  set(NVTX_CBID_CORE2_DomainCreateA, create);
  set(NVTX_CBID_CORE2_DomainNameCategoryA, name_category);
  set(NVTX_CBID_CORE2_DomainRegisterStringA, register_string);
  set(NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}
