#include "data/fingerprint.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "base/file_bytes.h"
#include "data/shard_manifest.h"

namespace muo::data {
namespace {

constexpr std::int64_t kBlockBytes = 64 << 10;

// `read` returns `count` bytes from `begin`, valid until its next call.
std::uint32_t sampled_checksum(
    std::int64_t bytes, std::int64_t max_blocks,
    const std::function<std::span<const std::byte>(std::int64_t begin, std::int64_t count)>& read) {
  const std::int64_t all = (bytes + kBlockBytes - 1) / kBlockBytes;
  const std::int64_t blocks = std::min(all, max_blocks);
  std::uint32_t checksum = 0;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t begin = (blocks == all ? i : i * (all - 1) / (blocks - 1)) * kBlockBytes;
    checksum = shard_checksum(checksum, read(begin, std::min(kBlockBytes, bytes - begin)));
  }
  return checksum;
}

}  // namespace

std::uint32_t file_fingerprint(const std::filesystem::path& path) {
  const FileBytes file(path);
  const auto bytes = file.bytes();
  return sampled_checksum(std::ssize(bytes), 16, [&](std::int64_t begin, std::int64_t count) {
    return bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
  });
}

std::uint32_t token_fingerprint(const TokenData& data) {
  constexpr std::int64_t kIdBytes = sizeof(std::int32_t);
  std::vector<std::int32_t> ids;
  return sampled_checksum(data.size() * kIdBytes, 1024,
                          [&](std::int64_t begin, std::int64_t count) {
                            ids.resize(static_cast<std::size_t>(count / kIdBytes));
                            data.read(begin / kIdBytes, ids);
                            return std::as_bytes(std::span(ids));
                          });
}

}  // namespace muo::data
