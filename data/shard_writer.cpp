#include "data/shard_writer.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/durable_files.h"
#include "base/system_error_text.h"

namespace muo::data {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;

}  // namespace

ShardWriter::ShardWriter(const std::filesystem::path& folder, std::string name,
                         const ShardFormat& format, std::int64_t capacity)
    : path_(folder / name),
      temporary_(folder / ("." + name + ".tmp")),
      format_(format),
      capacity_(capacity),
      file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
      entry_{.file = std::move(name)} {
  if (!file_) fail(errno);
  buffer_.reserve(kBufferBytes + sizeof(std::uint32_t));
}

ShardWriter::~ShardWriter() {
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

void ShardWriter::append(std::span<const std::int32_t> ids) {
  MUO_CHECK(static_cast<std::int64_t>(ids.size()) <= left(), ids.size(), " tokens");
  entry_.tokens += static_cast<std::int64_t>(ids.size());
  while (!ids.empty()) {
    const std::size_t room = (kBufferBytes - buffer_.size()) / format_.token_bytes;
    const auto now = ids.first(std::min(room, ids.size()));
    const std::size_t at = buffer_.size();
    buffer_.resize(at + now.size() * format_.token_bytes);
    const auto copy = [&]<class Id>(Id) {
      for (std::size_t i = 0; i < now.size(); ++i) {
        const auto id = static_cast<Id>(now[i]);
        std::memcpy(buffer_.data() + at + i * sizeof id, &id, sizeof id);
      }
    };
    if (format_.token_bytes == sizeof(std::uint16_t))
      copy(std::uint16_t{});
    else
      copy(std::uint32_t{});
    ids = ids.subspan(now.size());
    if (kBufferBytes - buffer_.size() < format_.token_bytes) flush();
  }
}

ShardEntry ShardWriter::finish() {
  flush();
  std::array<std::int32_t, kShardHeaderInts> header{};
  header[0] = format_.magic;
  header[1] = format_.version;
  header[2] = static_cast<std::int32_t>(entry_.tokens);
  const std::span<const char> bytes{reinterpret_cast<const char*>(header.data()), sizeof header};
  write(0, bytes);
  entry_.checksum = static_cast<std::uint32_t>(
      crc32_combine(shard_checksum(0, std::as_bytes(bytes)), tokens_crc_, written_));
  if (::fsync(file_.number()) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  sync_directory(path_.parent_path());
  return entry_;
}

void ShardWriter::fail(int error) const {
  throw WriteError(concat("cannot write ", path_.native(), ": ", system_error_text(error),
                          is_full(error) ? "; free some space" : "; check the folder",
                          "; then rerun the same command to continue"));
}

void ShardWriter::flush() {
  write(static_cast<std::int64_t>(kShardHeaderBytes) + written_, buffer_);
  tokens_crc_ = shard_checksum(tokens_crc_, std::as_bytes(std::span(buffer_)));
  written_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void ShardWriter::write(std::int64_t offset, std::span<const char> bytes) const {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(file_.number(), bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail(done < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += done;
  }
}

}  // namespace muo::data
