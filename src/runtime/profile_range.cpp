#include "runtime/profile_range.h"

#include <utility>
#include <vector>

#ifdef MUO_NVTX

#  include <array>
#  include <mutex>
#  include <unordered_map>

#  include <nvtx3/nvToolsExt.h>

namespace muo {
namespace {

struct Look {
  const char* category;
  std::uint32_t argb;
};
constexpr std::array<Look, 5> kLooks = {{{"step", 0xFF4A6FA5},
                                         {"launch", 0xFFC05746},
                                         {"phase", 0xFF7A9E7E},
                                         {"layer", 0xFFB8A04A},
                                         {"collective", 0xFF8E6C8A}}};

// In NVTX, category 0 means none.
constexpr std::uint32_t category_of(ProfileKind kind) {
  return static_cast<std::uint32_t>(kind) + 1;
}

class Domain {
 public:
  // NVTX returns no domain if no profiler is attached.
  Domain() noexcept : handle_(nvtxDomainCreateA("muograph")) {
    if (handle_ == nullptr) return;
    std::uint32_t category = category_of(ProfileKind::kStep);
    for (const Look& look : kLooks)
      nvtxDomainNameCategoryA(handle_, category++, look.category);
  }
  [[nodiscard]] nvtxDomainHandle_t handle() const { return handle_; }

  // A profiler can start recording at a range only if the range's name is registered.
  [[nodiscard]] nvtxStringHandle_t registered(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = names_.try_emplace(name, nullptr);
    if (is_new) at->second = nvtxDomainRegisterStringA(handle_, name.c_str());
    return at->second;
  }

 private:
  nvtxDomainHandle_t handle_;
  std::mutex mutex_;
  std::unordered_map<std::string, nvtxStringHandle_t> names_;
};

Domain& domain() noexcept {
  static Domain the_domain;
  return the_domain;
}

}  // namespace

bool profiled() noexcept { return domain().handle() != nullptr; }

static void push(ProfileKind kind, std::optional<std::int64_t> number, const std::string& name) {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.category = category_of(kind);
  range.colorType = NVTX_COLOR_ARGB;
  range.color = kLooks.at(static_cast<std::size_t>(kind)).argb;
  if (number) {
    range.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    range.payload.llValue = *number;
  }
  range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  range.message.registered = domain().registered(name);
  nvtxDomainRangePushEx(domain().handle(), &range);
}
static void pop() noexcept { nvtxDomainRangePop(domain().handle()); }

}  // namespace muo

#else

namespace muo {

bool profiled() noexcept { return false; }
static void push(ProfileKind /*kind*/, std::optional<std::int64_t> /*number*/,
                 const std::string& /*name*/) {}
static void pop() noexcept {}

}  // namespace muo

#endif

namespace muo {

struct ProfileRange::Thread {
  int named = 0;  // Named objects
  Observer* observer = nullptr;
  std::vector<Open> open;
  std::uint64_t next_id = 0;
};

ProfileRange::Thread& ProfileRange::thread() noexcept {
  thread_local Thread the_thread;
  return the_thread;
}

bool ProfileRange::is_visible() noexcept { return profiled() || thread().named > 0; }

void ProfileRange::open(ProfileKind kind, std::optional<std::int64_t> number, std::string name) {
  Thread& own = thread();
  if (profiled()) {
    push(kind, number, name);
    profiled_ = true;
  }
  if (own.named == 0) return;
  own.open.push_back(
      {.id = own.next_id++, .kind = kind, .name = std::move(name), .number = number});
  named_ = true;
  if (own.observer != nullptr) own.observer->begins(own.open.back());
}

void ProfileRange::close() noexcept {
  if (named_) {
    Thread& own = thread();
    if (own.observer != nullptr) own.observer->ends();
    own.open.pop_back();
  }
  if (profiled_) pop();
}

ProfileRange::Named::Named(Observer* observer) : outer_(thread().observer) {
  ++thread().named;
  if (observer != nullptr) thread().observer = observer;
}

ProfileRange::Named::~Named() {
  --thread().named;
  thread().observer = outer_;
}

std::span<const ProfileRange::Open> ProfileRange::open() { return thread().open; }

}  // namespace muo
