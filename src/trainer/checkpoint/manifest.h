#pragma once

#include <array>
#include <optional>

#include "kernels/commit.h"
#include "trainer/checkpoint/budget_clock.h"
#include "trainer/checkpoint/safetensors.h"

namespace muo::trainer {

// What a checkpoint records about its run besides the tensors.
struct CheckpointInfo {
  std::int64_t step = 0;     // batches consumed
  std::int64_t updates = 0;  // updates committed; at most `step`
  std::uint64_t seed = 0;
  // Rows and tokens trained by all ranks since the start of the run. Version 0.1.0 wrote no rows.
  std::optional<std::int64_t> rows = 0;
  std::int64_t tokens = 0;
  LossStatistics statistics = {};
  std::optional<BudgetClock> clock = {};  // nullopt: trained without a time budget
  std::string data = "{}";    // JSON object given by the caller: identity of the training data
  std::string config = "{}";  // JSON object given by the caller: the resolved configuration
  int world = 1;              // ranks of the writing run; informative; set by the saver
  std::string version = {};   // version of the writing program; informative
};

// Description of model.safetensors or optimizer.safetensors.
struct ManifestFile {
  std::int64_t bytes = 0;
  std::uint64_t head_checksum = 0;       // tensor_checksum() of the head's bytes
  std::vector<SafetensorsSpec> tensors;  // by offset
  std::vector<std::uint64_t> checksums;  // tensor_checksum() of each tensor
};

// manifest.json, version 1:
//   {"format": "muograph-checkpoint", "version": 1, "checksum": "<16 hex digits>",
//    "written_by": "0.1.0 (commit d30ae45cf12a, Release)", "step", "updates", "seed", "rows",
//    "tokens", "world", "loss_statistics": {"loss": {"count", "mean", "variance"}, "grad_norm":
//    {...}}, "time_budget": {"budget", "spent", "from", "position", "per_step"}, "data": {...},
//    "config": {...}, "files": {"model.safetensors": {"bytes", "head_checksum", "tensors":
//    [{"name", "dtype", "shape", "checksum"}]}, ...}}
// The first checksum is tensor_checksum() of this text, with zeros for the digits of the checksum.
struct Manifest {
  CheckpointInfo info;
  std::array<ManifestFile, 2> files;
};

inline constexpr const char* kManifestName = "manifest.json";
// A copy of the manifest's "config", written for other programs; this program does not read it.
inline constexpr const char* kConfigName = "config.json";
std::string config_file_text(const CheckpointInfo& info);
inline constexpr std::array<const char*, 2> kCheckpointFiles = {"model.safetensors",
                                                                "optimizer.safetensors"};
// Returns the index into kCheckpointFiles: tensors whose names end in ".momentum", ".variance",
// ".adam_m" or ".adam_v" are optimizer state, all others belong to the model.
std::size_t checkpoint_file_of(std::string_view tensor);

// Throws Error if `data` or `config` is not a JSON object.
std::string manifest_text(const Manifest& manifest);

// Throws InputError, naming `path`, for anything malformed, damaged or of an unknown version.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);
// Reads and parses a file. Throws as parse_manifest() does.
Manifest read_manifest(const std::filesystem::path& path);

// The 64-bit checksum of a tensor is the wrapping sum, over its elements, of output number i of the
// generator SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators",
// fig. 16) seeded with the bits of element i. Because it is a sum, ranks can compute it for any
// ranges of a tensor and add the results. It detects damage, not forgery.
//
// `bytes` holds the elements of the flattened tensor from index `begin` on, and needs no alignment.
std::uint64_t tensor_checksum(DType dtype, std::int64_t begin, std::span<const std::byte> bytes);

// True if all numbers are finite (fp32 and bf16); always true for other dtypes.
bool all_finite(DType dtype, std::span<const std::byte> bytes);

}  // namespace muo::trainer
