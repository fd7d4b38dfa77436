#pragma once

#include <string>

namespace muo::test {

// Where this build lies. One source file knows, so that all others compile alike in every clone and
// a compiler cache finds them.
std::string source_directory();
std::string program();  // muograph

}  // namespace muo::test
