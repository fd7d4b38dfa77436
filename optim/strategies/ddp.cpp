#include <algorithm>

#include "optim/strategies/strategies.h"

namespace muo::strategies {

// Every rank holds and computes everything; one all-reduce of the gradients. Buckets of about equal
// bytes in backward order.
Buckets ddp(Params params, int world) {
  constexpr std::int64_t kBucketElements = std::int64_t{25} << 18;  // PyTorch DDP's 25 MiB
  Members order(params.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return params[a].ready < params[b].ready; });
  Buckets buckets;
  Members members;
  std::int64_t elements = 0;
  const auto close = [&] {
    if (!members.empty()) buckets.push_back(replicated_bucket(params, members, world));
    members.clear();
    elements = 0;
  };
  for (const UpdateRule rule : {UpdateRule::kMuon, UpdateRule::kAdamW})
    for (const NumberClass kind :
         {NumberClass::kMatrix, NumberClass::kEmbedding, NumberClass::kScalar}) {
      for (const std::size_t i : order) {
        if (update_group(params[i].role).rule != rule || number_class(params[i].role) != kind)
          continue;
        const std::int64_t n = params[i].shape.numel();
        if (elements + n > kBucketElements) close();
        members.push_back(i);
        elements += n;
      }
      close();
    }
  return buckets;
}

}  // namespace muo::strategies
