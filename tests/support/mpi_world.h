#pragma once

#include "support/split_world.h"

namespace muo::test {

// The processes that mpirun has started for a test, of which this is one.
class MpiWorld {
 public:
  static int processes();  // 0: mpirun did not start this one
  // Runs `body` on this process' ranks of a world that is shared out over them, in every process
  // alike; a world of fewer ranks than processes each has for itself.
  static void run(int world, const RankBody& body);
};

}  // namespace muo::test
