#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

namespace muo {

// The first `size` bytes, at least 1, of an open file, to read; unmapped with the last copy of what
// is returned. Null: errno says why. A file that is cut short while it is mapped, or whose disk
// fails, ends the program where it is read (SIGBUS): with exit code 3, and on stderr a line that
// names `path`. Threads that block SIGBUS end without that line.
std::shared_ptr<const std::byte> map_file(int file, std::size_t size,
                                          const std::filesystem::path& path);

}  // namespace muo
