#include "app/report/attention_notes.h"

#include <fmt/format.h>

#include <map>

#include "model/activations.h"

namespace muo {

std::vector<std::string> attention_notes(const RunConfig& config) {
  std::map<std::int64_t, std::string> by_window;
  if (config.group.plugin != nullptr)
    for (std::int64_t layer = 0; layer < config.model.n_layer; ++layer) {
      const AttentionSize size =
          attention_size(config.model, config.step.batch, config.model.seq_len, layer, true);
      if (!by_window.contains(size.window)) by_window[size.window] = describe_attention(size);
    }
  std::vector<std::string> notes;
  notes.reserve(by_window.size());
  for (const auto& [window, how] : by_window)
    notes.push_back(fmt::format("attention, window {}: {}", window, how));
  return notes;
}

}  // namespace muo
