#pragma once

// Controls of the stand-in for NCCL, which tests load as the plug-in does (nccl_stand_in.cpp).
namespace muo::test {

struct NcclStandIn {
  void (*set_version)(int version);
  // Makes the next call of `function`, by any rank, return `result`.
  void (*fail_next)(const char* function, int result);
  // The calls of all ranks since the previous query, one per line: "ncclAllReduce graph 12". The
  // text is valid until the next query.
  const char* (*calls)();
  int (*alive)();        // number of communicators
  int (*open_groups)();  // ncclGroupStart calls without an end, on all threads
  int (*max_ctas)();     // of the newest communicator
};

}  // namespace muo::test

extern "C" const muo::test::NcclStandIn* nccl_stand_in();
