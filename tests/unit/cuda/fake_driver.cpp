// A driver that accepts every kernel and runs none, built as libcuda.so.1. With it, cuDNN makes its
// plans, including compilation, on a machine without a GPU (cudnn_attention_test.cpp). It has only
// the functions that cuDNN looks up; all of them except loading fail, as in the toolkit's stub.
namespace {

int some_object;

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
#define MUO_LOADS(function)            \
  extern "C" int function(void** out); \
  int function(void** out) {           \
    *out = &some_object;               \
    return 0;                          \
  }
MUO_LOADS(cuLibraryLoadData)
MUO_LOADS(cuLibraryGetKernel)
MUO_LOADS(cuLibraryGetModule)
MUO_LOADS(cuKernelGetFunction)
MUO_LOADS(cuModuleLoadData)
MUO_LOADS(cuModuleGetFunction)

#define MUO_READS(function)          \
  extern "C" int function(int* out); \
  int function(int* out) {           \
    *out = 0;                        \
    return 0;                        \
  }
MUO_READS(cuFuncGetAttribute)
MUO_READS(cuKernelGetAttribute)

#define MUO_RETURNS(status, function) \
  extern "C" int function();          \
  int function() { return status; }
MUO_RETURNS(0, cuLibraryUnload)
MUO_RETURNS(0, cuModuleUnload)
MUO_RETURNS(0, cuFuncSetAttribute)
MUO_RETURNS(0, cuKernelSetAttribute)

constexpr int kStubLibrary = 34;  // CUDA_ERROR_STUB_LIBRARY
MUO_RETURNS(kStubLibrary, cuCtxGetCurrent)
MUO_RETURNS(kStubLibrary, cuCtxGetLimit)
MUO_RETURNS(kStubLibrary, cuCtxPopCurrent)
MUO_RETURNS(kStubLibrary, cuCtxPushCurrent)
MUO_RETURNS(kStubLibrary, cuDeviceGet)
MUO_RETURNS(kStubLibrary, cuDeviceGetCount)
MUO_RETURNS(kStubLibrary, cuDriverGetVersion)
MUO_RETURNS(kStubLibrary, cuGetErrorName)
MUO_RETURNS(kStubLibrary, cuGetErrorString)
MUO_RETURNS(kStubLibrary, cuLaunchCooperativeKernel)
MUO_RETURNS(kStubLibrary, cuLaunchKernel)
MUO_RETURNS(kStubLibrary, cuLaunchKernelEx)
MUO_RETURNS(kStubLibrary, cuLibraryGetGlobal)
MUO_RETURNS(kStubLibrary, cuLibraryLoadFromFile)
MUO_RETURNS(kStubLibrary, cuLinkAddData)
MUO_RETURNS(kStubLibrary, cuLinkComplete)
MUO_RETURNS(kStubLibrary, cuLinkCreate)
MUO_RETURNS(kStubLibrary, cuLinkDestroy)
MUO_RETURNS(kStubLibrary, cuModuleGetGlobal_v2)
MUO_RETURNS(kStubLibrary, cuOccupancyMaxPotentialClusterSize)
MUO_RETURNS(kStubLibrary, cuStreamGetCtx)
// NOLINTEND(readability-identifier-naming)
