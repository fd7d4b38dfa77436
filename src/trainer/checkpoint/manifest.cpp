#include "trainer/checkpoint/manifest.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/file_bytes.h"
#include "base/strict_json.h"
#include "trainer/options/option_table.h"

namespace muo::trainer {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kFormat = "muograph-checkpoint";
constexpr std::int64_t kVersion = 1;
constexpr std::string_view kChecksumKey = "\"checksum\": \"";  // as dump(1) writes it
constexpr std::size_t kDigits = 16;
constexpr double kMaxTrained = 0x1p60;  // tokens, far below an overflow

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::uint64_t text_checksum(std::string text, std::size_t digits_at) {
  text.replace(digits_at, kDigits, kDigits, '0');
  return tensor_checksum(DType::kBytes, 0, std::as_bytes(std::span(text)));
}

json object_of(const std::string& text, const char* what) {
  json value = json::parse(text, nullptr, false);
  MUO_CHECK(value.is_object(), what, " of a checkpoint is not a JSON object: ", text);
  return value;
}

ordered_json json_of(const RunningMoments& moments) {
  return {{"count", moments.count}, {"mean", moments.mean}, {"variance", moments.variance}};
}

ordered_json json_of(const BudgetClock& clock) {
  return {{"budget", clock.budget},
          {"spent", clock.spent},
          {"from", clock.pace.from},
          {"position", clock.pace.position},
          {"per_step", clock.pace.per_step}};
}

// Reads values of known types; error messages begin with `where`.
class Reader {
 public:
  Reader(const json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value_.is_object()) fail("is not an object");
  }

  [[nodiscard]] const json& at(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) fail(concat("lacks \"", key, "\""));
    return *found;
  }
  [[nodiscard]] std::int64_t count(const char* key) const {
    const json& value = at(key);
    if (!value.is_number_unsigned() || value.get<std::int64_t>() < 0)
      fail(concat("has a \"", key, "\" that is not a count"));
    return value.get<std::int64_t>();
  }
  [[nodiscard]] std::uint64_t unsigned_integer(const char* key) const {
    if (!at(key).is_number_unsigned()) fail(concat("has a \"", key, "\" that is not a number"));
    return at(key).get<std::uint64_t>();
  }
  [[nodiscard]] double real(const char* key) const {
    if (!at(key).is_number()) fail(concat("has a \"", key, "\" that is not a number"));
    return at(key).get<double>();
  }
  [[nodiscard]] RunningMoments moments(const char* key) const {
    const Reader values(at(key), concat(where_, ": \"", key, "\""));
    return {.count = values.count("count"),
            .mean = values.real("mean"),
            .variance = values.real("variance")};
  }
  [[nodiscard]] BudgetClock clock(const char* key) const {
    const Reader values(at(key), concat(where_, ": \"", key, "\""));
    const BudgetClock clock{.budget = values.real("budget"),
                            .spent = values.real("spent"),
                            .pace = {.from = values.count("from"),
                                     .position = values.real("position"),
                                     .per_step = values.real("per_step")}};
    if (clock.pace.position < 0 || clock.pace.position > 1 || clock.pace.per_step < 0)
      values.fail("has a position outside of 0 to 1");
    return clock;
  }
  [[nodiscard]] std::string text(const char* key) const {
    if (!at(key).is_string()) fail(concat("has a \"", key, "\" that is not a string"));
    return at(key).get<std::string>();
  }
  [[nodiscard]] std::string object_text(const char* key) const {
    if (!at(key).is_object()) fail(concat("has a \"", key, "\" that is not an object"));
    return at(key).dump();
  }
  [[nodiscard]] std::uint64_t checksum(const char* key) const {
    const std::string digits = text(key);
    if (digits.size() != kDigits ||
        digits.find_first_not_of("0123456789abcdef") != std::string::npos)
      fail(concat("has a \"", key, "\" that is not 16 hex digits"));
    return std::stoull(digits, nullptr, 16);
  }
  [[nodiscard]] Shape shape(const char* key) const {
    const json& value = at(key);
    const bool ok =
        value.is_array() && value.size() <= 4 && std::ranges::all_of(value, [](const json& extent) {
          return extent.is_number_unsigned() && extent.get<std::int64_t>() >= 0;
        });
    if (!ok) fail(concat("has a \"", key, "\" that is not a shape"));
    return shape_of(value.get<std::vector<std::int64_t>>());
  }
  [[nodiscard]] DType dtype(const char* key) const {
    const std::string name = text(key);
    if (const auto dtype = value_of<DType>(name); dtype && *dtype != DType::kU16) return *dtype;
    fail(concat("has the unknown dtype ", json(name).dump()));
  }
  [[noreturn]] void fail(const std::string& reason) const {
    throw InputError(concat(where_, " ", reason));
  }

 private:
  const json& value_;
  std::string where_;
};

template <class Bits>
std::uint64_t sum(std::uint64_t begin, std::span<const std::byte> bytes) {
  constexpr std::uint64_t kGamma = 0x9E3779B97F4A7C15;
  std::uint64_t state = begin * kGamma;
  std::uint64_t total = 0;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof(Bits));
    state += kGamma;
    std::uint64_t z = state + bits;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    total += z ^ (z >> 31);
  }
  return total;
}

template <class Bits>
bool has_exponent_of_ones(Bits mask, std::span<const std::byte> bytes) {
  bool found = false;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof(Bits));
    found |= (bits & mask) == mask;
  }
  return found;
}

}  // namespace

std::size_t checkpoint_file_of(std::string_view tensor) {
  for (const std::string_view suffix : {".momentum", ".variance", ".adam_m", ".adam_v"})
    if (tensor.ends_with(suffix)) return 1;
  return 0;
}

std::string manifest_text(const Manifest& manifest) {
  const CheckpointInfo& info = manifest.info;
  ordered_json files;
  for (std::size_t f = 0; f < kCheckpointFiles.size(); ++f) {
    const ManifestFile& file = manifest.files[f];
    ordered_json tensors = ordered_json::array();
    for (std::size_t i = 0; i < file.tensors.size(); ++i) {
      const SafetensorsSpec& spec = file.tensors[i];
      tensors.push_back({{"name", spec.name},
                         {"dtype", name_of(spec.dtype)},
                         {"shape", extents_of(spec.shape)},
                         {"checksum", hex(file.checksums.at(i))}});
    }
    files[kCheckpointFiles[f]] = {{"bytes", file.bytes},
                                  {"head_checksum", hex(file.head_checksum)},
                                  {"tensors", std::move(tensors)}};
  }
  ordered_json value = {{"format", kFormat},
                        {"version", kVersion},
                        {"checksum", hex(0)},
                        {"written_by", info.version},
                        {"step", info.step},
                        {"updates", info.updates},
                        {"seed", info.seed},
                        {"rows", info.rows.value_or(0)},
                        {"tokens", info.tokens},
                        {"world", info.world},
                        {"loss_statistics",
                         {{"loss", json_of(info.statistics.loss)},
                          {"grad_norm", json_of(info.statistics.grad_norm)}}},
                        {"time_budget", json_of(info.clock.value_or(BudgetClock{}))},
                        {"data", object_of(info.data, "the data description")},
                        {"config", object_of(info.config, "the configuration")},
                        {"files", std::move(files)}};
  if (!info.clock) value.erase("time_budget");
  if (!info.rows) value.erase("rows");  // as version 0.1.0 wrote it
  std::string text = value.dump(1) + "\n";
  const std::size_t digits_at = text.find(kChecksumKey) + kChecksumKey.size();
  text.replace(digits_at, kDigits, hex(text_checksum(text, digits_at)));
  return text;
}

std::string config_file_text(const CheckpointInfo& info) {
  return object_of(info.config, "the configuration").dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::filesystem::path& path) {
  const std::string where = path.string();
  const json value = parse_strict_json(text, where);
  const Reader top(value, where);
  if (top.text("format") != kFormat) top.fail("is not the manifest of a checkpoint");
  if (const std::int64_t version = top.count("version"); version != kVersion)
    top.fail(concat("has format version ", version, "; this program reads version ", kVersion));
  const std::size_t key_at = text.find(kChecksumKey);
  if (key_at == std::string_view::npos || text.size() < key_at + kChecksumKey.size() + kDigits ||
      top.checksum("checksum") != text_checksum(std::string(text), key_at + kChecksumKey.size()))
    top.fail("does not match its own checksum: it is damaged or was edited");

  Manifest manifest;
  manifest.info = {.step = top.count("step"),
                   .updates = top.count("updates"),
                   .seed = top.unsigned_integer("seed"),
                   .rows = value.contains("rows") ? std::optional(top.count("rows")) : std::nullopt,
                   .tokens = top.count("tokens"),
                   .data = top.object_text("data"),
                   .config = top.object_text("config"),
                   .world = static_cast<int>(std::min<std::int64_t>(top.count("world"), 1 << 20)),
                   .version = top.text("written_by")};
  const Reader statistics(top.at("loss_statistics"), where + ": \"loss_statistics\"");
  manifest.info.statistics = {.loss = statistics.moments("loss"),
                              .grad_norm = statistics.moments("grad_norm")};
  if (value.contains("time_budget")) manifest.info.clock = top.clock("time_budget");
  if (manifest.info.updates > manifest.info.step) top.fail("has more updates than steps");
  if (manifest.info.rows > manifest.info.tokens) top.fail("has more rows than tokens");
  check_range({0, kMaxTrained}, static_cast<double>(manifest.info.tokens), where + ": tokens",
              std::to_string(manifest.info.tokens));
  check_range({0, kMaxSteps}, static_cast<double>(manifest.info.step), where + ": step",
              std::to_string(manifest.info.step));

  const Reader files(top.at("files"), where + ": \"files\"");
  for (std::size_t f = 0; f < kCheckpointFiles.size(); ++f) {
    const Reader entry(files.at(kCheckpointFiles[f]), concat(where, ": ", kCheckpointFiles[f]));
    ManifestFile& file = manifest.files[f];
    file.bytes = entry.count("bytes");
    file.head_checksum = entry.checksum("head_checksum");
    if (!entry.at("tensors").is_array()) entry.fail("has \"tensors\" that are not a list");
    for (const json& item : entry.at("tensors")) {
      const Reader tensor(
          item, concat(where, ": tensor ", file.tensors.size(), " of ", kCheckpointFiles[f]));
      file.tensors.push_back({.name = tensor.text("name"),
                              .dtype = tensor.dtype("dtype"),
                              .shape = tensor.shape("shape")});
      file.checksums.push_back(tensor.checksum("checksum"));
    }
  }
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& path) {
  return parse_manifest(FileBytes(path).text(), path);
}

bool all_finite(DType dtype, std::span<const std::byte> bytes) {
  if (dtype == DType::kF32) return !has_exponent_of_ones<std::uint32_t>(0x7F800000, bytes);
  if (dtype == DType::kBF16) return !has_exponent_of_ones<std::uint16_t>(0x7F80, bytes);
  return true;
}

std::uint64_t tensor_checksum(DType dtype, std::int64_t begin, std::span<const std::byte> bytes) {
  const auto first = static_cast<std::uint64_t>(begin);
  switch (size_of(dtype)) {
    case 8:
      return sum<std::uint64_t>(first, bytes);
    case 4:
      return sum<std::uint32_t>(first, bytes);
    case 2:
      return sum<std::uint16_t>(first, bytes);
    default:
      return sum<std::uint8_t>(first, bytes);
  }
}

}  // namespace muo::trainer
