#include "trainer/checkpoint/safetensors.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/strict_json.h"

namespace muo::trainer {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr const char* kMetadataKey = "__metadata__";

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr std::array<DTypeName, 6> kDTypeNames = {{{DType::kF32, "F32"},
                                                   {DType::kBF16, "BF16"},
                                                   {DType::kF64, "F64"},
                                                   {DType::kI32, "I32"},
                                                   {DType::kI64, "I64"},
                                                   {DType::kBytes, "U8"}}};

std::string_view file_name_of(DType dtype) {
  return std::ranges::find(kDTypeNames, dtype, &DTypeName::dtype)->name;
}

// Returns why a name is invalid; empty if it is valid.
std::string_view objection_to(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name == kMetadataKey) return "is reserved";
  if (std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) < 0x20; }))
    return "contains control characters";
  if (name.front() == '/' || name.find('\\') != std::string_view::npos) return "is a path";
  for (const std::filesystem::path& component : std::filesystem::path(name))
    if (component == ".." || component == ".") return "is a path";
  return "";
}

// Returns the bytes of a tensor; empty if an extent is negative or the product overflows.
std::optional<std::int64_t> checked_bytes(DType dtype, const Shape& shape) {
  const std::vector<std::int64_t> extents = extents_of(shape);
  const bool empty = std::ranges::find(extents, 0) != extents.end();
  std::int64_t bytes = empty ? 0 : size_of(dtype);
  for (const std::int64_t extent : extents)
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  return bytes;
}

// Parses a header entry; `what` names the file and the tensor. The offsets stay relative to the
// data section.
SafetensorsEntry parse_entry(const std::string& name, const json& value, const std::string& what) {
  const auto check = [&what](bool ok, const char* reason) {
    if (!ok) throw InputError(concat(what, " ", reason));
  };
  check(value.is_object() && value.size() == 3 && value.contains("dtype") &&
            value.contains("shape") && value.contains("data_offsets"),
        "needs exactly dtype, shape and data_offsets");
  const auto extent = [&check](const json& number) {
    check(number.is_number_unsigned(), "has a size or an offset that is not a whole number");
    const auto n = number.get<std::uint64_t>();
    check(n <= std::uint64_t{std::numeric_limits<std::int64_t>::max()}, "has an impossible size");
    return static_cast<std::int64_t>(n);
  };

  SafetensorsEntry entry;
  entry.spec.name = name;
  const json& dtype = value["dtype"];
  const auto known = std::ranges::find_if(kDTypeNames, [&dtype](const DTypeName& candidate) {
    return dtype.is_string() && dtype.get_ref<const std::string&>() == candidate.name;
  });
  if (known == kDTypeNames.end())
    throw InputError(concat(what, " has the dtype ", dtype.dump(),
                            "; supported are F32, BF16, F64, I32, I64, U8"));
  entry.spec.dtype = known->dtype;

  const json& shape = value["shape"];
  check(shape.is_array() && shape.size() <= 4, "needs a shape of at most four axes");
  std::vector<std::int64_t> extents;
  std::ranges::transform(shape, std::back_inserter(extents), extent);
  entry.spec.shape = shape_of(extents);

  const json& offsets = value["data_offsets"];
  check(offsets.is_array() && offsets.size() == 2, "needs data_offsets [begin, end]");
  entry.begin = extent(offsets[0]);
  entry.end = extent(offsets[1]);
  check(entry.begin <= entry.end, "ends before it begins");
  check(checked_bytes(entry.spec.dtype, entry.spec.shape) == entry.end - entry.begin,
        "has data_offsets that do not match its shape and dtype");
  return entry;
}

}  // namespace

Shape shape_of(const std::vector<std::int64_t>& extents) {
  MUO_CHECK(extents.size() <= 4, extents.size(), " axes, at most 4 are supported");
  return extents.empty()       ? Shape{}
         : extents.size() == 1 ? Shape{extents[0]}
         : extents.size() == 2 ? Shape{extents[0], extents[1]}
         : extents.size() == 3 ? Shape{extents[0], extents[1], extents[2]}
                               : Shape{extents[0], extents[1], extents[2], extents[3]};
}

std::vector<std::int64_t> extents_of(const Shape& shape) {
  std::vector<std::int64_t> extents(shape.rank());
  for (std::size_t axis = 0; axis < shape.rank(); ++axis)
    extents[axis] = shape[axis];
  return extents;
}

SafetensorsLayout layout_safetensors(std::span<const SafetensorsSpec> specs,
                                     const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsSpec> sorted(specs.begin(), specs.end());
  std::ranges::sort(sorted, [](const SafetensorsSpec& a, const SafetensorsSpec& b) {
    return std::tuple(-size_of(a.dtype), std::string_view(a.name)) <
           std::tuple(-size_of(b.dtype), std::string_view(b.name));
  });
  SafetensorsLayout layout;
  // Written by hand, because the keys must be in the order of the offsets.
  std::string header = concat("{\"", kMetadataKey, "\":", json(metadata).dump());
  std::int64_t offset = 0;
  for (const SafetensorsSpec& spec : sorted) {
    MUO_CHECK(objection_to(spec.name).empty(), "tensor \"", spec.name, "\" ",
              objection_to(spec.name));
    const std::optional<std::int64_t> bytes = checked_bytes(spec.dtype, spec.shape);
    MUO_CHECK(bytes, spec.name, " has the invalid shape ", spec.shape.text());
    SafetensorsEntry entry{.spec = spec, .begin = offset, .end = offset + *bytes};
    header += concat(",", json(spec.name).dump(), ":{\"dtype\":\"", file_name_of(spec.dtype),
                     "\",\"shape\":", json(extents_of(spec.shape)).dump(), ",\"data_offsets\":[",
                     entry.begin, ",", entry.end, "]}");
    offset = entry.end;
    layout.entries.push_back(std::move(entry));
  }
  header += "}";
  header.append((kLengthBytes - header.size() % kLengthBytes) % kLengthBytes, ' ');

  const std::uint64_t length = header.size();
  layout.head.resize(kLengthBytes + header.size());
  std::memcpy(layout.head.data(), &length, kLengthBytes);
  std::memcpy(layout.head.data() + kLengthBytes, header.data(), header.size());
  const auto head_bytes = static_cast<std::int64_t>(layout.head.size());
  for (SafetensorsEntry& entry : layout.entries) {
    entry.begin += head_bytes;
    entry.end += head_bytes;
  }
  layout.file_bytes = head_bytes + offset;

  std::ranges::sort(sorted, {}, &SafetensorsSpec::name);
  const auto twin = std::ranges::adjacent_find(sorted, {}, &SafetensorsSpec::name);
  MUO_CHECK(twin == sorted.end(), "two tensors are named ", twin->name);
  return layout;
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path)
    : path_(std::move(path)), file_(path_) {
  const std::span<const std::byte> all = file_.bytes();
  const std::string what = path_.string();
  if (all.size() < kLengthBytes)
    throw InputError(concat(what, ": ", all.size(), " bytes are too few for a safetensors file"));
  std::uint64_t length = 0;
  std::memcpy(&length, all.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > all.size() - kLengthBytes)
    throw InputError(concat(what, ": truncated or not a safetensors file: a header of ", length,
                            " bytes in a file of ", all.size()));
  head_bytes_ = kLengthBytes + length;
  const std::string_view text(reinterpret_cast<const char*>(all.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) throw InputError(what + ": not a safetensors file: no JSON header");

  const json header = parse_strict_json(text, what);
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey) {
      if (!value.is_object() ||
          !std::ranges::all_of(value, [](const json& item) { return item.is_string(); }))
        throw InputError(what + ": __metadata__ needs to be an object of strings");
      metadata_ = value.get<SafetensorsMetadata>();
      continue;
    }
    const std::string tensor = concat(what, ": tensor ", json(name).dump());
    if (const std::string_view objection = objection_to(name); !objection.empty())
      throw InputError(concat(tensor, ": the name ", objection));
    entries_.push_back(parse_entry(name, value, tensor));
  }

  std::ranges::sort(entries_, [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tuple(a.begin, a.end, std::string_view(a.spec.name)) <
           std::tuple(b.begin, b.end, std::string_view(b.spec.name));
  });
  const auto data_bytes = static_cast<std::int64_t>(all.size() - head_bytes_);
  std::int64_t offset = 0;
  for (SafetensorsEntry& entry : entries_) {
    if (entry.begin != offset)
      throw InputError(concat(what, ": tensor ", json(entry.spec.name).dump(), " begins at byte ",
                              entry.begin, " of the data, not at ", offset,
                              ", so there is an overlap or a hole"));
    offset = entry.end;
    entry.begin += static_cast<std::int64_t>(head_bytes_);
    entry.end += static_cast<std::int64_t>(head_bytes_);
    index_[entry.spec.name] = index_.size();
  }
  if (offset != data_bytes)
    throw InputError(concat(what, ": truncated or damaged: the tensors need ", offset,
                            " bytes, the file holds ", data_bytes));
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return file_.bytes().subspan(static_cast<std::size_t>(entry.begin),
                               static_cast<std::size_t>(entry.end - entry.begin));
}

std::span<const std::byte> SafetensorsFile::head() const {
  return file_.bytes().first(head_bytes_);
}

}  // namespace muo::trainer
