#include "app/train/captured_rank.h"

#include "app/run/run_memory.h"
#include "graphs/capture.h"

namespace muo {

CapturedRank::CapturedRank(RankContext& own, const RunConfig& config,
                           const std::vector<ParamSpec>& all_params, const ShardingPlan& sharding,
                           const Corpus& corpus, bool saves_in_background)
    : rank(own),
      plan(sharding),
      params(all_params),
      arena(rank.device, plan_rank_memory(config, params, plan, rank.rank), rank.common),
      state(rank, config, params, plan, arena),
      evaluator(rank, *state.eval,
                HeldOutRows(*corpus.val, corpus.val_documents.get(), config.model.seq_len),
                config.step.batch, config.model.seq_len, config.eval_rows()),
      loading{.rank = rank.rank,
              .world = rank.world,
              .batch = config.step.batch,
              .seq_len = config.model.seq_len,
              .accumulation = config.step.accumulation,
              .first_step = 0},
      copied(rank.device.make_event()),
      config_(config),
      saves_in_background_(saves_in_background) {}

void CapturedRank::capture(const Corpus& corpus, Tuning* tuning) {
  const TrainOptions& options = config_.options;
  warm_up_and_capture(rank, arena, state, options.capture.graph);
  if (rank.rank == 0 && !options.run.graph_dot.empty()) state.step.write_dot(options.run.graph_dot);
  if (saves_in_background_) staging.emplace(rank, state.update.state());
  slots_ = rank.device.allocate_pinned(kLoaderSlots * Loader::slot_bytes(loading), "batches");
  rank.device.seal();
  // A GPU whose kernels wait for a peer may not let that peer allocate or instantiate.
  rank.barrier.arrive(
      [&] {
        if (tuning != nullptr) tuning->keep();  // captures have met every product
      },
      "start-up");
  rank.progress.enter("the setting of its weights");
  state.initialize(corpus.token_bytes);
}

void CapturedRank::reset(const HyperParameters& hyper) {
  rank.progress.enter("the setting of its weights");
  state.reset(hyper);
}

}  // namespace muo
