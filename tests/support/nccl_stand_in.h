#pragma once

// What tests ask of the stand-in, which they load as the plug-in does (nccl_stand_in.cpp).
namespace muo::test {

struct NcclStandIn {
  void (*set_version)(int version);
  // The next call of `function`, by any rank, returns `result`.
  void (*fail_next)(const char* function, int result);
  // What was called since the last question, one line a call: "ncclAllReduce graph 12". Ranks mix.
  // The answer holds until the next question.
  const char* (*calls)();
  int (*alive)();        // communicators
  int (*open_groups)();  // ncclGroupStart without its end, on all threads
};

}  // namespace muo::test

extern "C" const muo::test::NcclStandIn* nccl_stand_in();
