#include "data/document_index.h"

#include <algorithm>

#include "base/threads.h"

namespace muo::data {
namespace {

constexpr std::int64_t kPart = 1 << 22;  // tokens per task of a thread
constexpr std::int64_t kRead = 1 << 13;  // tokens per read

}  // namespace

DocumentIndex::DocumentIndex(const TokenData& data, std::int32_t first, int threads) {
  const auto parts = static_cast<std::size_t>((data.size() + kPart - 1) / kPart);
  std::vector<std::vector<std::int64_t>> found(parts);
  parallel_for(threads, parts, [&](std::size_t part) {
    std::vector<std::int32_t> tokens(kRead);
    std::int64_t begin = static_cast<std::int64_t>(part) * kPart;
    for (const std::int64_t end = std::min(begin + kPart, data.size()); begin < end;
         begin += kRead) {
      const std::int64_t count = std::min(kRead, end - begin);
      data.read(begin, std::span(tokens).first(static_cast<std::size_t>(count)));
      for (std::int64_t i = 0; i < count; ++i)
        if (tokens[static_cast<std::size_t>(i)] == first) found[part].push_back(begin + i);
    }
  });
  for (const std::vector<std::int64_t>& begins : found)
    begins_.insert(begins_.end(), begins.begin(), begins.end());
  begins_.push_back(data.size());
}

}  // namespace muo::data
