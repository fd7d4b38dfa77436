#pragma once

// The asynchronous side of a block, of which README.md lists the rules: bulk copies, the barriers
// at which they complete, and products of warpgroups. A kernel that breaks a rule ends with a
// message, or computes with NaNs.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace muo::simt {

class Scheduler;

// In shared memory.
struct Barrier {
  std::uint8_t arrivals, missing, parity;
  std::int32_t bytes;  // announced, not yet arrived
};
static_assert(sizeof(Barrier) == 8);

// A copy into shared memory: `bytes` bytes, or if `stride` is not 0 a tile of 64 rows of 128 bytes
// in the layout of SharedMatrix, of which `rows` and `row_bytes` are in the tensor.
struct TileCopy {
  Barrier* barrier;
  std::byte* to;
  const std::byte* from;
  int bytes;
  std::int64_t stride;
  int rows, row_bytes;
};

struct SharedMatrix {
  const std::byte* at;
  int panel_bytes;

  SharedMatrix operator+(int bytes) const { return {at + bytes, panel_bytes}; }
};

// A lane's part of d = [d if `adds`] + a b, for rows lane / 4 and 8 more of its warp's 16.
struct Product {
  bool adds;
  bool left_is_shared;
  SharedMatrix left;         // if left_is_shared
  std::uint32_t rows[2][8];  // else: the lane's rows of a, two bf16 per word
  SharedMatrix right;        // along rows if left_is_shared, else along columns
};

// A lane's sums of products, 8 * `count` columns. From the first product until a wait names them,
// the registers contain kPoison, and `value` contains the sums computed so far.
struct ProductSums {
  enum class State : std::uint8_t { kIdle, kBegun, kInFlight };

  float (*registers)[4] = nullptr;
  int count = 0;
  State state = State::kIdle;
  bool late = false;   // operands are read when they are waited for, else at once
  unsigned group = 0;  // of the last product
  float value[16][4] = {};
  std::vector<Product> pending;
};
inline constexpr std::uint32_t kPoison = 0x7FA5A5A5;  // a NaN

struct Products {
  bool begun = false;                // begin_products() was called after the last wait
  unsigned committed = 0, done = 0;  // groups
  std::vector<ProductSums> sums;
};

class AsyncProxy {
 public:
  explicit AsyncProxy(Scheduler& scheduler) : scheduler_(scheduler) {}

  // Called by the scheduler; `memory` is the shared memory of its blocks.
  void begin_launch(std::span<const std::span<std::byte>> memory);
  void begin_block();
  void end_thread();
  void end_block();

  // Called by CUDA threads, for the functions of runtime/cuda/warpgroup.h.
  void fence();  // fence.proxy.async
  void init(Barrier& barrier, int arrivals);
  void arrive(Barrier& barrier, int bytes);
  bool has_ended(Barrier& barrier, int parity);
  void start(const TileCopy& copy);
  void begin_products();
  void begin_sums(float (*registers)[4], int count);
  void multiply(float (*registers)[4], int count, const Product& product);
  void commit_products();
  void wait_for_products(unsigned groups);
  void take_sums(float (*registers)[4]);

 private:
  struct Part {
    std::span<std::byte> memory;
    std::unique_ptr<std::byte[]> seen;  // what the async proxy sees of it, if `used` by the block
    bool used = false;
  };
  Part& part_of(const std::byte* p);
  static void use(Part& part);
  void must_be_initialised(const Barrier& barrier);
  void must_be_seen(const Part& part, const std::byte* p, std::size_t bytes, std::string_view what);
  bool draws_late();
  void write(const TileCopy& copy);
  void arrived(const TileCopy& copy);
  Products& aligned_products();
  ProductSums& sums_at(float (*registers)[4], int count);
  void must_be_poisoned(const ProductSums& sums);
  template <int kBytes>
  void read(const Part& part, const SharedMatrix& matrix, int row, int column,
            std::uint16_t* elements);
  void compute(float (*sums)[4], int count, const Product& product);

  static constexpr int kMost = 256;

  Scheduler& scheduler_;
  std::vector<Part> parts_;
  // Arrays, as ThreadSanitizer would see the accesses of containers.
  TileCopy copies_[kMost];  // that have not arrived
  int copy_count_ = 0;
  const Barrier* hidden_[kMost];  // initialised after the last fence
  int hidden_count_ = 0;
};

}  // namespace muo::simt
