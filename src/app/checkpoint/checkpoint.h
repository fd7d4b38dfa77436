#pragma once

#include <functional>
#include <optional>

#include "app/checkpoint/manifest.h"
#include "runtime/parameter.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo::app {

// A checkpoint is a directory, RUN/checkpoints/step_00000100, that holds logical tensors (decision
// logical-checkpoints): model.safetensors (weights), optimizer.safetensors (state under
// "<parameter>.momentum" and so on) and manifest.json. checkpoint_saver.h writes them; a directory
// with that name is complete.

std::filesystem::path checkpoint_directory(const std::filesystem::path& run, std::int64_t step);

struct FoundCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path path;
};
// Directories of a run that are named like checkpoints, newest first. Throws InputError if that
// cannot be read.
std::vector<FoundCheckpoint> find_checkpoints(const std::filesystem::path& run);

// What a user means who names a checkpoint less than exactly: step_500 for step_00000500, a file in
// it, or the folder `checkpoints` of a run. Anything else is returned as it is.
std::filesystem::path named_checkpoint(const std::filesystem::path& given);

struct OpenCheckpoint {
  bool weights_only = false;  // model.safetensors only
  bool verify = true;         // compare every tensor with its checksum: reads the files once
};

// A checkpoint to read from, memory-mapped. After construction ranks may use it at the same time.
class Checkpoint {
 public:
  // `path`: a checkpoint directory, or a run directory, of which it takes the newest checkpoint.
  // Throws InputError, naming what differs, for anything missing, damaged or of another version.
  explicit Checkpoint(const std::filesystem::path& path, const OpenCheckpoint& options = {});

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const CheckpointInfo& info() const { return manifest_.info; }
  // False for one that was imported, even if opened for its weights only.
  [[nodiscard]] bool has_optimizer_state() const { return !manifest_.files[1].tensors.empty(); }

  // Fills the entries' values, writers or not, reading only their ranges: any world, any strategy.
  // fp32 and bf16 are converted. On `stream`, which is synchronized on return. Throws InputError
  // for a tensor that the checkpoint lacks, or holds with another shape or another dtype; values
  // are then unspecified.
  void load(Stream& stream, std::span<const StateEntry> entries) const;

  // Fills a full replica of every parameter: weight(i) is that of params[i], of its logical shape.
  // Also throws InputError if the model file holds other tensors than these.
  void load_weights(Stream& stream, std::span<const ParamSpec> params,
                    const std::function<Tensor(std::size_t)>& weight) const;

 private:
  std::filesystem::path path_;
  Manifest manifest_;
  std::vector<SafetensorsFile> files_;  // in the order of kCheckpointFiles
};

// For `--resume auto`: the newest checkpoint of the run directory that is not damaged; nullopt if
// it has none at all. Appends to `skipped` one line for each that is, saying why. Throws InputError
// if all are: starting over without a word would lose the run.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& run,
                                            std::vector<std::string>& skipped,
                                            const OpenCheckpoint& options = {});

}  // namespace muo::app
