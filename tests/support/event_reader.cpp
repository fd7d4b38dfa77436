#include "support/event_reader.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "support/files.h"

namespace muo::test {
namespace {

// Computed bit by bit, from the definition of the polynomial.
std::uint32_t masked_checksum(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82F63B78 : crc >> 1;
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

template <class T>
T take(std::string_view& bytes) {
  T value{};
  MUO_CHECK(bytes.size() >= sizeof value, "truncated");
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const auto byte = take<unsigned char>(bytes);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

struct Field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;  // the value of a varint
  std::string_view bytes;   // the bytes of other types
};

std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> out;
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    Field field{.number = key >> 3, .value = 0, .bytes = {}};
    const std::uint64_t type = key & 7;
    MUO_CHECK(type == 0 || type == 1 || type == 2 || type == 5, "wire type ", type);
    if (type == 0) {
      field.value = take_varint(message);
    } else {
      const std::uint64_t size = type == 1 ? 8 : type == 5 ? 4 : take_varint(message);
      MUO_CHECK(message.size() >= size, "truncated");
      field.bytes = message.substr(0, size);
      message.remove_prefix(size);
    }
    out.push_back(field);
  }
  return out;
}

std::string_view bytes_of(std::string_view message, std::uint64_t number) {
  for (const Field& field : fields_of(message))
    if (field.number == number) return field.bytes;
  return {};
}

void read_value(std::string_view message, ReadEvent& event) {
  const std::string tag(bytes_of(message, 1));
  const std::string_view plugin_data = bytes_of(bytes_of(message, 9), 1);
  const std::string_view plugin = bytes_of(plugin_data, 1);
  for (const Field& field : fields_of(message)) {
    std::string_view bytes = field.bytes;
    if (field.number == 2) event.scalars.emplace_back(tag, take<float>(bytes));
    if (field.number == 8 && plugin == "text") event.texts[tag] = bytes_of(bytes, 8);
    if (field.number == 8 && plugin == "hparams") event.hparams[tag] = bytes_of(plugin_data, 2);
  }
}

ReadEvent read_event(std::string_view message) {
  ReadEvent event;
  for (const Field& field : fields_of(message)) {
    std::string_view bytes = field.bytes;
    if (field.number == 1) event.wall_time = take<double>(bytes);
    if (field.number == 2) event.step = static_cast<std::int64_t>(field.value);
    if (field.number == 3) event.file_version = bytes;
    if (field.number == 5)
      for (const Field& value : fields_of(bytes))
        read_value(value.bytes, event);
    if (field.number == 7)
      for (const Field& status : fields_of(bytes))
        event.starts = status.number == 1 && status.value == 1;
  }
  return event;
}

}  // namespace

std::vector<ReadEvent> read_events(const std::filesystem::path& file) {
  const std::string contents = read_file(file);
  std::string_view rest = contents;
  std::vector<ReadEvent> out;
  while (!rest.empty()) {
    const std::string_view length_bytes = rest.substr(0, 8);
    const auto length = take<std::uint64_t>(rest);
    MUO_CHECK(take<std::uint32_t>(rest) == masked_checksum(length_bytes), file, " record ",
              out.size(), ": wrong checksum of its length");
    MUO_CHECK(rest.size() >= length, file, " record ", out.size(), ": truncated");
    const std::string_view data = rest.substr(0, length);
    rest.remove_prefix(length);
    MUO_CHECK(take<std::uint32_t>(rest) == masked_checksum(data), file, " record ", out.size(),
              ": wrong checksum");
    out.push_back(read_event(data));
  }
  return out;
}

std::vector<std::filesystem::path> event_files(const std::filesystem::path& run) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(run))
    if (entry.path().filename().string().find("tfevents") != std::string::npos)
      out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

Curves shown_curves(const std::filesystem::path& run, Forgets how) {
  Curves curves;
  const auto forget = [](auto& points, std::int64_t step) {
    std::erase_if(points, [step](const auto& point) { return point.first >= step; });
  };
  bool started = false;
  for (const std::filesystem::path& file : event_files(run))
    for (const ReadEvent& event : read_events(file)) {
      if (event.starts && started && how == Forgets::kAtStart)
        for (auto& [tag, points] : curves)
          forget(points, event.step);
      started = started || event.starts;
      for (const auto& [tag, value] : event.scalars) {
        if (how == Forgets::kPerTag) forget(curves[tag], event.step);
        curves[tag].emplace_back(event.step, value);
      }
    }
  return curves;
}

}  // namespace muo::test
