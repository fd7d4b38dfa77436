#pragma once

#include <string>

namespace muo::test {

// Paths of the sources and of this build, which need no quotes in a shell. They are defined in one
// source file, so that all others compile alike in every clone and a compiler cache finds them.
std::string source_directory();
std::string program();  // muograph

}  // namespace muo::test
