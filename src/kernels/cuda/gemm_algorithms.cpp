#include "kernels/cuda/gemm_algorithms.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/strict_json.h"
#include "kernels/gemm.h"

namespace muo::cuda {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "muograph-gemm-algorithms";
constexpr int kVersion = 1;

std::string hex(std::uint64_t word) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(word));
  return std::string("0x") + digits.data();
}

std::uint64_t from_hex(const std::string& text) {
  std::uint64_t word = 0;
  const char* end = text.data() + text.size();
  const bool prefixed = text.starts_with("0x");
  const auto [rest, error] = std::from_chars(text.data() + (prefixed ? 2 : 0), end, word, 16);
  if (!prefixed || error != std::errc{} || rest != end)
    throw InputError("'" + text + "' is not a hexadecimal word such as 0x000000000000001f");
  return word;
}

// Returns an exact integer, without conversion from floating point.
std::int64_t integer(const json& value) {
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::int64_t>() < 0))
    throw InputError(value.dump() + " is not a 64-bit integer");
  return value.get<std::int64_t>();
}

json to_json(const std::string& problem, const GemmAlgorithm& algorithm) {
  json out = {{"problem", problem}, {"microseconds", algorithm.microseconds}};
  for (std::size_t i = 0; i < algorithm.attributes.size(); ++i)
    out[std::string(GemmAlgorithm::kAttributes[i])] = algorithm.attributes[i];
  for (const std::uint64_t word : algorithm.words)
    out["words"].push_back(hex(word));
  return out;
}

GemmAlgorithm from_json(const json& entry) {
  GemmAlgorithm out;
  for (std::size_t i = 0; i < out.attributes.size(); ++i)
    out.attributes[i] = integer(entry.at(std::string(GemmAlgorithm::kAttributes[i])));
  const json& words = entry.at("words");
  if (words.size() != out.words.size())
    throw InputError(concat(words.size(), " words, expected ", out.words.size()));
  for (std::size_t i = 0; i < out.words.size(); ++i)
    out.words[i] = from_hex(words.at(i).get<std::string>());
  out.microseconds = entry.at("microseconds").get<double>();
  return out;
}

struct Table {
  GemmEnvironment environment;
  std::map<std::string, GemmAlgorithm> by_problem;
};

Table parse(const json& root) {
  if (root.at("format").get<std::string>() != kFormat)
    throw InputError(concat("its format is not ", kFormat));
  if (const std::int64_t version = integer(root.at("version")); version != kVersion)
    throw InputError(concat("version ", version, ", expected ", kVersion));
  Table out{{integer(root.at("library")), root.at("gpu").get<std::string>()}, {}};
  for (const json& entry : root.at("algorithms")) {
    const auto problem = entry.at("problem").get<std::string>();
    if (!out.by_problem.emplace(problem, from_json(entry)).second)
      throw InputError("duplicate entry: " + problem);
  }
  return out;
}

Table parse_table(const std::string& text, const std::string& what) {
  try {
    return parse(parse_strict_json(text, "the file"));
  } catch (const json::exception& e) {
    throw InputError(what + ": not a table of GEMM algorithms: " + e.what());
  } catch (const InputError& e) {
    throw InputError(what + ": not a table of GEMM algorithms: " + e.what());
  }
}

Table read(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw InputError(path.string() + ": cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_table(text.str(), path.string());
}

std::string text_of(const GemmEnvironment& e) {
  return concat("cuBLASLt ", e.library, " on ", e.gpu);
}

}  // namespace

void GemmAlgorithms::load(const std::filesystem::path& path, const GemmEnvironment& here) {
  Table table = read(path);
  if (table.environment != here)
    throw InputError(concat(path.string(), ": measured with ", text_of(table.environment),
                            ", but this is ", text_of(here),
                            ": give another file, or one that does not exist yet"));
  const std::lock_guard lock(mutex_);
  environment_ = std::move(table.environment);
  by_problem_ = std::move(table.by_problem);
  measured_ = 0;
}

void GemmAlgorithms::use(const GemmTableUse& use, const GemmEnvironment& here) {
  {
    const std::lock_guard lock(mutex_);
    if (measuring_ && used_ == use.path) return;  // this process already uses it
  }
  std::error_code unreachable;  // treated like a missing file
  if (!use.fresh && std::filesystem::exists(use.path, unreachable)) load(use.path, here);
  const std::lock_guard lock(mutex_);
  used_ = use.path;
  measuring_ = true;
  required_ = use.required;
}

std::size_t GemmAlgorithms::save_if_grown(const std::filesystem::path& path) {
  static std::mutex one_at_a_time;
  const std::lock_guard writing(one_at_a_time);
  std::size_t measured = 0;
  {
    const std::lock_guard lock(mutex_);
    measured = std::exchange(measured_, 0);
    if (measured == 0) return 0;
    try {
      if (Table there = read(path); there.environment == environment_)
        by_problem_.merge(there.by_problem);  // existing entries have priority
    } catch (const InputError&) {             // a missing or malformed file is replaced
    }
  }
  save(path);
  return measured;
}

void GemmAlgorithms::save(const std::filesystem::path& path) const { replace_file(path, text()); }

std::string GemmAlgorithms::text() const {
  json root = {{"format", kFormat}, {"version", kVersion}, {"algorithms", json::array()}};
  {
    const std::lock_guard lock(mutex_);
    root["library"] = environment_.library;
    root["gpu"] = environment_.gpu;
    for (const auto& [problem, algorithm] : by_problem_)
      root["algorithms"].push_back(to_json(problem, algorithm));
  }
  return root.dump(1) + '\n';
}

bool GemmAlgorithms::adopt(const std::string& text, const GemmEnvironment& here) {
  Table table = parse_table(text, "another process' table");
  if (table.environment != here) return table.by_problem.empty();
  const std::lock_guard lock(mutex_);
  environment_ = here;
  for (auto& [problem, algorithm] : table.by_problem)
    by_problem_.insert_or_assign(problem, algorithm);
  ++adoptions_;
  return true;
}

std::optional<GemmAlgorithm> GemmAlgorithms::find(const GemmEnvironment& here,
                                                  const std::string& problem) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_problem_.find(problem);
  if (found == by_problem_.end() || environment_ != here) return std::nullopt;
  return found->second;
}

bool GemmAlgorithms::record(const GemmEnvironment& here, const std::string& problem,
                            const GemmAlgorithm& algorithm) {
  const std::lock_guard lock(mutex_);
  if (by_problem_.empty()) environment_ = here;
  if (environment_ != here) return false;
  by_problem_[problem] = algorithm;
  ++measured_;
  return true;
}

std::size_t GemmAlgorithms::size() const {
  const std::lock_guard lock(mutex_);
  return by_problem_.size();
}

void GemmAlgorithms::set_measuring(bool on) {
  const std::lock_guard lock(mutex_);
  measuring_ = on;
}

bool GemmAlgorithms::measuring() const {
  const std::lock_guard lock(mutex_);
  return measuring_;
}

bool GemmAlgorithms::must_measure() const {
  const std::lock_guard lock(mutex_);
  return required_;
}

GemmAlgorithms& gemm_algorithms() {
  static GemmAlgorithms algorithms;
  return algorithms;
}

int measuring_repeats(float once_ms) {
  constexpr float kShortestMs = 1.0F, kMax = 100.0F;
  return static_cast<int>(std::clamp(kShortestMs / std::max(once_ms, 1e-3F), 1.0F, kMax));
}

void offer_gemm_table(GemmEnvironment (*here)()) {
  static GemmEnvironment (*environment)() = nullptr;
  environment = here;
  register_gemm_backend(
      {.use_table = [](const GemmTableUse& use) { gemm_algorithms().use(use, environment()); },
       .save_table =
           [](const std::filesystem::path& path) { return gemm_algorithms().save_if_grown(path); },
       .environment = [] { return text_of(environment()); },
       .table_text = [] { return gemm_algorithms().text(); },
       .adopt_table =
           [](const std::string& text) { return gemm_algorithms().adopt(text, environment()); }});
}

}  // namespace muo::cuda
