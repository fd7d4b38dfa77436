# In which build of the gate (scripts/test.sh --gate) tests run: where they prove most, each once. Of a folder, then of
# files that are not as their folder. Everything else runs every test (docs/testing.md).
#   asan   AddressSanitizer and UBSan: what reads bytes from outside, takes memory, computes indices
#   tsan   ThreadSanitizer: what has threads, and captures whose order may lack an event
#   plain  what compares many numbers, starts whole programs, or is for the host's kernels at -O3
function(muo_run_in builds)
  foreach(path IN LISTS ARGN)
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${path})
      message(FATAL_ERROR "tests/run_in.cmake: there is no tests/${path}")
    endif()
    set_property(GLOBAL PROPERTY muo_run_in_${path} ${builds})
  endforeach()
endfunction()

muo_run_in(asan unit/base unit/data unit/app unit/model unit/optim fuzz)
muo_run_in(tsan unit/runtime unit/graphs stand_ins)
muo_run_in(plain unit/cuda golden system emulator)
muo_run_in("asan;tsan;plain" unit/kernels)  # on host and SIMT tier, on the SIMT tier, on the host
muo_run_in("tsan;plain" contract)           # for races; and system.gpu_check runs the program

muo_run_in(asan unit/runtime/graph_trace_test.cpp unit/runtime/memory_plan_test.cpp
           unit/runtime/tracing_rank_test.cpp)
muo_run_in(tsan unit/app/checkpoint_background_test.cpp unit/app/checkpoint_processes_test.cpp
           unit/app/checkpoint_saver_test.cpp unit/app/logger_test.cpp unit/app/sweep_run_test.cpp)
# Plans of large models, and numbers of many steps, worlds or strategies.
muo_run_in(plain unit/app/fit_batch_test.cpp unit/app/largest_model_test.cpp unit/app/memory_fit_test.cpp
           unit/app/option_class_test.cpp unit/app/plan_report_test.cpp unit/graphs/bf16_gradients_test.cpp
           unit/graphs/device_step_test.cpp unit/graphs/nccl_step_test.cpp unit/graphs/sharded_accumulation_test.cpp
           unit/graphs/strategies_test.cpp unit/model/extras_test.cpp unit/optim/newton_schulz_form_test.cpp
           unit/optim/newton_schulz_test.cpp unit/optim/number_formats_test.cpp unit/optim/optimizer_version_test.cpp
           unit/optim/plan_properties_test.cpp unit/optim/reference_test.cpp unit/optim/sharding_plan_test.cpp
           unit/runtime/peer_protocol_test.cpp)
# Where only some tests are so: ThreadSanitizer leaves these out (`numbers` in labels.cmake).
muo_run_in("tsan;plain" unit/graphs/common_replicas_test.cpp unit/graphs/pipelined_gather_test.cpp
           unit/graphs/sharded_weights_test.cpp unit/graphs/step_graph_test.cpp unit/optim/pipelined_gather_test.cpp
           unit/optim/sharded_step_test.cpp)
# On the SIMT tier, too.
muo_run_in("asan;plain" unit/model/decode_test.cpp unit/model/documents_test.cpp)
muo_run_in("tsan;plain" unit/graphs/decoder_test.cpp)

# Sets `out` to whether tests of a file or folder run in this build; in which is an error to leave unsaid.
function(muo_runs_here out path)
  get_property(builds GLOBAL PROPERTY muo_run_in_${path})
  if(NOT builds)
    get_filename_component(folder ${path} DIRECTORY)
    get_property(builds GLOBAL PROPERTY muo_run_in_${folder})
  endif()
  if(NOT builds)
    message(FATAL_ERROR "tests/run_in.cmake does not say where tests/${path} runs")
  endif()
  set(${out} OFF PARENT_SCOPE)
  if(NOT MUO_GATE OR MUO_GATE IN_LIST builds)
    set(${out} ON PARENT_SCOPE)
  endif()
endfunction()
