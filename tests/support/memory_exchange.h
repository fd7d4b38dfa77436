#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/process_exchange.h"

namespace muo::test {

// The ends of an exchange between processes that are threads of this one. A receiver copies from
// the sender's memory, while the sender waits. If the sizes of send and receive differ, both
// sides throw Error.
class MemoryExchange {
 public:
  explicit MemoryExchange(int processes);
  ~MemoryExchange();
  MemoryExchange(const MemoryExchange&) = delete;
  MemoryExchange& operator=(const MemoryExchange&) = delete;

  [[nodiscard]] ProcessExchange& end(int process);
  // Bytes of payload sent from one process to another so far. Call this while no
  // exchange is in progress.
  [[nodiscard]] std::size_t sent(int from, int to) const;

 private:
  struct World;
  class End;
  std::unique_ptr<World> world_;
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace muo::test
