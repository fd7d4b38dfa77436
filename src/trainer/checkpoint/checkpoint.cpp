#include "trainer/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/split_float.h"
#include "trainer/options/option_row.h"

namespace muo::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step_";

fs::path resolve(const fs::path& given) {
  std::error_code ignored;
  fs::path path = named_checkpoint(given);
  if (fs::exists(path / kManifestName, ignored)) return path;
  const std::vector<FoundCheckpoint> found = find_checkpoints(path);
  if (found.empty())
    throw input_error("{}: neither a checkpoint (no {}) nor a run directory with checkpoints",
                      path.string(), kManifestName);
  return found.front().path;
}

void check_file(const SafetensorsFile& file, const ManifestFile& expected, bool verify) {
  const auto fail = [&file](const auto&... reason) {
    throw InputError(
        concat(file.path().string(), " is damaged: ", reason..., "; use another checkpoint"));
  };
  if (expected.head_checksum != tensor_checksum(DType::kBytes, 0, file.head()))
    fail("its header does not match the checksum in ", kManifestName);
  const auto entries = file.entries();
  if (entries.size() != expected.tensors.size())
    fail("it has ", entries.size(), " tensors, ", kManifestName, " lists ",
         expected.tensors.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const SafetensorsSpec& spec = entries[i].spec;
    const SafetensorsSpec& listed = expected.tensors[i];
    if (spec.name != listed.name || spec.dtype != listed.dtype || spec.shape != listed.shape)
      fail("tensor ", i, " is ", spec.name, " ", spec.shape.text(), ", ", kManifestName, " lists ",
           listed.name, " ", listed.shape.text());
    if (verify && expected.checksums[i] != tensor_checksum(spec.dtype, 0, file.bytes(entries[i])))
      fail("tensor ", spec.name, " does not match its checksum");
  }
}

bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

// Converts fp32 to bf16 or bf16 to fp32.
template <class To, class From>
std::vector<std::byte> convert(const Tensor& from) {
  std::vector<std::byte> out(static_cast<std::size_t>(from.numel()) * sizeof(To));
  for (std::int64_t i = 0; i < from.numel(); ++i)
    reinterpret_cast<To*>(out.data())[i] = from_f32<To>(to_f32(from.as<From>()[i]));
  return out;
}

// Loads fp32 or bf16 into the two tensors of split numbers.
void load_split(Stream& stream, const StateEntry& entry, const Tensor& from) {
  const auto count = static_cast<std::size_t>(from.numel());
  std::vector<BF16> upper(count);
  std::vector<std::uint16_t> lower(count);
  for (std::size_t i = 0; i < count; ++i) {
    const SplitFloat parts =
        split_float(from.dtype == DType::kBF16 ? to_f32(from.as<BF16>()[i]) : from.as<float>()[i]);
    upper[i] = parts.upper;
    lower[i] = parts.lower;
  }
  stream.copy(entry.upper, host_tensor(upper.data(), {from.numel()}));
  stream.copy(entry.values, host_tensor(lower.data(), {from.numel()}));
  stream.synchronize();  // before the vectors are destroyed
}

}  // namespace

fs::path checkpoint_directory(const fs::path& run, std::int64_t step) {
  return run / "checkpoints" / fmt::format("{}{:08}", kStepPrefix, step);
}

std::vector<FoundCheckpoint> find_checkpoints(const fs::path& run) {
  std::vector<FoundCheckpoint> found;
  std::error_code error;
  for (const fs::path& path : entries_of(run / "checkpoints", &error)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kStepPrefix)) continue;
    if (const auto step = whole_number(std::string_view(name).substr(kStepPrefix.size())))
      found.push_back({.step = *step, .path = path});
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw input_error("cannot list {}: {}", (run / "checkpoints").string(), error.message());
  std::ranges::sort(found, std::greater{}, &FoundCheckpoint::step);
  return found;
}

fs::path named_checkpoint(const fs::path& given) {
  std::error_code error;
  fs::path path = given.has_filename() ? given : given.parent_path();
  fs::path folder = path.parent_path();
  if (path.extension() == ".safetensors" && fs::exists(folder / kManifestName, error))
    return folder;
  if (path.filename() == "checkpoints" && fs::is_directory(path, error) &&
      !fs::exists(path / "checkpoints", error))
    return folder.empty() ? "." : folder;
  const std::string name = path.filename().string();
  if (fs::is_directory(path, error) || !name.starts_with(kStepPrefix) ||
      folder.filename() != "checkpoints" || !fs::is_directory(folder, error))
    return path;
  const auto step = whole_number(std::string_view(name).substr(kStepPrefix.size()));
  for (const FoundCheckpoint& found : find_checkpoints(folder.parent_path()))
    if (found.step == step) return found.path;
  return path;
}

Checkpoint::Checkpoint(const fs::path& path, const OpenCheckpoint& options)
    : path_(resolve(path)), manifest_(read_manifest(path_ / kManifestName)) {
  for (std::size_t f = 0; f < (options.weights_only ? 1 : kCheckpointFiles.size()); ++f) {
    files_.emplace_back(path_ / kCheckpointFiles[f]);
    check_file(files_.back(), manifest_.files[f], options.verify);
  }
}

void Checkpoint::load(Stream& stream, std::span<const StateEntry> entries) const {
  for (const StateEntry& entry : entries) {
    const std::size_t f = checkpoint_file_of(entry.name);
    MUO_CHECK(f < files_.size(), entry.name, ": the checkpoint was opened for its weights only");
    const SafetensorsFile& file = files_[f];
    const SafetensorsEntry* const found = file.find(entry.name);
    constexpr std::string_view kAdvice =
        "a checkpoint can only be loaded into the model of its manifest.json";
    if (found == nullptr)
      throw input_error("{} lacks the tensor {}; {}", file.path().string(), entry.name, kAdvice);
    const DType dtype = entry.dtype();
    const bool converts = is_float(dtype) && is_float(found->spec.dtype);
    if (found->spec.shape != entry.shape || (found->spec.dtype != dtype && !converts))
      throw input_error("{} has {} as {} {}, this run needs {} {}; {}", file.path().string(),
                        entry.name, name_of(found->spec.dtype), found->spec.shape.text(),
                        name_of(dtype), entry.shape.text(), kAdvice);
    const std::int64_t count = entry.values.numel();
    MUO_CHECK(0 <= entry.begin && entry.begin + count <= entry.shape.numel(), entry.name,
              " elements [", entry.begin, ", ", entry.begin + count, ") of ", entry.shape.text());
    if (count == 0) continue;
    // The const_cast only satisfies Tensor's type: the mapping is read-only, and nothing writes to
    // it.
    auto* const data = const_cast<std::byte*>(file.bytes(*found).data());
    const Tensor source =
        Tensor{.data = data, .shape = entry.shape, .dtype = found->spec.dtype}.elements(entry.begin,
                                                                                        count);
    if (entry.upper) {
      load_split(stream, entry, source);
      continue;
    }
    if (found->spec.dtype == dtype) {
      stream.copy(entry.values, source);
      continue;
    }
    std::vector<std::byte> converted =
        dtype == DType::kBF16 ? convert<BF16, float>(source) : convert<float, BF16>(source);
    stream.copy(entry.values, {.data = converted.data(), .shape = {count}, .dtype = dtype});
    stream.synchronize();  // before `converted` is destroyed
  }
  stream.synchronize();
}

void Checkpoint::load_weights(Stream& stream, std::span<const ParamSpec> params,
                              const std::function<Tensor(std::size_t)>& weight) const {
  std::vector<StateEntry> entries;
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const Tensor replica = weight(i);
    entries.push_back({.name = params[i].name,
                       .shape = params[i].shape,
                       .begin = 0,
                       .values = replica.view({replica.numel()})});
    names.insert(params[i].name);
  }
  for (const SafetensorsEntry& entry : files_.front().entries())
    if (!names.contains(entry.spec.name))
      throw input_error("{} has the tensor {}, which this model does not have",
                        files_.front().path().string(), entry.spec.name);
  load(stream, entries);
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& run, std::vector<std::string>& skipped,
                                            const OpenCheckpoint& options) {
  const std::vector<FoundCheckpoint> found = find_checkpoints(run);
  for (const FoundCheckpoint& candidate : found) {
    try {
      return Checkpoint(candidate.path, options);
    } catch (const InputError& error) {
      skipped.push_back(
          concat("skipping checkpoint ", candidate.path.string(), ": ", error.what()));
    }
  }
  if (found.empty()) return std::nullopt;
  throw input_error(
      "every checkpoint in {} is damaged; to start over, remove them or choose another --out. {}",
      (run / "checkpoints").string(), skipped.back());
}

}  // namespace muo::trainer
