#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace muo {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw InputError(
      concat("cannot read ", path.string(), ": ", std::generic_category().message(error)));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO never blocks
  if (file < 0) fail(path, errno);
  struct stat status = {};
  const int error = ::fstat(file, &status) != 0 ? errno : 0;
  if (error != 0 || !S_ISREG(status.st_mode)) {
    ::close(file);
    if (error != 0) fail(path, error);
    throw InputError(concat("cannot read ", path.string(), ": not a regular file"));
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ > 0) {  // mmap refuses empty ranges
    void* const mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) {
      const int map_error = errno;
      ::close(file);
      fail(path, map_error);
    }
    data_ = static_cast<const std::byte*>(mapped);
  }
  ::close(file);  // the mapping keeps the file
}

MappedFile::~MappedFile() {
  // Unmapping a range that mmap returned cannot fail.
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace muo
