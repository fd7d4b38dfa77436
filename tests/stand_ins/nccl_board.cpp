#include "stand_ins/nccl_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <utility>

namespace muo::nccl {
namespace {

// The contents of a unique id.
struct Address {
  std::uint64_t number;
  pid_t maker;
  int descriptor;
};
static_assert(sizeof(Address) <= sizeof(UniqueId));

Address address_in(const UniqueId& id) {
  Address address{};
  std::memcpy(&address, id.bytes, sizeof address);
  return address;
}

// Derived from the time, as an earlier process may have had the same pid.
std::uint64_t next_number() {
  static std::atomic<std::uint64_t> next =
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return ++next;
}

void* map(int file) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

SharedMutex::SharedMutex() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex_, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

void SharedMutex::lock() {
  if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
}

void SharedMutex::unlock() { pthread_mutex_unlock(&mutex_); }

std::unique_ptr<SharedBoard> SharedBoard::make(UniqueId& id) {
  const int descriptor = memfd_create("a stand-in's NCCL", MFD_CLOEXEC);
  void* memory = ftruncate(descriptor, sizeof(Board)) == 0 ? map(descriptor) : nullptr;
  if (memory == nullptr) {
    if (descriptor >= 0) ::close(descriptor);
    return nullptr;
  }
  auto* board = new (memory) Board;
  const Address address{.number = next_number(), .maker = getpid(), .descriptor = descriptor};
  board->number = address.number;
  std::memcpy(id.bytes, &address, sizeof address);
  return std::unique_ptr<SharedBoard>(new SharedBoard(board, descriptor));
}

std::unique_ptr<SharedBoard> SharedBoard::open(const UniqueId& id) {
  const Address address = address_in(id);
  const std::string path =
      "/proc/" + std::to_string(address.maker) + "/fd/" + std::to_string(address.descriptor);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* memory = map(file);
  ::close(file);
  if (memory == nullptr) return nullptr;
  std::unique_ptr<SharedBoard> board(new SharedBoard(static_cast<Board*>(memory), -1));
  return (*board)->number == address.number ? std::move(board) : nullptr;
}

SharedBoard::~SharedBoard() {
  close_descriptor();
  munmap(board_, sizeof(Board));
}

void SharedBoard::close_descriptor() {
  if (const int descriptor = std::exchange(descriptor_, -1); descriptor >= 0) ::close(descriptor);
}

std::uint64_t number_of(const UniqueId& id) { return address_in(id).number; }

}  // namespace muo::nccl
