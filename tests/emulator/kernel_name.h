#pragma once

#include <string>
#include <vector>

namespace muo::simt {

// The demangled name of the function at this address; "?" if its file has no symbols.
std::string kernel_name(const void* function);

// Functions of the project's CUDA namespaces that are in the same file as this one.
struct NamedFunction {
  const void* address;
  std::string mangled, name;
};
std::vector<NamedFunction> functions_beside(const void* function);

}  // namespace muo::simt
