#pragma once

#include <dlfcn.h>

namespace muo::cuda {

// Sets `function` to that of a loaded library. Returns false and sets it to null if there is none.
template <class Function>
bool find_function(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace muo::cuda
