#pragma once

#include <string>

namespace muo::simt {

// The name of the function at this address, demangled; "?" if its file has lost its symbols.
std::string kernel_name(const void* function);

}  // namespace muo::simt
