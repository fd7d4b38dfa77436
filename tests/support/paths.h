#pragma once

#include <string>

namespace muo::test {

// Paths of the sources and of this build that need no quoting in a shell. They are defined in one
// source file, so that the others compile identically in every clone and can be cached.
std::string source_directory();
std::string program();  // muograph

}  // namespace muo::test
