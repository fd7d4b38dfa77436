#include "runtime/cuda/cupti.h"

#include <dlfcn.h>

#include <cuda_runtime_api.h>

#include "base/check.h"
#include "runtime/cuda/find_function.h"

namespace muo::cupti {

std::string load(Functions& f) {
  constexpr int kMajor = CUDART_VERSION / 1000;
  void* library = nullptr;
  for (const std::string& name :
       {concat("libcupti.so.", kMajor), concat("/usr/local/cuda/lib64/libcupti.so.", kMajor),
        concat("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.", kMajor)})
    if (library == nullptr) library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr)
    return concat("libcupti.so.", kMajor, " does not load: install the toolkit's CUPTI (pip: ",
                  "nvidia-cuda-cupti), or add its folder to LD_LIBRARY_PATH");
  const char* lacks = nullptr;
  const auto find = [&](const char* name, auto*& function) {
    if (!cuda::find_function(library, name, function)) lacks = name;
  };
  find("cuptiSubscribe", f.subscribe);
  find("cuptiEnableCallback", f.enable_callback);
  find("cuptiActivityRegisterCallbacks", f.register_callbacks);
  find("cuptiActivityEnable", f.enable);
  find("cuptiActivityDisable", f.disable);
  find("cuptiActivityFlushAll", f.flush);
  find("cuptiActivityGetNextRecord", f.next_record);
  find("cuptiActivityGetNumDroppedRecords", f.dropped_records);
  find("cuptiGetTimestamp", f.timestamp);
  find("cuptiGetGraphNodeId", f.node_id);
  find("cuptiGetGraphExecId", f.executable_id);
  find("cuptiGetResultString", f.result_text);
  return lacks == nullptr
             ? ""
             : concat("libcupti.so.", kMajor, " lacks ", lacks, ": install that of CUDA ", kMajor);
}

}  // namespace muo::cupti
