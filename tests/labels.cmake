# Labels, by name, of the tests that test programs list themselves. ctest reads this after their lists,
# whose names are in muo_test_lists; lists of the SIMT tier's tests end in _simt.
#   numbers       does for more worlds, strategies, steps or orders what other tests do for a few, to
#                 compare numbers, which the build without sanitizers does: no sanitizer's preset runs it.
#   long_threads  long under ThreadSanitizer, whose preset leaves it out: what has one thread, and what does
#                 with threads what the suites of kernels, communicators, steps and saves do shorter.
string(JOIN "|" numbers
  Mutation FiftySteps
  "StepGraph.(EveryWorld|Accumulation|TheBound|OneBranch)"
  "NanochatStrategy" NanochatTraining "Strategies.Agree"
  "ShardedAccumulation.(AgreesWithLocal|IsBitwiseTheSameInAnyOrder|SeveralGraphs)"
  "PipelinedStep.IsBitwise" "CommonReplicas.*InEvery"
  "DeviceStep.(ReadsNothing|Follows|TwoVirtual|FourVirtual|Every|AReplay|TheSameRun|TheBound|NanochatInBf16|APipelined|OneBranch|Sharded|GradientsOfBf16)"
  "ShardedWeights.(AreBitwiseReplicasInAnyOrder|KeepTheir)"
  NcclStep "Survival.(ARunThatMoves|ARunThatGoesOn|MemoryThreads|SavesByTheClock)"
  "(app|system).LargestModel" "Configs.CostWhat" "BF16Gradients.AreBitwise" EndToEnd
  "ShardingPlan.TenThousand" "ShardedStep.CommonReplicas" "PipelinedGather.*(InBf16|OverManySteps)"
  UnderEveryStrategy "Program.APlanThat" "ReluSquaredBF16.IsTheRounded" "NewtonSchulz.AgreesWithDouble")
string(JOIN "|" long_threads
  DeviceStep DeviceTraining "Sweep.ADevice" SimtFaults "SimtProcesses.TrainTheBits" PeerProtocol "Corpus.Changed"
  "Bench.(ALaunch|TheUpdateAlone|OperationsAreTimed)"
  PlanProperties "Fit(Memory|Batch).OfAGpu" OptionClass "WatchWandb.Follows" "Training.ImpossibleRuns" "system[.](Gpus|SetupScript|TrainScript)" "Gemm.AgreesWithFloat64WhereColumnsCollide"
  "CheckpointSaver.Dying" "Disk.(Without|ThatHasSpace)")
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
