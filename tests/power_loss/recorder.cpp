// A library for LD_PRELOAD that logs, in order, all changes that a program makes below a folder,
// and all its output. disk.py reads the log and compares it with the folder, which detects calls
// that are not intercepted here.
//   POWER_LOSS_ROOT  the folder; empty when the first program starts
//   POWER_LOSS_LOG   the log, to which successive programs append
//   POWER_LOSS_KILL  number of records after which this program is killed; 0: never
// A record is NAME NUMBER NUMBER BYTES BYTES and a newline, then two texts of that many bytes.
// Files are identified by their inodes; paths are relative to the folder.

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is not in <csignal>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace {

const char* setting(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  if (value != nullptr) return value;
  static_cast<void>(std::fprintf(stderr, "recorder: %s is not set\n", name));
  std::abort();
}

std::optional<std::string> real_path(const std::string& path) {
  char* found = ::realpath(path.c_str(), nullptr);
  if (found == nullptr) return std::nullopt;
  std::string out = found;
  std::free(found);  // NOLINT(cppcoreguidelines-no-malloc)
  return out;
}

// The inode of an open file or of a path; 0 if there is none.
long inode(int directory, const char* path = "") {
  struct stat status {};
  const int flags = AT_SYMLINK_NOFOLLOW | (*path == 0 ? AT_EMPTY_PATH : 0);
  return ::fstatat(directory, path, &status, flags) == 0 ? static_cast<long>(status.st_ino) : 0;
}

class Recorder {
 public:
  Recorder()
      : root_(real_path(setting("POWER_LOSS_ROOT")).value()),
        log_(static_cast<int>(::syscall(SYS_openat, AT_FDCWD, setting("POWER_LOSS_LOG"),
                                        O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644))),
        left_(std::atol(setting("POWER_LOSS_KILL"))) {
    record("root", inode(AT_FDCWD, root_.c_str()));
  }

  void record(const char* name, long first = 0, long second = 0, std::string_view text = {},
              std::string_view other = {}) {
    std::string line = name;
    for (const long number :
         {first, second, static_cast<long>(text.size()), static_cast<long>(other.size())})
      line += ' ' + std::to_string(number);
    line += '\n';
    line.append(text).append(other);
    if (::syscall(SYS_write, log_, line.data(), line.size()) != static_cast<long>(line.size()))
      std::abort();
    if (--left_ == 0) ::kill(::getpid(), SIGKILL);
  }

  // Converts a path argument to a path relative to the folder; empty if it is not below the folder.
  [[nodiscard]] std::optional<std::string> below(int directory, const char* name) const {
    std::string path = name;
    while (path.ends_with('/'))
      path.pop_back();
    if (!path.starts_with('/'))
      path =
          (directory == AT_FDCWD ? "." : "/proc/self/fd/" + std::to_string(directory)) + '/' + path;
    const std::size_t slash = path.rfind('/');
    const auto parent = real_path(path.substr(0, slash + 1));
    if (!parent) return std::nullopt;
    return below(*parent + path.substr(slash));
  }
  [[nodiscard]] bool has(int file) const {
    return below(real_path("/proc/self/fd/" + std::to_string(file)).value_or("") + '/').has_value();
  }

  void opened(int file, int directory, const char* path, bool creates, bool truncates) {
    if (file < 0 || (!creates && !truncates)) return;
    if (const auto name = below(directory, path))
      record("open", inode(file), truncates ? 1 : 0, *name);
  }
  void wrote(int file, long offset, std::string_view bytes) {
    if (file == STDOUT_FILENO || file == STDERR_FILENO)
      record("say", 0, 0, bytes);
    else if (has(file))
      record("write", inode(file), offset, bytes);
  }
  void of_file(const char* name, int file, long number = 0) {
    if (has(file)) record(name, inode(file), number);
  }
  void of_path(const char* name, int directory, const char* path) {
    if (const auto found = below(directory, path)) record(name, inode(directory, path), 0, *found);
  }
  void renamed(int from_directory, const char* from, int to_directory, const char* to,
               unsigned flags) {
    const auto before = below(from_directory, from), after = below(to_directory, to);
    if (before || after) record("rename", flags, 0, before.value_or(""), after.value_or(""));
  }

  std::mutex mutex;

 private:
  [[nodiscard]] std::optional<std::string> below(const std::string& path) const {
    if (!path.starts_with(root_ + '/')) return std::nullopt;
    return path.substr(root_.size() + 1);
  }

  const std::string root_;
  const int log_;
  long left_;
};

Recorder& recorder() {
  static auto& only = *new Recorder;  // never destroyed: programs write until they exit
  return only;
}

}  // namespace

// Serializes a call and its record.
#define LOG                   \
  Recorder& log = recorder(); \
  const std::lock_guard lock(log.mutex)
// The function of this name in libc.
#define NEXT(name)                                                                          \
  static auto* const next = reinterpret_cast<decltype(&::name)>(::dlsym(RTLD_NEXT, #name)); \
  LOG
// The third argument of open().
#define MODE                                                                                \
  va_list arguments;                                                                        \
  va_start(arguments, flags);                                                               \
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0; \
  va_end(arguments)
// Another name for the same function.
#define ALIAS(name, of) extern "C" decltype(of) name __attribute__((alias(#of)))

extern "C" {

int openat(int directory, const char* path, int flags, ...) {
  MODE;
  NEXT(openat);
  const int file = next(directory, path, flags, mode);
  log.opened(file, directory, path, (flags & O_CREAT) != 0, (flags & O_TRUNC) != 0);
  return file;
}
int open(const char* path, int flags, ...) {
  MODE;
  return ::openat(AT_FDCWD, path, flags, mode);
}
int creat(const char* path, mode_t mode) {
  return ::open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}
// Fortified headers call this function.
int __open_2(const char* path, int flags) { return ::open(path, flags); }
int __openat_2(int directory, const char* path, int flags) {
  return ::openat(directory, path, flags);
}
// std::ofstream opens files with fopen() and then writes to the descriptor.
std::FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  std::FILE* const file = next(path, mode);
  if (file != nullptr) log.opened(::fileno(file), AT_FDCWD, path, *mode != 'r', *mode == 'w');
  return file;
}

ssize_t write(int file, const void* data, std::size_t bytes) {
  NEXT(write);
  const ssize_t done = next(file, data, bytes);
  if (done > 0)
    log.wrote(file, ::lseek(file, 0, SEEK_CUR) - done,
              {static_cast<const char*>(data), static_cast<std::size_t>(done)});
  return done;
}
ssize_t pwrite(int file, const void* data, std::size_t bytes, off_t offset) {
  NEXT(pwrite);
  const ssize_t done = next(file, data, bytes, offset);
  if (done > 0)
    log.wrote(file, offset, {static_cast<const char*>(data), static_cast<std::size_t>(done)});
  return done;
}
// Writes the parts one by one, because a crash may come between them. Writes at the current
// position if `offset` is -1.
ssize_t pwritev2(int file, const iovec* parts, int count, off_t offset, int) {
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    const auto& [data, bytes] = parts[i];
    const ssize_t done =
        offset == -1 ? ::write(file, data, bytes) : ::pwrite(file, data, bytes, offset + all);
    if (done < 0) return all > 0 ? all : done;
    all += done;
    if (static_cast<std::size_t>(done) < bytes) break;
  }
  return all;
}
ssize_t pwritev(int file, const iovec* parts, int count, off_t offset) {
  return ::pwritev2(file, parts, count, offset, 0);
}
ssize_t writev(int file, const iovec* parts, int count) {
  return ::pwritev2(file, parts, count, -1, 0);
}

int ftruncate(int file, off_t bytes) noexcept {
  NEXT(ftruncate);
  const int failed = next(file, bytes);
  if (failed == 0) log.of_file("size", file, bytes);
  return failed;
}
int truncate(const char* path, off_t bytes) noexcept {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return -1;
  const int failed = ::ftruncate(file, bytes);
  ::close(file);
  return failed;
}
int fallocate(int file, int mode, off_t offset, off_t bytes) {
  NEXT(fallocate);
  const int failed = next(file, mode, offset, bytes);
  if (failed == 0 && mode == 0) log.of_file("allocate", file, offset + bytes);
  return failed;
}
int posix_fallocate(int file, off_t offset, off_t bytes) {
  return ::fallocate(file, 0, offset, bytes) == 0 ? 0 : errno;
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) noexcept {
  NEXT(renameat2);
  const int failed = next(from_directory, from, to_directory, to, flags);
  if (failed == 0) log.renamed(from_directory, from, to_directory, to, flags);
  return failed;
}
int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  return ::renameat2(from_directory, from, to_directory, to, 0);
}
int rename(const char* from, const char* to) noexcept {
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int unlinkat(int directory, const char* path, int flags) noexcept {
  NEXT(unlinkat);
  const int failed = next(directory, path, flags);
  if (failed == 0) log.of_path("remove", directory, path);
  return failed;
}
int unlink(const char* path) noexcept { return ::unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return ::unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) noexcept {
  const int failed = ::unlink(path);
  return failed != 0 && errno == EISDIR ? ::rmdir(path) : failed;
}
int mkdirat(int directory, const char* path, mode_t mode) noexcept {
  NEXT(mkdirat);
  const int failed = next(directory, path, mode);
  if (failed == 0) log.of_path("mkdir", directory, path);
  return failed;
}
int mkdir(const char* path, mode_t mode) noexcept { return ::mkdirat(AT_FDCWD, path, mode); }
int linkat(int from_directory, const char* from, int to_directory, const char* to,
           int flags) noexcept {
  NEXT(linkat);
  const int failed = next(from_directory, from, to_directory, to, flags);
  if (failed == 0) log.of_path("link", to_directory, to);
  return failed;
}
int link(const char* from, const char* to) noexcept {
  return ::linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int symlinkat(const char* target, int directory, const char* path) noexcept {
  NEXT(symlinkat);
  const int failed = next(target, directory, path);
  if (const auto name = failed == 0 ? log.below(directory, path) : std::nullopt)
    log.record("symlink", 0, 0, *name, target);
  return failed;
}
int symlink(const char* target, const char* path) noexcept {
  return ::symlinkat(target, AT_FDCWD, path);
}

// No real sync is needed, because nothing is lost here; this saves waiting for the disk.
int fsync(int file) {
  LOG;
  log.of_file("sync", file);
  return 0;
}
int fdatasync(int file) { return ::fsync(file); }
void sync() noexcept {
  LOG;
  log.record("sync_all");
}
int syncfs(int) noexcept {
  ::sync();
  return 0;
}

}  // extern "C"

ALIAS(open64, open);
ALIAS(openat64, openat);
ALIAS(creat64, creat);
ALIAS(__open64_2, __open_2);
ALIAS(__openat64_2, __openat_2);
ALIAS(fopen64, fopen);
ALIAS(pwrite64, pwrite);
ALIAS(pwritev64, pwritev);
ALIAS(pwritev64v2, pwritev2);
ALIAS(ftruncate64, ftruncate);
ALIAS(truncate64, truncate);
ALIAS(fallocate64, fallocate);
ALIAS(posix_fallocate64, posix_fallocate);

namespace {

// A libc stream writes through internal calls that cannot be intercepted; this replacement calls
// write().
__attribute__((constructor)) void record_stdout() {
  const auto write_out = [](void*, const char* text, std::size_t bytes) -> ssize_t {
    return ::write(STDOUT_FILENO, text, bytes);
  };
  recorder();
  stdout = ::fopencookie(nullptr, "w",
                         {.read = nullptr, .write = write_out, .seek = nullptr, .close = nullptr});
}

}  // namespace
