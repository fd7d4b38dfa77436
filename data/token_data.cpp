#include "data/token_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/threads.h"
#include "data/document_index.h"
#include "data/fingerprint.h"
#include "data/input_files.h"
#include "data/shard_manifest.h"
#include "data/shards.h"
#include "data/text_corpus.h"

namespace muo::data {
namespace {

bool has_shard_name(const InputFile& file) { return file.path.extension() == ".bin"; }

// Removes manifests and tokenizers that lie beside shards in a named folder: these are not data.
void drop_metadata_files(FileList& list) {
  std::set<std::filesystem::path> folders;
  for (const InputFile& file : list.files)
    if (has_shard_name(file) && looks_like_shard(file.path))
      folders.insert(file.path.parent_path());
  std::erase_if(list.files, [&](const InputFile& file) {
    const std::filesystem::path name = file.path.filename();
    const bool describes =
        name == kShardManifestName ||
        std::find(kTokenizerNames.begin(), kTokenizerNames.end(), name) != kTokenizerNames.end();
    return !file.named && describes && folders.contains(file.path.parent_path());
  });
}

// Whether the files are shards. Throws if only some of them are. In a directory of text, a .bin
// file without a shard's magic number is a binary file like any other.
bool are_shards(std::span<const InputFile> files) {
  const auto other = std::find_if_not(files.begin(), files.end(), has_shard_name);
  if (other == files.end()) return true;
  const auto shard = std::find_if(files.begin(), files.end(), [](const InputFile& file) {
    return has_shard_name(file) && (file.named || looks_like_shard(file.path));
  });
  if (shard == files.end()) return false;
  throw InputError(concat(shard->path.native(), " is a token shard and ", other->path.native(),
                          " is not; give either .bin shards or text"));
}

// Finds the documents for best-fit packing.
void index_documents(Corpus& corpus, const std::filesystem::path& path) {
  if (!corpus.bos)
    throw InputError(
        concat("--packing best-fit: ", path.native(),
               ": it is unknown which token begins documents; give --bos-token, or the "
               "--tokenizer of the shards"));
  const auto index = [&](const TokenData& data, std::string_view name) {
    auto documents = std::make_shared<const DocumentIndex>(data, *corpus.bos, usable_cores());
    if (documents->size() == 0)
      throw InputError(concat("--packing best-fit: ", path.native(), ": no document begins in the ",
                              name, " data, which lacks token ", *corpus.bos, "; give ",
                              corpus.tokenizer ? "more documents" : "its --bos-token",
                              ", or --packing contiguous"));
    return documents;
  };
  if (corpus.train->size() > 0) corpus.train_documents = index(*corpus.train, "training");
  corpus.val_documents = index(*corpus.val, "held-out");
}

}  // namespace

Corpus open_corpus(const DataOptions& options) {
  MUO_CHECK(options.max_bytes >= 0 && options.vocab_size >= 0 && options.val_fraction > 0 &&
                options.val_fraction < 1,
            "at most ", options.max_bytes, " bytes, vocabulary ", options.vocab_size,
            ", held-out fraction ", options.val_fraction);
  if (options.paths.empty())
    throw InputError(
        "no training data; give --data a text file, a directory of text, or .bin "
        "token shards");
  FileList train = list_files(options.paths);
  FileList val = list_files(options.val_paths);
  drop_metadata_files(train);
  drop_metadata_files(val);

  // Files that are named as held-out data are removed from the training data.
  std::set<std::pair<std::uint64_t, std::uint64_t>> held_out;
  for (const InputFile& file : val.files)
    held_out.insert(file.identity);
  const auto excluded = std::erase_if(
      train.files, [&](const InputFile& file) { return held_out.contains(file.identity); });
  if (train.files.empty())
    throw InputError(concat(options.val_paths.front().native(),
                            ": every file of --data is also in --val-data; nothing is left to "
                            "train on"));

  const bool shards = are_shards(train.files);
  if (!val.files.empty() && are_shards(val.files) != shards)
    throw InputError(concat(
        options.val_paths.front().native(), ": --val-data is ",
        shards ? "text but --data is .bin token shards" : ".bin token shards but --data is text",
        "; give both in the same format"));
  Corpus corpus = shards ? open_shards(options, train.files, val.files)
                         : open_text(options, train.files, val.files);
  if (options.held_out_only) {
    std::swap(corpus.train, corpus.val);
    corpus.description =
        fmt::format("{}: {} tokens", shards ? "token shards" : "text", corpus.val->size());
  }
  if (excluded > 0)
    corpus.description += fmt::format("; {} files of --data are in --val-data", excluded);
  if (const auto repeated = train.repeated + val.repeated; repeated > 0)
    corpus.description += fmt::format("; {} duplicates through links taken once", repeated);
  if (const auto special = train.special + val.special; special > 0)
    corpus.description += fmt::format("; {} fifos, devices or broken links skipped", special);

  // A row needs at least one input and its target.
  for (const auto& [data, name] :
       {std::pair{corpus.train.get(), "training"}, std::pair{corpus.val.get(), "held-out"}})
    if (data->size() < 2 && !(options.held_out_only && data == corpus.train.get()))
      throw InputError(concat(options.paths.front().native(), ": too short: ", data->size(),
                              data->size() == 1 ? " token of " : " tokens of ", name,
                              " data; give more, or --val-data"));
  corpus.train_fingerprint = token_fingerprint(*corpus.train);
  corpus.val_fingerprint = token_fingerprint(*corpus.val);
  if (options.packing == Packing::kBestFit) index_documents(corpus, options.paths.front());
  return corpus;
}

Corpus corpus_without_tokens(const DataOptions& options) {
  Corpus corpus;
  corpus.tokenizer = open_tokenizer(options.tokenizer);
  corpus.vocab_size = options.vocab_size > 0 ? options.vocab_size : corpus.tokenizer->vocab_size();
  corpus.bos = options.bos_token >= 0 ? static_cast<std::int32_t>(options.bos_token)
                                      : find_bos(*corpus.tokenizer);
  return corpus;
}

}  // namespace muo::data
