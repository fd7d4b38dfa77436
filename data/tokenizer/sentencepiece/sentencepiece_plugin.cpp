// libmuograph_sentencepiece.so: Debian's libsentencepiece behind
// data/tokenizer/sentencepiece_encoder.h.
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "data/tokenizer/sentencepiece_encoder.h"

namespace muo::data {
namespace {

static_assert(std::is_same_v<int, std::int32_t>);

// Empty if `call` succeeds. The library reports by status, its trie and its containers by
// exceptions.
template <class Call>
std::string error_of(const Call& call) {
  std::string error;
  try {
    const sentencepiece::util::Status status = call();
    if (!status.ok()) error = status.ToString();
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  std::replace(error.begin(), error.end(), '\n', ' ');
  return error;
}

class Plugin final : public SentencePieceEncoder {
 public:
  std::string load(std::string_view model) {
    return error_of([&] { return processor_.LoadFromSerializedProto(model); });
  }

  std::string encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    std::vector<int> found;
    std::string error = error_of([&] { return processor_.Encode(text, &found); });
    if (error.empty()) ids.insert(ids.end(), found.begin(), found.end());
    return error;
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace
}  // namespace muo::data

extern "C" muo::data::SentencePieceEncoder* muograph_open_sentencepiece(std::string_view model,
                                                                        std::string* error) {
  auto plugin = std::make_unique<muo::data::Plugin>();
  *error = plugin->load(model);
  return error->empty() ? plugin.release() : nullptr;
}
