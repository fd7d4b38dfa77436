#include "kit/plan/roofline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>

#include "base/check.h"
#include "graphs/run_state.h"
#include "kernels/attention_choice.h"
#include "runtime/graph_trace.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/tracing_rank.h"
#include "trainer/run/described_gpu.h"

namespace muo::kit {
namespace {

// Rows and columns of the result that a multiprocessor computes at a time, and the tile's share of
// the best rate: small tiles load more operands per product.
struct Tile {
  std::int64_t rows, columns;
  double share;
};
constexpr std::array kTiles = {Tile{128, 256, 1.0},  Tile{256, 128, 1.0}, Tile{128, 192, 1.0},
                               Tile{128, 128, 0.88}, Tile{64, 256, 0.88}, Tile{64, 128, 0.7},
                               Tile{64, 64, 0.45}};
constexpr std::int64_t kMaxSplits = 32;
constexpr std::int64_t kMinPart = 256;  // smallest part of a split k

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Parses the text of product_shape(): "NT 65536x768x3072 x4".
std::optional<Product> product_of(const std::string& shape) {
  Product p;
  const int found = std::sscanf(shape.c_str(), "%*s %ldx%ldx%ld x%ld", &p.m, &p.k, &p.n, &p.batch);
  return found >= 3 ? std::optional(p) : std::nullopt;
}

// FLOPs that the project's gradients of attention on tensor cores execute, by those that are listed
// (flash_backward.cu and warpgroup_backward.cu compute two of the five products twice).
constexpr double kOwnGradientFlops = 7.0 / 5;

struct Predicted {
  double seconds = 0;  // at any clock
  double clocked = 0;  // seconds at rate_clock, in addition
  std::string_view ceiling = {};
  double tiles = 0, waves = 0;
  double executed_flops = 0;

  [[nodiscard]] double at(double stretch) const { return seconds + stretch * clocked; }
};

Predicted memory_bound(double bytes, double share, const GpuRates& rates) {
  return {.seconds = bytes / (share * rates.memory_rate), .ceiling = "memory"};
}

class Predictor {
 public:
  Predictor(const trainer::RunConfig& config, const GpuRates& rates)
      : config_(config), rates_(rates) {}

  [[nodiscard]] Predicted operator()(const OperationTime& work) const {
    if (work.is_collective())
      return {.seconds = rates_.link_seconds + work.bytes / rates_.link_rate, .ceiling = "link"};
    Predicted out = kernel_time(work);
    if (work.name == "rotary_norm_backward" && attention_takes_rotary()) {
      out.seconds *= rates_.rotary_in_attention;
      return out;
    }
    if (out.at(1) < rates_.node_seconds) out.ceiling = "launch";
    out.seconds += rates_.node_seconds;
    return out;
  }

 private:
  [[nodiscard]] Predicted kernel_time(const OperationTime& work) const {
    const auto measured = rates_.measured_memory.find(work.name);
    if (measured != rates_.measured_memory.end())
      return {.seconds = work.bytes / measured->second, .ceiling = "memory"};
    const Predicted moved = memory_bound(work.bytes, rates_.streaming_share, rates_);
    if (work.is_product()) {
      Predicted product = product_time(work);
      if (product.clocked > moved.seconds) return product;
      product.clocked = 0;
      product.seconds = moved.seconds;
      product.ceiling = moved.ceiling;
      return product;
    }
    if (work.name == "attention") return attention_time(work, AttentionDirection::kForward);
    if (work.name == "attention_backward")
      return attention_time(work, AttentionDirection::kBackward);
    if (work.name == "cross_entropy")
      return memory_bound(work.bytes, rates_.cross_entropy_share, rates_);
    if (work.name == "group_tokens") {
      Predicted out = moved;
      out.seconds +=
          rates_.grouping_seconds * static_cast<double>(config_.step.batch * config_.model.seq_len);
      return out;
    }
    return moved;
  }

  [[nodiscard]] Predicted product_time(const OperationTime& work) const {
    if (work.dtype != DType::kBF16)
      return {.clocked = work.flops / rates_.fp32_flops, .ceiling = "products"};
    const std::optional<Product> product = product_of(work.shape);
    MUO_CHECK(product, "malformed shape of a product: ", work.shape);
    // There is no choice of algorithm for other products.
    const bool chosen = work.name == "gemm" && measures_products();
    ProductTime time =
        predict_product(*product, rates_, chosen ? rates_.measured_share : rates_.product_share);
    // A symmetric product computes about half of the tiles.
    time.seconds *= work.flops / product->flops();
    const auto measured = rates_.measured_products.find(work.shape);
    if (measured != rates_.measured_products.end()) time.seconds = measured->second;
    return {.clocked = time.seconds,
            .ceiling = "tiles",
            .tiles = time.tiles,
            .waves = time.waves,
            .executed_flops = work.flops};
  }

  [[nodiscard]] AttentionSize attention_size() const {
    const model::GptConfig& model = config_.model;
    return {.b = config_.step.batch,
            .t = model.seq_len,
            .heads = model.n_head,
            .kv_heads = model.n_kv_head,
            .h = model.head_dim(),
            .window = model.seq_len,
            .scale = model.attention_scale(),
            .dtype = model.dtype,
            .method = model.attention,
            .documents = model.document_token >= 0};
  }
  [[nodiscard]] AttentionChoice attention_choice(const AttentionSize& size,
                                                 AttentionDirection direction) const {
    return trainer::choose_described_attention(size, direction,
                                               trainer::described_gpu(rates_.gpu).is_hopper);
  }
  [[nodiscard]] bool attention_takes_rotary() const {
    const AttentionSize size = attention_size();
    return fuses_rotary(attention_choice(size, AttentionDirection::kBackward).kernels, size.h);
  }

  // Without warpgroups, the project's own backward pass also reads out and dout once more.
  [[nodiscard]] Predicted attention_time(const OperationTime& work,
                                         AttentionDirection direction) const {
    AttentionSize size = attention_size();
    const int found = std::sscanf(work.shape.c_str(), "%ldx%ldx%ldx%ld w%ld", &size.b, &size.t,
                                  &size.heads, &size.h, &size.window);
    MUO_CHECK(found >= 4, "malformed shape of attention: ", work.shape);
    const bool window = found == 5;
    const bool forward = direction == AttentionDirection::kForward;
    const AttentionChoice choice = attention_choice(size, direction);
    using enum AttentionChoice::Kernels;
    const bool portable = choice.kernels == kPortable, library = choice.kernels == kLibrary;
    Predicted out{.ceiling = "products",
                  .executed_flops = portable             ? 0
                                    : forward || library ? work.flops
                                                         : kOwnGradientFlops * work.flops};
    const auto measured =
        rates_.measured_attention.find(concat(work.name, " w", std::min(size.window, size.t - 1)));
    if (!portable && measured != rates_.measured_attention.end()) {
      out.clocked = work.flops / measured->second;
      return out;
    }
    double rate = rates_.portable_attention;
    if (library)
      rate = forward ? (window ? rates_.library_forward_window : rates_.library_forward)
                     : (window ? rates_.library_backward_window : rates_.library_backward);
    if (choice.kernels == kTensorCores)
      rate = forward ? (window ? rates_.own_forward_window : rates_.own_forward)
                     : (window ? rates_.own_backward_window : rates_.own_backward);
    if (choice.kernels == kWarpgroups)
      rate = window ? rates_.warpgroup_backward_window : rates_.warpgroup_backward;
    if (!forward && (portable || choice.kernels == kTensorCores))
      out.seconds = memory_bound(2.0 * static_cast<double>(size_of(size.dtype)) *
                                     static_cast<double>(size.b * size.t * size.heads * size.h),
                                 rates_.streaming_share, rates_)
                        .seconds;
    out.clocked = work.flops / rate;
    return out;
  }

  [[nodiscard]] bool measures_products() const {
    return config_.tune != trainer::Tune::kOff || !config_.options.numbers.gemm_table.empty();
  }

  const trainer::RunConfig& config_;
  const GpuRates& rates_;
};

// A graph of the step with the predicted work of its nodes, and with the times that schedule()
// takes.
struct PredictedGraph {
  const GraphTrace* trace;
  graphs::StepGraph::Repeats repeats;
  std::vector<PredictedOperation> rows = {};
  std::vector<Predicted> times = {};
  std::vector<bool> collective = {};

  [[nodiscard]] Schedule at(double stretch) const {
    std::vector<double> seconds;
    seconds.reserve(times.size());
    for (const Predicted& time : times)
      seconds.push_back(time.at(stretch));
    Schedule out = schedule(*trace, seconds, collective, repeats.passes);
    out.seconds *= static_cast<double>(repeats.replays);
    out.longest_chain *= repeats.replays;
    return out;
  }
};

void add(std::vector<PredictedOperation>& rows, const PredictedOperation& more) {
  for (PredictedOperation& row : rows)
    if (row.work.add(more.work)) return;
  rows.push_back(more);
}

}  // namespace

ProductTime predict_product(const Product& p, const GpuRates& rates, double share) {
  ProductTime best{.seconds = std::numeric_limits<double>::infinity()};
  const double per_multiprocessor = rates.tile_flops / rates.multiprocessors;
  const double result = 4.0 * static_cast<double>(p.m * p.n * p.batch);
  for (const Tile& tile : kTiles)
    for (std::int64_t parts = 1; parts <= kMaxSplits; ++parts) {
      const double partial_sums = parts == 1 ? 0 : static_cast<double>(parts) * result;
      if (parts > 1 && (partial_sums > rates.split_bytes || p.k / parts < kMinPart)) break;
      const std::int64_t tiles =
          ceil_div(p.m, tile.rows) * ceil_div(p.n, tile.columns) * p.batch * parts;
      const double waves = std::ceil(static_cast<double>(tiles) / rates.multiprocessors);
      const double tile_seconds = 2.0 * static_cast<double>(tile.rows * tile.columns) *
                                  static_cast<double>(ceil_div(p.k, parts)) /
                                  (tile.share * per_multiprocessor);
      // Partial sums are written and read, and their total is written.
      const double summing =
          parts == 1
              ? 0
              : memory_bound(2 * partial_sums + result, rates.streaming_share, rates).seconds +
                    rates.node_seconds;
      const double seconds = (waves * (tile_seconds + rates.wave_seconds) + summing) / share;
      if (seconds < best.seconds)
        best = {.seconds = seconds, .tiles = static_cast<double>(tiles), .waves = waves};
    }
  return best;
}

Schedule schedule(const GraphTrace& trace, const std::vector<double>& seconds,
                  const std::vector<bool>& collective, std::int64_t passes) {
  Schedule out;
  std::vector<double> end(trace.nodes.size());
  std::vector<std::int64_t> chain(trace.nodes.size());
  std::array<double, 2> free{};  // the multiprocessors, the link
  for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
    double& resource = free.at(collective[i] ? 1 : 0);
    double start = resource;
    for (const std::uint32_t before : trace.nodes[i].after) {
      start = std::max(start, end[before]);
      chain[i] = std::max(chain[i], chain[before]);
    }
    ++chain[i];
    end[i] = start + seconds[i];
    for (const GraphTrace::Loop& loop : trace.loops)
      if (i + 1 == loop.end) {  // the end of the first pass, which all its nodes precede
        end[i] += static_cast<double>(passes - 1) * (end[i] - end[loop.begin - 1]);
        chain[i] += (passes - 1) * (chain[i] - chain[loop.begin - 1]);
      }
    resource = end[i];
    out.seconds = std::max(out.seconds, end[i]);
    out.longest_chain = std::max(out.longest_chain, chain[i]);
  }
  return out;
}

Roofline predict_step(const trainer::RunConfig& config, const GpuRates& rates) {
  const std::vector<ParamSpec> params = model::gpt_parameters(config.model);
  const optim::ShardingPlan plan = trainer::make_sharding_plan(config, params);
  trainer::RunConfig setup = config;
  setup.step_only = true;
  setup.step.smaller_steps.clear();
  TracingRank rank(0, config.world());
  TraceArena arena(0);
  graphs::RunState state(rank.context(), setup, params, plan, arena);
  state.step.capture();

  const Predictor predict(config, rates);
  const std::vector<const GraphTrace*> traces = state.step.traces();
  const std::vector<graphs::StepGraph::Repeats> repeats = state.step.repeats();
  std::vector<PredictedGraph> predicted;
  StepWork work;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    predicted.push_back({.trace = traces[i], .repeats = repeats[i]});
    PredictedGraph& graph = predicted.back();
    const auto [replays, passes] = repeats[i];
    for (std::size_t n = 0; n < traces[i]->nodes.size(); ++n) {
      const GraphTrace::Node& node = traces[i]->nodes[n];
      PredictedOperation row{.work = operation_of(*traces[i], node)};
      // The trace has the cost of the host kernel; CUDA's kernel reads and writes each tensor once.
      if (row.work.name == "embedding_backward") row.work.bytes = accessed_bytes(node);
      const Predicted time = predict(row.work);
      graph.times.push_back(time);
      graph.collective.push_back(row.work.is_collective());
      row.work.calls = loop_of(*traces[i], n) != nullptr ? replays * passes : replays;
      const auto calls = static_cast<double>(row.work.calls);
      row.work.flops *= calls;
      row.work.bytes *= calls;
      row.tiles = time.tiles;
      row.waves = time.waves;
      row.ceiling = time.ceiling;
      graph.rows.push_back(row);
      work.flops += calls * time.executed_flops;
      work.bytes += row.work.bytes;
    }
  }
  work.seconds = [&](double stretch) {
    double seconds = 0;
    for (const PredictedGraph& graph : predicted)
      seconds += graph.at(stretch).seconds;
    return seconds;
  };

  Roofline out;
  out.executed_flops = work.flops;
  GpuRates known = rates;
  if (config.model.dtype != DType::kBF16) known.joules_per_flop = 0;  // of fp32 FLOPs, not known
  out.power = step_power(work, known);
  const double stretch = rates.rate_clock / out.power.clock;
  out.step = out.power.seconds;
  for (PredictedGraph& graph : predicted) {
    out.longest_chain += graph.at(stretch).longest_chain;
    for (std::size_t n = 0; n < graph.rows.size(); ++n) {
      OperationTime& row = graph.rows[n].work;
      row.seconds = static_cast<double>(row.calls) * graph.times[n].at(stretch);
      out.nodes += row.calls;
      (graph.collective[n] ? out.collectives : out.kernels) += row.seconds;
      add(out.operations, graph.rows[n]);
    }
  }
  std::ranges::stable_sort(out.operations, std::greater{},
                           [](const PredictedOperation& row) { return row.work.seconds; });
  return out;
}

}  // namespace muo::kit
