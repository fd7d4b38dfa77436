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

// File operations that survive a crash of the program or of the machine: when a function below
// returns, its effect is on the disk, unless its comment says otherwise.

// A write failed (full disk, quota, permissions). The text has the path, the reason and advice.
class WriteError : public Error {
 public:
  using Error::Error;
};

// Returns what `call` returns. Converts its WriteError into an InputError that names `option`:
// before anything has been computed, an output that cannot be written is bad input.
template <class Call>
auto before_any_work(std::string_view option, const std::string& value, const Call& call) {
  try {
    return call();
  } catch (const WriteError& error) {
    throw InputError(concat(option, " ", value, ": ", error.what()));
  }
}

// Replaces a file atomically: writes a temporary file beside it and renames it, so that a reader,
// or a restart after a crash, finds either the old contents or the new ones. On an error it throws
// WriteError and the old contents remain.
void replace_file(const std::filesystem::path& file, std::string_view contents, mode_t mode = 0666);
// Removes the temporary files that killed processes left behind in replace_file(). Precondition:
// the caller is the only writer in the folder.
void remove_temporaries(const std::filesystem::path& folder);

// A new file of a fixed size that any number of writers may fill. Data that was not synced before
// this object is destroyed may be lost. A process syncs only its own writes: other hosts may write
// to the same file.
class OutputFile {
 public:
  // Creates the file and reserves its space, so that a full disk is detected before the first
  // write.
  OutputFile(std::filesystem::path path, std::int64_t bytes);
  // Opens a file that another process has created with the constructor above.
  explicit OutputFile(std::filesystem::path path);

  // Thread-safe for ranges that do not overlap.
  void write(std::int64_t offset, std::span<const std::byte> bytes) const;
  void sync() const;  // on return, contents and size are on the disk

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

// A file that grows by whole records: a reader never sees a partial append(), and an append() that
// cannot be completed is rolled back.
class AppendOnlyFile {
 public:
  enum class Past : std::uint8_t {
    kNone,       // creates the file; WriteError if it exists
    kWholeLines  // the file may exist, or be a pipe; an incomplete last line is removed
  };
  AppendOnlyFile() = default;  // no file
  AppendOnlyFile(std::filesystem::path path, Past past);

  // The data is visible to readers at once, but is on the disk only after sync().
  void append(std::string_view bytes);
  void sync() const;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  explicit operator bool() const { return static_cast<bool>(file_); }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::int64_t bytes_ = -1;  // size; -1 for a pipe or a device
};

// An exclusive lock on a file or directory. Other processes cannot acquire it until this object is
// destroyed or this process ends, for whatever reason.
class FileLock {
 public:
  FileLock() = default;  // holds nothing

  [[nodiscard]] static FileLock try_directory(const std::filesystem::path& directory) noexcept;
  // Creates the file and writes its holder into it: "process 12 on node3". If another process holds
  // the lock, returns an empty lock and sets `holder` to the text that process wrote. If the file
  // system does not support locks, returns an empty lock and leaves `holder` unchanged. Throws
  // Error.
  [[nodiscard]] static FileLock try_file(const std::filesystem::path& file, std::string& holder);
  explicit operator bool() const { return static_cast<bool>(file_); }

 private:
  FileDescriptor file_;
};

// Returns the entries of a directory, sorted by name. An error ends the listing early and is
// returned in `error`.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory,
                                              std::error_code* error = nullptr);
void make_directory(const std::filesystem::path& directory);  // WriteError if it exists
// Also creates missing parent directories; no error if the directory exists.
void make_directories(const std::filesystem::path& directory);
// Makes the directory's entries durable.
void sync_directory(const std::filesystem::path& directory);

enum class Replace : std::uint8_t { kExchange, kTwoRenames };
// Moves directory `from` to `to`. If `to` exists, it is moved to `aside`, which must not exist.
// kExchange does this in one atomic step; on a file system without atomic exchange (NFS) it falls
// back to kTwoRenames, where a crash between the renames leaves `to` absent.
void move_directory(const std::filesystem::path& from, const std::filesystem::path& to,
                    const std::filesystem::path& aside, Replace how = Replace::kExchange);

}  // namespace muo
