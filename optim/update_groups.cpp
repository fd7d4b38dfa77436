#include "optim/update_groups.h"

#include "base/check.h"

namespace muo::optim {
namespace {
enum AdamGroup : int { kHead, kTokens, kValues, kResid, kX0, kSmear };
}  // namespace

UpdateGroup update_group(ParamRole role) {
  switch (role) {
    case ParamRole::kMatrix:
      return {.rule = UpdateRule::kMuon};
    case ParamRole::kUnembedding:
      return {.adam_group = kHead};
    case ParamRole::kEmbedding:
      return {.adam_group = kTokens};
    case ParamRole::kValueEmbedding:
      return {.adam_group = kValues};
    case ParamRole::kResidLambda:
      return {.adam_group = kResid};
    case ParamRole::kX0Lambda:
      return {.adam_group = kX0};
    case ParamRole::kSmear:
      return {.adam_group = kSmear};
  }
  MUO_FAIL("parameter role ", static_cast<int>(role));
}

std::string_view group_name(ParamRole role) {
  switch (role) {
    case ParamRole::kMatrix:
      return "matrices";
    case ParamRole::kUnembedding:
      return "lm_head";
    case ParamRole::kEmbedding:
      return "wte";
    case ParamRole::kValueEmbedding:
      return "value_embeds";
    case ParamRole::kResidLambda:
      return "resid_lambdas";
    case ParamRole::kX0Lambda:
      return "x0_lambdas";
    case ParamRole::kSmear:
      return "smear";
  }
  MUO_FAIL("parameter role ", static_cast<int>(role));
}

NumberClass number_class(ParamRole role) {
  switch (role) {
    case ParamRole::kMatrix:
    case ParamRole::kUnembedding:
      return NumberClass::kMatrix;
    case ParamRole::kEmbedding:
    case ParamRole::kValueEmbedding:
      return NumberClass::kEmbedding;
    case ParamRole::kResidLambda:
    case ParamRole::kX0Lambda:
    case ParamRole::kSmear:
      return NumberClass::kScalar;
  }
  MUO_FAIL("parameter role ", static_cast<int>(role));
}

}  // namespace muo::optim
