#pragma once

#include <functional>
#include <optional>

#include "runtime/parameter.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"
#include "trainer/checkpoint/manifest.h"

namespace muo::trainer {

// A checkpoint is a directory, RUN/checkpoints/step_00000100, that holds logical tensors (decision
// logical-checkpoints): model.safetensors (weights), optimizer.safetensors (state, named
// "<parameter>.momentum" and so on) and manifest.json. CheckpointSaver writes it; a directory with
// this name is always complete.

std::filesystem::path checkpoint_directory(const std::filesystem::path& run, std::int64_t step);

struct FoundCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path path;
};
// Returns the directories of a run whose names are those of checkpoints, newest first. Throws
// InputError if the run cannot be listed.
std::vector<FoundCheckpoint> find_checkpoints(const std::filesystem::path& run);

// Completes a user's abbreviation of a checkpoint or run directory: step_500 for step_00000500, a
// file inside a checkpoint, or a run's folder `checkpoints`. Returns other paths unchanged.
std::filesystem::path named_checkpoint(const std::filesystem::path& given);

struct OpenCheckpoint {
  bool weights_only = false;  // model.safetensors only
  bool verify = true;         // compare every tensor with its checksum, reading all files once
};

// A memory-mapped checkpoint, open for reading. Const access is thread-safe.
class Checkpoint {
 public:
  // `path` is a checkpoint directory, or a run directory, of which the newest checkpoint is opened.
  // Throws InputError with the reason if anything is missing, damaged or of another version.
  explicit Checkpoint(const std::filesystem::path& path, const OpenCheckpoint& options = {});

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const CheckpointInfo& info() const { return manifest_.info; }
  // False for an imported checkpoint; independent of weights_only.
  [[nodiscard]] bool has_optimizer_state() const { return !manifest_.files[1].tensors.empty(); }

  // Fills the values of all entries, writers or not, from their ranges of the logical tensors, for
  // any world size and strategy. Converts between fp32 and bf16. Copies on `stream` and
  // synchronizes it. Throws InputError if the checkpoint lacks a tensor or holds it with another
  // shape or dtype; the values are then unspecified.
  void load(Stream& stream, std::span<const StateEntry> entries) const;

  // Fills a full replica of every parameter: weight(i), with its logical shape, is the replica of
  // params[i]. Throws as load() does, and if the model file has tensors other than these.
  void load_weights(Stream& stream, std::span<const ParamSpec> params,
                    const std::function<Tensor(std::size_t)>& weight) const;

 private:
  std::filesystem::path path_;
  Manifest manifest_;
  std::vector<SafetensorsFile> files_;  // in the order of kCheckpointFiles
};

// Opens the newest undamaged checkpoint of a run directory, for `--resume auto`. Returns nullopt if
// the run has no checkpoint. Appends a line with the reason to `skipped` for each damaged one.
// Throws InputError if all are damaged, because starting over silently would lose the run.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& run,
                                            std::vector<std::string>& skipped,
                                            const OpenCheckpoint& options = {});

}  // namespace muo::trainer
