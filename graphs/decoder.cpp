#include "graphs/decoder.h"

#include <algorithm>
#include <string>

#include "runtime/graph_trace.h"

namespace muo::graphs {
namespace {

constexpr std::int64_t kShortest = 32;        // a GEMM of fewer rows is not cheaper
constexpr Tag kDecodeGatherTag = 0xD0000000;  // between steps, distinct from the plan's tags

Tensor input(Arena& arena, const std::string& name, Shape shape) {
  return arena.tensor({.name = name,
                       .shape = shape,
                       .dtype = DType::kI32,
                       .category = MemoryCategory::kInput,
                       .lifespan = Lifespan::kRun});
}

// Position at which the last token's document begins, as in document_starts().
std::int32_t start_of_last(const std::vector<std::int32_t>& context, std::int32_t document_token) {
  const auto last = std::find(context.rbegin(), context.rend(), document_token);
  return last == context.rend() ? 0 : static_cast<std::int32_t>(context.rend() - last - 1);
}

}  // namespace

Decoder::Decoder(RankContext& rank, const model::GptConfig& config,
                 const model::RotaryTables& rotary, PassWeights weights, std::int64_t rows,
                 Arena& arena)
    : rank_(rank),
      config_(config),
      weights_(weights),
      cache_(config, rows, "decode.cache.", arena),
      staged_slot_(rank.device, {1}, DType::kI32, "decode.slot"),
      staged_context_(rank.device, {config.seq_len}, DType::kI32, "decode.context"),
      staged_inputs_(rank.device, {4, rows}, DType::kI32, "decode.inputs"),
      read_logits_(rank.device, {rows, config.vocab_size}, DType::kF32, "decode.logits"),
      slot_(input(arena, "decode.slot", {1})),
      inputs_(input(arena, "decode.inputs", {4, rows})),
      step_(config,
            model::Gpt::Size{.b = rows, .t = 1, .backward = false, .logits = true, .decode = true},
            rotary, "decode.", arena),
      contexts_(static_cast<std::size_t>(rows)) {
  MUO_CHECK(rows >= 1 && rows <= kMaxRows, rows, " rows to decode at once: give 1 to ", kMaxRows);
  for (std::int64_t t = std::min(kShortest, config.seq_len);; t = std::min(2 * t, config.seq_len)) {
    const std::string name = "decode." + std::to_string(t) + ".";
    Length length;
    length.t = t;
    length.tokens = input(arena, name + "tokens", {1, t});
    length.gpt = std::make_unique<model::Gpt>(
        config, model::Gpt::Size{.b = 1, .t = t, .backward = false, .logits = true}, rotary, name,
        arena);
    lengths_.push_back(std::move(length));
    if (t == config.seq_len) break;
  }
}

void Decoder::enqueue(const Length& length) {
  weights_.pass(kDecodeGatherTag, [&](const model::WeightSource& weights) {
    length.gpt->prefill(rank_.compute, weights, length.tokens, cache_, slot_);
    // These logits are those of begin() only for a full context; begin() computes its row again.
    // They are in the graph so that the memory plan includes the logits, and the head's weights are
    // gathered.
    length.gpt->logits(rank_.compute, weights, length.t - 1, length.t);
  });
}

void Decoder::enqueue_step() {
  weights_.pass(kDecodeGatherTag, [&](const model::WeightSource& weights) {
    step_.decode(rank_.compute, weights,
                 {.tokens = inputs_.row(0),
                  .previous = inputs_.row(1),
                  .positions = inputs_.row(2),
                  .starts = config_.document_token < 0 ? Tensor{} : inputs_.row(3)},
                 cache_);
    step_logits_ = step_.logits(rank_.compute, weights, 0, rows());
  });
}

void Decoder::warm_up() {
  for (const Length& length : lengths_)
    enqueue(length);
  enqueue_step();
}

void Decoder::capture() {
  for (Length& length : lengths_)
    length.graph = rank_.compute.capture([&] { enqueue(length); });
  step_graph_ = rank_.compute.capture([&] { enqueue_step(); });
}

template <class Enqueue>
void Decoder::run(const std::unique_ptr<Graph>& graph, const Enqueue& enqueue) {
  if (graph != nullptr)
    rank_.compute.launch(*graph);
  else
    enqueue();
}

void Decoder::copy_logits(std::int64_t row, Tensor logits) {
  rank_.compute.copy(read_logits_.tensor().row(row), logits.elements(0, config_.vocab_size));
}

std::span<const float> Decoder::logits_read(std::int64_t row) const {
  const auto vocab = static_cast<std::size_t>(config_.vocab_size);
  return read_logits_.values<float>().subspan(static_cast<std::size_t>(row) * vocab, vocab);
}

void Decoder::begin(std::int64_t row, std::span<const std::int32_t> context, std::span<float> out) {
  MUO_CHECK(0 <= row && row < rows() && !context.empty(), "row ", row, " of ", rows(), " with ",
            context.size(), " tokens");
  MUO_CHECK(static_cast<std::int64_t>(out.size()) == config_.vocab_size, out.size());
  context = context.last(std::min(context.size(), static_cast<std::size_t>(config_.seq_len)));
  const auto count = static_cast<std::int64_t>(context.size());
  const auto length =
      std::find_if(lengths_.begin(), lengths_.end(), [&](const Length& l) { return l.t >= count; });
  Stream& stream = rank_.compute;
  staged_slot_.values<std::int32_t>().front() = static_cast<std::int32_t>(row);
  stream.copy(slot_, staged_slot_.tensor());
  stream.zero(length->tokens);
  const Tensor staged = staged_context_.tensor().elements(0, count);
  std::ranges::copy(context, staged.as<std::int32_t>());
  stream.copy(length->tokens.view({length->t}).elements(0, count), staged);
  run(length->graph, [&] { enqueue(*length); });
  copy_logits(row, length->gpt->logits(stream, {weights_.weights}, count - 1, count));
  rank_.wait(stream);
  std::ranges::copy(logits_read(row), out.begin());
  contexts_[static_cast<std::size_t>(row)].assign(context.begin(), context.end());
}

void Decoder::copy_row(std::int64_t from, std::int64_t to) {
  const auto& context = contexts_.at(static_cast<std::size_t>(from));
  const auto count = static_cast<std::int64_t>(context.size());
  for (const model::KvCache::Layer& layer : cache_.layers)
    for (const Tensor& of_layer : {layer.keys, layer.values})
      rank_.compute.copy(of_layer.row(to).rows(0, count), of_layer.row(from).rows(0, count));
  rank_.wait(rank_.compute);
  contexts_.at(static_cast<std::size_t>(to)) = context;
}

void Decoder::step(std::span<const std::int32_t> tokens, std::span<float> out) {
  const auto count = static_cast<std::size_t>(rows());
  const auto vocab = static_cast<std::size_t>(config_.vocab_size);
  MUO_CHECK(tokens.size() == count && out.size() == count * vocab, tokens.size(), " tokens and ",
            out.size(), " logits for ", rows(), " rows");
  // All rows take part. A row that gets no token, or begins again below, writes to the cache only
  // at positions that are written again before they are read.
  const std::span inputs = staged_inputs_.values<std::int32_t>();
  std::ranges::fill(inputs, 0);
  std::vector<std::size_t> full;
  std::vector<std::size_t> stepped;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::int32_t>& context = contexts_[i];
    const bool is_full = static_cast<std::int64_t>(context.size()) == config_.seq_len;
    if (!is_full) inputs[2 * count + i] = static_cast<std::int32_t>(context.size());
    if (tokens[i] == kNoToken) continue;
    MUO_CHECK(!context.empty(), "step() of row ", i, " before begin()");
    inputs[i] = tokens[i];
    inputs[count + i] = context.back();
    context.push_back(tokens[i]);
    if (!is_full) inputs[3 * count + i] = start_of_last(context, config_.document_token);
    (is_full ? full : stepped).push_back(i);
  }
  if (!stepped.empty()) {
    Stream& stream = rank_.compute;
    stream.copy(inputs_, staged_inputs_.tensor());
    run(step_graph_, [this] { enqueue_step(); });
    for (const std::size_t i : stepped)
      copy_logits(static_cast<std::int64_t>(i), step_logits_.row(static_cast<std::int64_t>(i)));
    rank_.wait(stream);
    for (const std::size_t i : stepped)
      std::ranges::copy(logits_read(static_cast<std::int64_t>(i)),
                        out.subspan(i * vocab, vocab).begin());
  }
  for (const std::size_t i : full) {
    const std::vector<std::int32_t> context = contexts_[i];
    const std::size_t kept =
        std::max<std::size_t>(1, static_cast<std::size_t>(config_.seq_len) / 2);
    begin(static_cast<std::int64_t>(i), std::span(context).last(kept),
          out.subspan(i * vocab, vocab));
  }
}

std::vector<Graph*> Decoder::graphs() const {
  std::vector<Graph*> out;
  for (const Length& length : lengths_)
    if (length.graph != nullptr) out.push_back(length.graph.get());
  if (step_graph_ != nullptr) out.push_back(step_graph_.get());
  return out;
}

std::vector<const GraphTrace*> Decoder::traces() const { return traces_of(graphs()); }

}  // namespace muo::graphs
