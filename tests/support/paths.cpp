#include "support/paths.h"

namespace muo::test {

std::string source_directory() { return MUO_SOURCE_DIR; }
std::string program() { return MUO_PROGRAM; }

}  // namespace muo::test
