# The CUDA backend: libmuograph_cuda.so, a plug-in that the core loads on demand (src/runtime/plugin.h). No other part
# of the project needs CUDA.
if(MUO_CUDA STREQUAL "OFF")
  return()
endif()
# If given a required version of 3.25 or newer, Debian 12's CMake deprecates a library that CUDA 13 no longer has, and
# fails because there is no such target.
set(required ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
find_package(CUDAToolkit 13.0 QUIET)
if(NOT CUDAToolkit_FOUND AND NOT CUDAToolkit_ROOT)
  # Also finds a fetched toolkit.
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/scripts/fetch_cuda.sh find --any
                  OUTPUT_VARIABLE CUDAToolkit_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE)
  find_package(CUDAToolkit 13.0 QUIET)
endif()
set(CMAKE_MINIMUM_REQUIRED_VERSION ${required})
if(NOT CUDAToolkit_FOUND)
  if(MUO_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MUO_CUDA is ON, but there is no CUDA toolkit 13.0 or newer: install it, or "
                        "name its folder by -DCUDAToolkit_ROOT=DIR")
  endif()
  message(STATUS "No CUDA toolkit 13.0 or newer: building without the CUDA backend")
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES ${MUO_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
endif()
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # unknown to CMake 3.25
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
# The flags are the same in every build, so there is only one version of the device code to test and measure.
set(CMAKE_CUDA_FLAGS_DEBUG "-O3")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_INCLUDE_SYSTEM_FLAG_CUDA "-isystem ")  # ccache does not make a path relative after "-isystem="
endif()

file(GLOB muo_cuda_sources CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/src/runtime/cuda/*.cpp ${PROJECT_SOURCE_DIR}/src/runtime/cuda/*.cu
     ${PROJECT_SOURCE_DIR}/src/kernels/cuda/*.cpp ${PROJECT_SOURCE_DIR}/src/kernels/cuda/*.cu)
add_library(muograph_cuda SHARED ${muo_cuda_sources})
# --fmad=false: fused operations are written as fmaf. Otherwise a vector and its tail, or two implementations of the
# same formula, would round differently (seen on an H100).
target_compile_options(muograph_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --fmad=false $<$<BOOL:${MUO_CUDA_LINES}>:-lineinfo>
  -Xptxas=-warn-spills -Xcompiler=-Wall,-Wextra $<IF:$<BOOL:${MUO_WERROR}>,-Werror=all-warnings,-w>>)
target_compile_options(muograph_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CXX>:$<TARGET_PROPERTY:muo_flags,INTERFACE_COMPILE_OPTIONS>>")
# cuDNN is loaded at run time; the build needs its headers and those of its frontend, which scripts/setup.sh fetches.
# Only one translation unit includes them.
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
          HINTS ${PROJECT_SOURCE_DIR}/build/third_party/cudnn_frontend/include)
if(CUDNN_INCLUDE_DIR AND CUDNN_FRONTEND_INCLUDE_DIR)
  target_compile_definitions(muograph_cuda PRIVATE MUO_CUDNN)
  target_include_directories(muograph_cuda SYSTEM PRIVATE ${CUDNN_INCLUDE_DIR}
                             ${CUDNN_FRONTEND_INCLUDE_DIR})
  # Even so, it takes half a minute. The frontend's inlined code causes warnings although its headers are system
  # headers.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/kernels/cuda/cudnn_attention.cpp PROPERTIES
                              COMPILE_OPTIONS "-O1;-g0;-Wno-null-dereference")
else()
  message(STATUS "No headers of cuDNN or of its frontend (scripts/setup.sh fetches the latter): "
                 "building without cuDNN attention")
endif()
# Matrix products with a fused ReLU^2 (src/kernels/cuda/sm90), for a single one of the requested architectures.
# CUTLASS's templates cause warnings although they are system headers, and take half a minute per kernel.
set(hopper ${MUO_CUDA_ARCHITECTURES})
list(FILTER hopper INCLUDE REGEX "^90a")
find_path(CUTLASS_INCLUDE_DIR cutlass/cutlass.h HINTS ${PROJECT_SOURCE_DIR}/build/third_party/cutlass/include)
if(CUTLASS_INCLUDE_DIR AND hopper)
  target_compile_definitions(muograph_cuda PRIVATE MUO_CUTLASS)
  add_library(muograph_fused OBJECT ${PROJECT_SOURCE_DIR}/src/kernels/cuda/sm90/fused_kernels.cu)
  set_target_properties(muograph_fused PROPERTIES CUDA_ARCHITECTURES "${hopper}" POSITION_INDEPENDENT_CODE ON)
  target_compile_options(muograph_fused PRIVATE --expt-relaxed-constexpr -w)
  target_compile_definitions(muograph_fused PRIVATE NDEBUG)  # disables CUTLASS's asserts in kernels
  target_include_directories(muograph_fused PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_include_directories(muograph_fused SYSTEM PRIVATE ${CUTLASS_INCLUDE_DIR})
  target_sources(muograph_cuda PRIVATE $<TARGET_OBJECTS:muograph_fused>)
elseif(hopper)
  message(STATUS "No headers of CUTLASS (scripts/setup.sh fetches them): building without fused matrix products")
endif()
target_link_libraries(muograph_cuda PRIVATE muograph_core CUDA::cudart_static CUDA::cublasLt
                      ${CMAKE_DL_LIBS})
# The folder in which dlopen looks for cuDNN.
set_target_properties(muograph_cuda PROPERTIES BUILD_RPATH ${CUDAToolkit_LIBRARY_DIR})
set_target_properties(muograph_cuda PROPERTIES INSTALL_RPATH "$ORIGIN")
target_link_options(muograph_cuda PRIVATE -Wl,--no-undefined
                    -Wl,--wrap=__cudaRegisterFunction)  # src/runtime/cuda/kernel_list.cpp
