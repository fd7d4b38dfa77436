#include "kernels/operation.h"

namespace muo {
namespace {

// A function-local static: operations register during static initialisation, in any order.
std::vector<OperationBase*>& registry() {
  static std::vector<OperationBase*> operations;
  return operations;
}

}  // namespace

OperationBase::OperationBase(std::string_view name, std::type_index arguments)
    : name_(name), arguments_(arguments) {
  registry().push_back(this);
}

std::span<OperationBase* const> OperationBase::all() { return registry(); }

}  // namespace muo
