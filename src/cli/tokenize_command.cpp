#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/json_text.h"
#include "base/terminal.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/document_files.h"
#include "data/documents.h"
#include "data/fingerprint.h"
#include "data/shard_manifest.h"
#include "data/shard_writer.h"
#include "data/tokenizer.h"
#include "kit/progress_text.h"

namespace muo::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_other_text(const std::string& out) {
  throw trainer::input_error(
      "{}: holds shards of other text, options or tokenizer; give another --out, or remove "
      "it",
      out);
}

// Splits the stream of documents into shards and maintains the manifest.
class ShardStream {
 public:
  ShardStream(const trainer::TokenizeOptions& options, const data::Tokenizer& tokenizer,
              data::ShardManifest manifest)
      : options_(options),
        format_(tokenizer.vocab_size() > 65536 ? data::kWideShard : data::kNarrowShard),
        manifest_(std::move(manifest)),
        held_documents_(manifest_.documents),
        skip_tokens_(manifest_.next_tokens) {
    for (const data::ShardEntry& shard : manifest_.shards)
      (shard.held_out ? held_out_ : trained_) += shard.tokens;
    train_shards_ = std::count_if(manifest_.shards.begin(), manifest_.shards.end(),
                                  [](const data::ShardEntry& shard) { return !shard.held_out; });
    has_val_ = train_shards_ < std::ssize(manifest_.shards);
  }

  // True if the shards already hold this document, the next one from the start, so that it need not
  // be encoded again. Throws InputError if they hold another document.
  bool holds(std::string_view text) {
    if (seen_documents_ == held_documents_) {
      if (manifest_.complete) refuse_other_text(options_.out);
      return false;
    }
    seen_checksum_ = data::document_checksum(seen_checksum_, text);
    if (++seen_documents_ == held_documents_ && seen_checksum_ != manifest_.text_checksum)
      refuse_other_text(options_.out);
    return true;
  }

  void add(std::span<const std::int32_t> ids, std::string_view text) {
    const std::int64_t index = manifest_.documents;
    const bool holds_out = options_.val_tokens > 0 && held_out_ < options_.val_tokens &&
                           index % options_.val_every == options_.val_every - 1;
    auto rest = ids.subspan(static_cast<std::size_t>(skip_tokens_));
    manifest_.next_tokens = skip_tokens_;
    skip_tokens_ = 0;
    if (holds_out) {
      const std::int64_t most = options_.val_tokens - held_out_;
      val_.insert(val_.end(), rest.begin(),
                  rest.begin() + std::min<std::int64_t>(most, std::ssize(rest)));
      held_out_ += std::min<std::int64_t>(most, std::ssize(rest));
    } else {
      while (!rest.empty()) {
        if (!shard_)
          shard_.emplace(options_.out, fmt::format("train_{:06}.bin", train_shards_), format_,
                         options_.shard_tokens);
        const auto now = rest.first(
            static_cast<std::size_t>(std::min<std::int64_t>(shard_->left(), std::ssize(rest))));
        shard_->append(now);
        trained_ += std::ssize(now);
        manifest_.next_tokens += std::ssize(now);
        rest = rest.subspan(now.size());
        if (shard_->left() == 0 && !rest.empty()) finish_shard();
      }
    }
    manifest_.next_tokens = 0;
    ++manifest_.documents;
    manifest_.text_bytes += std::ssize(text);
    manifest_.text_checksum = data::document_checksum(manifest_.text_checksum, text);
    if (shard_ && shard_->left() == 0) finish_shard();
  }

  // Called at the end: throws unless all documents that the shards hold have been seen again.
  void check_held() const {
    if (seen_documents_ < held_documents_) refuse_other_text(options_.out);
  }

  const data::ShardManifest& finish() {
    check_held();
    manifest_.complete = true;
    if (shard_)
      finish_shard();
    else
      write_manifest();
    return manifest_;
  }
  [[nodiscard]] std::int64_t trained() const { return trained_; }
  [[nodiscard]] std::int64_t held_out() const { return held_out_; }
  [[nodiscard]] std::int64_t shards() const { return train_shards_; }

 private:
  void finish_shard() {
    manifest_.shards.push_back(shard_->finish());
    shard_.reset();
    ++train_shards_;
    write_manifest();
  }

  // Called after each shard, so that an interrupted run loses at most one shard. Held-out tokens
  // are few, so their shard is rewritten.
  void write_manifest() {
    if (!val_.empty()) {
      std::vector<std::int32_t> all;
      if (has_val_) all = read_val();
      all.insert(all.end(), val_.begin(), val_.end());
      val_.clear();
      data::ShardWriter writer(options_.out, "val_000000.bin", format_, std::ssize(all));
      writer.append(all);
      data::ShardEntry entry = writer.finish();
      entry.held_out = true;
      std::erase_if(manifest_.shards, [](const data::ShardEntry& shard) { return shard.held_out; });
      manifest_.shards.insert(manifest_.shards.begin(), entry);
      has_val_ = true;
    }
    replace_file(fs::path(options_.out) / data::kShardManifestName, shard_manifest_text(manifest_));
  }

  [[nodiscard]] std::vector<std::int32_t> read_val() const {
    const data::TokenShard shard =
        data::open_shard(fs::path(options_.out) / "val_000000.bin", manifest_.vocab_size);
    // Tokens written after the last manifest, before an interruption, are encoded again.
    const auto held_out =
        std::find_if(manifest_.shards.begin(), manifest_.shards.end(),
                     [](const data::ShardEntry& entry) { return entry.held_out; });
    if (shard.size() < held_out->tokens)
      throw trainer::input_error(
          "{}/val_000000.bin: {} tokens, but the manifest has {}; tokenize again", options_.out,
          shard.size(), held_out->tokens);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(held_out->tokens));
    shard.read(0, ids);
    return ids;
  }

  const trainer::TokenizeOptions& options_;
  data::ShardFormat format_;
  data::ShardManifest manifest_;
  std::int64_t held_documents_, skip_tokens_;
  std::int64_t seen_documents_ = 0;
  std::uint32_t seen_checksum_ = 0;
  std::int64_t trained_ = 0, held_out_ = 0;  // tokens
  std::int64_t train_shards_ = 0;
  bool has_val_ = false;
  std::optional<data::ShardWriter> shard_;
  std::vector<std::int32_t> val_;  // held-out tokens not yet in a shard
};

// Everything except the tokenizer that determines the contents of the shards.
std::string source_of(const trainer::TokenizeOptions& options,
                      std::span<const data::InputFile> files) {
  nlohmann::json inputs = nlohmann::json::array();
  for (const auto& [file, named, identity] : files) {
    const bool is_stdin = file == "-";
    inputs.push_back({{"file", file.native()},
                      {"bytes", is_stdin ? 0 : fs::file_size(file)},
                      {"fingerprint", is_stdin ? 0 : data::file_fingerprint(file)}});
  }
  return json_text(nlohmann::json{{"files", inputs},
                                  {"field", options.text.field},
                                  {"separator", options.text.separator},
                                  {"skip_bad_lines", options.text.skip_bad_lines},
                                  {"shard_tokens", options.shard_tokens},
                                  {"val_tokens", options.val_tokens},
                                  {"val_every", options.val_every}});
}

// The manifest to continue from: a new one, written before any shard, or the manifest of an
// interrupted run.
data::ShardManifest begin(const trainer::TokenizeOptions& options, const data::Tokenizer& tokenizer,
                          std::int32_t bos, const std::string& source) {
  const fs::path out(options.out);
  data::ShardManifest manifest;
  std::optional<data::TokenizerCopy> copy;
  if (options.tokenizer != "byte") copy = data::copy_tokenizer(options.tokenizer);
  if (copy) manifest.tokenizer_file = copy->name;
  manifest.fingerprint = tokenizer.fingerprint();
  manifest.vocab_size = tokenizer.vocab_size();
  manifest.bos = bos;
  manifest.source = source;
  manifest.token_bytes = data::bytes_of_tokens(tokenizer);
  if (const auto found = data::find_shard_manifest(out)) {
    if (found->fingerprint == manifest.fingerprint && found->source == source) return *found;
    if (!found->shards.empty()) refuse_other_text(options.out);
  }
  for (const fs::path& entry : entries_of(out))
    if (entry.extension() == ".bin")
      throw trainer::input_error("{}: holds {}, which no manifest.json lists; give another --out",
                                 options.out, entry.filename().string());
  if (copy) replace_file(out / copy->name, copy->contents);
  replace_file(out / data::kShardManifestName, shard_manifest_text(manifest));
  return manifest;
}

// Creates and locks the output folder, to which no other process may write then. Throws InputError.
FileLock lock_output(const std::string& folder) {
  std::string holder;
  FileLock lock = before_any_work("--out", folder, [&] {
    make_directories(folder);
    return FileLock::try_file(fs::path(folder) / ".lock", holder);
  });
  if (!holder.empty())
    throw trainer::input_error(
        "--out {}: {} is tokenizing there: wait until it ends, or give another --out", folder,
        holder);
  return lock;
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Finishes the shards and prints a summary.
void report(const trainer::TokenizeOptions& options, ShardStream& shards, std::int64_t text_bytes,
            Clock::time_point started) {
  const data::ShardManifest& done = shards.finish();
  const auto bytes = static_cast<double>(done.text_bytes);
  say(stdout,
      fmt::format(
          "{}: {} tokens in {} shard{}, {} held out; {} documents, {:.1f} MB, {:.2f} bytes per "
          "token, {:.1f} MB/s\n",
          options.out, shards.trained(), shards.shards(), shards.shards() == 1 ? "" : "s",
          shards.held_out(), done.documents, bytes * 1e-6,
          bytes / static_cast<double>(shards.trained() + shards.held_out()),
          static_cast<double>(text_bytes) * 1e-6 / seconds_since(started)));
  if (shards.held_out() == 0 && options.val_tokens > 0)
    say(stdout,
        fmt::format(
            "no held-out shard: fewer documents than --val-every {}; training holds out {}\n",
            options.val_every, shards.shards() == 1 ? "the end" : "the last shard"));
}

}  // namespace

int run_command(const trainer::TokenizeOptions& options) {
  const std::unique_ptr<const data::Tokenizer> tokenizer = data::open_tokenizer(options.tokenizer);
  const std::int32_t bos = data::need_bos(*tokenizer, options.tokenizer);
  const std::vector<data::InputFile> files = document_files(options.data, options.out);
  const std::string source = source_of(options, files);
  data::DocumentReader reader(files, document_options(options.text));
  const FileLock lock = lock_output(options.out);
  data::ShardManifest manifest = begin(options, *tokenizer, bos, source);
  const bool complete = manifest.complete;
  const std::string complete_text =
      fmt::format("{}: complete already: {} documents\n", options.out, manifest.documents);
  // Standard input must be read before its text can be compared.
  if (complete && files.back().path != "-") {
    fmt::print("{}", complete_text);
    return 0;
  }
  if (!complete && (manifest.documents > 0 || manifest.next_tokens > 0))
    say(stdout, fmt::format("{}: continues after {} documents\n", options.out, manifest.documents));
  std::int64_t input_bytes = 0;
  const nlohmann::json inputs = nlohmann::json::parse(source);
  for (const auto& input : inputs["files"])
    input_bytes += input["bytes"].get<std::int64_t>();
  if (files.back().path == "-") input_bytes = 0;
  const int threads = options.threads ? static_cast<int>(*options.threads) : usable_cores();

  ShardStream shards(options, *tokenizer, std::move(manifest));
  Terminal terminal(STDOUT_FILENO);
  const Clock::time_point started = Clock::now();
  Clock::time_point encoding = started;  // excludes reading documents that the shards already hold
  kit::TokenizeProgress progress{.input_bytes = input_bytes};
  const auto read = [&reader] {
    std::optional<data::DocumentBatch> batch(std::in_place);
    if (!reader.next(*batch)) batch.reset();
    return batch;
  };
  // Reads a batch while the previous one is encoded and written.
  const auto read_ahead = [&read] {
    try {
      return std::async(std::launch::async, read);
    } catch (const std::system_error&) {
      throw ThreadRefused(refused_thread_text());
    }
  };
  for (std::future next = read_ahead();;) {
    const std::optional<data::DocumentBatch> batch = next.get();
    if (!batch) break;
    next = read_ahead();
    const data::DocumentTexts texts = reader.texts(batch->documents, threads);
    const auto fresh = std::find_if_not(texts.views.begin(), texts.views.end(),
                                        [&](std::string_view text) { return shards.holds(text); });
    const std::span<const std::string_view> views(fresh, texts.views.end());
    const auto encoded = data::encode_documents(*tokenizer, views, threads, bos);
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      shards.add(encoded[i], views[i]);
      progress.text_bytes += std::ssize(views[i]);
    }
    progress.tokens = shards.trained();
    progress.shards = shards.shards();
    progress.taken += batch->input_bytes;
    if (progress.text_bytes == 0) {
      encoding = Clock::now();
      progress.held = progress.taken;
    }
    progress.seconds = seconds_since(encoding);
    if (seconds_since(started) > 1) terminal.progress(kit::progress_text(progress), false);
  }
  terminal.clear();
  if (complete) {
    shards.check_held();
    fmt::print("{}", complete_text);
    return 0;
  }
  const std::string others = reader.left_out().text();
  if (shards.trained() == 0)
    throw trainer::input_error("{}: no text{}{}", options.data.front().native(),
                               others.empty() ? "" : "; left out: ", others);
  report(options, shards, progress.text_bytes, encoding);
  print_left_out(reader);
  return 0;
}

}  // namespace muo::cli
