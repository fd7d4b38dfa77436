#include "emulator/kernel_name.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

namespace muo::simt {
namespace {

using File = std::span<const char>;

// The contents of a loaded file; it stays mapped, as libraries with kernels stay loaded.
File contents(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, File> files;
  const std::lock_guard lock(mutex);
  const auto [found, added] = files.try_emplace(path);
  if (!added) return found->second;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file >= 0 && fstat(file, &status) == 0) {
    const auto size = static_cast<std::size_t>(status.st_size);
    void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (memory != MAP_FAILED) found->second = {static_cast<const char*>(memory), size};
  }
  if (file >= 0) close(file);
  return found->second;
}

template <class T>
T at(File file, std::uint64_t offset) {
  T out{};
  if (offset + sizeof(T) <= file.size()) std::memcpy(&out, file.data() + offset, sizeof(T));
  return out;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

// Calls body(name, address in the file) for every function of the file's symbol table.
template <class Body>
void for_functions(File file, const Body& body) {
  const auto header = at<Elf64_Ehdr>(file, 0);
  const auto section = [&](std::uint64_t i) {
    return at<Elf64_Shdr>(file, header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr table = section(i);
    if (table.sh_type != SHT_SYMTAB) continue;
    const Elf64_Shdr names = section(table.sh_link);
    for (std::uint64_t k = 0; k < table.sh_size / sizeof(Elf64_Sym); ++k) {
      const auto symbol = at<Elf64_Sym>(file, table.sh_offset + k * sizeof(Elf64_Sym));
      const std::uint64_t name = names.sh_offset + symbol.st_name;
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && name < file.size())
        body(file.data() + name, symbol.st_value);
    }
  }
}

// The file of a function, and its base address in memory.
struct Loaded {
  File file;
  const char* base = nullptr;
};
Loaded file_of(const void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0) return {};
  // An executable's name may be a relative path; /proc/self/exe always works.
  const bool library = std::strstr(info.dli_fname, ".so") != nullptr;
  return {contents(library ? info.dli_fname : "/proc/self/exe"),
          static_cast<const char*>(info.dli_fbase)};
}

}  // namespace

// dladdr() finds exported functions only, but kernels are in unnamed namespaces.
std::string kernel_name(const void* function) {
  const Loaded loaded = file_of(function);
  std::string out = "?";
  for_functions(loaded.file, [&](const char* name, std::uint64_t address) {
    if (loaded.base + address == function) out = demangled(name);
  });
  return out;
}

std::vector<NamedFunction> functions_beside(const void* function) {
  const Loaded loaded = file_of(function);
  std::vector<NamedFunction> out;
  for_functions(loaded.file, [&](const char* name, std::uint64_t address) {
    const std::string_view mangled = name;
    if (mangled.starts_with("_ZN3muo4cuda") || mangled.starts_with("_ZN3muo4nccl") ||
        mangled.starts_with("_ZN3muo4peer"))
      out.push_back({loaded.base + address, name, demangled(name)});
  });
  return out;
}

}  // namespace muo::simt
