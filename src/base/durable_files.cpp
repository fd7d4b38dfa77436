#include "base/durable_files.h"

#include <fcntl.h>
#include <stdio.h>  // NOLINT(modernize-deprecated-headers): renameat2 is not in <cstdio>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <utility>

#include "base/host_name.h"
#include "base/system_error_text.h"

namespace muo {
namespace {

[[noreturn]] void fail(const char* action, const std::filesystem::path& path, int error) {
  throw WriteError(
      concat("cannot ", action, " ", path.string(), ": ", system_error_text(error),
             is_full(error) ? "; free space or write elsewhere (--out)"
                            : "; check the path and its permissions, or write elsewhere (--out)"));
}

constexpr std::string_view kTemporary = ".tmp";

std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

// Writes all of `bytes`. Returns 0, or errno's value on an error.
int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// The offset just past the last newline, or 0.
std::int64_t end_of_last_line(int file, std::int64_t bytes) {
  std::array<char, 4096> part{};
  for (std::int64_t end = bytes; end > 0;) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - std::ssize(part));
    const auto size = static_cast<std::size_t>(end - begin);
    if (::pread(file, part.data(), size, begin) != end - begin) return bytes;
    if (const auto at = std::string_view(part.data(), size).rfind('\n');
        at != std::string_view::npos)
      return begin + static_cast<std::int64_t>(at) + 1;
    end = begin;
  }
  return 0;
}

}  // namespace

void replace_file(const std::filesystem::path& file, std::string_view contents, mode_t mode) {
  const std::filesystem::path folder = parent_of(file);
  // A random name and O_EXCL | O_NOFOLLOW protect against a link planted by another user who may
  // write to the folder.
  std::random_device random;
  const std::filesystem::path temporary =
      folder / concat(".", file.filename().string(), ".", random(), random(), kTemporary);
  int error = 0;
  {
    const FileDescriptor out(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    error = out ? write_all(out.number(), contents) : errno;
    if (error == 0 && ::fsync(out.number()) != 0) error = errno;
  }
  if (error == 0 && ::rename(temporary.c_str(), file.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    fail("write", file, error);
  }
  sync_directory(folder);
}

void remove_temporaries(const std::filesystem::path& folder) {
  for (const std::filesystem::path& file : entries_of(folder)) {
    const std::string name = file.filename().string();
    if (name.starts_with('.') && name.ends_with(kTemporary)) ::unlink(file.c_str());
  }
}

// Write-only, because of NFS: for a file opened for reading too, the client completes a partly
// written page from the server and later sends the whole page, overwriting what another host has
// written there meanwhile.
OutputFile::OutputFile(std::filesystem::path path, std::int64_t bytes)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
  if (!file_) fail("create", path_, errno);
  int failed = bytes == 0 ? 0 : ::fallocate(file_.number(), 0, 0, bytes);
  if (failed != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
    failed = ::ftruncate(file_.number(), bytes);
  if (failed != 0) fail("reserve space for", path_, errno);
}

OutputFile::OutputFile(std::filesystem::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC)) {
  if (!file_) fail("open", path_, errno);
}

void OutputFile::write(std::int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.number(), bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("write", path_, written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
}

void OutputFile::sync() const {
  if (::fsync(file_.number()) != 0) fail("write", path_, errno);
}

AppendOnlyFile::AppendOnlyFile(std::filesystem::path path, Past past) : path_(std::move(path)) {
  struct stat status {};
  const bool exists = ::stat(path_.c_str(), &status) == 0;
  // A pipe is opened write-only: O_RDWR would succeed even without a reader.
  const bool grows = !exists || S_ISREG(status.st_mode);
  file_ = FileDescriptor(::open(path_.c_str(),
                                (grows ? O_RDWR : O_WRONLY) | O_APPEND | O_CLOEXEC | O_CREAT |
                                    (past == Past::kNone ? O_EXCL : 0),
                                0644));
  if (!file_) fail("write", path_, errno);
  if (!grows) return;
  bytes_ = end_of_last_line(file_.number(), exists ? status.st_size : 0);
  if (exists && bytes_ < status.st_size && ::ftruncate(file_.number(), bytes_) != 0)
    fail("write", path_, errno);
  if (!exists) sync_directory(parent_of(path_));
}

void AppendOnlyFile::append(std::string_view bytes) {
  if (const int error = write_all(file_.number(), bytes); error != 0) {
    // If the truncation fails as well, readers stop at the partial record.
    if (bytes_ >= 0) static_cast<void>(!::ftruncate(file_.number(), bytes_));
    fail("write", path_, error);
  }
  if (bytes_ >= 0) bytes_ += std::ssize(bytes);
}

void AppendOnlyFile::sync() const {
  if (bytes_ >= 0 && ::fdatasync(file_.number()) != 0) fail("write", path_, errno);
}

FileLock FileLock::try_directory(const std::filesystem::path& directory) noexcept {
  FileLock lock;
  lock.file_ =
      FileDescriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (lock && ::flock(lock.file_.number(), LOCK_EX | LOCK_NB) != 0) return {};
  return lock;
}

FileLock FileLock::try_file(const std::filesystem::path& file, std::string& holder) {
  FileLock lock;
  lock.file_ =
      FileDescriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!lock) fail("open", file, errno);
  const int number = lock.file_.number();
  std::array<char, 512> text{};
  if (::flock(number, LOCK_EX | LOCK_NB) == 0) {
    const std::string mine = concat("process ", ::getpid(), " on ", host_name());
    // On a full disk the lock still holds, but the file does not name the holder.
    if (::pwrite(number, mine.data(), mine.size(), 0) == std::ssize(mine))
      static_cast<void>(!::ftruncate(number, std::ssize(mine)));
    return lock;
  }
  if (errno == EWOULDBLOCK) {
    static_cast<void>(!::pread(number, text.data(), text.size() - 1, 0));
    holder = text[0] != 0 ? text.data() : "another process";
  } else if (errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOLCK) {
    fail("lock", file, errno);
  }
  return {};
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory,
                                              std::error_code* error) {
  std::error_code ignored_error;
  std::error_code& code = error == nullptr ? ignored_error : *error;
  std::vector<std::filesystem::path> out;
  for (std::filesystem::directory_iterator it(directory, code), end; !code && it != end;
       it.increment(code))
    out.push_back(it->path());
  std::ranges::sort(out);
  return out;
}

void make_directory(const std::filesystem::path& directory) {
  if (::mkdir(directory.c_str(), 0755) != 0) fail("create", directory, errno);
}

void make_directories(const std::filesystem::path& directory) {
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) {
    make_directories(parent_of(directory));
    if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST) fail("create", directory, errno);
  } else if (!S_ISDIR(status.st_mode)) {
    fail("create", directory, ENOTDIR);
  }
  // Sync even if the directory already exists: its creator may have crashed before its own sync.
  sync_directory(parent_of(directory));
}

void sync_directory(const std::filesystem::path& directory) {
  const FileDescriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file && errno == EACCES) return;  // owned by another user, such as /home
  if (!file) fail("open", directory, errno);
  // EINVAL: this file system needs no fsync() for directories.
  if (::fsync(file.number()) != 0 && errno != EINVAL) fail("write", directory, errno);
}

void move_directory(const std::filesystem::path& from, const std::filesystem::path& to,
                    const std::filesystem::path& aside, Replace how) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno != EEXIST && errno != EINVAL) fail("create", to, errno);
  std::error_code ignored;
  const bool replaces = std::filesystem::exists(to, ignored);
  if (replaces && how == Replace::kExchange &&
      ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    if (::rename(from.c_str(), aside.c_str()) != 0) fail("rename", from, errno);
    return;
  }
  if (replaces && ::rename(to.c_str(), aside.c_str()) != 0) fail("replace", to, errno);
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  const int error = errno;
  // Otherwise the old directory would be lost.
  if (replaces) std::filesystem::rename(aside, to, ignored);
  fail("create", to, error);
}

}  // namespace muo
