#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/process_exchange.h"

namespace muo::test {

// Ends of an exchange between processes that are threads of this one. A receiver copies from the
// sender's memory, and the sender waits. Unequal sizes of send and receive are an Error on both
// sides.
class MemoryExchange {
 public:
  explicit MemoryExchange(int processes);
  ~MemoryExchange();
  MemoryExchange(const MemoryExchange&) = delete;
  MemoryExchange& operator=(const MemoryExchange&) = delete;

  [[nodiscard]] ProcessExchange& end(int process);
  // Payload sent from one process to another so far. Call it while no exchange is in progress.
  [[nodiscard]] std::size_t sent(int from, int to) const;

 private:
  struct World;
  class End;
  std::unique_ptr<World> world_;
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace muo::test
