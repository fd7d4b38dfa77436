#include <algorithm>
#include <array>

#include "kernels/cuda/sums.h"
#include "kernels/operation.h"
#include "kernels/update_squares.h"
#include "runtime/cuda/launch.h"

namespace muo::cuda {
namespace {

// Passed by value, so that no table in device memory has to be filled.
constexpr int kPiecesOfLaunch = 128;
struct Pieces {
  UpdatePiece of[kPiecesOfLaunch];
  int count;
};

// One block per parameter, namely the block of its first piece, processes all its pieces. 24 bytes
// per part of kCommitPart elements: bound by the latency of a launch and of memory.
__global__ void __launch_bounds__(kSumThreads)
    sum_update_squares_kernel(double* sums, const double* squares, Pieces pieces) {
  const auto first = static_cast<int>(blockIdx.x);
  const std::int32_t param = pieces.of[first].param;
  if (first > 0 && pieces.of[first - 1].param == param) return;
  for (int p = first; p < pieces.count && pieces.of[p].param == param; ++p) {
    const double* parts = squares + pieces.of[p].first * kUpdateSquares;
    for (std::int64_t s = 0; s < kUpdateSquares; ++s) {
      const double total = block_sum_of<kSumThreads>(
          pieces.of[p].parts,
          [=](std::int64_t i, double sum) { return sum + parts[i * kUpdateSquares + s]; });
      if (threadIdx.x == 0) sums[param * kUpdateSquares + s] += total;
    }
  }
}

void sum_update_squares(NativeStream stream, const SumUpdateSquaresArgs& args) {
  for (std::size_t begin = 0; begin < args.pieces.size(); begin += kPiecesOfLaunch) {
    const auto some = args.pieces.subspan(
        begin, std::min<std::size_t>(kPiecesOfLaunch, args.pieces.size() - begin));
    Pieces pieces{.of = {}, .count = static_cast<int>(some.size())};
    std::ranges::copy(some, pieces.of);
    launch(sum_update_squares_kernel, static_cast<unsigned>(pieces.count), kSumThreads, 0, stream,
           args.sums.as<double>(), static_cast<const double*>(args.squares.as<double>()), pieces);
  }
}

const KernelRegistration registration(&sum_update_squares);

}  // namespace
}  // namespace muo::cuda
