#include "data/byte_source.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/check.h"
#include "base/file_bytes.h"
#include "base/file_descriptor.h"
#include "data/file_form.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;

class Plain final : public ByteSource {
 public:
  explicit Plain(const fs::path& path) : path_(path) {
    if (path == "-") {
      file_ = FileDescriptor(::dup(STDIN_FILENO));
    } else {
      static_cast<void>(FileBytes(path));  // for its error messages
      file_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    }
    if (file_.number() < 0) fail_to_read(path_, errno);
  }
  std::size_t read(std::span<char> out) override {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t got = ::read(file_.number(), out.data() + done, out.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_to_read(path_, errno);
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    taken_ += static_cast<std::int64_t>(done);
    return done;
  }
  [[nodiscard]] std::int64_t bytes_taken() const override { return taken_; }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  FileDescriptor file_;
  std::int64_t taken_ = 0;
};

// Base of both decompressors: reads the compressed input in pieces.
class Decompressed : public ByteSource {
 public:
  explicit Decompressed(const fs::path& path) : file_(path), input_(1 << 17) {}
  [[nodiscard]] std::int64_t bytes_taken() const override { return file_.bytes_taken(); }

 protected:
  // Refills the input if it is used up. Returns false at the end of the file.
  bool refill() {
    if (used_ == filled_) {
      filled_ = file_.read(input_);
      used_ = 0;
    }
    return used_ < filled_;
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(concat(file_.path().native(), ": ", what));
  }
  [[nodiscard]] char* unused() { return input_.data() + used_; }
  [[nodiscard]] std::size_t unused_bytes() const { return filled_ - used_; }
  void use(std::size_t bytes) { used_ += bytes; }
  // Rejects decompression bombs before they fill the memory that their frame requests.
  void count_output(std::size_t bytes) {
    constexpr std::int64_t kMaxGrowth = 1000, kEnough = 128 << 20;
    output_ += static_cast<std::int64_t>(bytes);
    if (output_ > kEnough && output_ / kMaxGrowth > bytes_taken())
      fail(concat("grows more than ", kMaxGrowth, " times when decompressed, which no text does"));
  }

 private:
  Plain file_;
  std::int64_t output_ = 0;
  std::vector<char> input_;
  std::size_t used_ = 0, filled_ = 0;
};

class Gzip final : public Decompressed {
 public:
  explicit Gzip(const fs::path& path) : Decompressed(path) {
    MUO_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK, "no memory for zlib");
  }
  ~Gzip() override { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  std::size_t read(std::span<char> out) override {
    std::size_t done = 0;
    while (done < out.size()) {
      if (!refill()) {
        if (within_) fail("ends within compressed data: the file was cut off");
        break;
      }
      if (!within_ && began_ && *unused() == '\0') {  // padding after a member, as on tapes
        use(1);
        continue;
      }
      if (!within_) inflateReset(&stream_);
      within_ = began_ = true;
      const std::size_t room = std::min<std::size_t>(out.size() - done, 1 << 30);
      stream_.next_in = reinterpret_cast<Bytef*>(unused());
      stream_.avail_in = static_cast<uInt>(unused_bytes());
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int state = inflate(&stream_, Z_NO_FLUSH);
      if (state != Z_OK && state != Z_STREAM_END)
        fail(concat("not gzip, or damaged: ", stream_.msg == nullptr ? "zlib" : stream_.msg));
      use(unused_bytes() - stream_.avail_in);
      done += room - stream_.avail_out;
      count_output(room - stream_.avail_out);
      if (state == Z_STREAM_END) within_ = false;
    }
    return done;
  }

 private:
  z_stream stream_{};
  bool within_ = false;  // inside a member
  bool began_ = false;   // the first member has begun
};

class Zstandard final : public Decompressed {
 public:
  explicit Zstandard(const fs::path& path) : Decompressed(path) {
    MUO_CHECK(stream_, "no memory for zstd");
    // Accepts windows up to 2 GiB, as zstd --long=31 does; memory is allocated only as a frame
    // needs it.
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, 31);
  }
  std::size_t read(std::span<char> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos < to.size) {
      // Decompressed output may be pending even when no input is left.
      const bool has_input = refill();
      ZSTD_inBuffer from{unused(), unused_bytes(), 0};
      const std::size_t before = to.pos;
      const std::size_t state = ZSTD_decompressStream(stream_.get(), &to, &from);
      if (ZSTD_isError(state) != 0)
        fail(concat("not zstd, or damaged: ", ZSTD_getErrorName(state)));
      use(from.pos);
      count_output(to.pos - before);
      if (has_input) within_ = state != 0;
      if (!has_input && to.pos == before) {
        if (within_) fail("ends within compressed data: the file was cut off");
        break;
      }
    }
    return to.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  std::unique_ptr<ZSTD_DStream, Free> stream_{ZSTD_createDStream()};
  bool within_ = false;  // inside a frame
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const fs::path& path) {
  if (path == "-" || !form_of(path).compressed) return std::make_unique<Plain>(path);
  const std::string_view name = path.native();
  if (name.ends_with('z') || name.ends_with('Z')) return std::make_unique<Gzip>(path);
  return std::make_unique<Zstandard>(path);
}

}  // namespace muo::data
