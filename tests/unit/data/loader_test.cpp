#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/check.h"
#include "data/sampler.h"
#include "support/eventually.h"

namespace muo::data {
namespace {

using test::eventually;

// Token i is i, so that a batch shows where it was read.
class Counting : public TokenData {
 public:
  explicit Counting(std::int64_t size) : size_(size) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    MUO_CHECK(begin >= 0 && begin + static_cast<std::int64_t>(out.size()) <= size_);
    for (auto& token : out)
      token = static_cast<std::int32_t>(begin++);
  }

 private:
  std::int64_t size_;
};

class Slots {
 public:
  Slots(const LoaderOptions& options, std::int64_t count)
      : bytes_(static_cast<std::size_t>(count * Loader::slot_bytes(options))),
        data_(static_cast<std::byte*>(::operator new (bytes_, std::align_val_t{64}))) {
    std::fill_n(data_.get(), bytes_, std::byte{0xEE});
  }
  [[nodiscard]] std::span<std::byte> span() const { return {data_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{64}); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

// The rows at the sampler's positions.
class Rows final : public TrainingRows {
 public:
  Rows(const TokenData& data, const LoaderOptions& o)
      : sampler(data.size(), o.seq_len, 42), data_(data) {}
  void read(std::int64_t n, std::span<std::int32_t> row) override {
    data_.read(sampler.position(n), row);
  }

  const RowSampler sampler;

 private:
  const TokenData& data_;
};

std::vector<std::int32_t> values(const Tensor& tensor) {
  const auto* begin = tensor.as<std::int32_t>();
  return {begin, begin + tensor.numel()};
}

TEST(Loader, RowsFollowTheMappingAndTargetsAreShifted) {
  const Counting data(5'000);
  for (int rank = 0; rank < 3; ++rank) {
    const LoaderOptions options{
        .rank = rank, .world = 3, .batch = 2, .seq_len = 7, .accumulation = 4};
    Rows rows(data, options);
    const Slots slots(options, 3);
    Loader loader(rows, options, slots.span());
    // With 713 rows per epoch and 24 per step, this crosses the boundaries of three epochs.
    ASSERT_LT(3 * rows.sampler.rows_per_epoch(), 100 * options.rows_per_step());
    for (std::int64_t step = 0; step < 100; ++step) {
      const Batch batch = loader.next();
      ASSERT_EQ(batch.inputs.shape, (Shape{4, 2, 7}));
      ASSERT_EQ(batch.targets.shape, (Shape{4, 2, 7}));
      const auto inputs = values(batch.inputs);
      const auto targets = values(batch.targets);
      std::size_t i = 0;
      for (std::int64_t a = 0; a < 4; ++a)
        for (std::int64_t b = 0; b < 2; ++b)
          for (std::int64_t t = 0; t < 7; ++t, ++i) {
            const std::int64_t n = step * 24 + (a * 3 + rank) * 2 + b;
            ASSERT_EQ(inputs[i], rows.sampler.position(n) + t);
            ASSERT_EQ(targets[i], rows.sampler.position(n) + t + 1);
          }
      loader.release();
    }
  }
}

TEST(Loader, AStepHasTheSameRowsWhateverTheWorld) {
  const Counting data(20'000);
  constexpr std::int64_t kRows = 180;
  std::map<int, std::vector<std::int32_t>> rows;  // by world: the first token of each row of a step
  for (const int world : {1, 2, 3, 4, 5}) {
    for (int rank = 0; rank < world; ++rank) {
      const LoaderOptions options{.rank = rank,
                                  .world = world,
                                  .batch = 3,
                                  .seq_len = 16,
                                  .accumulation = kRows / 3 / world,
                                  .first_row = 37 * kRows};
      Rows reader(data, options);
      const Slots slots(options, 2);
      Loader loader(reader, options, slots.span());
      const auto inputs = values(loader.next().inputs);
      for (std::size_t i = 0; i < inputs.size(); i += 16)
        rows[world].push_back(inputs[i]);
    }
    std::sort(rows[world].begin(), rows[world].end());
    EXPECT_EQ(rows[world].size(), static_cast<std::size_t>(kRows));
    EXPECT_EQ(rows[world], rows[1]) << world;
  }
}

TEST(Loader, ResumesExactly) {
  const Counting data(10'000);
  LoaderOptions options{.rank = 1, .world = 2, .batch = 4, .seq_len = 8, .accumulation = 2};
  Rows rows(data, options);
  const Slots slots(options, 2);
  std::vector<std::vector<std::int32_t>> whole;
  {
    Loader loader(rows, options, slots.span());
    for (int step = 0; step < 60; ++step, loader.release())
      whole.push_back(values(loader.next().targets));
  }
  options.first_row = 23 * options.rows_per_step();
  Loader loader(rows, options, slots.span());
  for (std::size_t step = 23; step < 60; ++step, loader.release())
    EXPECT_EQ(values(loader.next().targets), whole[step]);
}

// Each step continues with the row after the last one of the step before.
TEST(Loader, TheNumberOfMicroStepsMayChange) {
  const Counting data(10'000);
  LoaderOptions options{.rank = 1, .world = 2, .batch = 3, .seq_len = 8, .accumulation = 4};
  options.micro_steps = [](std::int64_t i) { return 1 + i % 4; };
  Rows rows(data, options);
  const Slots slots(options, 2);
  Loader loader(rows, options, slots.span());
  std::int64_t first = 0;
  for (std::int64_t step = 0; step < 40; ++step, loader.release()) {
    const std::int64_t count = 1 + step % 4;
    const Batch batch = loader.next();
    ASSERT_EQ(batch.inputs.shape, (Shape{count, 3, 8}));
    const auto inputs = values(batch.inputs);
    for (std::int64_t a = 0; a < count; ++a)
      for (std::int64_t b = 0; b < 3; ++b)
        EXPECT_EQ(inputs[static_cast<std::size_t>((a * 3 + b) * 8)],
                  rows.sampler.position(first + (a * 2 + 1) * 3 + b));
    first += count * 6;
  }
}

// The batch size changes at a resume. The run continues with its next row as the first row of the
// new batch, on any rank and in any micro-step.
TEST(Loader, ContinuesWithTheNextRowWhateverTheBatchWas) {
  const Counting data(10'000);
  for (int rank = 0; rank < 2; ++rank) {
    const LoaderOptions options{.rank = rank,
                                .world = 2,
                                .batch = 3,
                                .seq_len = 8,
                                .accumulation = 2,
                                .first_row = 35};  // after 5 steps of 7 rows
    Rows rows(data, options);
    const Slots slots(options, 2);
    Loader loader(rows, options, slots.span());
    for (std::int64_t step = 0; step < 50; ++step, loader.release()) {
      const auto inputs = values(loader.next().inputs);
      for (std::int64_t a = 0; a < 2; ++a)
        for (std::int64_t b = 0; b < 3; ++b)
          ASSERT_EQ(inputs[static_cast<std::size_t>((a * 3 + b) * 8)],
                    rows.sampler.position(35 + step * 12 + (a * 2 + rank) * 3 + b));
    }
  }
}

// Counts its reads.
class Watched : public Counting {
 public:
  using Counting::Counting;
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    Counting::read(begin, out);
    ++reads;
  }
  mutable std::atomic<std::int64_t> reads = 0;
};

TEST(Loader, ABatchStaysUntouchedWhileItIsHeld) {
  const Watched data(10'000);
  const LoaderOptions options{.batch = 4, .seq_len = 32};
  Rows rows(data, options);
  const Slots slots(options, 2);
  Loader loader(rows, options, slots.span());
  for (int step = 0; step < 20; ++step) {
    const Batch batch = loader.next();
    const auto before = values(batch.inputs);
    // Meanwhile, the thread fills the other slot.
    EXPECT_TRUE(eventually([&] { return data.reads >= (step + 2) * options.batch; }));
    EXPECT_EQ(values(batch.inputs), before);
    loader.release();
  }
}

TEST(Loader, ReadsAheadAsFarAsThereAreSlots) {
  const Watched data(10'000);
  const LoaderOptions options{.batch = 1, .seq_len = 32};
  Rows rows(data, options);
  const Slots slots(options, 3);
  Loader loader(rows, options, slots.span());
  const auto settled = [&](std::int64_t reads) {
    EXPECT_TRUE(eventually([&] { return data.reads >= reads; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time to fill one too many
    return data.reads.load();
  };
  EXPECT_EQ(settled(3), 3);
  static_cast<void>(loader.next());
  EXPECT_EQ(settled(3), 3);
  loader.release();
  EXPECT_EQ(settled(4), 4);
}

class Breaking final : public Counting {
 public:
  Breaking(std::int64_t size, std::int64_t reads) : Counting(size), reads_(reads) {}
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    if (reads_-- == 0) throw std::runtime_error("disk gone");
    Counting::read(begin, out);
  }
  [[nodiscard]] bool is_broken() const { return reads_ < 0; }

 private:
  mutable std::atomic<std::int64_t> reads_;
};

TEST(Loader, AnErrorOfTheThreadIsRethrownAfterEarlierBatches) {
  const LoaderOptions options{.batch = 1, .seq_len = 8};
  const Breaking data(1'000, 5);
  Rows rows(data, options);
  const Slots slots(options, 4);
  Loader loader(rows, options, slots.span());
  for (int step = 0; step < 5; ++step, loader.release())
    EXPECT_EQ(values(loader.next().inputs)[0], rows.sampler.position(step));
  for (int again = 0; again < 2; ++again) {
    try {
      static_cast<void>(loader.next());
      FAIL() << "the sixth batch cannot be read";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "disk gone");
    }
  }
}

class Slow final : public Watched {
 public:
  using Watched::Watched;
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Watched::read(begin, out);
  }
};

TEST(Loader, EndsPromptlyInEveryState) {
  const LoaderOptions large{.batch = 10'000, .seq_len = 2};  // a slot takes ten seconds
  const Slow slow(1'000'000);
  const Watched fast(1'000'000);
  const LoaderOptions small{.batch = 1, .seq_len = 2};
  const Slots large_slots(large, 2);
  const Slots small_slots(small, 2);
  Rows slow_rows(slow, large);
  Rows fast_rows(fast, small);
  { const Loader at_once(fast_rows, small, small_slots.span()); }
  {
    const Loader filling(slow_rows, large, large_slots.span());
    EXPECT_TRUE(eventually([&] { return slow.reads > 0; }));
  }
  EXPECT_LT(slow.reads, large.batch);
  {
    Loader holding(fast_rows, small, small_slots.span());
    static_cast<void>(holding.next());
  }
  {
    fast.reads = 0;
    const Loader full(fast_rows, small, small_slots.span());
    EXPECT_TRUE(eventually([&] { return fast.reads == 2; }));
  }
  {
    const Breaking broken(1'000, 0);
    Rows broken_rows(broken, small);
    const Loader failed(broken_rows, small, small_slots.span());
    EXPECT_TRUE(eventually([&] { return broken.is_broken(); }));
  }
}

TEST(Loader, RefusesMisuse) {
  const Counting data(1'000);
  const LoaderOptions options{.batch = 2, .seq_len = 8};
  Rows rows(data, options);
  const Slots slots(options, 2);
  EXPECT_THROW(Loader(rows, options, slots.span().first(slots.span().size() / 2)), Error);
  EXPECT_THROW(Loader(rows, options, slots.span().first(slots.span().size() - 1)), Error);
  LoaderOptions other = options;
  other.first_row = -1;
  EXPECT_THROW(Loader(rows, other, slots.span()), Error);
  other = options;
  other.rank = 1;
  EXPECT_THROW(Loader(rows, other, slots.span()), Error);

  Loader loader(rows, options, slots.span());
  EXPECT_THROW(loader.release(), Error);
  static_cast<void>(loader.next());
  EXPECT_THROW(static_cast<void>(loader.next()), Error);
  loader.release();
  EXPECT_THROW(loader.release(), Error);
}

}  // namespace
}  // namespace muo::data
