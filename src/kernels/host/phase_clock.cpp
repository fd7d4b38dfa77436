#include "kernels/phase_clock.h"

#include <chrono>

#include "base/threads.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

void mark_phase(const MarkPhaseArgs& args) {
  auto& clock = *args.clock.as_struct<PhaseClock>();
  const std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::steady_clock::now().time_since_epoch())
                               .count();
  const auto thread = static_cast<std::int64_t>(1e9 * thread_seconds());
  if (clock.last != 0) {
    clock.elapsed[args.phase] += now - clock.last;
    clock.thread[args.phase] += thread - clock.thread_last;
    ++clock.marks[args.phase];
  }
  clock.last = now;
  clock.thread_last = thread;
}

const KernelRegistration kRegistration(&mark_phase);

}  // namespace
}  // namespace muo::host
