#include "trainer/run/decisions.h"

#include <nlohmann/json.hpp>

namespace muo::trainer {

using nlohmann::json;

std::string decisions_text(const Decisions& decisions) {
  const Pace pace = decisions.pacing.pace.value_or(Pace{});
  return json{{"stop", decisions.stop},
              {"ended_early", decisions.ended_early},
              {"too_many_skipped", decisions.too_many_skipped},
              {"is_over", decisions.pacing.is_over},
              {"pace", {pace.from, pace.position, pace.per_step}},
              {"time_to_save", decisions.time_to_save},
              {"long_evaluation", decisions.long_evaluation},
              {"last_is_slowest", decisions.last_is_slowest},
              {"ended_saves", pack_results(decisions.ended_saves)}}
      .dump();
}

Decisions decisions_of(const std::string& text) {
  const json from = json::parse(text);
  const json& numbers = from.at("pace");
  const Pace pace = {.from = numbers.at(0), .position = numbers.at(1), .per_step = numbers.at(2)};
  return {.stop = from.at("stop"),
          .ended_early = from.at("ended_early"),
          .too_many_skipped = from.at("too_many_skipped"),
          .pacing = {.is_over = from.at("is_over"),
                     .pace = pace.from < 0 ? std::nullopt : std::optional(pace)},
          .time_to_save = from.at("time_to_save"),
          .long_evaluation = from.at("long_evaluation"),
          .last_is_slowest = from.at("last_is_slowest"),
          .ended_saves = unpack_results(from.at("ended_saves").get<std::string>())};
}

}  // namespace muo::trainer
