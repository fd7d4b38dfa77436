#pragma once

#include "support/split_world.h"

namespace muo::test {

// The processes that mpirun has started for a test, including this one.
class MpiWorld {
 public:
  static int processes();  // 0: not started by mpirun
  // Runs `body` on this process's ranks of a world that is divided among the processes. Call it
  // in all of them. If the world has fewer ranks than there are processes, each process runs a
  // world of its own.
  static void run(int world, const RankBody& body);
};

}  // namespace muo::test
