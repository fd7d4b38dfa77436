#include "support/golden.h"

#include <cstring>

#include "base/check.h"

namespace muo::test {
namespace {

template <class Out, class In>
std::vector<Out> convert(std::span<const std::byte> bytes) {
  std::vector<Out> out(bytes.size() / sizeof(In));
  for (std::size_t i = 0; i < out.size(); ++i) {
    In value;
    std::memcpy(&value, bytes.data() + i * sizeof(In), sizeof(In));
    out[i] = static_cast<Out>(value);
  }
  return out;
}

}  // namespace

template <class Out, class Narrow, class Wide>
std::vector<Out> Golden::values(std::string_view name) const {
  const trainer::SafetensorsEntry& found = entry(name);
  const DType dtype = found.spec.dtype;
  MUO_CHECK(dtype == dtype_of<Narrow> || dtype == dtype_of<Wide>, name, " has dtype ",
            name_of(dtype));
  const std::span<const std::byte> bytes = file_.bytes(found);
  return dtype == dtype_of<Narrow> ? convert<Out, Narrow>(bytes) : convert<Out, Wide>(bytes);
}

std::vector<std::string> Golden::names() const {
  std::vector<std::string> out;
  for (const trainer::SafetensorsEntry& item : file_.entries())
    out.push_back(item.spec.name);
  return out;
}

std::vector<float> Golden::floats(std::string_view name) const {
  return values<float, float, double>(name);
}

std::vector<double> Golden::doubles(std::string_view name) const {
  return values<double, float, double>(name);
}

std::vector<std::int64_t> Golden::integers(std::string_view name) const {
  return values<std::int64_t, std::int32_t, std::int64_t>(name);
}

bool Golden::has_metadata(const std::string& key) const { return file_.metadata().contains(key); }

const std::string& Golden::metadata(const std::string& key) const {
  MUO_CHECK(has_metadata(key), file_.path().string(), " has no metadata ", key);
  return file_.metadata().at(key);
}

std::int64_t Golden::metadata_integer(const std::string& key) const {
  return std::stoll(metadata(key));
}

double Golden::metadata_double(const std::string& key) const { return std::stod(metadata(key)); }

const trainer::SafetensorsEntry& Golden::entry(std::string_view name) const {
  const trainer::SafetensorsEntry* const found = file_.find(name);
  MUO_CHECK(found != nullptr, file_.path().string(), " has no tensor ", name);
  return *found;
}

}  // namespace muo::test
