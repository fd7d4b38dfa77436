#include "emulator/shared_memory.h"

#include <link.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "emulator/sanitizers.h"
#include "emulator/types.h"

#ifdef __SANITIZE_ADDRESS__
#  include <sanitizer/asan_interface.h>
#endif

namespace muo::simt {
namespace {

struct DynamicArray {
  std::byte* (*address_of)();  // returns the address of the calling thread's copy
  std::size_t capacity;
};
std::vector<DynamicArray>& dynamic_arrays() {
  static std::vector<DynamicArray> arrays;
  return arrays;
}

// A search among loaded files for the one that contains `function`.
struct Search {
  std::uintptr_t function;
  std::span<std::byte> found;
};

int visit_file(dl_phdr_info* file, std::size_t /*size*/, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  bool holds_function = false;
  std::size_t bytes = 0;
  for (const ElfW(Phdr) & segment : std::span(file->dlpi_phdr, file->dlpi_phnum)) {
    const std::uintptr_t begin = file->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && begin <= search.function &&
        search.function < begin + segment.p_memsz)
      holds_function = true;
    if (segment.p_type == PT_TLS) bytes = segment.p_memsz;
  }
  if (!holds_function) return 0;
  if (file->dlpi_tls_data != nullptr)
    search.found = {static_cast<std::byte*>(file->dlpi_tls_data), bytes};
  return 1;
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// The parts of `whole` outside of `kept`.
std::vector<std::span<std::byte>> gaps(std::span<std::byte> whole,
                                       std::vector<std::span<std::byte>> kept) {
  std::ranges::sort(kept, {}, [](auto part) { return part.data(); });
  std::vector<std::span<std::byte>> out;
  std::byte* begin = whole.data();
  std::byte* const end = begin + whole.size();
  for (const std::span<std::byte> part : kept) {
    if (part.data() < whole.data() || part.data() >= end) continue;
    out.emplace_back(begin, part.data());
    begin = part.data() + part.size();
  }
  out.emplace_back(begin, end);
  return out;
}

}  // namespace

void fill_with_ones(std::span<std::byte> bytes) {
  void* to = bytes.data();
  std::size_t count = bytes.size();
  asm volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0xFF) : "memory");
}

DynamicShared::DynamicShared(std::byte* (*address_of)(), std::size_t capacity) {
  dynamic_arrays().push_back({address_of, capacity});
}

SharedMemory::SharedMemory(const void* kernel, std::size_t dynamic_bytes) {
  MUO_CHECK(dynamic_bytes <= sizeof(SharedBytes), dynamic_bytes,
            " bytes of shared memory, expected at most ", sizeof(SharedBytes));
  std::vector<std::span<std::byte>> kept = {bytes_of(threadIdx), bytes_of(blockIdx),
                                            bytes_of(blockDim), bytes_of(gridDim),
                                            scheduler_state()};
  for (const DynamicArray& array : dynamic_arrays()) {
    kept.emplace_back(array.address_of(), array.capacity);
    parts_.push_back(kept.back().first(dynamic_bytes));
#ifdef __SANITIZE_ADDRESS__
    // The array ends after the launch's bytes.
    ASAN_POISON_MEMORY_REGION(array.address_of() + dynamic_bytes, array.capacity - dynamic_bytes);
#endif
  }
  Search search{reinterpret_cast<std::uintptr_t>(kernel), {}};
  dl_iterate_phdr(&visit_file, &search);
  const std::vector<std::span<std::byte>> statics = gaps(search.found, std::move(kept));
  parts_.insert(parts_.end(), statics.begin(), statics.end());
}

SharedMemory::~SharedMemory() {  // NOLINT(modernize-use-equals-default): not with a sanitizer
#ifdef __SANITIZE_ADDRESS__
  for (const DynamicArray& array : dynamic_arrays())
    ASAN_UNPOISON_MEMORY_REGION(array.address_of(), array.capacity);
#endif
}

void SharedMemory::fill_with_nans() {
  for (const std::span<std::byte> part : parts_)
    fill_with_ones(part);
}

}  // namespace muo::simt
