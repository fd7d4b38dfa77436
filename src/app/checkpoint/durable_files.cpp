#include "app/checkpoint/durable_files.h"

#include <fcntl.h>
#include <stdio.h>  // NOLINT(modernize-deprecated-headers): renameat2 is not in <cstdio>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace muo {
namespace {

[[noreturn]] void fail(const char* action, const std::filesystem::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw Error(concat("cannot ", action, " ", path.string(), ": ",
                     std::generic_category().message(error),
                     full ? "; free space or write elsewhere (--out)"
                          : "; check the path and its permissions, or write elsewhere (--out)"));
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path, std::int64_t bytes) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file_ < 0) fail("create", path_, errno);
  int failed = bytes == 0 ? 0 : ::fallocate(file_, 0, 0, bytes);
  if (failed != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) failed = ::ftruncate(file_, bytes);
  if (failed != 0) {
    const int error = errno;
    ::close(file_);
    fail("reserve space for", path_, error);
  }
}

OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);  // after sync() nothing is left that closing could report
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

void OutputFile::write(std::int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("write", path_, written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
}

void OutputFile::sync() const {
  if (::fsync(file_) != 0) fail("write", path_, errno);
}

FileLock::~FileLock() {
  if (file_ >= 0) ::close(file_);
}

FileLock::FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

FileLock FileLock::try_directory(const std::filesystem::path& directory) noexcept {
  FileLock lock;
  lock.file_ = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (lock.file_ >= 0 && ::flock(lock.file_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock.file_);
    lock.file_ = -1;
  }
  return lock;
}

FileLock FileLock::try_file(const std::filesystem::path& file, std::string& holder) {
  FileLock lock;
  lock.file_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (lock.file_ < 0) fail("open", file, errno);
  std::array<char, 512> text{};
  if (::flock(lock.file_, LOCK_EX | LOCK_NB) == 0) {
    std::array<char, 256> host{};
    static_cast<void>(::gethostname(host.data(), host.size() - 1));
    const std::string mine = concat("process ", ::getpid(), " on ", host.data());
    // On a full disk the lock holds as well, and names nobody.
    if (::ftruncate(lock.file_, 0) == 0)
      static_cast<void>(!::pwrite(lock.file_, mine.data(), mine.size(), 0));
    return lock;
  }
  if (errno == EWOULDBLOCK) {
    static_cast<void>(!::pread(lock.file_, text.data(), text.size() - 1, 0));
    holder = text[0] != 0 ? text.data() : "another process";
  } else if (errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOLCK) {
    fail("lock", file, errno);
  }
  return {};
}

void make_directory(const std::filesystem::path& directory) {
  if (::mkdir(directory.c_str(), 0755) != 0) fail("create", directory, errno);
}

void sync_directory(const std::filesystem::path& directory) {
  const int file = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail("open", directory, errno);
  const int error = ::fsync(file) != 0 ? errno : 0;
  ::close(file);
  if (error != 0) fail("write", directory, error);
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
  if (replaces) std::filesystem::rename(aside, to, ignored);  // else it would be lost
  fail("create", to, error);
}

}  // namespace muo
