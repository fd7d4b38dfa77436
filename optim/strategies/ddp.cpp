#include "optim/strategies/strategies.h"

namespace muo::optim::strategies {

// Every rank holds and computes everything, including AdamW's part; one all-reduce of the
// gradients. Buckets of about equal bytes in backward order.
// Cost: sends 2 (N-1)/N of the gradients, computes N times what is needed, and every rank holds all
// optimizer state. Use it for a model that is small relative to its activations, or as the
// reference.
Buckets ddp(Params params, int world) {
  Buckets buckets;
  for (const UpdateRule rule : {UpdateRule::kMuon, UpdateRule::kAdamW})
    for (const NumberClass kind :
         {NumberClass::kMatrix, NumberClass::kEmbedding, NumberClass::kScalar}) {
      Members members;
      for (std::size_t i = 0; i < params.size(); ++i)
        if (update_group(params[i].role).rule == rule && number_class(params[i].role) == kind)
          members.push_back(i);
      for (const Members& run : runs_of_bytes(params, backward_order(params, std::move(members))))
        buckets.push_back(replicated_bucket(params, run, world));
    }
  return buckets;
}

}  // namespace muo::optim::strategies
