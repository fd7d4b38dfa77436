#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "base/file_descriptor.h"

namespace muo {

// Writing that survives a crash, of the machine, too: what a function below has returned from is on
// the disk, unless it says otherwise.

// A full disk, a quota, rights: path, reason and advice.
class WriteError : public Error {
 public:
  using Error::Error;
};

// What `call` returns. Its WriteError becomes an InputError of `option`: as long as nothing has
// been computed, an output that cannot be written is bad input.
template <class Call>
auto before_any_work(std::string_view option, const std::string& value, const Call& call) {
  try {
    return call();
  } catch (const WriteError& error) {
    throw InputError(concat(option, " ", value, ": ", error.what()));
  }
}

// Writes a whole file, by one of another name beside it that is then renamed: a reader, and a
// crash, find the old contents or the new ones. Throws WriteError, and leaves the old ones.
void replace_file(const std::filesystem::path& file, std::string_view contents, mode_t mode = 0666);
// Removes what replace_file() left in the folder in processes that were killed: for whoever is the
// only one that writes there.
void remove_temporaries(const std::filesystem::path& folder);

// A new file of a fixed size, for any number of writers. What was not synced may be lost when this
// object is gone; a process syncs only what it wrote itself, as other hosts may have written, too.
class OutputFile {
 public:
  // Creates the file and reserves its space, so that a full disk shows before the first write.
  OutputFile(std::filesystem::path path, std::int64_t bytes);
  // One that another process has created so.
  explicit OutputFile(std::filesystem::path path);

  // Thread-safe for ranges that do not overlap.
  void write(std::int64_t offset, std::span<const std::byte> bytes) const;
  void sync() const;  // contents and size are on the disk

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

// A file that grows. What one append() writes is there as a whole or not at all: a reader sees no
// part of it, and what could not be written whole is taken back.
class AppendOnlyFile {
 public:
  enum class Past : std::uint8_t {
    kNone,       // the file is made; WriteError if it exists
    kWholeLines  // it may exist, or be a pipe; a last line without its end is cut off
  };
  AppendOnlyFile() = default;  // none
  AppendOnlyFile(std::filesystem::path path, Past past);

  // Is read by others at once, but on the disk after sync() only.
  void append(std::string_view bytes);
  void sync() const;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  explicit operator bool() const { return static_cast<bool>(file_); }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::int64_t bytes_ = -1;  // -1: of a pipe or a device
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
// And those that it lies in, as far as they are missing.
void make_directories(const std::filesystem::path& directory);
// The names in it.
void sync_directory(const std::filesystem::path& directory);

enum class Replace : std::uint8_t { kExchange, kTwoRenames };
// Moves directory `from` to `to`. One that is there already ends up under `aside`, which must not
// exist. kExchange makes this one atomic step; on a file system that cannot (NFS), it falls back to
// kTwoRenames, where a crash in between leaves `to` absent.
void move_directory(const std::filesystem::path& from, const std::filesystem::path& to,
                    const std::filesystem::path& aside, Replace how = Replace::kExchange);

}  // namespace muo
