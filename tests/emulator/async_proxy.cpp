#include "emulator/async_proxy.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/dtype.h"
#include "emulator/sanitizers.h"
#include "emulator/scheduler.h"
#include "emulator/shared_memory.h"

namespace muo::simt {
namespace {

constexpr int kRowBytes = 128;
constexpr auto kNaN = std::byte{0xFF};

// In assembly, so that no sanitizer sees the access.
void copy_unseen(std::byte* to, const std::byte* from, std::size_t count) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
}

MUO_SIMT_UNSEEN std::size_t equal_bytes(const std::byte* a, const std::byte* b, std::size_t count) {
  std::size_t i = 0;
  for (std::uint64_t x = 0, y = 0; i + sizeof x <= count; i += sizeof x) {
    __builtin_memcpy(&x, a + i, sizeof x);
    __builtin_memcpy(&y, b + i, sizeof y);
    if (x != y) break;
  }
  while (i < count && a[i] == b[i])
    ++i;
  return i;
}

MUO_SIMT_UNSEEN void end_phase_if_complete(Barrier& barrier) {
  if (barrier.missing > 0 || barrier.bytes != 0) return;
  barrier.missing = barrier.arrivals;
  barrier.parity ^= 1;
}

}  // namespace

void AsyncProxy::begin_launch(std::span<const std::span<std::byte>> memory) {
  parts_.resize(memory.size());
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (parts_[i].memory.size() != memory[i].size()) parts_[i].seen.reset();
    parts_[i].memory = memory[i];
  }
}

void AsyncProxy::begin_block() {
  copy_count_ = hidden_count_ = 0;
  for (Part& part : parts_)
    part.used = false;
}

void AsyncProxy::end_thread() {
  for (const ProductSums& sums : scheduler_.thread().products.sums)
    if (sums.state == ProductSums::State::kInFlight)
      scheduler_.fail("a thread ends without a wait that names the sums of its products");
}

void AsyncProxy::end_block() {
  if (copy_count_ > 0) scheduler_.fail("a block ends before a copy has arrived");
}

// ---- Memory -------------------------------------------------------------------------------------

MUO_SIMT_UNSEEN AsyncProxy::Part& AsyncProxy::part_of(const std::byte* p) {
  for (Part& part : parts_)
    if (part.memory.data() <= p && p < part.memory.data() + part.memory.size()) {
      use(part);
      return part;
    }
  scheduler_.fail("an address of a copy or product is not in the launch's shared memory");
}

MUO_SIMT_UNSEEN void AsyncProxy::use(Part& part) {
  if (part.used) return;
  if (!part.seen) part.seen = std::make_unique_for_overwrite<std::byte[]>(part.memory.size());
  fill_with_ones({part.seen.get(), part.memory.size()});
  part.used = true;
}

MUO_SIMT_UNSEEN void AsyncProxy::fence() {
  hidden_count_ = 0;
  for (Part& part : parts_) {
    use(part);
    copy_unseen(part.seen.get(), part.memory.data(), part.memory.size());
  }
}

void AsyncProxy::must_be_seen(const Part& part, const std::byte* p, std::size_t bytes,
                              std::string_view what) {
  const auto offset = static_cast<std::size_t>(p - part.memory.data());
  if (offset > part.memory.size() || bytes > part.memory.size() - offset)
    scheduler_.fail(concat(what, " bytes beyond byte ", offset, " of ", part.memory.size(),
                           " bytes of shared memory"));
  const std::size_t equal = equal_bytes(p, part.seen.get() + offset, bytes);
  if (equal < bytes)
    scheduler_.fail(concat(what, " byte ", offset + equal,
                           " of shared memory, which a thread has written without a fence since"));
}

bool AsyncProxy::draws_late() {
  const Order order = scheduler_.order();
  return order == Order::kForward || (order == Order::kRandom && scheduler_.random() >> 63 != 0);
}

// ---- Barriers and copies ------------------------------------------------------------------------

MUO_SIMT_UNSEEN void AsyncProxy::must_be_initialised(const Barrier& barrier) {
  if (barrier.parity > 1) scheduler_.fail("a barrier is used before it is initialised");
}

MUO_SIMT_UNSEEN void AsyncProxy::init(Barrier& barrier, int arrivals) {
  const auto count = static_cast<std::uint8_t>(arrivals);
  barrier.arrivals = barrier.missing = count;
  barrier.parity = 0;
  barrier.bytes = 0;
  if (hidden_count_ == kMost) scheduler_.fail("more barriers without a fence than are emulated");
  hidden_[hidden_count_++] = &barrier;
}

MUO_SIMT_UNSEEN void AsyncProxy::arrive(Barrier& barrier, int bytes) {
  must_be_initialised(barrier);
  scheduler_.thread().apart = true;
  release(&barrier);
  barrier.bytes += bytes;
  if (barrier.missing-- == 0) scheduler_.fail("more threads arrive than a barrier has");
  end_phase_if_complete(barrier);
}

MUO_SIMT_UNSEEN bool AsyncProxy::has_ended(Barrier& barrier, int parity) {
  must_be_initialised(barrier);
  int kept = 0;
  for (int i = 0; i < copy_count_; ++i) {
    if (copies_[i].barrier == &barrier)
      arrived(copies_[i]);
    else
      copies_[kept++] = copies_[i];
  }
  copy_count_ = kept;
  if (barrier.parity == parity) return false;
  acquire(&barrier);
  return true;
}

MUO_SIMT_UNSEEN void AsyncProxy::arrived(const TileCopy& copy) {
  acquire(copy.barrier);
  write(copy);
  const Part& part = part_of(copy.to);
  copy_unseen(part.seen.get() + (copy.to - part.memory.data()), copy.to,
              static_cast<std::size_t>(copy.bytes));
  release(copy.barrier);
  copy.barrier->bytes -= copy.bytes;
  end_phase_if_complete(*copy.barrier);
}

void AsyncProxy::write(const TileCopy& copy) {
  if (copy.stride == 0) {
    std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
    return;
  }
  constexpr std::int64_t kChunk = 16;
  for (std::int64_t row = 0; row < copy.bytes / kRowBytes; ++row)
    for (std::int64_t at = 0; at < kRowBytes; at += kChunk) {
      std::byte* const to = copy.to + row * kRowBytes + (at ^ row % 8 * kChunk);
      if (row < copy.rows && at < copy.row_bytes)
        std::memcpy(to, copy.from + row * copy.stride + at, kChunk);
      else
        std::memset(to, 0, kChunk);
    }
}

// Until it arrives, what it overwrites is NaNs.
MUO_SIMT_UNSEEN void AsyncProxy::start(const TileCopy& copy) {
  must_be_initialised(*copy.barrier);
  if (std::find(hidden_, hidden_ + hidden_count_, copy.barrier) != hidden_ + hidden_count_)
    scheduler_.fail("a copy is started at a barrier that was initialised without a fence since");
  scheduler_.thread().apart = true;
  Part& part = part_of(copy.to);
  const auto bytes = static_cast<std::size_t>(copy.bytes);
  must_be_seen(part, copy.to, bytes, "a copy overwrites");
  if (!draws_late()) return arrived(copy);
  if (copy_count_ == kMost) scheduler_.fail("more copies at once than are emulated");
  std::memset(copy.to, static_cast<int>(kNaN), bytes);
  copy_unseen(part.seen.get() + (copy.to - part.memory.data()), copy.to, bytes);
  release(copy.barrier);
  copies_[copy_count_++] = copy;
}

// ---- Products -----------------------------------------------------------------------------------

ProductSums& AsyncProxy::sums_at(float (*registers)[4], int count) {
  std::vector<ProductSums>& all = scheduler_.thread().products.sums;
  const auto found = std::ranges::find(all, registers, &ProductSums::registers);
  ProductSums& sums = found == all.end() ? all.emplace_back() : *found;
  sums.registers = registers;
  sums.count = count;
  return sums;
}

void AsyncProxy::must_be_poisoned(const ProductSums& sums) {
  for (int n = 0; n < sums.count; ++n)
    for (int e = 0; e < 4; ++e)
      if (std::bit_cast<std::uint32_t>(sums.registers[n][e]) != kPoison)
        scheduler_.fail("sums are written before a wait for their products names them");
}

Products& AsyncProxy::aligned_products() {
  CudaThread& thread = scheduler_.thread();
  if (thread.apart)
    scheduler_.fail("a warp has not met since this lane started a copy or arrived at a barrier");
  return thread.products;
}

void AsyncProxy::begin_products() { aligned_products().begun = true; }

void AsyncProxy::begin_sums(float (*registers)[4], int count) {
  ProductSums& sums = sums_at(registers, count);
  if (sums.state == ProductSums::State::kInFlight)
    scheduler_.fail("begin_products() of sums whose products have not been waited for");
  sums.state = ProductSums::State::kBegun;
  std::memcpy(sums.value, registers, sizeof(float[4]) * static_cast<std::size_t>(count));
}

void AsyncProxy::multiply(float (*registers)[4], int count, const Product& product) {
  using State = ProductSums::State;
  Products& products = aligned_products();
  if (!products.begun)
    scheduler_.fail("a product without begin_products() after its registers could be accessed");
  ProductSums& sums = sums_at(registers, count);
  if (sums.state == State::kInFlight) {
    must_be_poisoned(sums);
  } else {
    if (product.adds && sums.state == State::kIdle)
      scheduler_.fail("a product adds to sums of which begin_products() was not told");
    if (product.adds &&
        std::memcmp(sums.value, registers, sizeof(float[4]) * static_cast<std::size_t>(count)) != 0)
      scheduler_.fail("sums are written between begin_products() and their products");
    sums.state = State::kInFlight;
    sums.late = draws_late();
    for (int n = 0; n < count; ++n)
      std::fill_n(registers[n], 4, std::bit_cast<float>(kPoison));
  }
  sums.group = products.committed + 1;
  if (sums.late)
    sums.pending.push_back(product);
  else
    compute(sums.value, count, product);
}

void AsyncProxy::commit_products() { ++aligned_products().committed; }

void AsyncProxy::wait_for_products(unsigned groups) {
  Products& products = aligned_products();
  products.begun = false;
  products.done = products.committed - std::min(groups, products.committed);
  for (ProductSums& sums : products.sums) {
    if (sums.state == ProductSums::State::kBegun) sums.state = ProductSums::State::kIdle;
    if (sums.group > products.done) continue;
    for (const Product& product : sums.pending)
      compute(sums.value, sums.count, product);
    sums.pending.clear();
  }
}

void AsyncProxy::take_sums(float (*registers)[4]) {
  Products& products = scheduler_.thread().products;
  const auto sums = std::ranges::find(products.sums, registers, &ProductSums::registers);
  if (sums == products.sums.end() || sums->state != ProductSums::State::kInFlight) return;
  if (sums->group > products.done)
    scheduler_.fail("a wait names sums of products for which it does not wait");
  must_be_poisoned(*sums);
  std::memcpy(registers, sums->value, sizeof(float[4]) * static_cast<std::size_t>(sums->count));
  sums->state = ProductSums::State::kIdle;
}

// Reads consecutive elements of a row.
template <int kBytes>
void AsyncProxy::read(const Part& part, const SharedMatrix& matrix, int row, int column,
                      std::uint16_t* elements) {
  const std::byte* const line = matrix.at + std::ptrdiff_t{column / 64} * matrix.panel_bytes +
                                std::ptrdiff_t{row} * kRowBytes + std::ptrdiff_t{column % 64} * 2;
  const auto address = reinterpret_cast<std::uintptr_t>(line);
  const auto* const from =
      line + static_cast<std::ptrdiff_t>((address ^ (address >> 7 & 7) << 4) - address);
  const auto offset = static_cast<std::size_t>(from - part.memory.data());
  if (offset > part.memory.size() - kBytes ||
      std::memcmp(from, part.seen.get() + offset, kBytes) != 0)
    must_be_seen(part, from, kBytes, "a product reads");
  std::memcpy(elements, from, kBytes);
}

void AsyncProxy::compute(float (*sums)[4], int count, const Product& product) {
  const CudaThread& thread = scheduler_.thread();
  const auto lane = static_cast<int>(thread.lane);
  const auto read_row = [this](const Part& part, const SharedMatrix& matrix, int row,
                               float(&x)[16]) {
    std::uint16_t bits[16];
    read<16>(part, matrix, row, 0, bits);
    read<16>(part, matrix, row, 8, bits + 8);
    for (int k = 0; k < 16; ++k)
      x[k] = to_f32(BF16{bits[k]});
  };
  float left[2][16], right[2][16];
  for (int half = 0; half < 2; ++half)
    if (product.left_is_shared)
      read_row(part_of(product.left.at), product.left,
               static_cast<int>(thread.warp % 4) * 16 + lane / 4 + 8 * half, left[half]);
    else
      for (int k = 0; k < 16; ++k)
        left[half][k] =
            to_f32(BF16{static_cast<std::uint16_t>(product.rows[half][k / 2] >> k % 2 * 16)});
  const Part& part = part_of(product.right.at);
  for (int n = 0; n < count; ++n) {
    const int column = 8 * n + lane % 4 * 2;  // and the next
    if (product.left_is_shared)
      for (int c = 0; c < 2; ++c)
        read_row(part, product.right, column + c, right[c]);
    else
      for (int k = 0; k < 16; ++k) {
        std::uint16_t pair[2];
        read<4>(part, product.right, k, column, pair);
        for (int c = 0; c < 2; ++c)
          right[c][k] = to_f32(BF16{pair[c]});
      }
    for (int e = 0; e < 4; ++e) {
      float sum = product.adds ? sums[n][e] : 0.0F;
      for (int k = 0; k < 16; ++k)
        sum += left[e / 2][k] * right[e % 2][k];
      sums[n][e] = sum;
    }
  }
}

}  // namespace muo::simt
