#include "data/examples/hellaswag.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file_bytes.h"
#include "data/examples/json_lines.h"
#include "data/shards.h"

namespace muo::data {
namespace {

constexpr std::uint16_t kStart = 65535;
constexpr std::size_t kWord = sizeof(std::uint16_t);

// Reads the numbers of one example in sequence.
class WordReader {
 public:
  WordReader(const std::filesystem::path& path, std::span<const std::byte> bytes)
      : path_(path), bytes_(bytes) {}

  void begin_example(std::int64_t index) { index_ = index; }
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(concat(where(), ": ", what, "; write the file again"));
  }
  [[nodiscard]] std::string where() const { return concat(path_.native(), ": example ", index_); }
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }

  std::uint16_t next() {
    if (bytes_.size() - at_ < kWord) fail("the file ends in the middle of it");
    std::uint16_t value = 0;
    std::memcpy(&value, bytes_.data() + at_, kWord);
    at_ += kWord;
    return value;
  }
  // Reads a length, which must not be 0, and that many tokens below `vocab_size`;
  // appends them to `out`.
  void add_tokens(const char* what, std::int64_t vocab_size, std::vector<std::int32_t>& out) {
    const std::uint16_t length = next();
    if (length == 0) fail(concat(what, " has no tokens"));
    for (std::uint16_t i = 0; i < length; ++i) {
      const std::uint16_t token = next();
      if (token >= vocab_size)
        throw InputError(concat(where(), ": token ", token,
                                " is outside the model's vocabulary of ", vocab_size,
                                "; give a file written with the model's tokenizer"));
      out.push_back(token);
    }
  }

 private:
  const std::filesystem::path& path_;
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::int64_t index_ = 0;
};

// Adds an example that consists of `context` and completions.
void add_example(TokenTask& task, const std::vector<std::int32_t>& context,
                 std::vector<std::vector<std::int32_t>> completions, std::size_t label,
                 const HellaSwagOptions& options, const std::string& where) {
  for (auto& completion : completions)
    completion.insert(completion.begin(), context.begin(), context.end());
  const std::vector<std::size_t> starts(completions.size(), context.size());
  task.add(completions, starts, label, options.row_tokens, where);
}

bool has_enough(const TokenTask& task, const HellaSwagOptions& options) {
  return options.max_examples > 0 && std::ssize(task.examples) >= options.max_examples;
}

void read_example(TokenTask& task, WordReader& words, const HellaSwagOptions& options) {
  const std::size_t begin = words.at();
  const std::int64_t index = std::ssize(task.examples);
  words.begin_example(index);
  if (words.next() != kStart) words.fail("it does not start with 65535");
  const std::size_t bytes = words.next();
  if (const std::uint16_t named = words.next(); named != index)
    words.fail(fmt::format("its index is {}", named));
  const std::uint16_t label = words.next();
  const std::uint16_t count = words.next();
  if (count < 2 || label >= count)
    words.fail(fmt::format("its label is {}, but it has {} completions", label, count));
  std::vector<std::int32_t> context;
  words.add_tokens("its context", options.vocab_size, context);
  std::vector<std::vector<std::int32_t>> completions(count);
  for (auto& completion : completions)
    words.add_tokens("a completion", options.vocab_size, completion);
  if (words.at() - begin != bytes)
    words.fail(fmt::format("it has {} bytes, but its header says {}", words.at() - begin, bytes));
  add_example(task, context, std::move(completions), label, options, words.where());
}

}  // namespace

bool looks_like_eval_file(const std::filesystem::path& path) {
  std::array<char, sizeof(std::int32_t)> start{};
  std::ifstream(path, std::ios::binary).read(start.data(), start.size());
  std::int32_t magic = 0;
  std::memcpy(&magic, start.data(), sizeof magic);
  return magic == kEvalFileMagic;
}

TokenTask read_eval_file(const std::filesystem::path& path, const HellaSwagOptions& options) {
  const FileBytes file(path);
  const auto fail = [&](const std::string& what) {
    throw InputError(concat(path.native(), ": ", what));
  };
  if (file.bytes().size() < kShardHeaderBytes)
    fail(fmt::format("truncated: {} bytes, fewer than the {} of an evaluation file's header",
                     file.bytes().size(), kShardHeaderBytes));
  std::array<std::int32_t, 3> header{};
  std::memcpy(header.data(), file.bytes().data(), sizeof header);
  const auto [magic, version, count] = header;
  if (magic != kEvalFileMagic)
    fail(fmt::format("not an evaluation file: its first number is {}, not {}", magic,
                     kEvalFileMagic));
  if (version != kEvalFileVersion)
    fail(
        fmt::format("version {} of evaluation files; only {} is known", version, kEvalFileVersion));
  if (count <= 0) fail(fmt::format("the header says {} examples", count));
  TokenTask task{.name = "hellaswag"};
  WordReader words(path, file.bytes().subspan(kShardHeaderBytes));
  for (std::int32_t i = 0; i < count; ++i) {
    if (has_enough(task, options)) return task;
    read_example(task, words, options);
  }
  if (!words.at_end()) fail(fmt::format("there are bytes after its {} examples", count));
  return task;
}

TokenTask read_hellaswag(const std::filesystem::path& path, const Tokenizer& tokenizer,
                         const HellaSwagOptions& options) {
  TokenTask task{.name = "hellaswag"};
  read_json_lines(path, [&](const JsonLine& line, std::int64_t /*number*/) {
    const std::string context = line.text("ctx");
    const std::vector<std::string> endings = line.texts("endings");
    const std::size_t label = line.index("label", endings.size());
    if (context.empty()) throw InputError(concat(line.where(), ": \"ctx\" is empty"));
    if (has_enough(task, options)) return;
    std::vector<std::vector<std::int32_t>> completions;
    completions.reserve(endings.size());
    for (const std::string& ending : endings)
      completions.push_back(encode(tokenizer, " " + ending));
    add_example(task, encode(tokenizer, context), std::move(completions), label, options,
                line.where());
  });
  return task;
}

}  // namespace muo::data
