#include "data/sampler.h"

#include <algorithm>

#include "base/check.h"
#include "base/philox.h"
#include "data/permutation.h"

namespace muo::data {
namespace {

constexpr std::uint64_t kDrawsPerEpoch = 8;  // one for the offset, the others for the permutation

}  // namespace

RowSampler::RowSampler(std::int64_t tokens, std::int64_t seq_len, std::uint64_t seed)
    : tokens_(tokens),
      seq_len_(seq_len),
      // One block fewer than fits, so that an epoch's offset can be anything up to a block.
      rows_per_epoch_(seq_len > 0 ? std::max<std::int64_t>(1, tokens / seq_len - 1) : 0),
      seed_(seed) {
  MUO_CHECK(seq_len > 0, "seq_len is ", seq_len);
  if (tokens <= seq_len)
    throw InputError(concat("the data is too short: ", tokens, " tokens, but one row needs ",
                            seq_len + 1, " (sequence length ", seq_len,
                            " and the next token); give more data or a smaller --max-seq-len"));
}

std::int64_t RowSampler::position(std::int64_t n) const {
  MUO_CHECK(n >= 0, "row ", n);
  const auto first_draw = static_cast<std::uint64_t>(n / rows_per_epoch_) * kDrawsPerEpoch;
  const CounterRandom random(seed_, "data order");
  const Permutation blocks(static_cast<std::uint64_t>(rows_per_epoch_), random, first_draw + 1);
  const auto block =
      static_cast<std::int64_t>(blocks(static_cast<std::uint64_t>(n % rows_per_epoch_)));
  // The tokens outside of an epoch's rows lie before or after these.
  const auto left_over = static_cast<std::uint64_t>(tokens_ - 1 - rows_per_epoch_ * seq_len_);
  const auto offset = static_cast<std::int64_t>(random.bits(first_draw) % (left_over + 1));
  return offset + block * seq_len_;
}

}  // namespace muo::data
