#include "data/file_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "base/check.h"

namespace muo {
namespace {

// Below this a mapping, in whole pages and with its own bookkeeping in the kernel, costs more.
constexpr std::size_t kMapBytes = std::size_t{1} << 20;

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw InputError(concat(path.native(),
                          ": cannot be read: ", std::generic_category().message(error),
                          "; make it readable or leave it out"));
}

class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) fail(path, errno);
  }
  ~Descriptor() { ::close(fd_); }  // only read from: nothing can be lost
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

std::vector<std::byte> read_all(const std::filesystem::path& path, int fd, std::size_t size) {
  std::vector<std::byte> out(size + 1);  // one more, so that the end is seen without growing
  std::size_t used = 0;
  for (;;) {
    const ssize_t got = ::read(fd, out.data() + used, out.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, errno);
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
    if (used == out.size()) out.resize(2 * out.size());
  }
  out.resize(used);
  return out;
}

}  // namespace

FileBytes::FileBytes(const std::filesystem::path& path) {
  const Descriptor file(path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, errno);
  if (!S_ISREG(status.st_mode))
    throw InputError(concat(path.native(), ": is not a regular file; save its contents in one"));
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < kMapBytes) {
    read_ = read_all(path, file.get(), size);
    read_.shrink_to_fit();
    bytes_ = read_;
    return;
  }
  void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) fail(path, errno);
  bytes_ = {static_cast<const std::byte*>(mapped), size};
}

FileBytes::~FileBytes() {
  // Fails only for an address that is not a mapping.
  if (read_.empty() && !bytes_.empty())
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace muo
