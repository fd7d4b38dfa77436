#include "trainer/run/decisions.h"

#include <nlohmann/json.hpp>

namespace muo::trainer {

using nlohmann::json;

std::string decisions_text(const Decisions& decisions) {
  return json{{"stop", decisions.stop},
              {"ended_early", decisions.ended_early},
              {"too_many_skipped", decisions.too_many_skipped},
              {"time_to_save", decisions.time_to_save},
              {"long_evaluation", decisions.long_evaluation},
              {"ended_saves", pack_results(decisions.ended_saves)}}
      .dump();
}

Decisions decisions_of(const std::string& text) {
  const json from = json::parse(text);
  return {.stop = from.at("stop"),
          .ended_early = from.at("ended_early"),
          .too_many_skipped = from.at("too_many_skipped"),
          .time_to_save = from.at("time_to_save"),
          .long_evaluation = from.at("long_evaluation"),
          .ended_saves = unpack_results(from.at("ended_saves").get<std::string>())};
}

}  // namespace muo::trainer
