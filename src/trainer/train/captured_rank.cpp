#include "trainer/train/captured_rank.h"

#include "graphs/capture.h"

namespace muo::trainer {

CapturedRank::CapturedRank(RankContext& own, const PlannedRun& planned, const data::Corpus& corpus)
    : rank(own),
      run(planned),
      arena(rank.device, graphs::plan_rank_memory(run.config, run.params, run.plan, rank.rank),
            rank.common),
      state(rank, run.config, run.params, run.plan, arena),
      evaluator(
          rank, *state.eval,
          data::HeldOutRows(*corpus.val, corpus.val_documents.get(), run.config.model.seq_len),
          run.config.step.batch, run.config.model.seq_len, run.config.eval_rows()),
      loading{.rank = rank.rank,
              .world = rank.world,
              .batch = run.config.step.batch,
              .seq_len = run.config.model.seq_len,
              .accumulation = run.config.step.accumulation},
      copied(rank.device.make_event()) {}

void CapturedRank::capture(const data::Corpus& corpus, Tuning* tuning) {
  const TrainOptions& options = run.config.options;
  graphs::warm_up_and_capture(rank, arena, state, options.capture.graph, [&] {
    if (tuning != nullptr) tuning->agree(run.config.group.processes);
  });
  if (rank.rank == 0 && !options.run.graph_dot.empty()) state.step.write_dot(options.run.graph_dot);
  if (run.staging_bytes > 0) staging.emplace(rank, state.update.state());
  slots_ = rank.device.allocate_pinned(kLoaderSlots * data::Loader::slot_bytes(loading), "batches");
  rank.device.seal();
  // While a GPU's kernels wait for a peer, that peer may be unable to allocate memory or
  // instantiate graphs, so all ranks must have finished both.
  rank.barrier.arrive(
      [&] {
        if (tuning != nullptr) tuning->keep();  // captures have tuned every product by now
      },
      "start-up");
  rank.progress.enter("the initialization of weights");
  state.initialize(corpus.token_bytes);
}

void CapturedRank::reset(const HyperParameters& hyper) {
  rank.progress.enter("the initialization of weights");
  state.reset(hyper);
}

}  // namespace muo::trainer
