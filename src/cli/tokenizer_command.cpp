#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/system_error_text.h"
#include "base/terminal.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/document_files.h"
#include "data/documents.h"
#include "data/tokenizer.h"
#include "data/tokenizer/tokenizer_json.h"
#include "kit/bpe_trainer.h"

namespace muo::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNanochatTokens =
    "<|bos|> <|user_start|> <|user_end|> <|assistant_start|> <|assistant_end|> <|python_start|> "
    "<|python_end|> <|output_start|> <|output_end|>";

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw Error(concat("cannot write standard output: ", system_error_text(errno)));
}

}  // namespace

int run_command(const trainer::TrainTokenizerOptions& options) {
  const std::vector<std::string> special =
      words_of(options.special == "nanochat" ? kNanochatTokens : options.special);
  if (std::set(special.begin(), special.end()).size() != special.size())
    throw trainer::input_error("--special '{}': a token is given twice", options.special);
  const int threads = options.threads ? static_cast<int>(*options.threads) : usable_cores();
  kit::BpeTrainer trainer(options.pattern, threads);
  data::DocumentReader reader(document_files(options.data), document_options(options.text));
  const std::int64_t most =
      options.max_bytes ? options.max_bytes->bytes : std::numeric_limits<std::int64_t>::max();
  std::int64_t count = 0;
  data::DocumentBatch batch;
  while (trainer.bytes() < most && reader.next(batch)) {
    const data::DocumentTexts texts = reader.texts(batch.documents, threads);
    std::int64_t left = most - trainer.bytes();
    std::size_t taken = 0;
    while (taken < texts.views.size() && left > 0)
      left -= std::ssize(texts.views[taken++]);
    trainer.add(std::span(texts.views).first(taken));
    count += static_cast<std::int64_t>(taken);
  }
  const std::string others = reader.left_out().text();
  if (trainer.bytes() == 0)
    throw trainer::input_error("{}: no text to learn from{}{}", options.data.front().native(),
                               others.empty() ? "" : "; left out: ", others);
  const std::int64_t bytes = trainer.bytes();
  const data::BpeDefinition definition = trainer.train(options.vocab_size, special);
  replace_file(options.out, write_tokenizer_json(definition));
  const std::int64_t tokens =
      definition.vocabulary.size() + static_cast<std::int64_t>(special.size());
  say(stdout,
      fmt::format("tokenizer: {} tokens, {} of them special, from {} text{}, {:.1f} MB: {}\n",
                  tokens, special.size(), count, count == 1 ? "" : "s",
                  static_cast<double>(bytes) * 1e-6, options.out));
  print_left_out(reader);
  if (tokens < options.vocab_size)
    say(stdout,
        fmt::format("warning: only {1} of {0} tokens were found: no pairs are left to merge; "
                    "give more text\n",
                    options.vocab_size, tokens));
  return 0;
}

int run_command(const trainer::EncodeOptions& options) {
  const std::unique_ptr<const data::Tokenizer> tokenizer = data::open_tokenizer(options.tokenizer);
  data::DocumentReader reader(document_files(options.files),
                              {.stdin_is_json = !options.field.empty(),
                               .field = options.field.empty() ? "text" : options.field});
  data::DocumentBatch batch;
  fmt::memory_buffer out;
  while (reader.next(batch)) {
    const data::DocumentTexts texts = reader.texts(batch.documents, usable_cores());
    for (const std::string_view text : texts.views) {
      std::vector<std::int32_t> ids;
      if (options.special)
        ids = data::encode_special(*tokenizer, text);
      else
        data::encode_parallel(*tokenizer, text, usable_cores(), ids);
      fmt::format_to(std::back_inserter(out), "{}\n", fmt::join(ids, " "));
      write_out({out.data(), out.size()});
      out.clear();
    }
  }
  return 0;
}

int run_command(const trainer::DecodeOptions& options) {
  const std::unique_ptr<const data::Tokenizer> tokenizer = data::open_tokenizer(options.tokenizer);
  for (const data::InputFile& file : document_files(options.files)) {
    data::DocumentReader reader({file}, {.stdin_is_json = false});
    data::DocumentBatch batch;
    while (reader.next(batch)) {
      for (const data::Document& document : batch.documents) {
        const std::string_view text = document.raw;
        std::vector<std::int32_t> ids;
        for (std::size_t at = text.find_first_not_of(" \t\r\n"); at < text.size();
             at = text.find_first_not_of(" \t\r\n", at)) {
          const std::size_t end = std::min(text.find_first_of(" \t\r\n", at), text.size());
          const std::string_view word = text.substr(at, end - at);
          std::int32_t id = -1;
          const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), id);
          if (error != std::errc() || rest != word.data() + word.size() ||
              tokenizer->bytes_of(id).empty())
            throw trainer::input_error("{}: '{}' at byte {} is not the id of a token of {}",
                                       reader.where(document), word.substr(0, 40), at,
                                       options.tokenizer);
          ids.push_back(id);
          at = end;
        }
        write_out(decode(*tokenizer, ids));
      }
    }
  }
  return 0;
}

int run_command(const trainer::ConvertTokenizerOptions& options) {
  std::vector<data::SpecialToken> special;
  for (const std::string& word : words_of(options.special)) {
    const std::size_t equals = std::min(word.rfind('='), word.size());
    std::int32_t id = -1;
    const char* const end = word.data() + word.size();
    const char* const number = word.data() + std::min(equals + 1, word.size());
    const auto [rest, error] = std::from_chars(number, end, id);
    if (equals == 0 || error != std::errc() || rest != end || id < 0)
      throw trainer::input_error("--special '{}': give TOKEN=ID, several separated by spaces",
                                 word);
    special.push_back({word.substr(0, equals), id});
  }
  data::BpeDefinition definition =
      data::read_bpe_definition(options.tokenizer, options.pattern, special);
  const std::string json = data::write_tokenizer_json(definition);
  const data::BpeTokenizer converted(std::move(definition), options.tokenizer);
  if (data::BpeTokenizer(data::read_tokenizer_json(json, options.out), options.out).fingerprint() !=
      converted.fingerprint())
    throw trainer::input_error(
        "{}: as a tokenizer.json it would have other ids, because an added token has the text or "
        "the id "
        "of another token; give another --special, or use the file as it is",
        options.tokenizer);
  replace_file(options.out, json);
  return 0;
}

}  // namespace muo::cli
