#include "data/training_rows.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "data/document_index.h"
#include "data/permutation.h"
#include "data/row_packer.h"
#include "data/sampler.h"

namespace muo::data {
namespace {

class ContiguousRows final : public TrainingRows {
 public:
  ContiguousRows(const TokenData& data, std::int64_t seq_len, std::uint64_t seed)
      : data_(data), sampler_(data.size(), seq_len, seed) {}

  void read(std::int64_t n, std::span<std::int32_t> row) override {
    data_.read(sampler_.position(n), row);
  }

 private:
  const TokenData& data_;
  RowSampler sampler_;
};

// An endless sequence of documents: each epoch has every document once, in another order.
class ShuffledDocuments {
 public:
  ShuffledDocuments(const DocumentIndex& documents, std::uint64_t seed)
      : documents_(documents), random_(seed, "order of documents") {}

  TokenSpan next() {
    const auto count = static_cast<std::uint64_t>(documents_.size());
    if (in_epoch_ == count || !order_) {
      if (order_) ++epoch_;
      order_.emplace(count, random_, epoch_ * Permutation::kDraws);
      in_epoch_ = 0;
    }
    return documents_[static_cast<std::int64_t>((*order_)(in_epoch_++))];
  }

 private:
  const DocumentIndex& documents_;
  CounterRandom random_;
  std::uint64_t epoch_ = 0, in_epoch_ = 0;
  std::optional<Permutation> order_;
};

class PackedRows final : public TrainingRows {
 public:
  PackedRows(const Corpus& corpus, std::int64_t seq_len, std::uint64_t seed)
      : data_(*corpus.train),
        documents_(*corpus.train_documents, seed),
        packer_(seq_len + 1, [this] { return std::optional(documents_.next()); }) {}

  void read(std::int64_t n, std::span<std::int32_t> row) override {
    MUO_CHECK(n >= next_, "row ", n, " requested after row ", next_ - 1);
    for (; next_ < n; ++next_)
      packer_.next_row();
    ++next_;
    for (const TokenSpan& piece : packer_.next_row()) {
      data_.read(piece.begin, row.first(static_cast<std::size_t>(piece.count)));
      row = row.subspan(static_cast<std::size_t>(piece.count));
    }
  }

 private:
  const TokenData& data_;
  ShuffledDocuments documents_;
  RowPacker packer_;
  std::int64_t next_ = 0;  // number of the packer's next row
};

}  // namespace

std::unique_ptr<TrainingRows> make_training_rows(const Corpus& corpus, std::int64_t seq_len,
                                                 std::uint64_t seed) {
  if (corpus.train_documents == nullptr)
    return std::make_unique<ContiguousRows>(*corpus.train, seq_len, seed);
  return std::make_unique<PackedRows>(corpus, seq_len, seed);
}

PackingUse measure_packing(const Corpus& corpus, std::int64_t seq_len, std::uint64_t seed) {
  // Enough documents that those still waiting at the end do not matter.
  constexpr std::int64_t kFewest = 20'000, kMax = 200'000;
  const DocumentIndex& documents = *corpus.train_documents;
  const std::int64_t enough = std::clamp(documents.size(), kFewest, kMax);
  PackingUse use;
  ShuffledDocuments shuffled(documents, seed);
  RowPacker packer(seq_len + 1, [&] { return std::optional(shuffled.next()); });
  while (use.documents < enough)
    use.documents += std::ssize(packer.next_row());
  use.share =
      static_cast<double>(packer.packed_tokens()) / static_cast<double>(packer.document_tokens());
  return use;
}

}  // namespace muo::data
