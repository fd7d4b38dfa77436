#include "kit/plan/largest_model.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/terminal.h"
#include "base/text_table.h"
#include "graphs/step_graph.h"
#include "runtime/plugin.h"
#include "trainer/options/option_table.h"
#include "trainer/run/backend.h"
#include "trainer/run/described_gpu.h"
#include "trainer/run/memory_advice.h"
#include "trainer/run/memory_fit.h"
#include "trainer/run/run_config.h"
#include "trainer/run/run_memory.h"

namespace muo::kit {
namespace {

using Json = nlohmann::ordered_json;

const GroupOptions& gpus() {
  static const BackendPlugin any{};
  static const GroupOptions group{.plugin = &any};
  return group;
}

// Returns the options that are common to all models of the search.
trainer::TrainOptions common_options(const trainer::PlanOptions& options) {
  trainer::TrainOptions o = options.train;
  for (const auto& [given, name] : {std::pair{o.model.has(&model::GptConfig::n_layer), "n-layer"},
                                    std::pair{o.model.has(&model::GptConfig::n_embd), "n-embd"},
                                    std::pair{o.model.has(&model::GptConfig::n_head), "n-head"}})
    if (given)
      throw trainer::input_error(
          "plan: --largest searches --depth, which sets width and heads: omit --{}", name);
  o.batch.device_rows = o.batch.device_rows.value_or(1);
  o.memory.limit.reset();
  if (o.devices.backend == trainer::Backend::kHost) return o;
  if (o.devices.ranks_per_device != 1)
    throw InputError("plan: --largest plans one rank per GPU: omit --ranks-per-device");
  o.devices = {.backend = trainer::Backend::kHost, .count = o.devices.count.value_or(1)};
  o.sharding.replicas = optim::ReplicaAt::kEveryRank;
  o.numbers.attention = AttentionKernels::kAuto;
  o.numbers.dtype = o.numbers.dtype.value_or(DType::kBF16);
  return o;
}

// Sets devices and memory to those of this machine: its GPUs if they are usable, otherwise the
// host.
void use_this_machine(trainer::PlanOptions& options) {
  std::vector<std::string> notes;
  const GroupOptions group = trainer::choose_devices(options.train.devices, notes);
  const bool host = group.plugin == nullptr;
  options.train.devices.backend = host ? trainer::Backend::kHost : trainer::Backend::kCuda;
  options.train.devices.count = group.world;
  options.memory =
      ByteSize{host ? available_memory().bytes / group.world : group.plugin->total_memory(0)};
}

class Search {
 public:
  Search(trainer::TrainOptions options, bool host, std::int64_t available)
      : options_(std::move(options)), host_(host), available_(available) {}

  // Memory grows roughly as the cube of the depth, so each plan predicts the next depth to try,
  // until a depth fits and the next does not. After kMaxByCube plans, the search uses bisection.
  LargestModel run(std::int64_t guess) {
    constexpr int kMaxByCube = 8;
    std::int64_t fits = 0, too_deep = static_cast<std::int64_t>(trainer::kMaxLayers) + 1;
    for (int plans = 0; too_deep - fits > 1; ++plans) {
      const std::int64_t depth = plans < kMaxByCube ? std::clamp(guess, fits + 1, too_deep - 1)
                                                    : fits + (too_deep - fits) / 2;
      const std::int64_t bytes = plan_bytes(depth);
      (bytes <= available_ ? fits : too_deep) = depth;
      guess = static_cast<std::int64_t>(
          static_cast<double>(depth) *
          std::cbrt(static_cast<double>(available_) / static_cast<double>(bytes)));
    }
    return best_;
  }

 private:
  // Plans the memory of a depth, and makes it best_ if it fits.
  std::int64_t plan_bytes(std::int64_t depth) {
    trainer::TrainOptions o = options_;
    o.model.depth = depth;
    trainer::RunConfig run = trainer::resolve(o, data::corpus_without_tokens(o.data));
    if (!host_) run.model.head_chunk_bytes = trainer::head_chunk_bytes(gpus());
    run.step.accumulation = run.traced_micro_steps();
    const std::int64_t bytes = trainer::fit_memory(run, available_).rank_bytes(run.world());
    if (bytes > available_) return bytes;
    best_ = {.depth = depth,
             .parameters = run.parameters,
             .bytes = bytes,
             .extra_time = trainer::recompute_share(run)};
    return bytes;
  }

  trainer::TrainOptions options_;
  bool host_;
  std::int64_t available_;
  LargestModel best_;
};

}  // namespace

LargestModels find_largest_models(const trainer::PlanOptions& given) {
  trainer::PlanOptions options = given;
  const bool is_of_this_machine = !given.memory && given.gpu.empty();
  if (is_of_this_machine) use_this_machine(options);
  trainer::TrainOptions common = common_options(options);
  LargestModels out;
  out.host = options.train.devices.backend == trainer::Backend::kHost;
  const trainer::RunConfig first =
      trainer::resolve(common, data::corpus_without_tokens(common.data));
  out.devices = first.world();
  out.rows = *common.batch.device_rows;
  out.is_of_this_machine = is_of_this_machine;
  out.vocabulary = first.model.vocab_size;
  out.dtype = name_of(first.model.dtype);
  out.memory = options.memory ? options.memory->bytes : trainer::described_gpu(options.gpu).memory;
  const std::int64_t reserved =
      out.host ? (trainer::process_base(out.devices, false) + trainer::kBaseSpread) / out.devices
               : trainer::kLibraryMemory + trainer::kContextMemory;
  out.available = std::max<std::int64_t>(0, out.memory - reserved);
  std::int64_t guess = 8;
  for (const optim::Shard shard : {optim::Shard::kNone, optim::Shard::kOptimizer,
                                   optim::Shard::kGradients, optim::Shard::kWeights})
    for (const model::Recomputed recompute :
         {model::Recomputed::kNone, model::Recomputed::kMlp, model::Recomputed::kBlock}) {
      trainer::TrainOptions o = common;
      o.memory.recompute = recompute;
      if (shard == optim::Shard::kWeights) o.sharding.replicas.reset();  // kWeights has no replicas
      o.sharding.shard = shard;
      try {
        LargestModel model = Search(o, out.host, out.available).run(guess);
        model.shard = shard;
        model.recompute = recompute;
        guess = model.depth;
        out.models.push_back(model);
      } catch (const InputError& error) {  // the strategy does not support it
        out.notes.emplace_back(error.what());
        break;
      }
    }
  return out;
}

std::string largest_table(const LargestModels& found) {
  Table table({"shard", "recompute", "depth", "parameters", "memory per device", "rows",
               "time of recomputation"});
  for (auto each = found.models.begin(); each != found.models.end(); ++each) {
    const auto is_as_deep = [&](const LargestModel& simpler) {
      return simpler.depth >= each->depth && simpler.recompute <= each->recompute;
    };
    if (std::any_of(found.models.begin(), each, is_as_deep)) continue;
    table.add({std::string(name_of(each->shard)), std::string(name_of(each->recompute)),
               std::to_string(each->depth), count_text(static_cast<double>(each->parameters)),
               size_text(each->bytes), std::to_string(found.rows),
               fmt::format("+{:.1f} %", 100 * each->extra_time)});
  }
  std::string out = fmt::format(
      "The deepest models that can be trained on {} {}{}{} with {} each, in {}, with a vocabulary "
      "of {}:\n\n{}"
      "  Memory: planned tensors, at most {}: {} less {}.\n"
      "  Time of recomputation: its share of FLOPs. The next depth does not fit.\n",
      found.devices, found.host ? "host device" : "GPU", found.devices == 1 ? "" : "s",
      found.is_of_this_machine ? " of this machine" : "", size_text(found.memory), found.dtype,
      grouped(found.vocabulary), table.text(), size_text(found.available), size_text(found.memory),
      found.host ? "a device's part of the process without tensors"
                 : "the assumed memory of CUDA and its libraries (attention's scratch memory "
                   "is the host's)");
  for (const std::string& note : found.notes)
    out += fmt::format("  {}\n", note);
  return out;
}

std::string largest_json(const LargestModels& found) {
  Json models = Json::array();
  for (const LargestModel& each : found.models)
    models.push_back({{"shard", name_of(each.shard)},
                      {"recompute", name_of(each.recompute)},
                      {"depth", each.depth},
                      {"parameters", each.parameters},
                      {"memory_bytes_per_device", each.bytes},
                      {"rows_per_device", found.rows},
                      {"recompute_share_of_flops", each.extra_time}});
  const Json out = {{"memory_bytes", found.memory},
                    {"memory_bytes_for_tensors", found.available},
                    {"devices", found.devices},
                    {"vocabulary", found.vocabulary},
                    {"backend", found.host ? "host" : "cuda"},
                    {"dtype", found.dtype},
                    {"models", models},
                    {"notes", found.notes}};
  return out.dump(2) + "\n";
}

}  // namespace muo::kit
