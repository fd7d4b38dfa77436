#include "graphs/decoder.h"

#include <algorithm>
#include <string>

namespace muo {
namespace {

constexpr std::int64_t kShortest = 32;  // below it a GEMM is no cheaper
constexpr Tag kGatherTag = 0xD0000000;  // between steps, apart from the plan's tags

}  // namespace

Decoder::Decoder(RankContext& rank, const GptConfig& config, const RotaryTables& rotary,
                 PassWeights weights, Arena& arena)
    : rank_(rank), config_(config), weights_(weights) {
  for (std::int64_t t = std::min(kShortest, config.seq_len);; t = std::min(2 * t, config.seq_len)) {
    const std::string name = "decode." + std::to_string(t) + ".";
    Length length;
    length.t = t;
    length.tokens = arena.tensor({.name = name + "tokens",
                                  .shape = {1, t},
                                  .dtype = DType::kI32,
                                  .category = MemoryCategory::kInput,
                                  .lifespan = Lifespan::kRun});
    length.gpt = std::make_unique<Gpt>(
        config, Gpt::Size{.b = 1, .t = t, .backward = false, .logits = true}, rotary, name, arena);
    lengths_.push_back(std::move(length));
    if (t == config.seq_len) break;
  }
}

void Decoder::enqueue(const Length& length) {
  weights_.pass(kGatherTag, [&](const WeightSource& weights) {
    length.gpt->forward(rank_.compute, weights, length.tokens);
    // Its row is that of next_logits only for a full context, which then asks again; it is here so
    // that the memory plan knows of the logits, and that the head's weights are there.
    length.gpt->logits(rank_.compute, weights, length.t - 1, length.t);
  });
}

void Decoder::warm_up() {
  for (const Length& length : lengths_)
    enqueue(length);
}

void Decoder::capture() {
  for (Length& length : lengths_)
    length.graph = rank_.compute.capture([&] { enqueue(length); });
}

void Decoder::next_logits(std::span<const std::int32_t> context, std::span<float> out) {
  const auto count = static_cast<std::int64_t>(context.size());
  MUO_CHECK(count >= 1 && count <= config_.seq_len, "context of ", count, " tokens");
  MUO_CHECK(static_cast<std::int64_t>(out.size()) == config_.vocab_size, out.size());
  const auto length =
      std::find_if(lengths_.begin(), lengths_.end(), [&](const Length& l) { return l.t >= count; });
  Stream& stream = rank_.compute;
  stream.zero(length->tokens);
  stream.copy(length->tokens.view({length->t}).elements(0, count),
              host_tensor(context.data(), {count}));
  if (length->graph != nullptr)
    stream.launch(*length->graph);
  else
    enqueue(*length);
  const Tensor logits = length->gpt->logits(stream, {weights_.weights}, count - 1, count);
  stream.copy(host_tensor(out.data(), {config_.vocab_size}),
              logits.row(0).elements(0, config_.vocab_size));
  rank_.wait(stream);
}

std::vector<const GraphTrace*> Decoder::traces() const {
  std::vector<const GraphTrace*> out;
  for (const Length& length : lengths_)
    if (length.graph != nullptr) out.push_back(&length.graph->trace());
  return out;
}

}  // namespace muo
