// Fitting a run into memory: --recompute auto, --memory-limit, chunks of logits, and the
// alternatives that are proposed if the run does not fit.
#include "trainer/run/memory_fit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/activations.h"
#include "support/errors.h"
#include "trainer/options/option_table.h"
#include "trainer/run/backend.h"
#include "trainer/run/memory_advice.h"
#include "trainer/run/run_memory.h"

namespace muo::trainer {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kLayers = 4;
constexpr std::int64_t kRoom = std::int64_t{1} << 40;

// 8 explicit rows of 256 tokens on one device, and a narrow model, so that activations dominate.
TrainOptions one_device() {
  TrainOptions options;
  options.model.preset = ModelPreset::kPlain;
  options.model.set(&model::GptConfig::n_layer, kLayers);
  options.model.set(&model::GptConfig::n_embd, 64);
  options.model.set(&model::GptConfig::n_head, 2);
  options.model.set(&model::GptConfig::seq_len, 256);
  options.devices.backend = Backend::kHost;
  options.devices.count = 1;
  options.batch.device_rows = 8;
  options.batch.total_tokens = 2 * 8 * 256;
  return options;
}

RunConfig resolved(const TrainOptions& options) {
  return resolve(options, data::corpus_without_tokens(options.data));
}

RunConfig fitted(const TrainOptions& options, std::int64_t available) {
  RunConfig run = resolved(options);
  fit_memory(run, available);
  return run;
}

std::string mib(std::int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / 1048576);
}

std::int64_t bytes_with(const TrainOptions& options, const model::Recompute& recompute) {
  RunConfig run = resolved(options);
  run.step.recompute = recompute;
  return plan_run_memory(run).rank_bytes(run.world());
}

std::pair<std::int64_t, std::int64_t> layers_of(const RunConfig& run) {
  return {run.step.recompute.blocks, run.step.recompute.mlps};
}

TEST(FitMemory, KeepsARunThatFits) {
  const RunConfig run = fitted(one_device(), bytes_with(one_device(), {}));
  EXPECT_EQ(layers_of(run), std::pair(0L, 0L));
  EXPECT_EQ(run.step.batch, 8);
  EXPECT_EQ(run.model.head_chunk_bytes, model::kHostHeadChunk);
  EXPECT_THAT(run.notes, Not(Contains(HasSubstr("recompute"))));
}

// From nothing to all blocks: each choice with exactly its bytes available, and with one byte less.
TEST(FitMemory, RecomputesInAsFewLayersAsSuffice) {
  std::vector<model::Recompute> choices = {{}};
  for (std::int64_t layers = 1; layers <= kLayers; ++layers)
    choices.push_back({.blocks = 0, .mlps = layers});
  for (std::int64_t layers = 1; layers <= kLayers; ++layers)
    choices.push_back({.blocks = layers, .mlps = kLayers - layers});
  std::int64_t before = bytes_with(one_device(), choices[0]);
  int distinct = 0;
  for (std::size_t i = 1; i < choices.size(); ++i) {
    const std::int64_t bytes = bytes_with(one_device(), choices[i]);
    ASSERT_LE(bytes, before) << i;
    if (bytes == before) continue;  // recomputing the last layer saves nothing
    ++distinct;
    for (const std::int64_t available : {before - 1, bytes}) {
      const RunConfig run = fitted(one_device(), available);
      EXPECT_EQ(layers_of(run), std::pair(choices[i].blocks, choices[i].mlps)) << i;
      EXPECT_EQ(run.step.batch, 8);  // as given
      EXPECT_EQ(run.options.memory.recompute, std::nullopt);
      EXPECT_THAT(run.notes, Contains(AllOf(HasSubstr("recompute: " + recompute_text(run)),
                                            HasSubstr(" (" + mib(bytes) + " MiB per device, " +
                                                      mib(available) + " MiB are available); "))));
      EXPECT_EQ(plan_run_memory(run).rank_bytes(1), bytes);
    }
    before = bytes;
  }
  EXPECT_GE(distinct, 5);
  const RunConfig none = fitted(one_device(), bytes_with(one_device(), choices.back()) - 1);
  EXPECT_THAT(none.notes, Contains(HasSubstr("even so 8 rows need")));
}

TEST(FitMemory, RecomputesOnlyWhatIsAllowed) {
  TrainOptions options = one_device();
  options.memory.recompute = model::Recomputed::kNone;
  EXPECT_EQ(layers_of(fitted(options, 1)), std::pair(0L, 0L));
  options.memory.recompute = model::Recomputed::kMlp;
  EXPECT_EQ(layers_of(fitted(options, 1)), std::pair(0L, kLayers));
  EXPECT_EQ(layers_of(fitted(options, kRoom)), std::pair(0L, kLayers));
  options.memory.recompute = model::Recomputed::kBlock;
  EXPECT_EQ(layers_of(fitted(options, kRoom)), std::pair(kLayers, 0L));
}

// Rows of 64 tokens; min_pass_tokens() is four rows.
TEST(FitMemory, ReducesRowsThenRecomputesThenReducesThemFurther) {
  TrainOptions options = one_device();
  options.model.set(&model::GptConfig::seq_len, 64);
  options.batch.device_rows.reset();
  options.batch.total_tokens = 8 * 64;
  ASSERT_EQ(min_pass_tokens(resolved(options).group), 4 * 64);
  const auto bytes = [&](std::int64_t rows, const model::Recompute& recompute) {
    TrainOptions o = options;
    o.batch.device_rows = rows;
    return bytes_with(o, recompute);
  };
  const RunConfig four = fitted(options, bytes(8, {}) - 1);
  EXPECT_EQ(four.step.batch, 4);
  EXPECT_EQ(layers_of(four), std::pair(0L, 0L));
  const RunConfig mlp = fitted(options, bytes(4, {}) - 1);
  EXPECT_EQ(mlp.step.batch, 4);
  EXPECT_GE(layers_of(mlp).second, 1);
  EXPECT_EQ(layers_of(mlp).first, 0);
  const std::int64_t all_mlps = bytes(4, {.blocks = 0, .mlps = kLayers});
  const RunConfig fewer = fitted(options, all_mlps - 1);
  EXPECT_EQ(fewer.step.batch, 2);
  EXPECT_EQ(fewer.step.recompute.blocks, 0);
  EXPECT_EQ(fewer.tokens_per_step(), 8 * 64);
  options.memory.recompute = model::Recomputed::kNone;
  EXPECT_EQ(fitted(options, bytes(4, {}) - 1).step.batch, 2);
}

TEST(FitMemory, ShrinksLogitChunksAfterMlpsAndBeforeBlocks) {
  TrainOptions options = one_device();
  options.data.vocab_size = 20000;  // 156 MiB of logits
  const std::int64_t mlps = bytes_with(options, {.blocks = 0, .mlps = kLayers});
  const RunConfig whole = fitted(options, mlps);
  EXPECT_EQ(whole.model.head_chunk_bytes, model::kHostHeadChunk);
  EXPECT_EQ(layers_of(whole).first, 0);
  const RunConfig smaller = fitted(options, mlps - 1);
  EXPECT_EQ(smaller.model.head_chunk_bytes, model::kHostHeadChunk / 2);
  EXPECT_EQ(layers_of(smaller).first, 0);
  EXPECT_THAT(smaller.notes, Contains(HasSubstr("logits: 32 MiB at a time")));
  RunConfig smallest = resolved(options);
  smallest.model.head_chunk_bytes = kMinHeadChunk;
  smallest.step.recompute = {.blocks = 0, .mlps = kLayers};
  const RunConfig blocks = fitted(options, plan_run_memory(smallest).rank_bytes(1) - 1);
  EXPECT_EQ(blocks.model.head_chunk_bytes, kMinHeadChunk);
  EXPECT_GE(layers_of(blocks).first, 1);
  options.memory.recompute = model::Recomputed::kNone;
  const RunConfig none = fitted(options, bytes_with(options, {}) - 1);
  EXPECT_EQ(none.model.head_chunk_bytes, model::kHostHeadChunk / 2);
}

TEST(FitMemory, KeepsLogitsThatFitIntoOneChunkForTheSmallestBatch) {
  TrainOptions options = one_device();
  options.data.vocab_size = 10000;  // 10 MiB of logits per row, 80 MiB for all 8
  options.batch.device_rows.reset();
  options.batch.total_tokens = 8 * 256;
  const RunConfig least = fitted(options, 1);
  EXPECT_EQ(least.step.batch, 1);
  EXPECT_EQ(least.model.head_chunk_bytes, model::kHostHeadChunk);
  EXPECT_THAT(least.notes, Not(Contains(HasSubstr("logits"))));
}

TEST(RecomputeShare, CountsTheRepeatedProducts) {
  RunConfig run = resolved(one_device());
  EXPECT_EQ(recompute_share(run), 0);
  const auto width = static_cast<double>(run.model.n_embd);
  run.step.recompute = {.blocks = 0, .mlps = 3};
  EXPECT_DOUBLE_EQ(recompute_share(run) * run.flops_per_token, 3 * 8 * width * width);
  // All of forward except mlp_proj: 10 of 12 squares of the width, and attention.
  run.step.recompute = {.blocks = kLayers, .mlps = 0};
  EXPECT_DOUBLE_EQ(
      recompute_share(run) * run.flops_per_token,
      kLayers * 2 * (8 * width * width) + model::attention_flops_per_token(run.model) / 3);
}

TEST(MemoryBudget, OfTheHostIsTheLimitLessTheProgramWhateverIsFree) {
  TrainOptions options = one_device();
  options.devices.count = 2;
  options.batch.total_tokens.reset();
  options.memory.limit = ByteSize{std::int64_t{1} << 50};
  const MemoryBudget budget = memory_budget(resolved(options));
  EXPECT_EQ(budget.to_plan, ((std::int64_t{1} << 50) - process_base(2, false) - kBaseSpread) / 2);
  EXPECT_LT(budget.available, budget.to_plan);  // limited by the available memory
  EXPECT_EQ(budget.per_rank(), budget.available);
  EXPECT_LT(memory_budget(resolved(options), 4).to_plan, budget.to_plan / 4);
  options.memory.limit = ByteSize{1000};
  EXPECT_EQ(memory_budget(resolved(options)).to_plan, 0);
  options.memory.limit.reset();
  const MemoryBudget all = memory_budget(resolved(options));
  EXPECT_EQ(all.to_plan, all.available);
}

TEST(MemoryBudget, OfAGpuUsesTheLimitInPlaceOfItsTotal) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  static const BackendPlugin plugin{.available_memory = [](int /*index*/) { return 5 * kGiB; },
                                    .total_memory = [](int /*index*/) { return 8 * kGiB; }};
  RunConfig run;
  run.group = {.world = 4, .plugin = &plugin, .ranks_per_device = 2};
  constexpr std::int64_t kKept = kLibraryMemory + kContextMemory;
  EXPECT_EQ(memory_budget(run).to_plan, (8 * kGiB - kKept) / 2);
  run.options.memory.limit = ByteSize{6 * kGiB};
  EXPECT_EQ(memory_budget(run).to_plan, (6 * kGiB - kKept) / 2);
  EXPECT_EQ(memory_budget(run).available, (5 * kGiB - kLibraryMemory) / 2);
  run.options.memory.limit = ByteSize{16 * kGiB};  // more than the GPU has
  EXPECT_EQ(memory_budget(run).to_plan, (8 * kGiB - kKept) / 2);
}

TrainOptions limited(std::int64_t bytes) {
  TrainOptions options = one_device();
  options.memory.limit = ByteSize{bytes};
  return options;
}

TEST(MemoryLimit, DecisionsAreRepeatable) {
  const TrainOptions options = limited(
      min_memory_limit(resolved(one_device()), bytes_with(one_device(), {})).bytes - 2'000'000);
  const auto decide = [&] {
    RunConfig run = resolved(options);
    fit_memory(run, memory_budget(run).to_plan);
    return layers_of(run);
  };
  EXPECT_NE(decide(), std::pair(0L, 0L));
  EXPECT_EQ(decide(), decide());
}

std::string refusal(const TrainOptions& options) {
  const data::Corpus corpus = data::corpus_without_tokens(options.data);
  RunConfig run = resolve(options, corpus);
  const MemoryBudget budget = memory_budget(run);
  const MemoryPlan plan = fit_memory(run, budget.to_plan);
  return test::message_of<InputError>([&] { require_fit(run, plan, budget, options, corpus); });
}

// An alternative's options as on a command line.
TrainOptions with(TrainOptions options, const std::vector<GivenOption>& more) {
  const std::vector<OptionRow> rows = option_table(options);
  for (const auto& [name, value] : more)
    set_option(*std::ranges::find(rows, name, &OptionRow::name), std::vector{value}, name);
  return options;
}

TEST(NearestAlternatives, FitWhenApplied) {
  const model::Recompute blocks{.blocks = kLayers, .mlps = 0};
  const std::int64_t limit =
      min_memory_limit(resolved(one_device()), bytes_with(one_device(), blocks)).bytes - 2'000'000;
  const TrainOptions options = limited(limit);
  RunConfig run = resolved(options);
  fit_memory(run, memory_budget(run).to_plan);
  const std::vector<Alternative> near =
      nearest_alternatives(run, options, data::corpus_without_tokens(options.data));
  ASSERT_GE(near.size(), 2U);
  EXPECT_LE(near.size(), kMaxAlternatives);
  EXPECT_TRUE(std::ranges::is_sorted(near, {}, &Alternative::time));
  const std::string message = refusal(options);
  EXPECT_THAT(message, HasSubstr("not enough memory: 1 device needs "));
  EXPECT_THAT(message, HasSubstr("recomputing all 4 layers, and --memory-limit"));
  for (const Alternative& each : near) {
    SCOPED_TRACE(each.text());
    EXPECT_TRUE(each.fits);
    EXPECT_THAT(each.text(), HasSubstr("(" + mib(each.bytes) + " MiB"));
    EXPECT_THAT(message, HasSubstr(each.text()));
    EXPECT_EQ(refusal(with(options, each.options)), "no exception");
  }
}

TEST(NearestAlternatives, TheFastestIsFirstEvenIfItChangesMore) {
  TrainOptions options = one_device();
  options.model.set(&model::GptConfig::n_embd, 256);
  options.devices.count = 2;
  options.batch.device_rows = 1;
  options.batch.total_tokens = 2 * 256;
  options.memory.recompute = model::Recomputed::kBlock;
  // Enough for one device, which takes twice the time, but not for any of these options alone.
  std::int64_t limit = kRoom;
  for (const char* name : {"momentum-state", "adam-state", "dtype"}) {
    const RunConfig run = resolved(with(options, {{.name = name, .value = "bf16"}}));
    const std::int64_t needed = plan_run_memory(run).rank_bytes(2);
    limit = std::min(limit, min_memory_limit(run, needed).bytes - 1'000'000);
  }
  options.memory.limit = ByteSize{limit};
  const std::vector<Alternative> near =
      nearest_alternatives(resolved(options), options, data::corpus_without_tokens(options.data));
  ASSERT_FALSE(near.empty());
  EXPECT_EQ(near.front().options.size(), 2U);
  EXPECT_EQ(near.back().options.front().name, "devices");
}

TEST(RequireFit, NamesTheMinimumIfNothingFits) {
  const TrainOptions options = limited(48'000'000);
  const std::string message = refusal(options);
  const std::vector<Alternative> near =
      nearest_alternatives(resolved(options), options, data::corpus_without_tokens(options.data));
  ASSERT_EQ(near.size(), 1U);
  EXPECT_FALSE(near[0].fits);
  const ByteSize enough = min_memory_limit(near[0].config, near[0].bytes / near[0].config.world());
  EXPECT_THAT(message, HasSubstr("; the minimum is "));
  EXPECT_THAT(message, HasSubstr("--device-batch-size 1"));
  EXPECT_THAT(message, HasSubstr("give --memory-limit " + to_text(enough) +
                                 ", or a smaller --depth or --max-seq-len (4 layers, T 256)"));
  TrainOptions taken = with(options, near[0].options);
  taken.memory.limit = enough;
  EXPECT_EQ(refusal(taken), "no exception");
  taken.memory.limit->bytes -= 1'000'000;
  EXPECT_NE(refusal(taken), "no exception");
}

}  // namespace
}  // namespace muo::trainer
