#include "trainer/run/tuning.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/strict_json.h"
#include "kernels/gemm.h"

namespace muo::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "products-";

// "products-cublaslt-130100-on-nvidia-h100-80gb-hbm3-132-multiprocessors.json"
std::string file_name(std::string_view environment) {
  std::string out;
  for (const char c : environment) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0)
      out += static_cast<char>(std::tolower(byte));
    else if (!out.empty() && out.back() != '-')
      out += '-';
  }
  while (out.ends_with('-'))
    out.pop_back();
  return std::string(kPrefix) + out + ".json";
}

}  // namespace

fs::path cache_folder() {
  const auto value = [](const char* name) -> fs::path {
    const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    return text == nullptr ? "" : text;
  };
  // The XDG base directory specification requires ignoring a path that is not absolute.
  if (const fs::path cache = value("XDG_CACHE_HOME"); cache.is_absolute())
    return cache / "muograph";
  if (const fs::path home = value("HOME"); home.is_absolute()) return home / ".cache/muograph";
  return {};
}

Tuning::Tuning(const RunConfig& config)
    : is_on_(config.tune != Tune::kOff || !config.options.numbers.gemm_table.empty()),
      is_required_(!config.options.numbers.gemm_table.empty()) {
  if (is_required_) {
    path_ = config.options.numbers.gemm_table;
    use_gemm_table({.path = path_});
    return;
  }
  if (config.tune == Tune::kOff) return;
  const fs::path folder = cache_folder();
  if (folder.empty()) {
    notes_.emplace_back(
        "tune: off: neither XDG_CACHE_HOME nor HOME is set, so there is no cache folder");
    return;
  }
  path_ = folder / file_name(gemm_environment());
  const GemmTableUse use{.path = path_, .fresh = config.tune == Tune::kNow, .required = false};
  try {
    use_gemm_table(use);
  } catch (const InputError& error) {
    notes_.push_back(fmt::format("tune: {}: measuring again", error.what()));
    std::error_code ignored;
    fs::remove(path_, ignored);
    use_gemm_table({.path = path_, .fresh = true, .required = false});
  }
}

void Tuning::keep() {
  if (path_.empty()) return;
  std::error_code ignored;
  if (!is_required_) fs::create_directories(path_.parent_path(), ignored);
  try {
    if (const std::size_t measured = save_gemm_table(path_); measured > 0)
      notes_.push_back(fmt::format("tune: measured {} products: {}", measured, path_.string()));
  } catch (const Error& error) {
    if (is_required_) throw;
    notes_.push_back(fmt::format("tune: {}: the next run will measure again", error.what()));
  }
}

void Tuning::agree(ProcessGroup* processes) {
  constexpr const char* kSite = "the agreement on products";
  if (processes == nullptr || !is_on_) return;
  const std::vector<std::string> all = processes->gather(Channel::kRun, kSite, gemm_table_text());
  const std::string agreed = processes->broadcast(Channel::kRun, kSite, [&] {
    for (auto text = all.rbegin(); text != all.rend();
         ++text)  // process 0's is last, so that it takes precedence
      if (!adopt_gemm_table(*text))
        throw InputError(fmt::format(
            "--tune: {} has another GPU or cuBLASLt than process 0, so their algorithms "
            "cannot be the same: give --tune off",
            processes->describe(static_cast<int>(all.rend() - text) - 1)));
    return gemm_table_text();
  });
  if (!processes->is_first() && !adopt_gemm_table(agreed))
    throw InputError("--tune: process 0 has another GPU or cuBLASLt: give --tune off");
}

std::vector<std::string> Tuning::take_notes() { return std::exchange(notes_, {}); }

std::vector<std::string> describe_tuning() {
  std::vector<std::string> out;
  const fs::path folder = cache_folder();
  for (const fs::path& file : entries_of(folder)) {
    if (!file.filename().string().starts_with(kPrefix) || file.extension() != ".json") continue;
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    const nlohmann::json table = try_strict_json(text.str());
    const auto known = table.is_object() ? table.find("algorithms") : table.end();
    out.push_back(known == table.end() || !known->is_array()
                      ? fmt::format("{}: unreadable; the next run will replace it", file.string())
                      : fmt::format("{} products in {}", known->size(), file.string()));
  }
  std::ranges::sort(out);
  if (out.empty()) out.push_back(fmt::format("none yet in {}", folder.string()));
  return out;
}

}  // namespace muo::trainer
