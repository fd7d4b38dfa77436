#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/model_json.h"
#include "app/commands.h"
#include "base/check.h"
#include "base/mapped_file.h"
#include "base/text_table.h"

namespace muo {
namespace {

namespace fs = std::filesystem;

Manifest read_manifest(const Checkpoint& checkpoint) {
  const fs::path path = checkpoint.path() / kManifestName;
  const MappedFile file(path);
  return parse_manifest({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()},
                        path);
}

// It may be missing: before it was written, and where nobody needs it.
void check_config_file(const Checkpoint& checkpoint) {
  const fs::path path = checkpoint.path() / kConfigName;
  if (std::error_code ignored; !fs::exists(path, ignored)) return;
  const MappedFile file(path);
  const std::string expected = config_file_text(checkpoint.info());
  if (!std::ranges::equal(file.bytes(), std::as_bytes(std::span(expected))))
    throw InputError(fmt::format("{} is not the configuration that is in {}: it was changed since",
                                 path.string(), kManifestName));
}

std::int64_t file_bytes(const Manifest& manifest) {
  return manifest.files[0].bytes + manifest.files[1].bytes;
}

}  // namespace

int run_inspect(const InspectOptions& options) {
  const Checkpoint checkpoint(options.checkpoint, {.verify = false});
  const Manifest manifest = read_manifest(checkpoint);
  const CheckpointInfo& info = manifest.info;
  fmt::print("{}\n", checkpoint.path().string());
  fmt::print("step {}, {} updates, {} tokens, seed {}, written by {} device{}\n", info.step,
             info.updates, grouped(info.tokens), info.seed, info.world, info.world == 1 ? "" : "s");
  fmt::print("model {}\n", model_text(checkpoint_model(checkpoint)));
  fmt::print("data {}\n", info.data);
  for (std::size_t f = 0; f < kCheckpointFiles.size(); ++f) {
    Table table({kCheckpointFiles[f], "dtype", "shape", "bytes"});
    for (const SafetensorsSpec& tensor : manifest.files[f].tensors)
      table.add({tensor.name, std::string(name_of(tensor.dtype)), tensor.shape.text(),
                 grouped(tensor.shape.numel() * size_of(tensor.dtype))});
    fmt::print("\n{}", table.text());
  }
  fmt::print("\noptions\n{}", checkpoint_options_text(checkpoint));
  return 0;
}

// Reads everything: one checkpoint, or all of a run.
int run_verify(const VerifyOptions& options) {
  std::error_code ignored;
  std::vector<fs::path> paths;
  if (fs::exists(fs::path(options.checkpoint) / kManifestName, ignored)) {
    paths.emplace_back(options.checkpoint);
  } else {
    for (const FoundCheckpoint& found : find_checkpoints(options.checkpoint))
      paths.push_back(found.path);
  }
  if (paths.empty())
    throw InputError(
        fmt::format("--checkpoint {}: neither a checkpoint nor a run directory with checkpoints",
                    options.checkpoint));
  std::size_t damaged = 0;
  for (const fs::path& path : paths) {
    try {
      const Checkpoint checkpoint(path);
      check_config_file(checkpoint);
      fmt::print("{}: whole, {}\n", path.string(),
                 size_text(file_bytes(read_manifest(checkpoint))));
    } catch (const InputError& error) {
      fmt::print("{}: DAMAGED: {}\n", path.string(), error.what());
      ++damaged;
    }
  }
  if (damaged == 0) return 0;
  static_cast<void>(std::fflush(stdout));
  throw InputError(fmt::format("{} of {} checkpoints damaged", damaged, paths.size()));
}

}  // namespace muo
