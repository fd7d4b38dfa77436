#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

namespace muo::data {

// A regular file that the user named, or that lies in a directory that the user named.
struct InputFile {
  std::filesystem::path path;
  bool named = false;                                // itself, or by a pattern
  std::pair<std::uint64_t, std::uint64_t> identity;  // device and inode
};

struct FileList {
  std::vector<InputFile> files;
  std::int64_t repeated = 0;  // files and directories met again, through links or named twice
  std::int64_t special = 0;   // in directories: fifos, devices, sockets, links to nowhere
};

// In the order of `paths`; a directory stands for all files below it in the order of the bytes of
// their paths, hidden ones (".name") left out. A path that does not exist and holds *, ? or [ is a
// pattern. Symbolic links are followed, but each file and directory is taken once, so loops end.
// Throws InputError for a named path that is missing, empty (a directory), or neither a regular
// file nor a directory, and for what cannot be read.
FileList list_files(std::span<const std::filesystem::path> paths);

}  // namespace muo::data
