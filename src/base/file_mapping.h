#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

namespace muo {

// Maps the first `size` >= 1 bytes of an open file for reading; the last copy of the result unmaps
// them. Returns null on failure and sets errno. If the file is truncated or its disk fails while it
// is mapped, reading it ends the program (SIGBUS) with exit code 3 and a line on stderr that names
// `path`; in a thread that blocks SIGBUS, the program ends without that line.
std::shared_ptr<const std::byte> map_file(int file, std::size_t size,
                                          const std::filesystem::path& path);

}  // namespace muo
