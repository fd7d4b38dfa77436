#include <fmt/format.h>

#include <cstring>
#include <system_error>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/checkpoint_saver.h"
#include "app/checkpoint/durable_files.h"
#include "app/checkpoint/model_json.h"
#include "app/checkpoint/nanochat_files.h"
#include "app/commands.h"
#include "base/check.h"
#include "base/mapped_file.h"

namespace muo {
namespace {

namespace fs = std::filesystem;

NanochatMeta read_meta(const fs::path& path) {
  const MappedFile file(path);
  return parse_nanochat_meta(
      {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path.string());
}

// The values of an fp32 or bf16 tensor, exactly.
std::vector<float> float_values(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  const std::span<const std::byte> bytes = file.bytes(entry);  // of any alignment
  std::vector<float> out(static_cast<std::size_t>(entry.spec.shape.numel()));
  if (entry.spec.dtype == DType::kF32) {
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    BF16 value{};
    std::memcpy(&value, bytes.data() + i * sizeof(BF16), sizeof(BF16));
    out[i] = to_f32(value);
  }
  return out;
}

// Of a run that never was: what evaluation asks of it. Learning rates and the like are defaults.
TrainOptions options_of(const GptConfig& model) {
  TrainOptions options;
  options.data.vocab_size = model.vocab_size;
  options.model.set_all(model);
  return options;
}

class NewFile {
 public:
  NewFile(fs::path path, std::int64_t bytes)
      : path_(std::move(path)), hidden_(path_.string() + ".tmp"), file_(prepared(hidden_), bytes) {}

  void write(std::int64_t offset, std::span<const std::byte> bytes) const {
    file_.write(offset, bytes);
  }
  // Gives the file its name, when all of it is on the disk.
  void commit() const {
    file_.sync();
    fs::rename(hidden_, path_);
  }

 private:
  static const fs::path& prepared(const fs::path& path) {
    std::error_code ignored;
    fs::remove(path, ignored);
    return path;
  }
  fs::path path_, hidden_;
  OutputFile file_;
};

void refuse_existing(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored))
    throw InputError(fmt::format("--out: {} exists: choose another place", path.string()));
}

}  // namespace

int run_import(const ImportOptions& options) {
  const SafetensorsFile file(options.model);
  const fs::path beside = meta_beside(options.model);
  if (options.meta.empty() && beside.empty())
    throw InputError(
        fmt::format("{}: --meta is needed, as the file is not named model_*", options.model));
  const NanochatMeta meta = read_meta(options.meta.empty() ? beside : fs::path(options.meta));
  const std::vector<ParamSpec> params = gpt_parameters(meta.model);
  check_weights(file, params);
  const fs::path target = checkpoint_directory(options.out, meta.step);
  refuse_existing(target);

  std::vector<std::vector<float>> memory;
  std::vector<StateEntry> entries;
  for (const ParamSpec& param : params) {
    memory.push_back(float_values(file, *file.find(param.name)));
    entries.push_back({.name = param.name,
                       .shape = param.shape,
                       .begin = 0,
                       .values = host_tensor(memory.back().data(), Shape{param.shape.numel()})});
  }
  CheckpointInfo info;
  info.step = info.updates = meta.step;
  info.config = checkpoint_config(meta.model, options_of(meta.model));
  CheckpointSaver saver(options.out, 1);
  DeviceGroup group({.world = 1});
  group.run([&](RankContext& rank) { saver.save(rank, info, entries); });
  fmt::print("{}: {} tensors, without optimizer state\n", target.string(), params.size());
  return 0;
}

int run_export(const ExportOptions& options) {
  const Checkpoint checkpoint(options.checkpoint, {.parts = CheckpointParts::kWeights});
  const NanochatMeta meta{.model = checkpoint_model(checkpoint), .step = checkpoint.info().step};
  const std::string text = nanochat_meta_text(meta, checkpoint.path().string());
  const SafetensorsFile file(checkpoint.path() / kCheckpointFiles[0]);
  const std::vector<ParamSpec> params = gpt_parameters(meta.model);
  check_weights(file, params);

  const fs::path out = options.out;
  const fs::path model_path = out / fmt::format("model_{:06}.safetensors", meta.step);
  const fs::path meta_path = meta_beside(model_path);
  refuse_existing(model_path);
  refuse_existing(meta_path);
  std::error_code error;
  fs::create_directories(out, error);
  if (error)
    throw InputError(fmt::format("--out: cannot create {}: {}", out.string(), error.message()));

  std::vector<SafetensorsSpec> specs;
  specs.reserve(params.size());
  for (const ParamSpec& param : params)
    specs.push_back({.name = param.name, .dtype = DType::kF32, .shape = param.shape});
  const SafetensorsLayout layout = layout_safetensors(specs, {{"format", "pt"}});
  const NewFile model(model_path, layout.file_bytes);
  model.write(0, layout.head);
  for (const SafetensorsEntry& entry : layout.entries) {
    const std::vector<float> values = float_values(file, *file.find(entry.spec.name));
    model.write(entry.begin, std::as_bytes(std::span(values)));
  }
  const NewFile meta_file(meta_path, static_cast<std::int64_t>(text.size()));
  meta_file.write(0, std::as_bytes(std::span(text)));
  model.commit();
  meta_file.commit();
  sync_directory(out);
  fmt::print("{}\n{}\n", model_path.string(), meta_path.string());
  return 0;
}

}  // namespace muo
