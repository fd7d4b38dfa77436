#include "kernels/operation.h"

#include <unordered_map>
#include <vector>

namespace muo {
namespace {

std::vector<OperationBase*>& operations() {
  static std::vector<OperationBase*> all;
  return all;
}

}  // namespace

// Function-local statics: operations and kernels register during static
// initialisation, in any order.
Kernels& kernels_of(std::type_index arguments) {
  static std::unordered_map<std::type_index, Kernels> all;
  return all[arguments];  // references stay valid
}

OperationBase::OperationBase(std::string_view name, std::type_index arguments)
    : kernels_(kernels_of(arguments)), name_(name), arguments_(arguments) {
  operations().push_back(this);
}

std::span<OperationBase* const> OperationBase::all() { return operations(); }

}  // namespace muo
