#include "base/file_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/terminal.h"

namespace muo {
namespace {

// A mapping, as the signal handler sees it. The handler cannot lock, so entries are never freed,
// only reused.
struct Mapping {
  std::atomic<const std::byte*> begin = nullptr;  // null: unused; written last
  std::size_t size = 0;
  std::string message;
  Mapping* next = nullptr;
};
std::atomic<Mapping*> mappings = nullptr;

void end_program(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  for (const Mapping* m = mappings.load(std::memory_order_acquire); m != nullptr; m = m->next) {
    const std::byte* const begin = m->begin.load(std::memory_order_acquire);
    if (begin == nullptr || at < begin || at >= begin + m->size) continue;
    static_cast<void>(!::write(STDERR_FILENO, m->message.data(), m->message.size()));
    ::_exit(3);
  }
  std::signal(SIGBUS, SIG_DFL);  // outside any mapping: the instruction faults again, fatally
}

class Mappings {
 public:
  Mappings() {
    struct sigaction action {};
    action.sa_sigaction = &end_program;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    MUO_CHECK(::sigaction(SIGBUS, &action, nullptr) == 0, "SIGBUS");
  }
  Mapping* add(const std::byte* begin, std::size_t size, const std::filesystem::path& path) {
    const std::lock_guard lock(mutex_);
    if (unused_.empty()) {
      auto* const fresh = new Mapping;  // NOLINT(cppcoreguidelines-owning-memory): never freed
      fresh->next = mappings.load();
      mappings.store(fresh, std::memory_order_release);
      unused_.push_back(fresh);
    }
    Mapping* const mapping = unused_.back();
    mapping->size = size;
    mapping->message = concat("muograph: error: ", printable(path.native()),
                              ": cut short, or its disk failed, while it was read; restore it "
                              "(then continue training with --resume auto)\n");
    mapping->begin.store(begin, std::memory_order_release);
    unused_.pop_back();
    return mapping;
  }
  void remove(Mapping* mapping) {
    const std::lock_guard lock(mutex_);
    mapping->begin.store(nullptr);
    unused_.push_back(mapping);
  }

 private:
  std::mutex mutex_;
  std::vector<Mapping*> unused_;
};

// Never destroyed, because mappings may outlive static objects.
Mappings& all_mappings() {
  static auto* const all = new Mappings;  // NOLINT(cppcoreguidelines-owning-memory)
  return *all;
}

}  // namespace

std::shared_ptr<const std::byte> map_file(int file, std::size_t size,
                                          const std::filesystem::path& path) {
  void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto* const begin = static_cast<const std::byte*>(mapped);
  Mapping* const mapping = all_mappings().add(begin, size, path);
  return {begin, [=](const std::byte* /*begin*/) {
            all_mappings().remove(mapping);
            ::munmap(mapped, size);  // can fail only for an address that is not mapped
          }};
}

}  // namespace muo
