#include "runtime/comm/group_frame.h"

#include <concepts>
#include <utility>

namespace muo {
namespace {

constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kSizeBytes = 4, kHeadBytes = 1 + 1 + 8 + 4;
constexpr std::int64_t kMaxRanks = 1 << 20;

class Writer {
 public:
  template <std::integral T>
  Writer& put(T value) {
    auto rest = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<char>(rest & 0xffU));
      if constexpr (sizeof(T) > 1) rest = static_cast<decltype(rest)>(rest >> 8U);
    }
    return *this;
  }
  Writer& put(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Once bytes are missing, every further value is 0 or empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <std::integral T>
  T get() {
    if (!has(sizeof(T))) return 0;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
    bytes_.remove_prefix(sizeof(T));
    return static_cast<T>(value);
  }
  std::string text() {
    const auto size = get<std::uint32_t>();
    if (!has(size)) return {};
    std::string result(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return result;
  }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool at_end() const { return good_ && bytes_.empty(); }
  [[nodiscard]] std::string_view rest() const { return bytes_; }

 private:
  bool has(std::size_t count) { return good_ = good_ && count <= bytes_.size(); }

  std::string_view bytes_;
  bool good_ = true;
};

void put(Writer& writer, const GroupMember& member) {
  writer.put(member.host).put(member.pid).put(std::int64_t{member.ranks});
}

std::optional<GroupMember> get_member(Reader& reader) {
  GroupMember member{.host = reader.text(), .pid = reader.get<std::int64_t>()};
  const auto ranks = reader.get<std::int64_t>();
  if (!reader.good() || ranks < 1 || ranks > kMaxRanks) return std::nullopt;
  member.ranks = static_cast<int>(ranks);
  return member;
}

}  // namespace

std::string to_wire(const GroupFrame& frame, FrameSeal& seal) {
  const std::size_t size =
      kHeadBytes + frame.site.size() + frame.payload.size() + FrameSeal::kBytes;
  std::string wire = Writer()
                         .put(static_cast<std::uint32_t>(size))
                         .put(static_cast<std::uint8_t>(frame.type))
                         .put(frame.channel)
                         .put(frame.number)
                         .put(frame.site)
                         .take();
  wire += frame.payload;
  return wire += seal.seal(wire);
}

void FrameReader::add(std::string_view bytes) {
  if (2 * begin_ >= bytes_.size()) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  bytes_ += bytes;
}

std::optional<GroupFrame> FrameReader::next() {
  const std::string_view received = std::string_view(bytes_).substr(begin_);
  if (failed_ || received.size() < kSizeBytes) return std::nullopt;
  const std::size_t size = Reader(received).get<std::uint32_t>();
  failed_ = size < kHeadBytes + FrameSeal::kBytes || size > max_bytes_;
  if (failed_ || received.size() < kSizeBytes + size) return std::nullopt;
  const std::string_view sealed = received.substr(0, kSizeBytes + size - FrameSeal::kBytes);
  failed_ = !seal_.accepts(sealed, received.substr(sealed.size(), FrameSeal::kBytes));
  if (failed_) return std::nullopt;
  Reader reader(sealed.substr(kSizeBytes));
  const auto type = reader.get<std::uint8_t>();
  GroupFrame frame{.type = static_cast<GroupFrame::Type>(type),
                   .channel = reader.get<std::uint8_t>(),
                   .number = reader.get<std::uint64_t>(),
                   .site = reader.text(),
                   .payload = std::string(reader.rest())};
  failed_ = !reader.good() || type > static_cast<std::uint8_t>(GroupFrame::Type::kBye);
  if (failed_) return std::nullopt;
  begin_ += kSizeBytes + size;
  return frame;
}

std::string encode(const GroupHello& hello) {
  Writer writer;
  writer.put(kVersion);
  writer.put(std::int64_t{hello.process}).put(std::int64_t{hello.processes});
  put(writer, hello.member);
  return writer.take();
}

std::optional<GroupHello> decode_hello(std::string_view payload) {
  Reader reader(payload);
  GroupHello hello;
  hello.same_version = reader.get<std::uint32_t>() == kVersion;
  if (!hello.same_version) return reader.good() ? std::optional(hello) : std::nullopt;
  hello.process = static_cast<int>(reader.get<std::int64_t>());
  hello.processes = static_cast<int>(reader.get<std::int64_t>());
  std::optional<GroupMember> member = get_member(reader);
  if (!member || !reader.at_end()) return std::nullopt;
  hello.member = std::move(*member);
  return hello;
}

std::string encode(const std::vector<GroupMember>& members) {
  Writer writer;
  for (const GroupMember& member : members)
    put(writer, member);
  return writer.take();
}

std::optional<std::vector<GroupMember>> decode_members(std::string_view payload) {
  Reader reader(payload);
  std::vector<GroupMember> members;
  while (reader.good() && !reader.at_end()) {
    std::optional<GroupMember> member = get_member(reader);
    if (!member) return std::nullopt;
    members.push_back(std::move(*member));
  }
  return members;
}

std::string encode(const GroupFailure& failure) {
  return Writer().put(std::int64_t{failure.exit_code}).put(failure.cause).take();
}

std::optional<GroupFailure> decode_failure(std::string_view payload) {
  Reader reader(payload);
  GroupFailure failure;
  failure.exit_code = static_cast<int>(reader.get<std::int64_t>());
  failure.cause = reader.text();
  return reader.at_end() ? std::optional(std::move(failure)) : std::nullopt;
}

}  // namespace muo
