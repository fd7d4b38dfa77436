# Labels, by name, of the tests that test programs list themselves. ctest reads this after their lists,
# whose names are in muo_test_lists; lists of the SIMT tier's tests end in _simt.
#   numbers       does for more worlds, strategies, steps or orders what other tests do for a few, to
#                 compare numbers, which the build without sanitizers does: no sanitizer's preset runs it.
#   long_threads  minutes under ThreadSanitizer, whose preset leaves it out. Races of these parts are looked
#                 for in the suites of kernels, communicators, steps and saves.
string(JOIN "|" numbers
  Mutation FiftySteps
  "StepGraph.(EveryWorld|Accumulation|TheBound|OneBranch)"
  "NanochatStrategy" "NanochatTraining.(BFloat16|ItsOwn)" "Strategies.Agree"
  "ShardedAccumulation.(AgreesWithLocal|SeveralGraphs)"
  "PipelinedStep.IsBitwise" "CommonReplicas.*InEvery"
  "DeviceStep.(Follows|TwoVirtual|FourVirtual|Every|AReplay|TheSameRun|TheBound|NanochatInBf16|APipelined|OneBranch)"
  NcclStep "Survival.(ARunThatMoves|ARunThatGoesOn|MemoryThreads)"
  "ShardingPlan.TenThousand" "PipelinedGather.*OverManySteps")
string(JOIN "|" long_threads
  DeviceStep DeviceTraining SimtFaults PeerProtocol "Corpus.Changed"
  "Bench.(ALaunch|TheUpdateAlone|OperationsAreTimed)")
foreach(list IN LISTS muo_test_lists)
  foreach(test IN LISTS ${list})
    set(labels)
    if(test MATCHES "${numbers}")
      list(APPEND labels numbers)
    endif()
    if(test MATCHES "${long_threads}")
      list(APPEND labels long_threads)
    endif()
    if(labels)
      if(list MATCHES "_simt$")
        list(APPEND labels simt)
      endif()
      set_tests_properties("${test}" PROPERTIES LABELS "${labels}")
    endif()
  endforeach()
endforeach()
