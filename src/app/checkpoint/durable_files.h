#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/file_descriptor.h"

namespace muo {

// Writing that survives a crash: what these functions throw is Error with path, reason and advice.

// A new file of a fixed size, for any number of writers. What was not synced may be lost when this
// object is gone.
class OutputFile {
 public:
  // Creates the file and reserves its space, so that a full disk shows before the first write.
  OutputFile(std::filesystem::path path, std::int64_t bytes);

  // Thread-safe for ranges that do not overlap.
  void write(std::int64_t offset, std::span<const std::byte> bytes) const;
  void sync() const;  // contents and size are on the disk

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

// A file or directory of this process: others that ask for it do not get it until this object or
// this process ends, however it ends.
class FileLock {
 public:
  FileLock() = default;  // holds nothing

  [[nodiscard]] static FileLock try_directory(const std::filesystem::path& directory) noexcept;
  // Makes the file, and writes into it whose it is: "process 12 on node3". Where it is another's,
  // `holder` becomes what that one wrote. Holds nothing, and leaves `holder`, where the file system
  // has no locks. Throws Error.
  [[nodiscard]] static FileLock try_file(const std::filesystem::path& file, std::string& holder);
  explicit operator bool() const { return static_cast<bool>(file_); }

 private:
  FileDescriptor file_;
};

// What lies in a directory, by name; less where an error, which `error` tells, ends the listing.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory,
                                              std::error_code* error = nullptr);
void make_directory(const std::filesystem::path& directory);  // an error if it exists
void sync_directory(const std::filesystem::path& directory);

enum class Replace : std::uint8_t { kExchange, kTwoRenames };
// Moves directory `from` to `to`. One that is there already ends up under `aside`, which must not
// exist. kExchange makes this one atomic step; on a file system that cannot (NFS), it falls back to
// kTwoRenames, where a crash in between leaves `to` absent.
void move_directory(const std::filesystem::path& from, const std::filesystem::path& to,
                    const std::filesystem::path& aside, Replace how = Replace::kExchange);

}  // namespace muo
