#include "data/examples/core_prompts.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/threads.h"
#include "data/examples/python_random.h"
#include "data/examples/python_strip.h"

namespace muo::data {
namespace {

constexpr std::uint64_t kShotsSeed = 1234;

// Returns a context followed by the delimiter, as in nanochat's templates.
std::string context_prefix(const CoreTask& task, const CoreItem& item, std::size_t context) {
  std::string_view text = item.contexts[context];
  if (task.type == CoreType::kLanguageModeling) text = python_strip(text);
  return std::string(text) + task.delimiter;
}

std::string solved_example(const CoreTask& task, const CoreItem& item) {
  const bool is_schema = task.type == CoreType::kSchema;
  return context_prefix(task, item, is_schema ? item.gold : 0) +
         item.continuations[is_schema ? 0 : item.gold] + "\n\n";
}

struct Prompts {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::size_t> starts;
};

Prompts tokenize(const CoreTask& task, std::size_t index, const Tokenizer& tokenizer,
                 std::int32_t bos) {
  Prompts out;
  for (const std::string& prompt : core_prompts(task, index)) {
    std::vector<std::int32_t>& ids = out.tokens.emplace_back(1, bos);
    tokenizer.encode(prompt, 0, prompt.size(), ids);
  }
  switch (task.type) {
    case CoreType::kMultipleChoice:
      out.starts.assign(out.tokens.size(), common_prefix(out.tokens));
      break;
    case CoreType::kSchema: {
      const std::size_t suffix = common_suffix(out.tokens);
      for (const auto& tokens : out.tokens)
        out.starts.push_back(tokens.size() - suffix);
      break;
    }
    case CoreType::kLanguageModeling:
      out.starts = {common_prefix(out.tokens)};
      out.tokens.erase(out.tokens.begin());
      break;
  }
  return out;
}

}  // namespace

std::vector<std::size_t> core_shots(const CoreTask& task, std::size_t index) {
  if (task.shots == 0) return {};
  std::vector<std::size_t> shots =
      PythonRandom(kShotsSeed + index)
          .sample(task.items.size() - 1, static_cast<std::size_t>(task.shots));
  for (std::size_t& shot : shots)  // skips the item itself
    if (shot >= index) ++shot;
  return shots;
}

std::vector<std::string> core_prompts(const CoreTask& task, std::size_t index) {
  std::string before;
  for (const std::size_t shot : core_shots(task, index))
    before += solved_example(task, task.items[shot]);
  const CoreItem& item = task.items[index];
  std::vector<std::string> out;
  switch (task.type) {
    case CoreType::kMultipleChoice:
      before += context_prefix(task, item, 0);
      for (const std::string& choice : item.continuations)
        out.push_back(before + choice);
      break;
    case CoreType::kSchema:
      for (std::size_t i = 0; i < item.contexts.size(); ++i)
        out.push_back(before + context_prefix(task, item, i) + item.continuations.front());
      break;
    case CoreType::kLanguageModeling: {
      const std::string without = before + context_prefix(task, item, 0);
      out = {std::string(python_strip(without)), without + item.continuations.front()};
      break;
    }
  }
  return out;
}

TokenTask tokenize_core(const CoreTask& task, const Tokenizer& tokenizer, std::int32_t bos,
                        std::int64_t row_tokens, int threads) {
  TokenTask out{.name = task.label,
                .kind = task.type == CoreType::kLanguageModeling ? TaskKind::kContinuation
                                                                 : TaskKind::kChoices,
                .shots = task.shots,
                .baseline = task.baseline};
  constexpr std::size_t kItems = 1024;  // per batch, to limit memory
  for (std::size_t begin = 0; begin < task.items.size(); begin += kItems) {
    std::vector<Prompts> prompts(std::min(kItems, task.items.size() - begin));
    parallel_for(threads, prompts.size(),
                 [&](std::size_t i) { prompts[i] = tokenize(task, begin + i, tokenizer, bos); });
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const CoreItem& item = task.items[begin + i];
      const std::string where = concat(task.file.native(), ": line ", item.line);
      const bool is_one = task.type == CoreType::kLanguageModeling;
      if (is_one && prompts[i].starts.front() == prompts[i].tokens.front().size())
        throw InputError(concat(where, ": the continuation adds no tokens"));
      out.add(prompts[i].tokens, prompts[i].starts, is_one ? 0 : item.gold, row_tokens, where);
    }
  }
  return out;
}

}  // namespace muo::data
