#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_size.h"
#include "base/dtype.h"
#include "base/duration.h"
#include "base/enum_names.h"
#include "data/token_data.h"
#include "graphs/micro_steps.h"
#include "kernels/attention_method.h"
#include "model/activations.h"
#include "optim/optimizer_options.h"
#include "optim/sharding_plan.h"
#include "trainer/options/model_options.h"

namespace muo {
class ProcessExchange;
class ProcessGroup;
}  // namespace muo

namespace muo::trainer {

enum class Backend : std::uint8_t { kHost, kCuda };
constexpr auto names_of(Backend) { return name_list("host", "cuda"); }
enum class Comm : std::uint8_t { kHost, kMpi, kPeer, kNccl };
constexpr auto names_of(Comm) { return name_list("host", "mpi", "peer", "nccl"); }
// When the GEMM algorithms of GPUs are measured: never, once for the user's cache, or again.
enum class Tune : std::uint8_t { kOff, kOnce, kNow };
constexpr auto names_of(Tune) { return name_list("off", "once", "now"); }
enum class MasterWeights : std::uint8_t { kFp32, kSplit };  // see NumberFormats
constexpr auto names_of(MasterWeights) { return name_list("fp32", "split"); }
enum class SaveMode : std::uint8_t { kBackground, kWait };
constexpr auto names_of(SaveMode) { return name_list("background", "wait"); }
enum class OnSaveError : std::uint8_t { kStop, kContinue };
constexpr auto names_of(OnSaveError) { return name_list("stop", "continue"); }

// The devices to compute on, before backend.h resolves them.
struct DeviceOptions {
  std::optional<Backend> backend = {};
  std::optional<Comm> comm = {};
  std::optional<std::int64_t> count = {};  // empty: all GPUs, or as many as the host has cores
  std::int64_t ranks_per_device = 1;       // virtual ranks on each GPU
  std::string described = {};              // GPU profile to plan for; empty: this machine's devices
  // Bytes of memory of each described GPU; 0: as its profile has.
  std::int64_t described_memory = 0;
  std::optional<std::int64_t> store_port = {};  // rendezvous port; empty: see join_world()
  bool process_per_device = false;              // start_processes(); on the command line only
  // Set by join_world() for a world of several processes; not options.
  int process_here = 0, processes_here = 1;  // among the processes on this host
  ProcessGroup* processes = nullptr;
  ProcessExchange* exchange = nullptr;
};

struct BatchOptions {
  std::optional<std::int64_t> device_rows = {};    // per device and micro-step
  std::optional<BatchSizes> total_tokens = {};     // per step
  std::optional<std::int64_t> target_tokens = {};  // an automatic total_tokens is nearest to this
  std::optional<std::int64_t> iterations = {};     // empty: from target_flops, else from the ratio
  std::optional<double> target_flops = {};
  // Length of the training; with steps or FLOPs, whichever comes first ends the run.
  std::optional<Duration> time_budget = {};
  std::string positions_from = {};  // metrics.jsonl of a run with a time budget; empty: none
  double target_param_data_ratio = 12;
  // The batch of the resumed run; not options. If the number of ranks is unchanged, the run keeps
  // its rows if these divide the step. An automatic total is kept if rows and ranks divide it.
  struct Before {
    std::int64_t world = 0;
    std::optional<std::int64_t> device_rows = {}, total_tokens = {};
  } before = {};
};

// Input of the sharding plan: optim/sharding_plan.h.
struct ShardingOptions {
  std::string strategy = "auto";  // ddp, parallel or balanced; auto: by `shard`
  optim::Gather gather = optim::Gather::kPipelined;
  std::optional<optim::ReplicaAt> replicas = {};
  std::optional<optim::Shard> shard = {};
};

// Options that save memory.
struct MemoryOptions {
  std::optional<model::Recomputed> recompute = {};  // in all layers; empty: see fit_memory()
  std::optional<ByteSize> limit = {};               // see memory_budget()
};

struct CaptureOptions {
  bool graph = true;                          // false: run the same calls eagerly
  std::optional<std::int64_t> branches = {};  // 3 or 1: see Branches
  std::optional<graphs::MicroSteps> micro_steps = {};
};

struct NumberOptions {
  std::optional<DType> dtype = {}, gradient_wire = {}, weight_wire = {};
  MasterWeights master_weights = MasterWeights::kFp32;
  DType gradients = DType::kF32;
  DType momentum_state = DType::kF32, adam_state = DType::kF32, embedding_state = DType::kF32;
  std::string gemm_table = {};                           // empty: use the library's first proposals
  std::optional<Tune> tune = {};                         // when GEMM algorithms are measured
  AttentionKernels attention = AttentionKernels::kAuto;  // on GPUs
  // False: GPUs may sum gradients of attention in any order. Empty: false where that is faster.
  std::optional<bool> deterministic = {};
  // True: fuse ReLU^2 into GEMMs on GPUs. Empty: where the GPU has fused kernels.
  std::optional<bool> fused_products = {};
};

struct EvaluationOptions {
  std::optional<std::int64_t> every = {};         // steps; -1: never
  std::optional<std::int64_t> tokens = {};        // per evaluation
  std::optional<std::int64_t> sample_every = {};  // steps; -1: never
};

struct SaveOptions {
  std::optional<std::int64_t> every = {};  // steps; -1: never
  double minutes = -1;                     // -1: never
  double before_eval = 30;                 // save before evaluations longer than this, s; -1: never
  std::int64_t keep_last = -1;             // newest checkpoints to keep; -1: all
  std::int64_t keep_every = -1;            // steps between checkpoints that are also kept; -1: none
  std::optional<SaveMode> mode = {};
  OnSaveError on_error = OnSaveError::kStop;
};

// Source of the sizes of a run on a CPU without --config.
enum class CpuSizes { kNotChosen, kQuick, kLaws };
inline constexpr const char* kQuickSizes =
    "sizes and rates: from configs/quick.toml, for a CPU; with --depth N, by nanochat's laws";

struct RunOptions {
  std::string out = {};        // run directory; empty: runs/<date>-<time>-<pid>
  std::string resume = {};     // empty, "auto", a run directory or a checkpoint
  std::string init_from = {};  // empty, a run directory or a checkpoint
  std::int64_t log_every = 1;
  std::int64_t norms_every = 100;  // -1: never
  bool tensorboard = true;         // event files beside metrics.jsonl
  bool alarms = true;              // warn of loss spikes, slow steps, growing memory, slow data
  bool quiet = false, verbose = false;      // terminal output; only on the command line
  std::int64_t verify_sync_every = -1;      // steps; -1: never
  std::optional<double> stuck_after = {};   // seconds; 0: never
  std::string profile_steps = {};           // "A:B": steps A to B - 1; empty: none
  std::string timeline = {};                // file for the profiled steps' timeline; empty: none
  std::string graph_dot = {};               // file for the captured step's graph; empty: none
  std::string result = {};                  // file for the run's result; "-": stdout; empty: none
  std::string version = {};                 // version of the program; not an option
  std::vector<std::string> arguments = {};  // command line, from the command on; not an option
  CpuSizes sizes = CpuSizes::kNotChosen;    // not an option
};

// Options of `train` and `plan`. An empty optional means automatic: resolve() sets it, and the
// run's config.toml contains the resolved values. Only OptimizerOptions stay automatic, because
// they follow from the other options. The names are those of nanochat's base_train.
struct TrainOptions {
  data::DataOptions data;
  ModelOptions model;
  BatchOptions batch;
  optim::OptimizerOptions optimizer;
  optim::GuardOptions guard;
  DeviceOptions devices;
  ShardingOptions sharding;
  MemoryOptions memory;
  CaptureOptions capture;
  std::uint64_t seed = 42;  // random seed of initial weights and data order
  NumberOptions numbers;
  EvaluationOptions evaluation;
  SaveOptions save;
  RunOptions run;
};

// One option varied by a sweep, parsed by kit/sweep/search_space.h.
struct Axis {
  std::string option;
  std::string text;                      // as given
  std::vector<std::string> values = {};  // in grid order; empty: any value from low to high
  double low = 0, high = 0;
  bool logarithmic = false;  // uniform in the logarithm
  bool whole = false;        // integers only

  [[nodiscard]] bool is_finite() const { return !values.empty(); }
};

// Successive halving: at each rung the best 1 of `factor` trials continues, and the others stop.
struct HalvingOptions {
  std::int64_t factor = 1;  // 1: every trial trains to its end
  // First rung; each further rung is factor times later.
  std::optional<std::int64_t> min_steps = {};
  bool asynchronous = false;  // promote without waiting for the whole rung
};

struct SweepOptions {
  SweepOptions() { train.evaluation.every = train.evaluation.sample_every = -1; }

  // Shared by all trials; `run.out` and `run.resume` are the sweep's. By default, trials are
  // evaluated only where they are compared.
  TrainOptions train = {};
  std::vector<Axis> axes = {};
  std::optional<std::int64_t> trials = {};  // empty: the whole grid
  std::uint64_t search_seed = 0;            // seed for drawing trials
  HalvingOptions halving = {};
  std::optional<Duration> budget = {};  // of all trials together; sets train.batch.time_budget
  std::int64_t devices_per_trial = 1;
  std::int64_t trials_per_device = 1;  // concurrent trials on a GPU
  std::int64_t finalists = 1;          // points that fresh seeds test; 1: no finals
  double confidence = 0.95;            // of all judgements of the finals together; of each interval
  std::optional<std::int64_t> transfer_to = {};  // depth for which the best value is predicted
  bool ask_tell = false;                         // an external optimizer suggests trials
};

// Rates from which `plan` predicts the time of updates; the prediction needs link_gbps and
// gemm_tflops.
struct PredictionOptions {
  std::optional<double> link_gbps = {};    // GB/s that a device sends in a collective
  std::optional<double> gemm_tflops = {};  // TFLOP/s of a device in Newton-Schulz
  std::int64_t boxes = 1;                  // each with --devices GPUs
  std::optional<double> inter_gbps = {};   // GB/s of a box to the others, per direction
  double link_us = 0;                      // latency of a collective
  std::optional<double> memory_gbps = {};  // GB/s of a device's memory while committing
  double step_ms = 0;                      // time of forward and backward of a step
};
enum class PlanKind : std::uint8_t { kReport, kCompare, kLargest, kRoofline };
enum class ReportFormat : std::uint8_t { kTable, kJson };
struct PlanOptions {
  TrainOptions train;
  PredictionOptions prediction;
  ReportFormat format = ReportFormat::kTable;
  PlanKind kind = PlanKind::kReport;
  std::string gpu = {};  // profile of a GPU to plan for; empty: this machine's devices
  std::optional<ByteSize> memory = {};  // per GPU of the profile, or per device for kLargest
  std::string roofline = {};            // a GPU profile, or a file of rates; empty: none
  std::string measured = {};            // a GPU check's kernels.jsonl; empty: none
};

// Tasks of examples with known answers: see data/examples.
struct ExampleOptions {
  std::string hellaswag = {};                   // file; empty: none
  std::string core = {};                        // folder; empty: none
  std::int64_t max_per_task = 0;                // 0: all
  std::optional<std::int64_t> row_tokens = {};  // empty: the model's seq_len

  [[nodiscard]] bool any() const { return !hellaswag.empty() || !core.empty(); }
};

struct EvalOptions {
  std::string checkpoint = {};  // a checkpoint, or a run directory (its newest checkpoint)
  data::DataOptions data;       // no paths: the run's validation data
  DeviceOptions devices;
  std::optional<std::int64_t> tokens = {};       // empty: all
  std::optional<std::int64_t> device_rows = {};  // batch size per device
  std::optional<DType> dtype = {};               // empty: the run's
  std::optional<data::Packing> packing = {};     // empty: as trained
  ExampleOptions examples;                       // if any, evaluated instead of the loss on data
  bool json = false;
};

// How tokens are sampled.
struct SamplingOptions {
  std::int64_t max_tokens = 256;        // per sample, after the prompt
  double temperature = 0.8;             // 0: always the most likely token
  std::int64_t top_k = 0;               // 0: all tokens
  double top_p = 1;                     // 1: all tokens
  double min_p = 0;                     // 0: all tokens
  std::vector<std::string> stops = {};  // texts that end a sample
  std::uint64_t seed = 42;
};
struct SampleOptions {
  std::string checkpoint = {};
  std::vector<std::string> prompts = {};  // if prompts and file are empty: one empty prompt
  std::string prompt_file = {};           // one prompt per line
  bool interactive = false;               // read prompts from the terminal
  std::int64_t num_samples = 1;           // per prompt
  std::int64_t logits = 0;                // > 0: print the N largest logits instead of samples
  std::string timeline = {};              // file for the timeline; empty: none
  SamplingOptions sampling = {};
  std::optional<DType> dtype = {};  // empty: the run's
  std::optional<Backend> backend = {};
};

struct InspectOptions {
  std::string checkpoint = {};  // a checkpoint, or a run directory (its newest checkpoint)
};
struct VerifyOptions {
  std::string checkpoint = {};  // a checkpoint, or a run directory (all its checkpoints)
};
// `checkpoint import` and `checkpoint export`: nanochat_files.h, hugging_face_files.h.
struct ImportOptions {
  std::string model = {};    // safetensors file
  std::string meta = {};     // JSON file; empty: the meta file beside the model
  std::string out = {};      // run directory
  std::string version = {};  // as RunOptions'
};
struct ExportOptions {
  std::string checkpoint = {};
  // Output directory, of which exactly one is given: for nanochat, for transformers' port of
  // nanochat, or for transformers with the model's code.
  std::string out = {}, hf = {}, hf_code = {};
};

// How documents are read: data/documents.h.
struct TextOptions {
  std::string field = "text";  // field of JSON Lines that holds the text
  std::string separator = {};  // between documents within a file
  bool skip_bad_lines = false;
};
// Text to token shards.
struct TokenizeOptions {
  std::vector<std::filesystem::path> data = {};  // "-": standard input
  std::string tokenizer = {};
  TextOptions text = {};
  std::int64_t shard_tokens = 100'000'000;
  std::int64_t val_tokens = 10 << 20;  // maximum validation tokens; 0: none
  std::int64_t val_every = 100;        // hold out 1 document in N, up to val_tokens
  std::optional<std::int64_t> threads = {};
  std::string out = {};  // folder
};
// `tokenizer train`, `encode`, `decode` and `convert`: data/tokenizer.h.
struct TrainTokenizerOptions {
  std::vector<std::filesystem::path> data = {};
  TextOptions text = {};
  std::int64_t vocab_size = 32768;
  std::string pattern = "nanochat";        // a name, or a regular expression
  std::string special = "nanochat";        // tokens separated by spaces; "nanochat": its nine
  std::optional<ByteSize> max_bytes = {};  // bytes of text to read; empty: all
  std::optional<std::int64_t> threads = {};
  std::string out = {};
};
struct EncodeOptions {
  std::vector<std::filesystem::path> files = {};  // empty: standard input
  std::string tokenizer = {};
  std::string field = {};  // field of JSON Lines; empty: standard input is text
  bool special = false;    // encode the text of a special token as that token
};
struct DecodeOptions {
  std::vector<std::filesystem::path> files = {};  // empty: standard input
  std::string tokenizer = {};
};
struct ConvertTokenizerOptions {
  std::string tokenizer = {};
  std::string pattern = {};  // split pattern of tiktoken ranks
  std::string special = {};  // special tokens of tiktoken ranks: TOKEN=ID, space-separated
  std::string out = {};
};

// step: throughput of a whole step, and where its time goes. launch: host time to launch a step.
// optimizer: time of the update alone, by strategy.
enum class BenchKind : std::uint8_t { kStep, kLaunch, kOptimizer };
constexpr auto names_of(BenchKind) { return name_list("step", "launch", "optimizer"); }
struct BenchOptions {
  BenchKind kind = BenchKind::kStep;
  TrainOptions train = {};
  std::int64_t steps = 10;
  ReportFormat format = ReportFormat::kTable;
};
// A value of bench optimizer's --strategy, accepted besides the strategies' names.
inline constexpr std::string_view kAllStrategies = "all";

struct ReportOptions {
  std::vector<std::filesystem::path> runs = {};  // run directories
  std::string out = "report.html";
  std::string plotly = {};   // minified plotly.js; empty: the installed or fetched file
  bool text = false;         // small curves on the terminal instead of a page
  bool follow = false;       // serve the page while runs grow
  std::int64_t port = 6007;  // on 127.0.0.1; 0: any free port
};

struct CompareOptions {
  std::vector<std::filesystem::path> runs = {};  // run directories and sweeps
  std::vector<std::filesystem::path> with = {};  // runs of the other side; empty: by their options
  double confidence = 0.95;
  bool json = false;
};

struct TimelineOptions {
  std::string file = {};  // of train --timeline
  bool json = false;
};

struct DoctorOptions {
  bool gpu_only = false;
};

}  // namespace muo::trainer
