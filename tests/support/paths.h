#pragma once

#include <string>

namespace muo::test {

// Where this build lies, as paths that a shell takes for one word each. One source file knows, so
// that all others compile alike in every clone and a compiler cache finds them.
std::string source_directory();
std::string program();  // muograph

}  // namespace muo::test
