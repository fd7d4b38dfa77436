#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/phase_clock.h"
#include "runtime/comm/process_group.h"

namespace muo {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PhaseClock, last, elapsed, marks, thread_last, thread)
}  // namespace muo

namespace muo::kit {

// Gathers, on process 0 only, the elements of `by_rank` that belong to ranks of other processes.
// `by_rank` has an element for each rank of the world. Collective. If `processes` is null, all
// ranks are in this process and nothing is done.
template <class T>
void gather_ranks(ProcessGroup* processes, std::string_view site, std::vector<T>& by_rank) {
  if (processes == nullptr) return;
  nlohmann::json mine = nlohmann::json::array();
  const RankRange here = processes->ranks();
  for (int rank = here.first; rank < here.end(); ++rank)
    mine.push_back(by_rank[static_cast<std::size_t>(rank)]);
  const std::vector<std::string> all = processes->gather(Channel::kRun, site, mine.dump());
  std::size_t rank = 0;
  for (const std::string& text : all)
    for (const nlohmann::json& value : nlohmann::json::parse(text))
      by_rank[rank++] = value.get<T>();
}

}  // namespace muo::kit
