#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace muo {

// Where to compute: backend.h resolves it.
struct DeviceOptions {
  std::string backend = "auto";              // host, cuda
  std::string comm = "auto";                 // host, peer, nccl
  std::optional<std::int64_t> devices = {};  // empty: all GPUs, or as many as the host has cores
  std::int64_t ranks_per_device = 1;         // virtual ranks on each GPU
};

// What `train` and `plan` can be told. An empty optional means automatic; resolve() fills it, and
// the run's config.toml holds the filled values; only the scales stay automatic, as they
// follow from the others. Names follow nanochat's base_train.
struct TrainOptions : DeviceOptions {
  std::vector<std::string> data;      // text files, directories of text, or .bin shards
  std::vector<std::string> val_data;  // empty: hold out a part of `data`
  std::int64_t data_max_bytes = 0;    // of text; 0: all
  std::string tokenizer = "byte";
  std::int64_t vocab_size = 0;  // of .bin shards; 0: the byte tokenizer's

  std::int64_t depth = 4;  // sets width and heads as nanochat does; n_* override
  std::optional<std::int64_t> n_layer, n_embd, n_head, n_kv_head;
  std::optional<std::int64_t> max_seq_len;
  double softcap = 15.0;  // 0: off
  // "plain" or "nanochat": what the extras below are where they are automatic.
  std::string model = "nanochat";
  std::optional<bool> value_embeddings, smear, backout, resid_lambdas, x0_lambdas;
  std::optional<double> qk_scale;
  std::optional<std::string> window_pattern;

  std::optional<std::int64_t> device_batch_size;  // rows per device and micro-step
  std::optional<std::int64_t> total_batch_size;   // tokens per step
  std::optional<std::int64_t>
      target_batch_size;                       // what the automatic total_batch_size is nearest to
  std::optional<std::int64_t> num_iterations;  // else target_flops, else the ratio
  std::optional<double> target_flops;
  double target_param_data_ratio = 12;

  double matrix_lr = 0.02, embedding_lr = 0.3, unembedding_lr = 0.008, scalar_lr = 0.5;
  double weight_decay = 0.28;
  // Factors of the above; automatic, they follow from depth and batch (scaling.h).
  std::optional<double> batch_lr_scale, width_lr_scale, weight_decay_scale;
  std::int64_t warmup_steps = 40;
  double warmdown_ratio = 0.65, final_lr_frac = 0.05;
  std::string optimizer_spec = "head";  // a version of nanochat's
  std::string newton_schulz = "plain";  // a NewtonSchulzForm
  // The numerics guard (kernels/commit.h).
  double max_grad_norm = 0;        // 0: no clipping
  double outlier_deviations = 8;   // 0: nothing is an outlier
  std::string on_outlier = "log";  // or "skip"
  std::int64_t max_skipped = 100;  // updates of the run; -1: any number

  std::string strategy = "balanced";
  std::string gather = "pipelined";  // or "simple": see Gather
  std::string replicas = "auto";     // or "own" or "common": see ReplicaAt
  std::string accumulate = "local";  // or "sharded": see Accumulate
  bool graph = true;                 // false: the same calls, eagerly
  std::int64_t graph_branches = 3;   // or 1: see Branches
  std::optional<DType> dtype, gradient_wire, weight_wire;
  DType embedding_state = DType::kF32;
  std::string gemm_table;          // empty: the library's first proposals
  std::string attention = "auto";  // an AttentionKernels, of GPUs
  bool deterministic = true;       // false: GPUs may compute gradients of attention in any order
  std::uint64_t seed = 42;
  std::int64_t verify_sync_every = -1;  // steps; -1: never

  std::string out;        // run directory; empty: runs/<date>-<time>-<pid>
  std::string resume;     // empty, "auto", a run directory or a checkpoint
  std::string init_from;  // empty, a run directory or a checkpoint
  // In steps; -1: never.
  std::optional<std::int64_t> eval_every, save_every, sample_every;
  double save_minutes = -1;            // -1: never
  std::int64_t keep_last = -1;         // -1: all
  std::int64_t keep_every = -1;        // -1: none besides
  double save_before_eval = 30;        // evaluations of so many seconds; -1: none
  std::string save_mode = "auto";      // background, wait
  std::string on_save_error = "stop";  // continue
  std::optional<std::int64_t> eval_tokens;
  std::int64_t log_every = 1;
  std::optional<double> stuck_after;  // seconds; 0: never
  std::string profile_steps;          // "A:B": steps A to B - 1; empty: none
  std::string graph_dot;              // where to write the captured step; empty: nowhere
};

// What `plan` predicts the time of updates for; without the first two it does not.
struct PredictionOptions {
  std::optional<double> link_gbps;    // GB/s that a device sends in a collective
  std::optional<double> gemm_tflops;  // of a device in Newton-Schulz
  double link_us = 0;                 // of a collective, whatever its size
  double step_ms = 0;                 // forward and backward of a step
};
enum class PlanKind : std::uint8_t { kReport, kCompare, kArticles };
enum class ReportFormat : std::uint8_t { kTable, kJson };
struct PlanOptions {
  TrainOptions train;
  PredictionOptions prediction;
  ReportFormat format = ReportFormat::kTable;
  PlanKind kind = PlanKind::kReport;
};

struct EvalOptions : DeviceOptions {
  std::string checkpoint;         // a checkpoint, or a run directory: its newest
  std::vector<std::string> data;  // empty: the held-out data of the run
  std::int64_t data_max_bytes = 0;
  std::optional<std::int64_t> eval_tokens;  // empty: all
  std::optional<std::int64_t> device_batch_size;
  std::optional<DType> dtype;  // empty: the run's
};

struct SampleOptions {
  std::string checkpoint;
  std::string prompt;
  std::int64_t num_samples = 1;
  std::int64_t max_tokens = 256;  // of each sample, after the prompt
  double temperature = 0.8;       // 0: always the most likely token
  std::int64_t top_k = 0;         // 0: all tokens
  std::uint64_t seed = 42;
  std::optional<DType> dtype;    // empty: the run's
  std::string backend = "auto";  // host, cuda
};

struct InspectOptions {
  std::string checkpoint;  // a checkpoint, or a run directory: its newest
};
struct VerifyOptions {
  std::string checkpoint;  // a checkpoint, or a run directory: all of it
};
// `checkpoint import` and `checkpoint export`: nanochat_files.h.
struct ImportOptions {
  std::string model;  // safetensors
  std::string meta;   // JSON; empty: beside the model
  std::string out;    // run directory
};
struct ExportOptions {
  std::string checkpoint;
  std::string out;  // directory
};

// step: a whole step's rate and where its time goes. launch: what enqueueing it costs the host.
// optimizer: the update alone, by strategy.
enum class BenchKind : std::uint8_t { kStep, kLaunch, kOptimizer };
// What --strategy may be there.
inline constexpr std::string_view kAllStrategies = "all";

}  // namespace muo
