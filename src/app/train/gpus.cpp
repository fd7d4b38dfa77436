#include "app/train/gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

namespace muo {
namespace {

namespace fs = std::filesystem;

// -1: not a number. nvidiactl and nvidia-uvm are there without a GPU too.
int whole_number(std::string_view text) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 0 ? number : -1;
}

std::string_view value_of(std::string_view line, std::string_view key) {
  if (!line.starts_with(key)) return {};
  const std::size_t begin = line.find_first_not_of(" \t", key.size());
  return begin == std::string_view::npos ? std::string_view() : line.substr(begin);
}

template <class Function>
void for_each_entry(const fs::path& folder, Function&& function) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    function(entry->path());
}

}  // namespace

std::vector<Gpu> gpus_here() {
  const char* const elsewhere = std::getenv("MUO_GPU_ROOT");  // NOLINT(concurrency-mt-unsafe)
  const fs::path root = elsewhere != nullptr && *elsewhere != '\0' ? elsewhere : "/";
  std::map<int, Gpu> by_number;
  for_each_entry(root / "dev", [&](const fs::path& file) {
    const std::string name = file.filename();
    if (!name.starts_with("nvidia")) return;
    const int number = whole_number(std::string_view(name).substr(6));
    if (number >= 0) by_number[number].device = "/dev/" + name;
  });
  std::vector<Gpu> out;
  for_each_entry(root / "proc/driver/nvidia/gpus", [&](const fs::path& folder) {
    std::ifstream in(folder / "information");
    std::string model;
    int number = -1;
    for (std::string line; std::getline(in, line);) {
      if (const auto text = value_of(line, "Model:"); !text.empty()) model = text;
      if (const auto text = value_of(line, "Device Minor:"); !text.empty())
        number = whole_number(text);
    }
    if (number >= 0)
      by_number[number].model = std::move(model);
    else
      out.push_back({.device = {}, .model = std::move(model)});
  });
  for (auto& [number, gpu] : by_number)
    out.push_back(std::move(gpu));
  return out;
}

std::string gpu_names(const std::vector<Gpu>& gpus) {
  std::string out;
  for (auto first = gpus.begin(); first != gpus.end();) {
    const auto last =
        std::find_if(first, gpus.end(), [&](const Gpu& gpu) { return gpu.model != first->model; });
    std::vector<std::string> devices;
    for (auto gpu = first; gpu != last; ++gpu)
      if (!gpu->device.empty()) devices.push_back(gpu->device);
    if (!out.empty()) out += ", ";
    if (last - first > 1) out += fmt::format("{} x ", last - first);
    out += first->model.empty() ? "NVIDIA GPU" : first->model;
    if (!devices.empty()) out += fmt::format(" ({})", fmt::join(devices, ", "));
    first = last;
  }
  return out;
}

}  // namespace muo
