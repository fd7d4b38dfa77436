#include "app/checkpoint/durable_files.h"

#include <fcntl.h>
#include <stdio.h>  // NOLINT(modernize-deprecated-headers): renameat2 is not in <cstdio>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"

namespace muo {
namespace {

[[noreturn]] void fail(const char* action, const std::filesystem::path& path, int error) {
  throw Error(
      concat("cannot ", action, " ", path.string(), ": ", std::generic_category().message(error),
             is_full(error) ? "; free space or write elsewhere (--out)"
                            : "; check the path and its permissions, or write elsewhere (--out)"));
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path, std::int64_t bytes)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
  if (!file_) fail("create", path_, errno);
  int failed = bytes == 0 ? 0 : ::fallocate(file_.number(), 0, 0, bytes);
  if (failed != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
    failed = ::ftruncate(file_.number(), bytes);
  if (failed != 0) fail("reserve space for", path_, errno);
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
    std::array<char, 256> host{};
    static_cast<void>(::gethostname(host.data(), host.size() - 1));
    const std::string mine = concat("process ", ::getpid(), " on ", host.data());
    // On a full disk the lock holds as well, but the file does not name its holder.
    if (::ftruncate(number, 0) == 0)
      static_cast<void>(!::pwrite(number, mine.data(), mine.size(), 0));
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
  std::error_code unasked;
  std::error_code& code = error == nullptr ? unasked : *error;
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

void sync_directory(const std::filesystem::path& directory) {
  const FileDescriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file) fail("open", directory, errno);
  if (::fsync(file.number()) != 0) fail("write", directory, errno);
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
