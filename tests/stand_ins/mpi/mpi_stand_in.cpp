#include "stand_ins/mpi/mpi_stand_in.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <random>
#include <span>
#include <thread>

#include "base/check.h"
#include "mpi.h"

namespace muo::test {
namespace {

constexpr std::size_t kShort = 32;  // bytes of a message that is buffered
constexpr auto kUntouched = std::byte{0xA5};

using Bytes = std::vector<std::byte>;

struct Request {
  bool is_receive = false;
  int peer = 0;
  std::span<std::byte> data = {};  // not modified by sends
  Bytes copy = {};                 // of sent data
  int polls = 0;                   // left before it is delivered
  bool is_done = false;
  bool is_taken = false;  // completion was returned to the caller
  int received = 0;
  int error = MPI_SUCCESS;
};

struct Process {
  bool is_initialized = false, is_finalized = false, returns_errors = false;
  std::atomic<int> callers = 0;
  std::deque<Request> requests;  // all, by number - 1
  // By peer, the numbers of its undelivered sends, and of receives from it.
  std::vector<std::deque<int>> sent_by, receives_of;
};

}  // namespace

struct MpiStandIn::World {
  World(int processes, std::uint64_t seed) : of(static_cast<std::size_t>(processes)), random(seed) {
    for (Process& process : of) {
      process.sent_by.resize(of.size());
      process.receives_of.resize(of.size());
    }
  }
  void complain(const std::string& text) { complaints.push_back(text); }

  std::mutex mutex;
  std::vector<Process> of;
  std::mt19937_64 random;
  std::vector<std::string> complaints;
  std::string failing;
  int level = MPI_THREAD_SERIALIZED;
};

namespace {

thread_local MpiStandIn::World* current_world = nullptr;
thread_local int current_process = -1;
thread_local unsigned calls = 0;

// A call by the current thread, which must be the only one of its process in MPI.
class Call {
 public:
  explicit Call(const char* name) : name_(name), world_(world()) {
    const bool is_alone = process().callers.fetch_add(1) == 0;
    if (++calls % 16 == 0) std::this_thread::yield();  // so that concurrent calls overlap
    lock_ = std::unique_lock(world_.mutex);
    if (!is_alone) complain("is called while another thread of the process is in MPI");
  }
  ~Call() {
    lock_.unlock();
    process().callers.fetch_sub(1);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] Process& process() const { return of(current_process); }
  [[nodiscard]] Process& of(int process) const {
    return world_.of[static_cast<std::size_t>(process)];
  }
  [[nodiscard]] MpiStandIn::World& world() const {
    if (current_world != nullptr) return *current_world;
    std::fprintf(stderr, "MPI stand-in: %s by a thread that belongs to no process\n", name_);
    std::abort();
  }
  void complain(const std::string& what) const {
    world_.complain(concat(name_, " of process ", current_process, " ", what));
  }
  void needs(bool condition, const std::string& what) const {
    if (!condition) complain(what);
  }
  void needs_start() const {
    needs(process().is_initialized && !process().is_finalized,
          "is called outside MPI_Init_thread and MPI_Finalize");
  }
  [[nodiscard]] bool fails() const { return world_.failing == name_; }

 private:
  const char* const name_;
  MpiStandIn::World& world_;
  std::unique_lock<std::mutex> lock_;
};

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() &&
         b.data() < a.data() + a.size();
}

int begin(const Call& call, Request request, int comm, int type, int tag) {
  call.needs_start();
  call.needs(comm == MPI_COMM_WORLD && type == MPI_BYTE && tag == 0, "has unexpected arguments");
  call.needs(call.process().returns_errors, "would end the program at an error");
  for (const Request& other : call.process().requests)
    if (!other.is_taken && (request.is_receive || other.is_receive))
      call.needs(!overlap(request.data, other.data), "gets memory that a pending request has");
  request.polls = static_cast<int>(call.world().random() % 4);
  call.process().requests.push_back(std::move(request));
  return static_cast<int>(call.process().requests.size());
}

// Delivers messages of `peer` for which there is a receive, in order.
void deliver(const Call& call, int peer) {
  auto& sent = call.process().sent_by[static_cast<std::size_t>(peer)];
  auto& receives = call.process().receives_of[static_cast<std::size_t>(peer)];
  while (!sent.empty() && !receives.empty()) {
    Request& send = call.of(peer).requests[static_cast<std::size_t>(sent.front() - 1)];
    Request& receive = call.process().requests[static_cast<std::size_t>(receives.front() - 1)];
    if (--receive.polls >= 0) return;
    sent.pop_front();
    receives.pop_front();
    call.needs(std::all_of(receive.data.begin(), receive.data.end(),
                           [](std::byte b) { return b == kUntouched; }),
               "finds that memory was written to while it was received into");
    const bool is_buffered = send.copy.size() <= kShort;
    call.needs(is_buffered || std::equal(send.copy.begin(), send.copy.end(), send.data.begin()),
               "finds that memory was written to while it was sent");
    const std::size_t n = std::min(send.copy.size(), receive.data.size());
    if (n != send.copy.size()) receive.error = MPI_ERR_TRUNCATE;
    call.needs(send.copy.size() == receive.data.size(),
               concat("receives ", receive.data.size(), " bytes of ", send.copy.size()));
    std::copy_n(send.copy.begin(), n, receive.data.begin());
    receive.received = static_cast<int>(n);
    receive.is_done = send.is_done = true;
    send.copy = {};
  }
}

}  // namespace

MpiStandIn::MpiStandIn(int processes, std::uint64_t seed)
    : world_(std::make_unique<World>(processes, seed)) {}
MpiStandIn::~MpiStandIn() = default;

MpiStandIn::Thread::Thread(MpiStandIn& mpi, int process) {
  current_world = mpi.world_.get();
  current_process = process;
}
MpiStandIn::Thread::~Thread() { current_world = nullptr; }

std::vector<std::string> MpiStandIn::complaints() const {
  const std::lock_guard lock(world_->mutex);
  return world_->complaints;
}
void MpiStandIn::set_thread_level(int level) { world_->level = level; }
void MpiStandIn::fail(const std::string& call) {
  const std::lock_guard lock(world_->mutex);
  world_->failing = call;
}
bool MpiStandIn::finalized(int process) const {
  const std::lock_guard lock(world_->mutex);
  return world_->of[static_cast<std::size_t>(process)].is_finalized;
}

}  // namespace muo::test

// NOLINTBEGIN(readability-identifier-naming)

using muo::test::Call;
using muo::test::Request;

int MPI_Initialized(int* flag) {
  const Call call("MPI_Initialized");
  *flag = call.process().is_initialized ? 1 : 0;
  return MPI_SUCCESS;
}

int MPI_Init_thread(int*, char***, int required, int* provided) {
  const Call call("MPI_Init_thread");
  call.needs(!call.process().is_initialized, "is called twice");
  if (call.fails()) return MPI_ERR_OTHER;
  call.process().is_initialized = true;
  std::signal(SIGBUS, [](int) {});  // as Open MPI does
  *provided = std::min(required, call.world().level);
  return MPI_SUCCESS;
}

int MPI_Finalize() {
  const Call call("MPI_Finalize");
  call.needs_start();
  call.needs(std::all_of(call.process().requests.begin(), call.process().requests.end(),
                         [](const Request& each) { return each.is_taken; }),
             "leaves requests");
  call.process().is_finalized = true;
  return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm, int* rank) {
  const Call call("MPI_Comm_rank");
  call.needs_start();
  *rank = muo::test::current_process;
  return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm, int* size) {
  const Call call("MPI_Comm_size");
  call.needs_start();
  *size = static_cast<int>(call.world().of.size());
  return MPI_SUCCESS;
}

int MPI_Comm_set_errhandler(MPI_Comm, MPI_Errhandler handler) {
  const Call call("MPI_Comm_set_errhandler");
  call.needs_start();
  call.process().returns_errors = handler == MPI_ERRORS_RETURN;
  return MPI_SUCCESS;
}

int MPI_Error_string(int code, char* text, int* size) {
  *size = std::snprintf(text, MPI_MAX_ERROR_STRING, "the stand-in's error %d", code);
  return MPI_SUCCESS;
}

int MPI_Get_library_version(char* text, int* size) {
  *size = std::snprintf(text, MPI_MAX_LIBRARY_VERSION_STRING, "a stand-in");
  return MPI_SUCCESS;
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const Call call("MPI_Irecv");
  if (call.fails()) return MPI_ERR_OTHER;
  Request made{.is_receive = true,
               .peer = source,
               .data = {static_cast<std::byte*>(data), static_cast<std::size_t>(count)}};
  std::ranges::fill(made.data, muo::test::kUntouched);
  *request = begin(call, std::move(made), comm, type, tag);
  call.process().receives_of[static_cast<std::size_t>(source)].push_back(*request);
  return MPI_SUCCESS;
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int destination, int tag,
              MPI_Comm comm, MPI_Request* request) {
  const Call call("MPI_Isend");
  if (call.fails()) return MPI_ERR_OTHER;
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(data));
  Request made{.peer = destination,
               .data = {bytes, static_cast<std::size_t>(count)},
               .copy = {bytes, bytes + count}};
  made.is_done = made.copy.size() <= muo::test::kShort;
  *request = begin(call, std::move(made), comm, type, tag);
  call.of(destination)
      .sent_by[static_cast<std::size_t>(muo::test::current_process)]
      .push_back(*request);
  return MPI_SUCCESS;
}

int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  const Call call("MPI_Testall");
  call.needs_start();
  if (call.fails()) return MPI_ERR_OTHER;
  for (int peer = 0; peer < static_cast<int>(call.world().of.size()); ++peer)
    deliver(call, peer);
  const std::span<MPI_Request> numbers(requests, static_cast<std::size_t>(count));
  const auto of = [&](MPI_Request number) -> Request& {
    return call.process().requests[static_cast<std::size_t>(number - 1)];
  };
  *flag = std::ranges::all_of(numbers, [&](MPI_Request n) { return of(n).is_done; }) ? 1 : 0;
  if (*flag == 0) return MPI_SUCCESS;
  int code = MPI_SUCCESS;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    Request& request = of(numbers[i]);
    request.is_taken = true;
    statuses[i] = {.MPI_SOURCE = request.peer,
                   .MPI_TAG = 0,
                   .MPI_ERROR = request.error,
                   .bytes = request.received};
    if (request.error != MPI_SUCCESS) code = MPI_ERR_IN_STATUS;
    numbers[i] = MPI_REQUEST_NULL;
  }
  return code;
}

int MPI_Get_count(const MPI_Status* status, MPI_Datatype, int* count) {
  *count = status->bytes;
  return MPI_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
