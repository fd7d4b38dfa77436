#include "trainer/checkpoint/run_tokenizer.h"

#include <nlohmann/json.hpp>

#include <string>

#include "base/check.h"
#include "data/token_data.h"
#include "trainer/checkpoint/model_json.h"

namespace muo::trainer {
namespace {

namespace fs = std::filesystem;

// Returns the fingerprint of the checkpoint's tokenizer; empty for the byte tokenizer, or if
// unknown.
std::string fingerprint_in(const Checkpoint& checkpoint) {
  const auto data = nlohmann::json::parse(checkpoint.info().data);
  const auto found = data.find("tokenizer");
  return found != data.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

fs::path find_run_tokenizer(const Checkpoint& checkpoint) {
  const fs::path folder = fs::absolute(checkpoint.path());
  for (const fs::path& place : {folder, folder.parent_path().parent_path()})
    if (fs::path found = data::find_tokenizer_in(place); !found.empty()) return found;
  const std::string named = checkpoint_options(checkpoint).data.tokenizer;
  if (named != "byte") return named;
  const bool has_bytes = fingerprint_in(checkpoint).empty() &&
                         checkpoint_model(checkpoint).vocab_size == data::kByteVocab;
  return has_bytes ? fs::path(named) : fs::path();
}

std::shared_ptr<const data::Tokenizer> open_run_tokenizer(const Checkpoint& checkpoint) {
  const fs::path name = find_run_tokenizer(checkpoint);
  if (name.empty()) return nullptr;
  std::shared_ptr<const data::Tokenizer> tokenizer = data::open_tokenizer(name);
  require_same_tokenizer(checkpoint, tokenizer.get(), name.native());
  return tokenizer;
}

void require_same_tokenizer(const Checkpoint& checkpoint, const data::Tokenizer* tokenizer,
                            std::string_view what) {
  const std::string wanted = fingerprint_in(checkpoint);
  if (wanted.empty() || tokenizer == nullptr || tokenizer->fingerprint() == wanted) return;
  throw InputError(concat(what, ": its tokenizer's fingerprint is ", tokenizer->fingerprint(),
                          ", but ", checkpoint.path().native(), " was trained with ", wanted,
                          "; give the tokenizer it was trained with"));
}

}  // namespace muo::trainer
