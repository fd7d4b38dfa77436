#include "fuzz/targets.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/file_bytes.h"
#include "base/strict_json.h"
#include "base/utf8.h"
#include "data/documents.h"
#include "data/examples/core_bundle.h"
#include "data/examples/core_prompts.h"
#include "data/examples/hellaswag.h"
#include "data/shard_manifest.h"
#include "data/shards.h"
#include "data/token_data.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "data/tokenizer/tiktoken_file.h"
#include "data/tokenizer/tokenizer_json.h"
#include "kernels/cuda/gemm_algorithms.h"
#include "kit/export/nanochat_files.h"
#include "kit/report/html_report.h"
#include "kit/report/run_history.h"
#include "kit/report/text_report.h"
#include "support/files.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/options/config_file.h"
#include "trainer/options/option_table.h"

namespace muo::fuzz {
namespace {

// A regular file in memory.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> contents) : file_(::memfd_create("input", 0)) {
    MUO_CHECK(file_ >= 0, "no memory file");
    for (std::size_t at = 0; at < contents.size();) {
      const ssize_t written = ::write(file_, contents.data() + at, contents.size() - at);
      MUO_CHECK(written > 0, "a memory file of ", contents.size(), " bytes");
      at += static_cast<std::size_t>(written);
    }
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  [[nodiscard]] std::filesystem::path path() const {
    return fmt::format("/proc/self/fd/{}", file_);
  }

 private:
  int file_;
};

std::string text_of(std::span<const std::byte> input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

// Reads every element, so that a sanitizer detects elements out of bounds.
template <class T>
std::uint64_t sum_of(std::span<const T> values) {
  return std::accumulate(
      values.begin(), values.end(), std::uint64_t{0},
      [](std::uint64_t sum, T value) { return sum + static_cast<std::uint64_t>(value); });
}

void read_shard(std::span<const std::byte> input) {
  constexpr std::int64_t kVocab = 1000;
  const MemoryFile file(input);
  const data::TokenShard shard = data::open_shard(file.path(), kVocab);
  MUO_CHECK(shard.tokens.size() + data::kShardHeaderBytes == input.size());
  std::vector<std::int32_t> ids(static_cast<std::size_t>(shard.size()));
  shard.read(0, ids);
  for (const std::int32_t id : ids)
    MUO_CHECK(id >= 0 && id < kVocab, "token ", id);
}

void read_safetensors(std::span<const std::byte> input) {
  const MemoryFile contents(input);
  const trainer::SafetensorsFile file(contents.path());
  std::size_t bytes = file.head().size();
  std::uint64_t sum = sum_of(file.head());
  for (const trainer::SafetensorsEntry& entry : file.entries()) {
    MUO_CHECK(file.find(entry.spec.name) == &entry, entry.spec.name);
    const auto data = file.bytes(entry);
    MUO_CHECK(static_cast<std::int64_t>(data.size()) ==
                  entry.spec.shape.numel() * size_of(entry.spec.dtype),
              entry.spec.name);
    bytes += data.size();
    sum += sum_of(data);
  }
  MUO_CHECK(bytes == input.size() && sum == sum_of(input), "bytes that belong to no tensor");
}

// An accepted manifest must be written and read back unchanged.
void read_manifest_text(const std::string& text) {
  const trainer::Manifest manifest = trainer::parse_manifest(text, "manifest");
  const std::string once = trainer::manifest_text(manifest);
  MUO_CHECK(trainer::manifest_text(trainer::parse_manifest(once, "manifest")) == once,
            "another manifest: ", once);
  static_cast<void>(model::gpt_parameters(trainer::checkpoint_model(manifest.info, "manifest")));
}

void read_manifest(std::span<const std::byte> input) { read_manifest_text(text_of(input)); }

// Corrects the checksum of the text after any change, so that the parsing after it is reached.
void read_forged_manifest(std::span<const std::byte> input) {
  constexpr std::string_view kKey = "\"checksum\": \"";
  constexpr std::size_t kDigits = 16;
  std::string text = text_of(input);
  const std::size_t key = text.find(kKey);
  if (key != std::string::npos && key + kKey.size() + kDigits <= text.size()) {
    const std::size_t at = key + kKey.size();
    text.replace(at, kDigits, kDigits, '0');
    const std::uint64_t sum =
        trainer::tensor_checksum(DType::kBytes, 0, std::as_bytes(std::span(text)));
    text.replace(at, kDigits, fmt::format("{:016x}", sum));
  }
  read_manifest_text(text);
}

void read_config(std::span<const std::byte> input) {
  const auto load = [](std::span<const std::byte> bytes) {
    const MemoryFile file(bytes);
    trainer::TrainOptions options;
    const std::vector<trainer::OptionRow> rows = trainer::option_table(options);
    trainer::load_config(file.path(), muo::trainer::read_config(file.path()), rows);
    return trainer::config_text(rows);
  };
  // Paths are absolute from the first round on; the second round has no comments about the given
  // options.
  const std::string once = load(input), twice = load(std::as_bytes(std::span(once)));
  MUO_CHECK(load(std::as_bytes(std::span(twice))) == twice, "another configuration: ", twice);
}

void read_nanochat_meta(std::span<const std::byte> input) {
  const kit::NanochatMeta meta = kit::parse_nanochat_meta(text_of(input), "meta");
  static_cast<void>(model::gpt_parameters(meta.model));
}

// Reads a table that is for this library and GPU.
void read_gemm_table(std::span<const std::byte> input) {
  const MemoryFile file(input);
  cuda::GemmAlgorithms table;
  table.load(file.path(), {.library = 130100, .gpu = "GPU"});
  MUO_CHECK(table.size() <= input.size());
  static_cast<void>(table.find({.library = 130100, .gpu = "GPU"}, "p"));
}

// All tokens of `data` as bytes, in reads of `most` tokens.
std::string bytes_of(const data::TokenData& data, std::int64_t most) {
  std::string bytes;
  std::vector<std::int32_t> tokens;
  for (std::int64_t at = 0; at < data.size(); at += most) {
    tokens.assign(static_cast<std::size_t>(std::min(most, data.size() - at)), -1);
    data.read(at, tokens);
    for (const std::int32_t token : tokens) {
      MUO_CHECK(token >= 0 && token < data::kByteVocab, "token ", token);
      if (token != data::kBosToken) bytes.push_back(static_cast<char>(token));
    }
  }
  return bytes;
}

// Documents separated by record separators. Except for duplicates, training data and held-out data
// together contain all their bytes.
void read_text(std::span<const std::byte> input) {
  constexpr std::size_t kMaxDocuments = 64;
  data::DataOptions options;
  std::deque<MemoryFile> files;
  std::string text = text_of(input);
  for (std::size_t begin = 0; begin <= text.size() && files.size() < kMaxDocuments;) {
    const std::size_t end = std::min(text.find('\x1e', begin), text.size());
    options.paths.push_back(files.emplace_back(input.subspan(begin, end - begin)).path());
    begin = end + 1;
  }
  const data::Corpus corpus = data::open_corpus(options);
  const std::string train = bytes_of(*corpus.train, 7);
  const std::string held_out = bytes_of(*corpus.val, 1000);
  MUO_CHECK(train == bytes_of(*corpus.train, 1 << 20), "reads of other lengths differ");
  if (corpus.description.find("duplicates") == std::string::npos && files.size() < kMaxDocuments) {
    std::erase(text, '\x1e');
    MUO_CHECK(train.size() + held_out.size() == text.size(), corpus.description);
    if (files.size() == 1) MUO_CHECK(train + held_out == text, corpus.description);
  }
}

// An accepted definition must be written and read back unchanged; its patterns must split a text
// without losing anything except removed matches.
void read_definition(const data::BpeDefinition& definition) {
  const std::string written = data::write_tokenizer_json(definition);
  MUO_CHECK(data::write_tokenizer_json(data::read_tokenizer_json(written, "written")) == written);
  const data::TextSplitter splitter(definition.splits, "fuzzed");
  constexpr std::string_view kText = "It's 1,234.5 \xE4\xB8\xAD\xFF  x\n\n y\xC3";
  std::string pieces;
  splitter.split(kText, 0, kText.size(), [&](std::string_view piece) { pieces += piece; });
  const bool keeps_all = std::none_of(
      definition.splits.begin(), definition.splits.end(),
      [](const data::Split& split) { return split.behavior == data::SplitBehavior::kRemoved; });
  MUO_CHECK(pieces == kText || !keeps_all, pieces);
}

void read_tokenizer(std::span<const std::byte> input) {
  read_definition(data::read_tokenizer_json(text_of(input), "input"));
}

void read_ranks(std::span<const std::byte> input) {
  read_definition(
      data::read_tiktoken_file(text_of(input), "input", "gpt2", {{"<|bos|>", 1 << 20}}));
}

void read_pattern(std::span<const std::byte> input) {
  data::TextSplitter({data::read_split_of_ranks(text_of(input), "input")}, "input");
}

// An accepted model must encode any text, and its ids must have texts.
void read_sentencepiece(std::span<const std::byte> input) {
  const data::SentencePieceTokenizer tokenizer(text_of(input), "input");
  constexpr std::string_view kText =
      "It's 1,234.5 \xE4\xB8\xAD\xFF  aaaab\t\xEF\xAC\x80\xEF\xAC\x83\n\n\n \xC2\xBD\xC3 <s>";
  std::vector<std::int32_t> ids;
  try {
    ids = data::encode(tokenizer, kText);
  } catch (const InputError&) {  // a model may normalize this text to a text that cannot be encoded
  }
  for (const std::int32_t id : ids)
    MUO_CHECK(id >= 0 && id < tokenizer.vocab_size(), "id ", id);
  ids.resize(static_cast<std::size_t>(std::min<std::int64_t>(1000, tokenizer.vocab_size())));
  std::iota(ids.begin(), ids.end(), 0);
  MUO_CHECK(is_utf8(decode(tokenizer, ids)));
}

void read_manifest_of_shards(std::span<const std::byte> input) {
  const data::ShardManifest manifest = data::parse_shard_manifest(text_of(input), "input");
  const std::string written = data::shard_manifest_text(manifest);
  MUO_CHECK(data::shard_manifest_text(data::parse_shard_manifest(written, "written")) == written);
}

void read_json_line(std::span<const std::byte> input) {
  const std::string line = text_of(input);
  MUO_CHECK(is_utf8(data::text_of_line(line, "text", "input")));
}

// Every row of a task must have at most `row_tokens` tokens, with the scored tokens inside.
void use_task(const data::TokenTask& task, std::int64_t row_tokens) {
  std::vector<std::int32_t> tokens;
  std::size_t rows = 0;
  for (const data::TokenTask::Example& example : task.examples) {
    MUO_CHECK(example.first_row == rows && example.gold < example.rows);
    rows += example.rows;
  }
  MUO_CHECK(rows == task.rows.size());
  for (const data::ExampleRow& row : task.rows) {
    tokens.clear();
    task.read(row, tokens);
    MUO_CHECK(std::ssize(tokens) <= row_tokens && row.scored >= 1 && row.scored_tokens() >= 0);
    for (const std::int32_t token : tokens)
      MUO_CHECK(token >= 0 && token < data::kByteVocab, "token ", token);
  }
}

constexpr data::HellaSwagOptions kExamples = {.row_tokens = 40, .vocab_size = data::kByteVocab};

void read_eval_file_of(std::span<const std::byte> input) {
  const MemoryFile file(input);
  use_task(data::read_eval_file(file.path(), kExamples), kExamples.row_tokens);
}

void read_hellaswag_of(std::span<const std::byte> input) {
  static const auto bytes = data::open_tokenizer("byte");
  const MemoryFile file(input);
  use_task(data::read_hellaswag(file.path(), *bytes, kExamples), kExamples.row_tokens);
}

void read_core_yaml(std::span<const std::byte> input) {
  const MemoryFile file(input);
  for (const data::CoreTask& task : data::parse_core_yaml(FileBytes(file.path()).text(), "input"))
    MUO_CHECK(!task.label.empty() && task.file.is_relative() && task.shots >= 0);
}

void read_core_meta(std::span<const std::byte> input) {
  std::vector<data::CoreTask> tasks = {{.label = "a"}, {.label = "b, c"}};
  data::add_baselines(tasks, text_of(input), "input");
  for (const data::CoreTask& task : tasks)
    MUO_CHECK(task.baseline >= 0 && task.baseline < 1, task.baseline);
}

// Whatever run.json contains, the page must get tables, objects and values.
void read_run_json(std::span<const std::byte> input) {
  kit::RunHistory run;
  run.facts = text_of(input);
  if (!try_strict_json(run.facts).is_object()) throw InputError("not an object");
  const nlohmann::json data = nlohmann::json::parse(kit::run_data(run, "run", 100));
  const auto is_row = [](const nlohmann::json& value) { return value.is_object(); };
  for (const nlohmann::json& fact : data.at("facts"))
    MUO_CHECK(!fact.is_null() && (!fact.is_array() || std::ranges::all_of(fact, is_row)),
              data.dump());
}

// Rejects a line that is not a record.
void read_metrics(std::span<const std::byte> input) {
  kit::RunHistory run;
  const std::string text = text_of(input);
  bool is_whole = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    is_whole = kit::add_record(text.substr(at, end - at), run) && is_whole;
    at = end + 1;
  }
  MUO_CHECK(nlohmann::json::accept(kit::run_data(run, "run", 100)));
  MUO_CHECK(is_utf8(kit::text_report(run, "run", {.columns = 80})));
  if (!is_whole) throw InputError("lines that are not records");
}

// Writes a file with this name to a folder of this process.
std::filesystem::path named_file(const char* name, std::span<const std::byte> contents) {
  static const test::TemporaryDirectory folder;
  test::write_file(folder.path() / name, text_of(contents));
  return folder.path() / name;
}

// Reads documents of at most 64 KiB, up to a limited number, because a small file may decompress to
// very many.
void read_documents(std::span<const std::byte> input, const char* name) {
  constexpr std::int64_t kMax = 1 << 16;
  data::DocumentReader reader({{.path = named_file(name, input), .named = true, .identity = {}}},
                              {.batch_bytes = 1000, .max_bytes = kMax});
  data::DocumentBatch batch;
  for (int batches = 0; batches < 1000 && reader.next(batch); ++batches) {
    for (const data::Document& document : batch.documents)
      MUO_CHECK(std::ssize(document.raw) <= kMax, reader.where(document));
    static_cast<void>(reader.texts(batch.documents, 1));
  }
}
void read_json_lines_of(std::span<const std::byte> input) { read_documents(input, "a.jsonl"); }
void read_gzip(std::span<const std::byte> input) { read_documents(input, "a.jsonl.gz"); }
void read_zstd(std::span<const std::byte> input) { read_documents(input, "a.jsonl.zst"); }

// Reads the input as items of the first type that accepts it.
void read_core_items_of(std::span<const std::byte> input) {
  static const auto bytes = data::open_tokenizer("byte");
  constexpr std::int64_t kRowTokens = 60;
  const MemoryFile file(input);
  data::CoreTask task{.label = "input", .file = "input"};
  constexpr std::array kTypes = {data::CoreType::kMultipleChoice, data::CoreType::kSchema,
                                 data::CoreType::kLanguageModeling};
  for (std::size_t i = 0;; ++i) {
    task.type = kTypes.at(i);
    try {
      task.items = data::read_core_items(file.path(), task.type);
      break;
    } catch (const InputError&) {
      if (i + 1 == kTypes.size()) throw;
    }
  }
  task.shots = std::min<std::int64_t>(2, std::ssize(task.items) - 1);
  use_task(data::tokenize_core(task, *bytes, data::kBosToken, kRowTokens, 1), kRowTokens);
}

template <void (*kRead)(std::span<const std::byte>)>
bool accepts(std::span<const std::byte> input) {
  try {
    kRead(input);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

constexpr std::array<Target, 24> kTargets = {{{"shard", &accepts<read_shard>},
                                              {"safetensors", &accepts<read_safetensors>},
                                              {"manifest", &accepts<read_manifest>},
                                              {"forged_manifest", &accepts<read_forged_manifest>},
                                              {"config", &accepts<read_config>},
                                              {"nanochat_meta", &accepts<read_nanochat_meta>},
                                              {"gemm_table", &accepts<read_gemm_table>},
                                              {"text", &accepts<read_text>},
                                              {"tokenizer_json", &accepts<read_tokenizer>},
                                              {"tiktoken", &accepts<read_ranks>},
                                              {"split_pattern", &accepts<read_pattern>},
                                              {"sentencepiece", &accepts<read_sentencepiece>},
                                              {"shard_manifest", &accepts<read_manifest_of_shards>},
                                              {"json_line", &accepts<read_json_line>},
                                              {"eval_file", &accepts<read_eval_file_of>},
                                              {"hellaswag", &accepts<read_hellaswag_of>},
                                              {"core_yaml", &accepts<read_core_yaml>},
                                              {"core_meta", &accepts<read_core_meta>},
                                              {"core_items", &accepts<read_core_items_of>},
                                              {"run_json", &accepts<read_run_json>},
                                              {"metrics", &accepts<read_metrics>},
                                              {"jsonl", &accepts<read_json_lines_of>},
                                              {"jsonl_gz", &accepts<read_gzip>},
                                              {"jsonl_zst", &accepts<read_zstd>}}};

}  // namespace

std::span<const Target> targets() { return kTargets; }

}  // namespace muo::fuzz
