#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/options/model_options.h"
#include "base/byte_size.h"
#include "base/dtype.h"
#include "base/enum_names.h"
#include "data/token_data.h"
#include "kernels/attention_method.h"
#include "model/activations.h"
#include "optim/optimizer_options.h"
#include "optim/sharding_plan.h"

namespace muo {
class ProcessExchange;
class ProcessGroup;
}  // namespace muo

namespace muo::app {

enum class Backend : std::uint8_t { kHost, kCuda };
constexpr auto names_of(Backend) { return name_list("host", "cuda"); }
enum class Comm : std::uint8_t { kHost, kMpi, kPeer, kNccl };
constexpr auto names_of(Comm) { return name_list("host", "mpi", "peer", "nccl"); }
// Whether products of GPUs are measured: never, once for the user's cache, or again.
enum class Tune : std::uint8_t { kOff, kOnce, kNow };
constexpr auto names_of(Tune) { return name_list("off", "once", "now"); }
enum class MasterWeights : std::uint8_t { kFp32, kSplit };  // see NumberFormats
constexpr auto names_of(MasterWeights) { return name_list("fp32", "split"); }
enum class SaveMode : std::uint8_t { kBackground, kWait };
constexpr auto names_of(SaveMode) { return name_list("background", "wait"); }
enum class OnSaveError : std::uint8_t { kStop, kContinue };
constexpr auto names_of(OnSaveError) { return name_list("stop", "continue"); }

// Where to compute: backend.h resolves it.
struct DeviceOptions {
  std::optional<Backend> backend = {};
  std::optional<Comm> comm = {};
  std::optional<std::int64_t> count = {};  // empty: all GPUs, or as many as the host has cores
  std::int64_t ranks_per_device = 1;       // virtual ranks on each GPU
  std::string described = {};              // a GPU that need not be here, for a plan; empty: none
  std::int64_t described_memory = 0;       // bytes that each of these has; 0: what such a GPU has
  // Where processes of one world meet; empty: see join_world().
  std::optional<std::int64_t> store_port = {};
  bool process_per_device = false;  // start_processes(); no option of a file
  // Of a launched world: join_world() sets them; no options.
  int process_here = 0, processes_here = 1;  // on this host
  ProcessGroup* processes = nullptr;
  ProcessExchange* exchange = nullptr;
};

struct BatchOptions {
  std::optional<std::int64_t> device_rows = {};    // per device and micro-step
  std::optional<std::int64_t> total_tokens = {};   // per step
  std::optional<std::int64_t> target_tokens = {};  // what automatic total_tokens are nearest to
  std::optional<std::int64_t> iterations = {};     // else target_flops, else the ratio
  std::optional<double> target_flops = {};
  double target_param_data_ratio = 12;
  // The batch of the resumed run; no options. As many ranks as before keep their rows if these
  // divide the step. An automatic total is kept if rows and ranks divide it.
  struct Before {
    std::int64_t world = 0;
    std::optional<std::int64_t> device_rows = {}, total_tokens = {};
  } before = {};
};

// Who holds and updates what, and how it travels: optim/sharding_plan.h.
struct ShardingOptions {
  std::string strategy = "auto";  // ddp, parallel or balanced, by `shard`
  optim::Gather gather = optim::Gather::kPipelined;
  std::optional<optim::ReplicaAt> replicas = {};
  std::optional<optim::Shard> shard = {};
};

// What is done for memory.
struct MemoryOptions {
  std::optional<model::Recomputed> recompute = {};  // of all layers; empty: see fit_memory()
  std::optional<ByteSize> limit = {};               // see memory_budget()
};

struct CaptureOptions {
  bool graph = true;                          // false: the same calls, eagerly
  std::optional<std::int64_t> branches = {};  // 3 or 1: see Branches
};

struct NumberOptions {
  std::optional<DType> dtype = {}, gradient_wire = {}, weight_wire = {};
  MasterWeights master_weights = MasterWeights::kFp32;
  DType gradients = DType::kF32;
  DType momentum_state = DType::kF32, adam_state = DType::kF32, embedding_state = DType::kF32;
  std::string gemm_table = {};                           // empty: the library's first proposals
  std::optional<Tune> tune = {};                         // whether such products are measured
  AttentionKernels attention = AttentionKernels::kAuto;  // of GPUs
  // False: GPUs may add up gradients of attention in any order. Empty: false where that is faster.
  std::optional<bool> deterministic = {};
  // Products with ReLU^2 in the kernels of GPUs that have such. Empty: where there are.
  std::optional<bool> fused_products = {};
};

// In steps; -1: never.
struct EvaluationOptions {
  std::optional<std::int64_t> every = {};
  std::optional<std::int64_t> tokens = {};
  std::optional<std::int64_t> sample_every = {};
};

struct SaveOptions {
  std::optional<std::int64_t> every = {};  // steps; -1: never
  double minutes = -1;                     // -1: never
  double before_eval = 30;                 // evaluations of so many seconds; -1: none
  std::int64_t keep_last = -1;             // -1: all
  std::int64_t keep_every = -1;            // -1: none besides
  std::optional<SaveMode> mode = {};
  OnSaveError on_error = OnSaveError::kStop;
};

// The source of the sizes of a run on a CPU that has no configuration.
enum class CpuSizes { kNotChosen, kQuick, kLaws };
inline constexpr const char* kQuickSizes =
    "sizes and rates: those of configs/quick.toml, for a CPU; --depth N follows nanochat's laws";

struct RunOptions {
  std::string out = {};        // run directory; empty: runs/<date>-<time>-<pid>
  std::string resume = {};     // empty, "auto", a run directory or a checkpoint
  std::string init_from = {};  // empty, a run directory or a checkpoint
  std::int64_t log_every = 1;
  std::int64_t norms_every = 100;  // -1: never
  bool tensorboard = true;         // event files beside metrics.jsonl
  bool alarms = true;  // warn of loss spikes, falling throughput, growing memory, slow data
  bool quiet = false, verbose = false;      // of what the terminal shows; no options of a file
  std::int64_t verify_sync_every = -1;      // steps; -1: never
  std::optional<double> stuck_after = {};   // seconds; 0: never
  std::string profile_steps = {};           // "A:B": steps A to B - 1; empty: none
  std::string graph_dot = {};               // where to write the captured step; empty: nowhere
  std::string version = {};                 // of the program; no option
  std::vector<std::string> arguments = {};  // of the command line, from the command on; no option
  CpuSizes sizes = CpuSizes::kNotChosen;    // no option
};

// What `train` and `plan` can be told. An empty optional means automatic; resolve() fills it, and
// the run's config.toml holds the filled values; only OptimizerOptions keep what is
// automatic, as it follows from the others. Options are named as nanochat's base_train names them.
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
  std::uint64_t seed = 42;  // of initial weights and data order
  NumberOptions numbers;
  EvaluationOptions evaluation;
  SaveOptions save;
  RunOptions run;
};

// One option that a sweep varies: app/sweep/search_space.h makes it of what was given.
struct Axis {
  std::string option;
  std::string text;                      // as given
  std::vector<std::string> values = {};  // in a grid's order; empty: any from low to high
  double low = 0, high = 0;
  bool logarithmic = false;  // evenly in the logarithm
  bool whole = false;        // whole numbers

  [[nodiscard]] bool is_finite() const { return !values.empty(); }
  [[nodiscard]] double at(double position) const;  // 0: low, 1: high
};

// Successive halving: at each rung the best of so many go on, the others stop.
struct HalvingOptions {
  std::int64_t factor = 1;                     // 1: every trial trains to its end
  std::optional<std::int64_t> min_steps = {};  // of the first rung; each next one has factor times
  bool asynchronous = false;                   // promote without waiting for the whole rung
};

struct SweepOptions {
  SweepOptions() { train.evaluation.every = train.evaluation.sample_every = -1; }

  // What all trials have in common; `run.out` and `run.resume` are the sweep's. Held-out data are
  // looked at where trials are compared.
  TrainOptions train = {};
  std::vector<Axis> axes = {};
  std::optional<std::int64_t> trials = {};  // empty: the whole grid
  std::uint64_t search_seed = 0;            // of random points
  HalvingOptions halving = {};
  std::int64_t devices_per_trial = 1;
  std::int64_t trials_per_device = 1;  // of a GPU, at once
  bool ask_tell = false;               // trials come from an outside optimizer
};

// What `plan` predicts the time of updates for; without the first two it does not.
struct PredictionOptions {
  std::optional<double> link_gbps = {};    // GB/s that a device sends in a collective
  std::optional<double> gemm_tflops = {};  // of a device in Newton-Schulz
  std::int64_t boxes = 1;                  // of --devices each
  std::optional<double> inter_gbps = {};   // GB/s between boxes: of each, in a direction
  double link_us = 0;                      // of a collective, whatever its size
  std::optional<double> memory_gbps = {};  // GB/s of a device's memory in commit
  double step_ms = 0;                      // forward and backward of a step
};
enum class PlanKind : std::uint8_t { kReport, kCompare, kLargest, kRoofline };
enum class ReportFormat : std::uint8_t { kTable, kJson };
struct PlanOptions {
  TrainOptions train;
  PredictionOptions prediction;
  ReportFormat format = ReportFormat::kTable;
  PlanKind kind = PlanKind::kReport;
  std::string gpu = {};  // a described one, which is planned for; empty: what is here
  std::optional<ByteSize> memory = {};  // of each such GPU, or of each device for the largest model
  std::string roofline = {};            // a described GPU, or a file of rates; empty: none
  std::string measured = {};            // a GPU check's kernels.jsonl; empty: none
};

// Examples with known answers: data/examples.
struct ExampleOptions {
  std::string hellaswag = {};                   // file; empty: none
  std::string core = {};                        // folder; empty: none
  std::int64_t max_per_task = 0;                // 0: all
  std::optional<std::int64_t> row_tokens = {};  // empty: the model's seq_len

  [[nodiscard]] bool any() const { return !hellaswag.empty() || !core.empty(); }
};

struct EvalOptions {
  std::string checkpoint = {};  // a checkpoint, or a run directory: its newest
  data::DataOptions data;       // no paths: the held-out data of the run
  DeviceOptions devices;
  std::optional<std::int64_t> tokens = {};       // empty: all
  std::optional<std::int64_t> device_rows = {};  // per device at a time
  std::optional<DType> dtype = {};               // empty: the run's
  std::optional<data::Packing> packing = {};     // of the rows; empty: as trained
  ExampleOptions examples;                       // if any, instead of the loss on data
  bool json = false;
};

// How tokens are drawn.
struct SamplingOptions {
  std::int64_t max_tokens = 256;        // of each sample, after the prompt
  double temperature = 0.8;             // 0: always the most likely token
  std::int64_t top_k = 0;               // 0: all tokens
  double top_p = 1;                     // 1: all tokens
  double min_p = 0;                     // 0: all tokens
  std::vector<std::string> stops = {};  // texts that end a sample
  std::uint64_t seed = 42;
};
struct SampleOptions {
  std::string checkpoint = {};
  std::vector<std::string> prompts = {};  // none, here and in the file: an empty one
  std::string prompt_file = {};           // a prompt in each line
  bool interactive = false;               // prompts come from the terminal
  std::int64_t num_samples = 1;           // of each prompt
  std::int64_t logits = 0;                // so many, instead of samples
  SamplingOptions sampling = {};
  std::optional<DType> dtype = {};  // empty: the run's
  std::optional<Backend> backend = {};
};

struct InspectOptions {
  std::string checkpoint = {};  // a checkpoint, or a run directory: its newest
};
struct VerifyOptions {
  std::string checkpoint = {};  // a checkpoint, or a run directory: all of it
};
// `checkpoint import` and `checkpoint export`: nanochat_files.h, hugging_face_files.h.
struct ImportOptions {
  std::string model = {};    // safetensors
  std::string meta = {};     // JSON; empty: beside the model
  std::string out = {};      // run directory
  std::string version = {};  // as RunOptions'
};
struct ExportOptions {
  std::string checkpoint = {};
  // Directories, of which one is given: for nanochat, for transformers' port of it, and for
  // transformers with code.
  std::string out = {}, hf = {}, hf_code = {};
};

// Text to token shards.
// How documents are read: data/documents.h.
struct TextOptions {
  std::string field = "text";  // of JSON Lines
  std::string separator = {};  // between documents within a text
  bool skip_bad_lines = false;
};
struct TokenizeOptions {
  std::vector<std::filesystem::path> data = {};  // "-": standard input
  std::string tokenizer = {};
  TextOptions text = {};
  std::int64_t shard_tokens = 100'000'000;
  std::int64_t val_tokens = 10 << 20;  // held out, at most; 0: none
  std::int64_t val_every = 100;        // one document in so many, until then
  std::optional<std::int64_t> threads = {};
  std::string out = {};  // folder
};
// `tokenizer train`, `encode`, `decode` and `convert`: data/tokenizer.h.
struct TrainTokenizerOptions {
  std::vector<std::filesystem::path> data = {};
  TextOptions text = {};
  std::int64_t vocab_size = 32768;
  std::string pattern = "nanochat";        // a name, or a regular expression
  std::string special = "nanochat";        // tokens, separated by spaces, or its nine
  std::optional<ByteSize> max_bytes = {};  // of text; empty: all
  std::optional<std::int64_t> threads = {};
  std::string out = {};
};
struct EncodeOptions {
  std::vector<std::filesystem::path> files = {};  // empty: standard input
  std::string tokenizer = {};
  std::string field = {};  // of JSON Lines; empty: standard input is text
  bool special = false;    // the texts of special tokens become these
};
struct DecodeOptions {
  std::vector<std::filesystem::path> files = {};  // empty: standard input
  std::string tokenizer = {};
};
struct ConvertTokenizerOptions {
  std::string tokenizer = {};
  std::string pattern = {};  // of tiktoken's ranks
  std::string special = {};  // TOKEN=ID, separated by spaces
  std::string out = {};
};

// step: a whole step's rate and where its time goes. launch: what enqueueing it costs the host.
// optimizer: the update alone, by strategy.
enum class BenchKind : std::uint8_t { kStep, kLaunch, kOptimizer };
constexpr auto names_of(BenchKind) { return name_list("step", "launch", "optimizer"); }
struct BenchOptions {
  BenchKind kind = BenchKind::kStep;
  TrainOptions train = {};
  std::int64_t steps = 10;
  ReportFormat format = ReportFormat::kTable;
};
// What --strategy may be there.
inline constexpr std::string_view kAllStrategies = "all";

struct ReportOptions {
  std::vector<std::filesystem::path> runs = {};  // run directories
  std::string out = "report.html";
  std::string plotly = {};   // plotly.js, minified; empty: the one that was installed or fetched
  bool text = false;         // small curves on the terminal instead of a page
  bool follow = false;       // serve the page while runs grow
  std::int64_t port = 6007;  // of 127.0.0.1; 0: any that is free
};

struct DoctorOptions {
  bool gpu_only = false;
};

}  // namespace muo::app
