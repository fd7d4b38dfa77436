#include "base/process_memory.h"

#include "base/system_limits.h"

namespace muo {
namespace {

std::optional<std::int64_t> status_bytes(const char* field) {
  const auto kib = number_in_file("/proc/self/status", field);
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> resident_memory() { return status_bytes("VmRSS:"); }
std::optional<std::int64_t> anonymous_memory() { return status_bytes("RssAnon:"); }

}  // namespace muo
