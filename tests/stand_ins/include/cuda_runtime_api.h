#pragma once

// The part of CUDA's runtime API that the plug-in uses, for builds that link the stand-in. Names
// and values are NVIDIA's; interface.cpp compares them with NVIDIA's headers if these are
// installed.

#include <cstddef>

#ifndef MUO_COMPARES_INTERFACES
#  include "emulator/types.h"
#  define MUO_CUDA_API extern "C"
#endif

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUgraphNode_st;
struct cudaGraphEdgeData_st;

using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;
using cudaGraphNode_t = CUgraphNode_st*;
using cudaGraphEdgeData = cudaGraphEdgeData_st;
using cudaGraphConditionalHandle = unsigned long long;

// Name, value, text.
#define MUO_CUDA_ERRORS(X)                                                                      \
  X(cudaSuccess, 0, "no error")                                                                 \
  X(cudaErrorInvalidValue, 1, "invalid argument")                                               \
  X(cudaErrorMemoryAllocation, 2, "out of memory")                                              \
  X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                         \
  X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction")                              \
  X(cudaErrorStubLibrary, 34, "CUDA driver is a stub library")                                  \
  X(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient")                     \
  X(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                              \
  X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                               \
  X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                      \
  X(cudaErrorNoKernelImageForDevice, 209,                                                       \
    "no kernel image is available for execution on the device")                                 \
  X(cudaErrorPeerAccessUnsupported, 217, "peer access is not supported between these devices")  \
  X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                             \
  X(cudaErrorIllegalState, 401, "the operation cannot be performed in the present state")       \
  X(cudaErrorNotReady, 600, "device not ready")                                                 \
  X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                   \
  X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")              \
  X(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")                   \
  X(cudaErrorSystemNotReady, 802, "system not yet initialized")                                 \
  X(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing") \
  X(cudaErrorStreamCaptureInvalidated, 901,                                                     \
    "operation failed due to a previous error during capture")                                  \
  X(cudaErrorStreamCaptureMerge, 902, "operation would result in a merge of separate captures") \
  X(cudaErrorStreamCaptureUnmatched, 903, "capture was not initiated in this stream")           \
  X(cudaErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")                  \
  X(cudaErrorStreamCaptureIsolation, 905,                                                       \
    "dependency created on uncaptured work in another stream")                                  \
  X(cudaErrorStreamCaptureImplicit, 906,                                                        \
    "operation would make the legacy stream depend on a capturing one")                         \
  X(cudaErrorCapturedEvent, 907,                                                                \
    "operation not permitted on an event last recorded in a capturing stream")                  \
  X(cudaErrorStreamCaptureWrongThread, 908,                                                     \
    "attempt to terminate a thread-local capture from another thread")

enum cudaError_t : unsigned {
#define MUO_VALUE(name, value, text) name = (value),
  MUO_CUDA_ERRORS(MUO_VALUE)
#undef MUO_VALUE
};
enum cudaStreamCaptureMode : unsigned {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2
};
enum cudaStreamCaptureStatus : unsigned {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2
};
enum cudaMemcpyKind : unsigned {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaDeviceAttr : unsigned {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum cudaFuncAttribute : unsigned { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaMemoryAdvise : unsigned { cudaMemAdviseSetPreferredLocation = 3 };
enum cudaMemLocationType : unsigned { cudaMemLocationTypeDevice = 1 };
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
// NVIDIA's macros.
inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2, kHostAllocPortable = 1,
                          kHostAllocMapped = 2, kMemAttachGlobal = 1;
#ifndef MUO_COMPARES_INTERFACES
#  define CUDART_VERSION 13000
#  define cudaStreamNonBlocking kStreamNonBlocking
#  define cudaEventDefault 0
#  define cudaEventDisableTiming kEventDisableTiming
#  define cudaHostAllocPortable kHostAllocPortable
#  define cudaHostAllocMapped kHostAllocMapped
#  define cudaMemAttachGlobal kMemAttachGlobal
#endif
enum cudaGraphNodeType : unsigned { cudaGraphNodeTypeConditional = 13 };
enum cudaGraphConditionalNodeType : unsigned { cudaGraphCondTypeWhile = 1 };
enum : unsigned { cudaGraphInstantiateFlagUseNodePriority = 8 };

struct cudaUUID_t {
  char bytes[16];
};
// The members that are used, at other offsets than NVIDIA's.
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  std::size_t totalGlobalMem;
  int multiProcessorCount, major, minor;
};
struct cudaFuncAttributes {
  std::size_t sharedSizeBytes;
  int maxThreadsPerBlock, numRegs;
};
struct cudaConditionalNodeParams {
  cudaGraphConditionalHandle handle;
  cudaGraphConditionalNodeType type;
  unsigned size;
  cudaGraph_t* phGraph_out;
};
struct cudaGraphNodeParams {
  cudaGraphNodeType type;
  cudaConditionalNodeParams conditional;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

// The functions: result, name, parameters.
#define MUO_CUDA_FUNCTIONS(X)                                                                      \
  X(cudaError_t, cudaGetLastError, ())                                                             \
  X(const char*, cudaGetErrorName, (cudaError_t))                                                  \
  X(const char*, cudaGetErrorString, (cudaError_t))                                                \
  X(cudaError_t, cudaDriverGetVersion, (int*))                                                     \
  X(cudaError_t, cudaGetDeviceCount, (int*))                                                       \
  X(cudaError_t, cudaSetDevice, (int))                                                             \
  X(cudaError_t, cudaGetDevice, (int*))                                                            \
  X(cudaError_t, cudaGetDeviceProperties, (cudaDeviceProp*, int))                                  \
  X(cudaError_t, cudaDeviceGetAttribute, (int*, cudaDeviceAttr, int))                              \
  X(cudaError_t, cudaDeviceGetPCIBusId, (char*, int, int))                                         \
  X(cudaError_t, cudaDeviceGetStreamPriorityRange, (int*, int*))                                   \
  X(cudaError_t, cudaDeviceCanAccessPeer, (int*, int, int))                                        \
  X(cudaError_t, cudaDeviceEnablePeerAccess, (int, unsigned))                                      \
  X(cudaError_t, cudaMemGetInfo, (std::size_t*, std::size_t*))                                     \
  X(cudaError_t, cudaMalloc, (void**, std::size_t))                                                \
  X(cudaError_t, cudaFree, (void*))                                                                \
  X(cudaError_t, cudaHostAlloc, (void**, std::size_t, unsigned))                                   \
  X(cudaError_t, cudaFreeHost, (void*))                                                            \
  X(cudaError_t, cudaMallocManaged, (void**, std::size_t, unsigned))                               \
  X(cudaError_t, cudaMemAdvise, (const void*, std::size_t, cudaMemoryAdvise, cudaMemLocation))     \
  X(cudaError_t, cudaMemcpyAsync, (void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t)) \
  X(cudaError_t, cudaMemsetAsync, (void*, int, std::size_t, cudaStream_t))                         \
  X(cudaError_t, cudaStreamCreateWithFlags, (cudaStream_t*, unsigned))                             \
  X(cudaError_t, cudaStreamCreateWithPriority, (cudaStream_t*, unsigned, int))                     \
  X(cudaError_t, cudaStreamDestroy, (cudaStream_t))                                                \
  X(cudaError_t, cudaStreamSynchronize, (cudaStream_t))                                            \
  X(cudaError_t, cudaStreamWaitEvent, (cudaStream_t, cudaEvent_t, unsigned))                       \
  X(cudaError_t, cudaStreamBeginCapture, (cudaStream_t, cudaStreamCaptureMode))                    \
  X(cudaError_t, cudaStreamBeginCaptureToGraph,                                                    \
    (cudaStream_t, cudaGraph_t, const cudaGraphNode_t*, const cudaGraphEdgeData*, std::size_t,     \
     cudaStreamCaptureMode))                                                                       \
  X(cudaError_t, cudaStreamGetCaptureInfo,                                                         \
    (cudaStream_t, cudaStreamCaptureStatus*, unsigned long long*, cudaGraph_t*,                    \
     const cudaGraphNode_t**, const cudaGraphEdgeData**, std::size_t*))                            \
  X(cudaError_t, cudaStreamEndCapture, (cudaStream_t, cudaGraph_t*))                               \
  X(cudaError_t, cudaStreamIsCapturing, (cudaStream_t, cudaStreamCaptureStatus*))                  \
  X(cudaError_t, cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode*))                    \
  X(cudaError_t, cudaEventCreate, (cudaEvent_t*))                                                  \
  X(cudaError_t, cudaEventCreateWithFlags, (cudaEvent_t*, unsigned))                               \
  X(cudaError_t, cudaEventDestroy, (cudaEvent_t))                                                  \
  X(cudaError_t, cudaEventRecord, (cudaEvent_t, cudaStream_t))                                     \
  X(cudaError_t, cudaEventSynchronize, (cudaEvent_t))                                              \
  X(cudaError_t, cudaEventElapsedTime, (float*, cudaEvent_t, cudaEvent_t))                         \
  X(cudaError_t, cudaGraphDestroy, (cudaGraph_t))                                                  \
  X(cudaError_t, cudaGraphConditionalHandleCreate,                                                 \
    (cudaGraphConditionalHandle*, cudaGraph_t, unsigned, unsigned))                                \
  X(cudaError_t, cudaGraphAddNode,                                                                 \
    (cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, const cudaGraphEdgeData*, std::size_t, \
     cudaGraphNodeParams*))                                                                        \
  X(cudaError_t, cudaGraphInstantiate, (cudaGraphExec_t*, cudaGraph_t, unsigned long long))        \
  X(cudaError_t, cudaGraphExecDestroy, (cudaGraphExec_t))                                          \
  X(cudaError_t, cudaGraphUpload, (cudaGraphExec_t, cudaStream_t))                                 \
  X(cudaError_t, cudaGraphLaunch, (cudaGraphExec_t, cudaStream_t))                                 \
  X(cudaError_t, cudaFuncGetName, (const char**, const void*))                                     \
  X(cudaError_t, cudaFuncGetAttributes, (cudaFuncAttributes*, const void*))                        \
  X(cudaError_t, cudaFuncSetAttribute, (const void*, cudaFuncAttribute, int))                      \
  X(cudaError_t, cudaOccupancyMaxActiveBlocksPerMultiprocessor,                                    \
    (int*, const void*, int, std::size_t))

#ifndef MUO_COMPARES_INTERFACES
#  define MUO_DECLARE(Result, name, parameters) MUO_CUDA_API Result name parameters;
MUO_CUDA_FUNCTIONS(MUO_DECLARE)
#  undef MUO_DECLARE

// Overloads with NVIDIA's default arguments.
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event) {
  return cudaStreamWaitEvent(stream, event, 0);
}

// Called by kernels.
void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value);

// Called by nvcc's generated constructors for each kernel (crt/host_runtime.h).
MUO_CUDA_API void __cudaRegisterFunction(  // NOLINT(bugprone-reserved-identifier)
    void** module, const char* host_function, char* device_function, const char* device_name,
    int thread_limit, uint3* thread, uint3* block, dim3* block_size, dim3* grid_size,
    int* warp_size);
#endif
