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
  bool named = false;  // directly or by a pattern, not through a directory
  std::pair<std::uint64_t, std::uint64_t> identity;  // device and inode
};

struct FileList {
  std::vector<InputFile> files;
  std::int64_t repeated = 0;  // duplicates: named twice, or reached again through links
  std::int64_t special = 0;   // fifos, devices, sockets and broken links found in directories
};

// Lists the files of `paths`, in their order. A directory stands for all files below it, sorted by
// the bytes of their paths, without hidden ones (".name"). A path that does not exist and contains
// *, ? or [ is a pattern. Symbolic links are followed, but each file and directory is listed only
// once, so loops end. Throws InputError for unreadable entries, and for a named path that is
// missing, an empty directory, or neither a regular file nor a directory.
FileList list_files(std::span<const std::filesystem::path> paths);

}  // namespace muo::data
