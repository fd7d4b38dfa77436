#include "trainer/train/event_messages.h"

#include <bit>
#include <type_traits>

#include "base/crc32c.h"

namespace muo::trainer {
namespace {

// Appends `value` in little-endian order on any machine.
template <class Unsigned>
void append_fixed(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out += static_cast<char>(value >> (8 * i) & 0xFF);
}

// A protocol buffers message: fields by number, in the order in which they are added. Fields that
// are not added are zero or empty.
class Message {
 public:
  Message& integer(unsigned field, std::uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  Message& real(unsigned field, double value) {
    key(field, 1);
    append_fixed(bytes_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real(unsigned field, float value) {
    key(field, 5);
    append_fixed(bytes_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  Message& text(unsigned field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(unsigned field, const Message& value) { return text(field, value.bytes_); }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void key(unsigned field, unsigned wire_type) { varint(field << 3U | wire_type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      bytes_ += static_cast<char>((value & 0x7F) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// The field numbers are those of the .proto files that the header names.
Message event_at(EventTime at) {
  Message event;
  event.real(1, at.wall_time);
  if (at.step != 0) event.integer(2, static_cast<std::uint64_t>(at.step));
  return event;
}

std::string summary_event(EventTime at, const Message& summary) {
  return event_at(at).message(5, summary).bytes();
}

// A Summary of one value that a plug-in reads.
Message plugin_summary(std::string_view tag, const Message& tensor, std::string_view plugin,
                       const Message& content) {
  Message plugin_data;
  plugin_data.text(1, plugin);
  if (!content.bytes().empty()) plugin_data.message(2, content);
  Message value;
  value.text(1, tag).message(8, tensor).message(9, Message().message(1, plugin_data));
  return Message().message(1, value);
}

// A value of the plug-in hparams: it consists of `data` (HParamsPluginData) alone; its tensor is
// empty.
std::string hparams_event(EventTime at, std::string_view tag, const Message& data) {
  constexpr std::uint64_t kFloat = 1;  // DT_FLOAT
  Message empty;
  empty.integer(1, kFloat).message(2, Message().message(2, Message()));
  return summary_event(at, plugin_summary(tag, empty, "hparams", data));
}

// google.protobuf.Value
Message value_message(const HparamValue& value) {
  Message out;
  if (const auto* number = std::get_if<double>(&value)) out.real(2, *number);
  if (const auto* text = std::get_if<std::string>(&value)) out.text(3, *text);
  if (const auto* flag = std::get_if<bool>(&value)) out.integer(4, *flag ? 1 : 0);
  return out;
}

// DataType of the plug-in's api.proto.
std::uint64_t data_type(const HparamValue& value) {
  if (std::holds_alternative<std::string>(value)) return 1;
  return std::holds_alternative<bool>(value) ? 2 : 3;
}

// The checksum of a TFRecord: a CRC rotated and offset, because the data may itself contain CRCs.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

}  // namespace

std::string tf_record(std::string_view event) {
  std::string out;
  append_fixed(out, std::uint64_t{event.size()});
  append_fixed(out, masked_crc(out));
  out += event;
  append_fixed(out, masked_crc(event));
  return out;
}

std::string file_version_event(double wall_time) {
  return event_at({wall_time, 0}).text(3, "brain.Event:2").bytes();
}

std::string session_start_event(EventTime at) {
  constexpr std::uint64_t kStart = 1;
  return event_at(at).message(7, Message().integer(1, kStart)).bytes();
}

std::string scalars_event(EventTime at, std::span<const Scalar> scalars) {
  Message summary;
  for (const Scalar& scalar : scalars)
    summary.message(1, Message().text(1, scalar.tag).real(2, static_cast<float>(scalar.value)));
  return summary_event(at, summary);
}

std::string text_event(EventTime at, std::string_view tag, std::string_view text) {
  constexpr std::uint64_t kString = 7;  // DT_STRING
  Message tensor;
  tensor.integer(1, kString).message(2, Message()).text(8, text);
  return summary_event(at, plugin_summary(tag, tensor, "text", Message()));
}

std::string literal_markdown(std::string_view lines) {
  std::string out = "    ";
  for (const char c : lines) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

std::string hparams_experiment_event(EventTime at, std::span<const Hparam> hparams,
                                     std::span<const std::string_view> metrics) {
  Message experiment;
  experiment.real(3, at.wall_time);
  for (const auto& [name, value] : hparams)
    experiment.message(4, Message().text(1, name).integer(4, data_type(value)));
  for (const std::string_view tag : metrics)
    experiment.message(5, Message().message(1, Message().text(2, tag)));
  return hparams_event(at, "_hparams_/experiment", Message().message(2, experiment));
}

std::string hparams_start_event(EventTime at, std::span<const Hparam> hparams,
                                std::string_view group) {
  Message info;
  for (const auto& [name, value] : hparams)
    info.message(1, Message().text(1, name).message(2, value_message(value)));
  if (!group.empty()) info.text(4, group);
  info.real(5, at.wall_time);
  return hparams_event(at, "_hparams_/session_start_info", Message().message(3, info));
}

std::string hparams_end_event(EventTime at, TrialEnd end) {
  Message info;
  info.integer(1, static_cast<std::uint64_t>(end)).real(2, at.wall_time);
  return hparams_event(at, "_hparams_/session_end_info", Message().message(4, info));
}

}  // namespace muo::trainer
