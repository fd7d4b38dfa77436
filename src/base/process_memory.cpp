#include "base/process_memory.h"

#include <fstream>
#include <string>
#include <string_view>

namespace muo {
namespace {

std::optional<std::int64_t> status_bytes(std::string_view field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kibibytes = 0;
    if (word == field && status >> kibibytes) return kibibytes * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> resident_memory() { return status_bytes("VmRSS:"); }
std::optional<std::int64_t> anonymous_memory() { return status_bytes("RssAnon:"); }

}  // namespace muo
