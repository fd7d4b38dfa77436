#include "data/tokenizer/library_entry.h"

#include <dlfcn.h>

#include <string>

#include "base/check.h"
#include "runtime/plugin.h"

namespace muo::data {

void* library_entry(const char* file, const char* entry, std::string_view package,
                    std::string_view what) {
  std::string missing;
  void* const library = open_beside_core(file, missing);
  if (library == nullptr) {
    if (missing.find("cannot open shared object file") != std::string::npos)
      missing += concat("; install it: apt-get install ", package);
    throw InputError(concat(what, ": ", missing));
  }
  void* const found = dlsym(library, entry);
  MUO_CHECK(found != nullptr, entry);
  return found;
}

}  // namespace muo::data
