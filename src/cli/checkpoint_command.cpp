#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/file_bytes.h"
#include "base/json_text.h"
#include "base/terminal.h"
#include "base/text_table.h"
#include "cli/cli.h"
#include "data/tokenizer/tokenizer_json.h"
#include "kit/export/hugging_face_files.h"
#include "kit/export/model_code.h"
#include "kit/export/nanochat_files.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_saver.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/checkpoint/run_tokenizer.h"
#include "trainer/run/run_config.h"

namespace muo::cli {
namespace {

namespace fs = std::filesystem;

kit::NanochatMeta read_meta(const fs::path& path) {
  return kit::parse_nanochat_meta(FileBytes(path).text(), path.string());
}

// The exact values of an fp32 or bf16 tensor.
std::vector<float> float_values(const trainer::SafetensorsFile& file,
                                const trainer::SafetensorsEntry& entry) {
  const std::span<const std::byte> bytes = file.bytes(entry);  // may be unaligned
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

// The name of a new file until all of it is on the disk.
fs::path temporary_of(const fs::path& path) { return path.string() + ".tmp"; }

OutputFile begin_file(const fs::path& path, std::int64_t bytes) {
  std::error_code ignored;
  fs::remove(temporary_of(path), ignored);
  return {temporary_of(path), bytes};
}

void commit_file(const OutputFile& file, const fs::path& path) {
  file.sync();
  fs::rename(temporary_of(path), path);
}

// An existing file belongs to the user, who must decide whether to remove it.
void refuse_existing(const char* option, const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored))
    throw trainer::input_error("{}: {} exists: give another directory", option, path.string());
}

OutputFile write_weights(const fs::path& path, const trainer::SafetensorsFile& from,
                         std::span<const kit::ExportedTensor> tensors) {
  std::vector<trainer::SafetensorsSpec> specs;
  specs.reserve(tensors.size());
  for (const kit::ExportedTensor& tensor : tensors)
    specs.push_back(tensor.spec);
  const trainer::SafetensorsLayout layout = trainer::layout_safetensors(specs, {{"format", "pt"}});
  OutputFile file = begin_file(path, layout.file_bytes);
  for (const trainer::SafetensorsEntry& entry : layout.entries) {
    const auto tensor = std::ranges::find(
        tensors, entry.spec.name, [](const kit::ExportedTensor& each) { return each.spec.name; });
    const std::vector<float> values = float_values(from, *from.find(tensor->from));
    file.write(
        entry.begin,
        std::as_bytes(std::span(values)).first(static_cast<std::size_t>(entry.end - entry.begin)));
  }
  file.write(0, layout.head);
  return file;
}

OutputFile write_text(const fs::path& path, std::string_view text) {
  OutputFile file = begin_file(path, static_cast<std::int64_t>(text.size()));
  file.write(0, std::as_bytes(std::span(text)));
  return file;
}

// Creates `directory` and throws if it contains one of `files`. After an interrupted export, whose
// last file is still temporary, the others are overwritten.
void prepare_export(const char* option, const fs::path& directory,
                    std::span<const fs::path> files) {
  std::error_code ignored;
  const bool interrupted = fs::exists(temporary_of(files.back()), ignored);
  for (const fs::path& file : interrupted ? files.last(1) : files)
    refuse_existing(option, file);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    throw trainer::input_error("{}: cannot create {}: {}", option, directory.string(),
                               error.message());
}

// If there is an `objection` to the given form, throws InputError with the possible forms.
void require_exportable(const trainer::Checkpoint& checkpoint, const model::GptConfig& model,
                        std::string_view objection) {
  if (objection.empty()) return;
  std::string possible = "--hf-code DIR";
  if (kit::port_objection(model).empty()) possible += " or --hf DIR";
  if (kit::nanochat_objection(model).empty()) possible += " or --out DIR";
  throw trainer::input_error("{}: {}; unchanged, export it with {}", checkpoint.path().string(),
                             objection, possible);
}

int export_for_nanochat(const trainer::Checkpoint& checkpoint, const fs::path& out) {
  const kit::NanochatMeta meta{.model = trainer::checkpoint_model(checkpoint),
                               .step = checkpoint.info().step};
  require_exportable(checkpoint, meta.model, kit::nanochat_objection(meta.model));
  const trainer::SafetensorsFile file(checkpoint.path() / trainer::kCheckpointFiles[0]);
  const std::vector<ParamSpec> params = model::gpt_parameters(meta.model);
  kit::check_weights(file, params);
  const fs::path model_path = out / fmt::format("model_{:06}.safetensors", meta.step);
  const fs::path meta_path = kit::meta_beside(model_path);
  prepare_export("--out", out, std::array{model_path, meta_path});

  std::vector<kit::ExportedTensor> tensors;
  tensors.reserve(params.size());
  for (const ParamSpec& param : params)
    tensors.push_back({.from = param.name, .spec = {.name = param.name, .shape = param.shape}});
  const OutputFile meta_file = write_text(meta_path, kit::nanochat_meta_text(meta));
  const OutputFile model = write_weights(model_path, file, tensors);
  commit_file(model, model_path);
  commit_file(meta_file, meta_path);
  sync_directory(out);
  say(stdout, fmt::format("{}\n{}\n", model_path.string(), meta_path.string()));
  return 0;
}

// The run's tokenizer, which begins each text as `sample` does, and its description for
// AutoTokenizer. Empty if the tokenizer is unknown.
std::vector<data::TokenizerCopy> tokenizer_files(const trainer::Checkpoint& checkpoint,
                                                 const model::GptConfig& config,
                                                 const data::Tokenizer* opened,
                                                 std::optional<std::int32_t> bos) {
  if (opened == nullptr) return {};
  data::TokenizerCopy copy = data::copy_tokenizer(trainer::find_run_tokenizer(checkpoint));
  if (copy.name != data::kTokenizerNames[1]) return {std::move(copy)};
  const std::string_view start = bos ? opened->bytes_of(*bos) : std::string_view();
  if (bos) copy.contents = data::with_document_start(copy.contents, {std::string(start), *bos});
  return {std::move(copy),
          {.name = kit::kHuggingFaceTokenizer,
           .contents = kit::hugging_face_tokenizer_text(config, start)}};
}

// Lines of Python that load the export from `out`.
std::string loading_lines(const fs::path& out, kit::HuggingFaceForm form, bool has_tokenizer) {
  const std::string where =
      fmt::format("{}{}", json_text(nlohmann::json(out.string())),
                  form == kit::HuggingFaceForm::kCode ? ", trust_remote_code=True" : "");
  if (has_tokenizer)
    return fmt::format(
        "from transformers import pipeline\n"
        "generate = pipeline(\"text-generation\", model={})\n"
        "print(generate(\"Once upon a time\", max_new_tokens=50)[0][\"generated_text\"])\n",
        where);
  return fmt::format(
      "import torch, transformers\n"
      "model = transformers.AutoModelForCausalLM.from_pretrained({})\n"
      "print(model(torch.tensor([[0, 1, 2]])).logits)\n",
      where);
}

int export_for_hugging_face(const trainer::Checkpoint& checkpoint, const fs::path& out,
                            kit::HuggingFaceForm form) {
  const bool is_port = form == kit::HuggingFaceForm::kPort;
  const model::GptConfig config = trainer::checkpoint_model(checkpoint);
  if (is_port) require_exportable(checkpoint, config, kit::port_objection(config));
  const trainer::SafetensorsFile file(checkpoint.path() / trainer::kCheckpointFiles[0]);
  kit::check_weights(file, model::gpt_parameters(config));
  const fs::path model_path = out / kit::kHuggingFaceModel;
  const fs::path config_path = out / kit::kHuggingFaceConfig;
  std::vector<fs::path> names = {model_path, out / kit::kHuggingFaceTokenizer};
  for (const char* const name : data::kTokenizerNames)
    names.push_back(out / name);
  for (const kit::CodeFile& code : kit::kModelCode)
    names.push_back(out / code.name);
  names.push_back(config_path);
  prepare_export(is_port ? "--hf" : "--hf-code", out, names);

  const std::shared_ptr<const data::Tokenizer> opened = trainer::open_run_tokenizer(checkpoint);
  const std::optional<std::int32_t> bos = opened ? data::find_bos(*opened) : std::nullopt;
  std::vector<data::TokenizerCopy> texts = tokenizer_files(checkpoint, config, opened.get(), bos);
  for (const kit::CodeFile& code : kit::kModelCode)
    if (!is_port)
      texts.push_back({.name = std::string(code.name), .contents = std::string(code.text)});
  const OutputFile config_file =
      write_text(config_path, kit::hugging_face_config_text(config, bos, form));
  const OutputFile model = write_weights(model_path, file, kit::hugging_face_tensors(config, form));
  for (const data::TokenizerCopy& text : texts)
    commit_file(write_text(out / text.name, text.contents), out / text.name);
  commit_file(model, model_path);
  commit_file(config_file, config_path);  // last, because nothing is loaded without it
  sync_directory(out);
  say(stdout, fmt::format("{}\n{}\n", model_path.string(), config_path.string()));
  for (const data::TokenizerCopy& text : texts)
    say(stdout, fmt::format("{}\n", (out / text.name).string()));
  const bool has_tokenizer = std::ranges::find(texts, kit::kHuggingFaceTokenizer,
                                               &data::TokenizerCopy::name) != texts.end();
  say(stdout, "load it in Python:\n" + loading_lines(out, form, has_tokenizer));
  return 0;
}

void check_config_file(const trainer::Checkpoint& checkpoint) {
  const fs::path path = checkpoint.path() / trainer::kConfigName;
  const FileBytes file(path);
  const std::string expected = trainer::config_file_text(checkpoint.info());
  if (!std::ranges::equal(file.bytes(), std::as_bytes(std::span(expected))))
    throw trainer::input_error("{} differs from the configuration in {}: it was changed later",
                               path.string(), trainer::kManifestName);
}

}  // namespace

int run_command(const trainer::ImportOptions& options) {
  const trainer::SafetensorsFile file(options.model);
  const fs::path beside = kit::meta_beside(options.model);
  if (options.meta.empty() && beside.empty())
    throw trainer::input_error("{}: --meta is needed because the file is not named model_*",
                               options.model);
  const kit::NanochatMeta meta = read_meta(options.meta.empty() ? beside : fs::path(options.meta));
  const std::vector<ParamSpec> params = model::gpt_parameters(meta.model);
  kit::check_weights(file, params);
  const fs::path target = trainer::checkpoint_directory(options.out, meta.step);
  refuse_existing("--out", target);

  std::vector<std::vector<float>> memory;
  std::vector<StateEntry> entries;
  for (const ParamSpec& param : params) {
    memory.push_back(float_values(file, *file.find(param.name)));
    if (!trainer::all_finite(DType::kF32, std::as_bytes(std::span(memory.back()))))
      throw trainer::input_error(
          "{}: {} holds a non-finite number, so the weights are unusable; give "
          "weights of an earlier step",
          file.path().string(), param.name);
    entries.push_back({.name = param.name,
                       .shape = param.shape,
                       .begin = 0,
                       .values = host_tensor(memory.back().data(), Shape{param.shape.numel()})});
  }
  // No run preceded the import, so only the options that evaluation needs are set.
  trainer::TrainOptions trained;
  trained.data.vocab_size = meta.model.vocab_size;
  trained.model.set_all(meta.model);
  const trainer::CheckpointInfo info{.step = meta.step,
                                     .updates = meta.step,
                                     .config = trainer::checkpoint_config(meta.model, trained),
                                     .version = options.version};
  trainer::CheckpointSaver saver(options.out, 1);
  DeviceGroup group({.world = 1});
  group.run([&](RankContext& rank) { saver.save(rank, info, entries); });
  say(stdout,
      fmt::format("{}: {} tensors, without optimizer state\n", target.string(), params.size()));
  return 0;
}

int run_command(const trainer::ExportOptions& options) {
  const int given = !options.out.empty() + !options.hf.empty() + !options.hf_code.empty();
  if (given != 1)
    throw trainer::input_error(
        "checkpoint export: give --out DIR, for nanochat, or --hf DIR or --hf-code DIR, for {}",
        "Hugging Face's transformers");
  const trainer::Checkpoint checkpoint(options.checkpoint, {.weights_only = true});
  if (!options.out.empty()) return export_for_nanochat(checkpoint, options.out);
  if (!options.hf.empty())
    return export_for_hugging_face(checkpoint, options.hf, kit::HuggingFaceForm::kPort);
  return export_for_hugging_face(checkpoint, options.hf_code, kit::HuggingFaceForm::kCode);
}

int run_command(const trainer::InspectOptions& options) {
  const trainer::Checkpoint checkpoint(options.checkpoint, {.verify = false});
  const trainer::CheckpointInfo& info = checkpoint.info();
  say(stdout, fmt::format("{}\n", checkpoint.path().string()));
  const trainer::TrainedSoFar trained = trainer::trained_by(checkpoint);
  say(stdout, fmt::format("step {}, {} updates, {} rows, {} tokens, seed {}, written by {} "
                          "device{} of muograph {}\n",
                          info.step, info.updates, grouped(trained.rows), grouped(trained.tokens),
                          info.seed, info.world, info.world == 1 ? "" : "s", info.version));
  say(stdout,
      fmt::format("model {}\n", trainer::model_text(trainer::checkpoint_model(checkpoint))));
  say(stdout, fmt::format("data {}\n", info.data));
  for (std::size_t f = 0; f < trainer::kCheckpointFiles.size(); ++f) {
    Table table({trainer::kCheckpointFiles[f], "dtype", "shape", "bytes"});
    for (const trainer::SafetensorsSpec& tensor : checkpoint.manifest().files[f].tensors)
      table.add({tensor.name, std::string(name_of(tensor.dtype)), tensor.shape.text(),
                 grouped(tensor.shape.numel() * size_of(tensor.dtype))});
    say(stdout, fmt::format("\n{}", table.text()));
  }
  say(stdout, fmt::format("\noptions\n{}", trainer::checkpoint_options_text(checkpoint)));
  return 0;
}

// Reads all of one checkpoint, or of every checkpoint of a run.
int run_command(const trainer::VerifyOptions& options) {
  std::error_code ignored;
  const fs::path given = trainer::named_checkpoint(options.checkpoint);
  const bool one = fs::exists(given / trainer::kManifestName, ignored);
  const std::vector<trainer::FoundCheckpoint> found =
      one ? std::vector<trainer::FoundCheckpoint>{{.step = 0, .path = given}}
          : trainer::find_checkpoints(given);
  if (found.empty())
    throw trainer::input_error(
        "--checkpoint {}: neither a checkpoint nor a run directory with checkpoints",
        options.checkpoint);
  std::size_t damaged = 0;
  for (const auto& [step, path] : found) {
    try {
      const trainer::Checkpoint checkpoint(path);
      check_config_file(checkpoint);
      const auto& files = checkpoint.manifest().files;
      say(stdout, fmt::format("{}: intact, {}\n", path.string(),
                              size_text(files[0].bytes + files[1].bytes)));
    } catch (const InputError& error) {
      say(stdout, fmt::format("{}: DAMAGED: {}\n", path.string(), error.what()));
      ++damaged;
    }
  }
  if (damaged == 0) return 0;
  static_cast<void>(std::fflush(stdout));
  throw trainer::input_error("{} of {} checkpoints damaged", damaged, found.size());
}

}  // namespace muo::cli
