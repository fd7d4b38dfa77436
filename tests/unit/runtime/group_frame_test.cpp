#include "runtime/comm/group_frame.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace muo {
namespace {

TEST(GroupFrame, IsTheSameInWhateverPiecesItComes) {
  const std::vector<GroupFrame> frames = {
      {.type = GroupFrame::Type::kBye},
      {.type = GroupFrame::Type::kCall,
       .channel = 1,
       .number = std::uint64_t{1} << 40U,
       .site = "a site",
       .payload = std::string("a\0b", 3)},
      {.type = GroupFrame::Type::kBeat, .payload = std::string(300, 'x')}};
  FrameSeal seal("key");
  std::string wire;
  for (const GroupFrame& frame : frames)
    wire += to_wire(frame, seal);
  for (std::size_t piece = 1; piece < wire.size(); ++piece) {
    FrameReader reader(FrameSeal("key"));
    std::vector<GroupFrame> read;
    for (std::size_t at = 0; at < wire.size(); at += piece) {
      reader.add(std::string_view(wire).substr(at, piece));
      while (auto frame = reader.next())
        read.push_back(std::move(*frame));
    }
    ASSERT_EQ(read.size(), frames.size());
    FrameSeal before("another key"), again("another key");
    for (std::size_t i = 0; i < read.size(); ++i)
      EXPECT_EQ(to_wire(read[i], again), to_wire(frames[i], before));
    EXPECT_FALSE(reader.failed());
  }
}

TEST(GroupFrame, IsRefusedIfItIsTooLongTooShortOrOfNoType) {
  constexpr std::size_t kSealBytes = FrameSeal::kBytes;
  const std::string good = [] {
    FrameSeal seal("k");
    return to_wire({.site = "site", .payload = std::string(100, 'x')}, seal);
  }();
  const auto failed = [](const std::string& wire, std::size_t most) {
    FrameReader reader(FrameSeal("k"), most);
    reader.add(wire);
    return !reader.next() && reader.failed();
  };
  // Sealed with the right key, so that only the frame itself is wrong.
  const auto with = [&](std::size_t at, int byte) {
    std::string bad = good.substr(0, good.size() - kSealBytes);
    bad[at] = static_cast<char>(byte);
    return bad + FrameSeal("k").seal(bad);
  };
  EXPECT_FALSE(failed(with(5, 1), 1000));
  EXPECT_FALSE(failed(good, good.size() - 4));
  EXPECT_TRUE(failed(good, good.size() - 5));
  EXPECT_TRUE(failed(with(0, 13 + kSealBytes), 1000));
  EXPECT_TRUE(failed(with(3, 127), GroupFrame::kMaxBytes));
  EXPECT_TRUE(failed(with(4, 7), 1000));
  EXPECT_TRUE(failed(with(14, 105), 1000));  // the site's size
  EXPECT_TRUE(failed("GET / HTTP/1.1\r\n\r\n", GroupFrame::kMaxBytes));
}

// Frames that are changed, repeated, reordered, dropped or reflected are rejected.
TEST(GroupFrame, IsRefusedUnlessItIsTheNextOfTheOtherSide) {
  FrameSeal seal("key");
  const std::string first = to_wire({.payload = "the first"}, seal);
  const std::string second = to_wire({.payload = "the second"}, seal);
  const auto frames_of = [](const std::string& wire, const std::string& key) {
    FrameReader reader{FrameSeal(key)};
    reader.add(wire);
    int frames = 0;
    while (reader.next())
      ++frames;
    return reader.failed() ? -1 : frames;
  };
  EXPECT_EQ(frames_of(first + second, "key"), 2);
  EXPECT_EQ(frames_of(first + first, "key"), -1);
  EXPECT_EQ(frames_of(second, "key"), -1);
  EXPECT_EQ(frames_of(first, "another key"), -1);
  // Not the size, which changes the number of bytes expected.
  for (std::size_t at = 4; at < first.size(); ++at) {
    std::string changed = first;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_EQ(frames_of(changed, "key"), -1) << at;
  }
}

TEST(GroupFrame, PayloadsThatAreCutAreNone) {
  const GroupHello hello{.process = 1, .member = {.host = "h", .pid = 5, .ranks = 2}};
  const std::string text = encode(hello), failure = encode(GroupFailure{.cause = "cause"});
  const std::string members = encode(std::vector<GroupMember>{hello.member, hello.member});
  ASSERT_TRUE(decode_hello(text));
  EXPECT_EQ(decode_hello(text)->member.pid, 5);
  ASSERT_TRUE(decode_failure(failure));
  ASSERT_EQ(decode_members(members).value().size(), 2U);
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(decode_hello(text.substr(0, size))) << size;
  for (std::size_t size = 0; size < failure.size(); ++size)
    EXPECT_FALSE(decode_failure(failure.substr(0, size))) << size;
  for (std::size_t size = 1; size < members.size(); ++size)
    EXPECT_EQ(decode_members(members.substr(0, size)).has_value(), 2 * size == members.size());
}

}  // namespace
}  // namespace muo
