# Sets labels by name for the tests that test programs list themselves. ctest reads this file after their lists, whose
# names are in muo_test_lists; lists of the SIMT tier's tests end in _simt.
#   numbers       repeats other tests with more worlds, strategies, steps or orders, to compare numbers. Only
#                 the build without sanitizers runs these.
#   long_threads  slow under ThreadSanitizer, whose preset skips it: tests with a single thread, and tests whose
#                 use of threads is covered by shorter suites of kernels, communicators, steps and saves.
string(JOIN "|" numbers
  Mutation FiftySteps
  "StepGraph.(EveryWorld|Accumulation|TheBound|OneBranch)"
  "NanochatStrategy" NanochatTraining "Strategies.Agree"
  "ShardedAccumulation.(AgreesWithLocal|IsBitwiseTheSameInAnyOrder|SeveralGraphs)"
  "PipelinedStep.IsBitwise" "CommonReplicas.*InEvery"
  "DeviceStep.(ReadsNothing|Follows|TwoVirtual|FourVirtual|Every|AReplay|TheSameRun|TheBound|NanochatInBf16|APipelined|OneBranch|Sharded|GradientsOfBf16)"
  "ShardedWeights.(AreBitwiseReplicasInAnyOrder|KeepTheir)"
  NcclStep "Survival.(ARunThatMoves|ARunResumedWith|MemoryThreads|SavesByTheClock)"
  "(kit|system).LargestModel" "Configs.CostWhat" "BF16Gradients.AreBitwise" EndToEnd
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
