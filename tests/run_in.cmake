# Defines in which build of the gate (scripts/test.sh --gate) each test runs: once, in the build that proves most.
# Settings are per folder, with exceptions per file. All other commands run every test (docs/testing.md).
#   asan   AddressSanitizer and UBSan: tests that read external bytes, allocate memory or compute indices
#   tsan   ThreadSanitizer: tests with threads, and with captures whose order may lack an event
#   plain  tests that compare many numbers, start whole programs, or need the host kernels at -O3
function(muo_run_in builds)
  foreach(path IN LISTS ARGN)
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${path})
      message(FATAL_ERROR "tests/run_in.cmake: there is no tests/${path}")
    endif()
    set_property(GLOBAL PROPERTY muo_run_in_${path} ${builds})
  endforeach()
endfunction()

muo_run_in(asan unit/base unit/data unit/trainer unit/kit unit/cli unit/model unit/optim fuzz)
muo_run_in(tsan unit/runtime unit/graphs stand_ins)
muo_run_in(plain unit/cuda golden system emulator)
muo_run_in("asan;tsan;plain" unit/kernels)  # on host and SIMT tier, on the SIMT tier, on the host
muo_run_in("tsan;plain" contract)           # for races; also, system.gpu_check runs the program

muo_run_in(asan unit/runtime/graph_trace_test.cpp unit/runtime/memory_plan_test.cpp
           unit/runtime/tracing_rank_test.cpp)
muo_run_in(tsan unit/trainer/checkpoint_background_test.cpp unit/trainer/checkpoint_processes_test.cpp
           unit/trainer/checkpoint_saver_test.cpp unit/trainer/logger_test.cpp unit/kit/sweep_run_test.cpp)
# Plans of large models, and numerical comparisons of many steps, worlds or strategies.
muo_run_in(plain unit/trainer/fit_batch_test.cpp unit/kit/largest_model_test.cpp unit/trainer/memory_fit_test.cpp
           unit/trainer/option_class_test.cpp unit/kit/plan_report_test.cpp unit/graphs/bf16_gradients_test.cpp
           unit/graphs/device_step_test.cpp unit/graphs/nccl_step_test.cpp unit/graphs/sharded_accumulation_test.cpp
           unit/graphs/strategies_test.cpp unit/model/extras_test.cpp unit/optim/newton_schulz_form_test.cpp
           unit/optim/newton_schulz_test.cpp unit/optim/number_formats_test.cpp unit/optim/optimizer_version_test.cpp
           unit/optim/plan_properties_test.cpp unit/optim/reference_test.cpp unit/optim/sharding_plan_test.cpp
           unit/runtime/peer_protocol_test.cpp)
# Files of which ThreadSanitizer skips some tests (`numbers` in labels.cmake).
muo_run_in("tsan;plain" unit/graphs/common_replicas_test.cpp unit/graphs/pipelined_gather_test.cpp
           unit/graphs/sharded_weights_test.cpp unit/graphs/step_graph_test.cpp unit/optim/pipelined_gather_test.cpp
           unit/optim/sharded_step_test.cpp)
# Also on the SIMT tier.
muo_run_in("asan;plain" unit/model/decode_test.cpp unit/model/documents_test.cpp)
muo_run_in("tsan;plain" unit/graphs/decoder_test.cpp)

# Sets `out` to true if the tests of a file or folder run in this build; a missing setting is an error.
function(muo_runs_here out path)
  get_property(builds GLOBAL PROPERTY muo_run_in_${path})
  if(NOT builds)
    get_filename_component(folder ${path} DIRECTORY)
    get_property(builds GLOBAL PROPERTY muo_run_in_${folder})
  endif()
  if(NOT builds)
    message(FATAL_ERROR "tests/run_in.cmake does not define where tests/${path} runs")
  endif()
  set(${out} OFF PARENT_SCOPE)
  if(NOT MUO_GATE OR MUO_GATE IN_LIST builds)
    set(${out} ON PARENT_SCOPE)
  endif()
endfunction()
