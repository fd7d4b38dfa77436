#include "trainer/run/memory_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "graphs/step_graph.h"
#include "model/activations.h"
#include "trainer/run/backend.h"
#include "trainer/run/run_memory.h"

namespace muo::trainer {
namespace {

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Divisors of `rows` that are at most `most`, in descending order.
std::vector<std::int64_t> divisors(std::int64_t rows, std::int64_t most) {
  std::vector<std::int64_t> out;
  for (std::int64_t each = most; each >= 1; --each)
    if (rows % each == 0) out.push_back(each);
  return out;
}

class Fitter {
 public:
  Fitter(RunConfig& config, std::int64_t available)
      : config_(config),
        available_(available),
        rows_(config.step.batch * config.step.accumulation),
        layers_(config.model.n_layer),
        recomputes_(!config.options.memory.recompute),
        asked_{.batch = config.step.batch,
               .head_chunk = config.model.head_chunk_bytes,
               .recompute = config.step.recompute} {}

  MemoryPlan run() {
    const bool as_asked = fits(asked_, /*exactly=*/true);
    const std::int64_t asked_bytes = bytes();
    const std::int64_t asked_chunk = chunk_rows();
    if (!as_asked) {
      search();
      memory_ = plan_run_memory(config_);
    }
    if (config_.batch_is_automatic()) note_batch(asked_bytes);
    if (recomputes_ && config_.step.recompute.of(0) != model::Recomputed::kNone) note_recompute();
    if (config_.step.batch == asked_.batch ? chunk_rows() < asked_chunk
                                           : config_.model.head_chunk_bytes < asked_.head_chunk)
      config_.notes.push_back(fmt::format(
          "logits: {} MiB at a time because memory is short: sums over rows round differently",
          config_.model.head_chunk_bytes >> 20));
    return std::move(memory_);
  }

 private:
  // Variables of the search.
  struct Choice {
    std::int64_t batch = 1, head_chunk = 0;
    model::Recompute recompute = {};
  };

  [[nodiscard]] std::int64_t bytes() const { return memory_.rank_bytes(config_.world()); }
  [[nodiscard]] std::int64_t chunk_rows() const {
    return model::head_chunk_rows(config_.model, config_.step.batch * config_.model.seq_len);
  }

  // Rows per device whose divisors are divisors of every step.
  [[nodiscard]] std::int64_t common_rows() const {
    std::int64_t rows = rows_;
    for (const TokenCount::Stage& stage : config_.batches)
      rows = std::gcd(rows, stage.tokens / config_.model.seq_len / config_.world());
    return rows;
  }

  // Sets the run to the choice and plans it by one trace. Returns true if it fits. Unless
  // `exactly`, traces only traced_micro_steps() (LargestModel's test).
  bool fits(const Choice& choice, bool exactly = false) {
    const std::int64_t micro_steps = rows_ / choice.batch;
    config_.step.batch = choice.batch;
    config_.step.accumulation = micro_steps;
    config_.step.recompute = choice.recompute;
    config_.model.head_chunk_bytes = choice.head_chunk;
    if (!exactly) config_.step.accumulation = config_.traced_micro_steps();
    memory_ = plan_run_memory(config_);
    config_.step.accumulation = micro_steps;
    return bytes() <= available_;
  }

  void search() {
    Choice choice = asked_;
    const std::vector<std::int64_t> batches =
        config_.batch_is_automatic() && !config_.needs_one_micro_step()
            ? divisors(common_rows(), asked_.batch)
            : std::vector{asked_.batch};
    const std::vector<std::int64_t> chunks = smaller_chunks(batches.back());
    // One more trace detects that nothing fits, without the whole search. With one or two layers,
    // recomputation may save nothing.
    if (layers_ > 2 || !recomputes_) {
      Choice least{.batch = batches.back(),
                   .head_chunk = chunks.empty() ? asked_.head_chunk : chunks.back(),
                   .recompute = asked_.recompute};
      if (recomputes_) least.recompute = {.blocks = layers_};
      if (!fits(least)) return;
    }
    auto batch = batches.begin();
    const std::int64_t least_rows =
        recomputes_ ? min_pass_tokens(config_.group) / config_.model.seq_len : 1;
    for (; batch + 1 != batches.end() && *(batch + 1) >= least_rows; ++batch) {
      choice.batch = *(batch + 1);
      if (fits(choice)) return;
    }
    if (recomputes_)
      for (std::int64_t tried = 0; batch != batches.end(); ++batch, tried = -1) {
        choice.batch = *batch;
        if (fewest(choice, &model::Recompute::mlps, tried)) return;
      }
    choice.batch = batches.back();
    for (const std::int64_t chunk : chunks) {
      choice.head_chunk = chunk;
      if (recomputes_ ? fewest(choice, &model::Recompute::mlps, -1) : fits(choice)) return;
    }
    if (recomputes_) fewest(choice, &model::Recompute::blocks, 0);
  }

  // Chunk sizes of logits below the given one that change the number of rows per chunk.
  [[nodiscard]] std::vector<std::int64_t> smaller_chunks(std::int64_t batch) const {
    std::vector<std::int64_t> out;
    model::GptConfig model = config_.model;
    const std::int64_t rows = batch * model.seq_len;
    std::int64_t before = model::head_chunk_rows(model, rows);
    const std::int64_t first =
        asked_.head_chunk > model::kHostHeadChunk ? model::kHostHeadChunk : asked_.head_chunk / 2;
    for (std::int64_t chunk = first; chunk >= kMinHeadChunk; chunk /= 2) {
      model.head_chunk_bytes = chunk;
      if (const std::int64_t now = model::head_chunk_rows(model, rows); now < before) {
        out.push_back(chunk);
        before = now;
      }
    }
    return out;
  }

  // Sets the count `of` (mlps or blocks) to the smallest number of layers above `below` with which
  // the choice fits. Uses bisection, because recomputing more layers needs less memory. If blocks
  // are recomputed, so are the MLPs of the other layers. Returns false if even all layers do not
  // suffice.
  bool fewest(Choice& choice, std::int64_t model::Recompute::*of, std::int64_t below) {
    const auto with = [&](std::int64_t layers) {
      choice.recompute = {};
      choice.recompute.*of = layers;
      choice.recompute.mlps = of == &model::Recompute::mlps ? layers : layers_ - layers;
      return fits(choice);
    };
    if (!with(layers_)) return false;
    std::int64_t enough = layers_;
    while (enough - below > 1) {
      const std::int64_t middle = below + (enough - below) / 2;
      (with(middle) ? enough : below) = middle;
    }
    return config_.step.recompute.*of == enough || with(enough);
  }

  [[nodiscard]] std::string available_text() const {
    const bool limited = config_.options.memory.limit.has_value();
    if (config_.group.plugin == nullptr)
      return limited ? fmt::format("--memory-limit leaves {:.1f} MiB", mib(available_))
                     : fmt::format("{:.1f} MiB are available", mib(available_));
    return fmt::format(
        "{:.1f} MiB are for tensors: {} less {:.1f} MiB for CUDA and its libraries{}",
        mib(available_), limited ? "--memory-limit" : "a GPU's memory",
        mib(kLibraryMemory + kContextMemory),
        config_.group.ranks_per_device > 1 ? ", shared by its ranks" : "");
  }

  void note_batch(std::int64_t asked_bytes) {
    const std::string need = fmt::format("{:.1f} MiB per device", mib(bytes()));
    if (config_.step.batch < asked_.batch)
      config_.notes.push_back(fmt::format(
          "device-batch-size: {} rows instead, which need {}: {} need {:.1f} MiB, but {}",
          config_.step.batch, need, asked_.batch, mib(asked_bytes), available_text()));
    else if (config_.group.plugin != nullptr)
      config_.notes.push_back(fmt::format("device-batch-size: {} rows need {}, {}",
                                          config_.step.batch, need, available_text()));
  }

  void note_recompute() {
    const bool one = config_.step.batch == 1;
    const std::string what = fmt::format("recompute: {}, {:.1f} % more FLOPs",
                                         recompute_text(config_), 100 * recompute_share(config_));
    const std::string rows = fmt::format("{} row{}", config_.step.batch, one ? "" : "s");
    config_.notes.push_back(
        bytes() <= available_
            ? fmt::format("{}: the minimum with which {} fit{} ({:.1f} MiB per device, {}); more "
                          "memory{} would allow less",
                          what, rows, one ? "s" : "", mib(bytes()), available_text(),
                          one ? "" : " or a smaller --device-batch-size")
            : fmt::format("{}: even so {} need{} {:.1f} MiB per device, {}", what, rows,
                          one ? "s" : "", mib(bytes()), available_text()));
  }

  RunConfig& config_;
  std::int64_t available_;
  std::int64_t rows_;  // rows per device in a step
  std::int64_t layers_;
  bool recomputes_;
  Choice asked_;
  MemoryPlan memory_;
};

}  // namespace

MemoryBudget memory_budget(const RunConfig& config, int sharing) {
  const GroupOptions& group = config.group;
  const auto& limit = config.options.memory.limit;
  MemoryBudget out;
  if (group.plugin == nullptr) {
    const int ranks = group.local().count * sharing;
    AvailableMemory available = process_memory(group, ranks);
    const std::int64_t allowed = limit ? limit->bytes : available.bytes;
    out.to_plan = tensor_bytes(allowed, ranks, false) / ranks;
    out.available = tensor_bytes(available.bytes, ranks, false) / ranks;
    out.process = tensor_bytes(std::min(allowed, available.bytes), ranks, true);
    out.limit = std::move(available.limit);
    return out;
  }
  out.process = process_memory(group, group.local().count).bytes;
  out.to_plan = memory_to_plan_per_rank(group);
  if (limit)
    out.to_plan = std::min(
        out.to_plan, std::max<std::int64_t>(0, limit->bytes - kLibraryMemory - kContextMemory) /
                         group.ranks_per_device);
  out.to_plan /= sharing;
  out.available = available_memory_per_rank(group) / sharing;
  return out;
}

MemoryPlan fit_memory(RunConfig& config, std::int64_t available) {
  return Fitter(config, available).run();
}

std::int64_t min_pass_tokens(const GroupOptions& group) { return max_pass_tokens(group) / 16; }

std::string recompute_text(const RunConfig& config) {
  const auto& [blocks, mlps] = config.step.recompute;
  const std::int64_t layers = config.model.n_layer;
  const auto of = [layers](std::int64_t count, std::string_view before) {
    return count == layers ? fmt::format("all {} layers", layers)
                           : fmt::format("{}{} of {} layers", before, count, layers);
  };
  if (blocks == 0 && mlps == 0) return "nothing";
  if (blocks == 0) return fmt::format("the MLPs of {}", of(mlps, "the first "));
  if (mlps == 0) return fmt::format("{}", of(blocks, "the first "));
  return fmt::format("{}, and the MLPs of the {}", of(blocks, "the first "),
                     blocks + mlps == layers ? "others" : fmt::format("{} after them", mlps));
}

double recompute_share(const RunConfig& config) {
  return model::recomputed_flops_per_token(config.model, config.step.recompute) /
         config.flops_per_token;
}

}  // namespace muo::trainer
