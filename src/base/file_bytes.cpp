#include "base/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/check.h"
#include "base/file_descriptor.h"
#include "base/file_mapping.h"
#include "base/system_error_text.h"

namespace muo {
namespace {

// Below this size a mapping (whole pages, kernel bookkeeping) costs more than a read.
constexpr std::size_t kMapBytes = std::size_t{1} << 20;

std::vector<std::byte> read_all(const std::filesystem::path& path, int file, std::size_t size) {
  // One byte more than expected, to detect the end without growing.
  std::vector<std::byte> out(size + 1);
  std::size_t used = 0;
  for (;;) {
    const ssize_t got = ::read(file, out.data() + used, out.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to_read(path, errno);
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
    if (used == out.size()) out.resize(2 * out.size());
  }
  out.resize(used);  // keeps its capacity, so that the address is not null even for an empty file
  return out;
}

}  // namespace

void fail_to_read(const std::filesystem::path& path, int error) {
  throw InputError(concat(path.native(), ": cannot be read: ", system_error_text(error),
                          error == EACCES ? "; make it readable or leave it out" : ""));
}

FileBytes::FileBytes(const std::filesystem::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.number(), &status) != 0) fail_to_read(path, errno);
  if (!S_ISREG(status.st_mode))
    throw InputError(concat(path.native(), ": is not a regular file; save its contents in one"));
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < kMapBytes) {
    const auto read =
        std::make_shared<const std::vector<std::byte>>(read_all(path, file.number(), size));
    bytes_ = *read;
    owner_ = read;
    return;
  }
  const std::shared_ptr<const std::byte> mapped = map_file(file.number(), size, path);
  if (!mapped) fail_to_read(path, errno);
  bytes_ = {mapped.get(), size};
  owner_ = mapped;
}

}  // namespace muo
