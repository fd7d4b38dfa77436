#include "kernels/commit.h"

#include <algorithm>
#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

void agree_commit(const AgreeCommitArgs& args) {
  decide(*args.hyper.as_struct<HyperParameters>(), args.totals.as<double>(), args.totals.numel(),
         *args.statistics.as_struct<LossStatistics>(), *args.scalars.as_struct<StepScalars>());
}

void note_nonfinite(const NoteNonfiniteArgs& args) {
  if (args.squares && *args.squares.as<double>() <= kLargestSquares) return;
  dispatch(args.x.dtype, [&]<class T>() {
    const T* x = args.x.as<T>();
    const T* end = x + args.x.numel();
    const T* bad = std::find_if(x, end, [](T v) { return !has_square(to_f32(v)); });
    if (bad == end) return;
    auto* found = args.found.as<double>();
    *found = std::max(*found, kNoIndex - static_cast<double>(args.base + (bad - x) * args.stride));
  });
}

const KernelRegistration kRegistration(&agree_commit, &note_nonfinite);

}  // namespace
}  // namespace muo::host
