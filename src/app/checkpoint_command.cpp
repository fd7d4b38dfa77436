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

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/checkpoint_saver.h"
#include "app/checkpoint/hugging_face_files.h"
#include "app/checkpoint/model_code.h"
#include "app/checkpoint/model_json.h"
#include "app/checkpoint/nanochat_files.h"
#include "app/checkpoint/run_tokenizer.h"
#include "app/cli.h"
#include "app/run/run_config.h"
#include "base/check.h"
#include "base/durable_files.h"
#include "base/file_bytes.h"
#include "base/json_text.h"
#include "base/terminal.h"
#include "base/text_table.h"
#include "data/tokenizer/tokenizer_json.h"

namespace muo::app {
namespace {

namespace fs = std::filesystem;

NanochatMeta read_meta(const fs::path& path) {
  return parse_nanochat_meta(FileBytes(path).text(), path.string());
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

// A new file gets its name when all of it is on the disk.
fs::path hidden(const fs::path& path) { return path.string() + ".tmp"; }

OutputFile begin_file(const fs::path& path, std::int64_t bytes) {
  std::error_code ignored;
  fs::remove(hidden(path), ignored);
  return {hidden(path), bytes};
}

void commit_file(const OutputFile& file, const fs::path& path) {
  file.sync();
  fs::rename(hidden(path), path);
}

// One that is there already is a user's, whose choice it is to remove it.
void refuse_existing(const char* option, const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored))
    throw input_error("{}: {} exists: give another directory", option, path.string());
}

OutputFile write_weights(const fs::path& path, const SafetensorsFile& from,
                         std::span<const ExportedTensor> tensors) {
  std::vector<SafetensorsSpec> specs;
  specs.reserve(tensors.size());
  for (const ExportedTensor& tensor : tensors)
    specs.push_back(tensor.spec);
  const SafetensorsLayout layout = layout_safetensors(specs, {{"format", "pt"}});
  OutputFile file = begin_file(path, layout.file_bytes);
  for (const SafetensorsEntry& entry : layout.entries) {
    const auto tensor = std::ranges::find(
        tensors, entry.spec.name, [](const ExportedTensor& each) { return each.spec.name; });
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

// `directory`, for files of which none may be there yet: but what an export has left that was
// interrupted before the last of `files` had its name is written again.
void make_room(const char* option, const fs::path& directory, std::span<const fs::path> files) {
  std::error_code ignored;
  const bool interrupted = fs::exists(hidden(files.back()), ignored);
  for (const fs::path& file : interrupted ? files.last(1) : files)
    refuse_existing(option, file);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    throw input_error("{}: cannot create {}: {}", option, directory.string(), error.message());
}

// `objection`: to the form asked for. Throws InputError with those that are possible if there is
// one.
void require_exportable(const Checkpoint& checkpoint, const model::GptConfig& model,
                        std::string_view objection) {
  if (objection.empty()) return;
  std::string possible = "--hf-code DIR";
  if (port_objection(model).empty()) possible += " or --hf DIR";
  if (nanochat_objection(model).empty()) possible += " or --out DIR";
  throw input_error("{}: {}; as it is, export it with {}", checkpoint.path().string(), objection,
                    possible);
}

int export_for_nanochat(const Checkpoint& checkpoint, const fs::path& out) {
  const NanochatMeta meta{.model = checkpoint_model(checkpoint), .step = checkpoint.info().step};
  require_exportable(checkpoint, meta.model, nanochat_objection(meta.model));
  const SafetensorsFile file(checkpoint.path() / kCheckpointFiles[0]);
  const std::vector<ParamSpec> params = model::gpt_parameters(meta.model);
  check_weights(file, params);
  const fs::path model_path = out / fmt::format("model_{:06}.safetensors", meta.step);
  const fs::path meta_path = meta_beside(model_path);
  make_room("--out", out, std::array{model_path, meta_path});

  std::vector<ExportedTensor> tensors;
  tensors.reserve(params.size());
  for (const ParamSpec& param : params)
    tensors.push_back({.from = param.name, .spec = {.name = param.name, .shape = param.shape}});
  const OutputFile meta_file = write_text(meta_path, nanochat_meta_text(meta));
  const OutputFile model = write_weights(model_path, file, tensors);
  commit_file(model, model_path);
  commit_file(meta_file, meta_path);
  sync_directory(out);
  say(stdout, fmt::format("{}\n{}\n", model_path.string(), meta_path.string()));
  return 0;
}

// The tokenizer of a run, which begins each text as `sample` does, and what tells AutoTokenizer of
// it; no file where the tokenizer is not known.
std::vector<data::TokenizerCopy> tokenizer_files(const Checkpoint& checkpoint,
                                                 const model::GptConfig& config,
                                                 const data::Tokenizer* opened,
                                                 std::optional<std::int32_t> bos) {
  if (opened == nullptr) return {};
  data::TokenizerCopy copy = data::copy_tokenizer(find_run_tokenizer(checkpoint));
  if (copy.name != data::kTokenizerNames[1]) return {std::move(copy)};
  const std::string_view start = bos ? opened->bytes_of(*bos) : std::string_view();
  if (bos) copy.contents = data::with_document_start(copy.contents, {std::string(start), *bos});
  return {std::move(copy),
          {.name = kHuggingFaceTokenizer, .contents = hugging_face_tokenizer_text(config, start)}};
}

// Lines of Python that load what lies in `out`.
std::string loading_lines(const fs::path& out, HuggingFaceForm form, bool has_tokenizer) {
  const std::string where =
      fmt::format("{}{}", json_text(nlohmann::json(out.string())),
                  form == HuggingFaceForm::kCode ? ", trust_remote_code=True" : "");
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

int export_for_hugging_face(const Checkpoint& checkpoint, const fs::path& out,
                            HuggingFaceForm form) {
  const bool is_port = form == HuggingFaceForm::kPort;
  const model::GptConfig config = checkpoint_model(checkpoint);
  if (is_port) require_exportable(checkpoint, config, port_objection(config));
  const SafetensorsFile file(checkpoint.path() / kCheckpointFiles[0]);
  check_weights(file, model::gpt_parameters(config));
  const fs::path model_path = out / kHuggingFaceModel;
  const fs::path config_path = out / kHuggingFaceConfig;
  std::vector<fs::path> names = {model_path, out / kHuggingFaceTokenizer};
  for (const char* const name : data::kTokenizerNames)
    names.push_back(out / name);
  for (const CodeFile& code : kModelCode)
    names.push_back(out / code.name);
  names.push_back(config_path);
  make_room(is_port ? "--hf" : "--hf-code", out, names);

  const std::shared_ptr<const data::Tokenizer> opened = open_run_tokenizer(checkpoint);
  const std::optional<std::int32_t> bos = opened ? data::find_bos(*opened) : std::nullopt;
  std::vector<data::TokenizerCopy> texts = tokenizer_files(checkpoint, config, opened.get(), bos);
  for (const CodeFile& code : kModelCode)
    if (!is_port)
      texts.push_back({.name = std::string(code.name), .contents = std::string(code.text)});
  const OutputFile config_file =
      write_text(config_path, hugging_face_config_text(config, bos, form));
  const OutputFile model = write_weights(model_path, file, hugging_face_tensors(config, form));
  for (const data::TokenizerCopy& text : texts)
    commit_file(write_text(out / text.name, text.contents), out / text.name);
  commit_file(model, model_path);
  commit_file(config_file, config_path);  // last, as nothing is loaded without it
  sync_directory(out);
  say(stdout, fmt::format("{}\n{}\n", model_path.string(), config_path.string()));
  for (const data::TokenizerCopy& text : texts)
    say(stdout, fmt::format("{}\n", (out / text.name).string()));
  const bool has_tokenizer =
      std::ranges::find(texts, kHuggingFaceTokenizer, &data::TokenizerCopy::name) != texts.end();
  say(stdout, "load it in Python:\n" + loading_lines(out, form, has_tokenizer));
  return 0;
}

void check_config_file(const Checkpoint& checkpoint) {
  const fs::path path = checkpoint.path() / kConfigName;
  const FileBytes file(path);
  const std::string expected = config_file_text(checkpoint.info());
  if (!std::ranges::equal(file.bytes(), std::as_bytes(std::span(expected))))
    throw input_error("{} is not the configuration that is in {}: it was changed since",
                      path.string(), kManifestName);
}

}  // namespace

int run_command(const ImportOptions& options) {
  const SafetensorsFile file(options.model);
  const fs::path beside = meta_beside(options.model);
  if (options.meta.empty() && beside.empty())
    throw input_error("{}: --meta is needed, as the file is not named model_*", options.model);
  const NanochatMeta meta = read_meta(options.meta.empty() ? beside : fs::path(options.meta));
  const std::vector<ParamSpec> params = model::gpt_parameters(meta.model);
  check_weights(file, params);
  const fs::path target = checkpoint_directory(options.out, meta.step);
  refuse_existing("--out", target);

  std::vector<std::vector<float>> memory;
  std::vector<StateEntry> entries;
  for (const ParamSpec& param : params) {
    memory.push_back(float_values(file, *file.find(param.name)));
    if (!all_finite(DType::kF32, std::as_bytes(std::span(memory.back()))))
      throw input_error(
          "{}: {} holds a number that is not finite: nothing can be done with such weights; give "
          "those of a step before",
          file.path().string(), param.name);
    entries.push_back({.name = param.name,
                       .shape = param.shape,
                       .begin = 0,
                       .values = host_tensor(memory.back().data(), Shape{param.shape.numel()})});
  }
  // There was no run: of its options only those that evaluation needs are set.
  TrainOptions trained;
  trained.data.vocab_size = meta.model.vocab_size;
  trained.model.set_all(meta.model);
  const CheckpointInfo info{.step = meta.step,
                            .updates = meta.step,
                            .config = checkpoint_config(meta.model, trained),
                            .version = options.version};
  CheckpointSaver saver(options.out, 1);
  DeviceGroup group({.world = 1});
  group.run([&](RankContext& rank) { saver.save(rank, info, entries); });
  say(stdout,
      fmt::format("{}: {} tensors, without optimizer state\n", target.string(), params.size()));
  return 0;
}

int run_command(const ExportOptions& options) {
  const int given = !options.out.empty() + !options.hf.empty() + !options.hf_code.empty();
  if (given != 1)
    throw input_error(
        "checkpoint export: give --out DIR, for nanochat, or --hf DIR or --hf-code DIR, for {}",
        "Hugging Face's transformers");
  const Checkpoint checkpoint(options.checkpoint, {.weights_only = true});
  if (!options.out.empty()) return export_for_nanochat(checkpoint, options.out);
  if (!options.hf.empty())
    return export_for_hugging_face(checkpoint, options.hf, HuggingFaceForm::kPort);
  return export_for_hugging_face(checkpoint, options.hf_code, HuggingFaceForm::kCode);
}

int run_command(const InspectOptions& options) {
  const Checkpoint checkpoint(options.checkpoint, {.verify = false});
  const CheckpointInfo& info = checkpoint.info();
  say(stdout, fmt::format("{}\n", checkpoint.path().string()));
  const TrainedSoFar trained = trained_by(checkpoint);
  say(stdout, fmt::format("step {}, {} updates, {} rows, {} tokens, seed {}, written by {} "
                          "device{} of muograph {}\n",
                          info.step, info.updates, grouped(trained.rows), grouped(trained.tokens),
                          info.seed, info.world, info.world == 1 ? "" : "s", info.version));
  say(stdout, fmt::format("model {}\n", model_text(checkpoint_model(checkpoint))));
  say(stdout, fmt::format("data {}\n", info.data));
  for (std::size_t f = 0; f < kCheckpointFiles.size(); ++f) {
    Table table({kCheckpointFiles[f], "dtype", "shape", "bytes"});
    for (const SafetensorsSpec& tensor : checkpoint.manifest().files[f].tensors)
      table.add({tensor.name, std::string(name_of(tensor.dtype)), tensor.shape.text(),
                 grouped(tensor.shape.numel() * size_of(tensor.dtype))});
    say(stdout, fmt::format("\n{}", table.text()));
  }
  say(stdout, fmt::format("\noptions\n{}", checkpoint_options_text(checkpoint)));
  return 0;
}

// Reads everything: one checkpoint, or all of a run.
int run_command(const VerifyOptions& options) {
  std::error_code ignored;
  const fs::path given = named_checkpoint(options.checkpoint);
  const bool one = fs::exists(given / kManifestName, ignored);
  const std::vector<FoundCheckpoint> found =
      one ? std::vector<FoundCheckpoint>{{.step = 0, .path = given}} : find_checkpoints(given);
  if (found.empty())
    throw input_error("--checkpoint {}: neither a checkpoint nor a run directory with checkpoints",
                      options.checkpoint);
  std::size_t damaged = 0;
  for (const auto& [step, path] : found) {
    try {
      const Checkpoint checkpoint(path);
      check_config_file(checkpoint);
      const auto& files = checkpoint.manifest().files;
      say(stdout, fmt::format("{}: whole, {}\n", path.string(),
                              size_text(files[0].bytes + files[1].bytes)));
    } catch (const InputError& error) {
      say(stdout, fmt::format("{}: DAMAGED: {}\n", path.string(), error.what()));
      ++damaged;
    }
  }
  if (damaged == 0) return 0;
  static_cast<void>(std::fflush(stdout));
  throw input_error("{} of {} checkpoints damaged", damaged, found.size());
}

}  // namespace muo::app
