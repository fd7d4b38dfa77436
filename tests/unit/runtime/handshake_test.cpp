#include "runtime/comm/handshake.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muo {
namespace {

using Side = Handshake::Side;
using State = Handshake::State;

// The messages of a handshake, alternating, until one side has nothing to send.
std::vector<std::string> messages_of(Handshake& joining, Handshake& accepting) {
  std::vector<std::string> out = {joining.greeting()};
  for (bool to_first = true; !out.back().empty(); to_first = !to_first)
    out.push_back((to_first ? accepting : joining).receive(out.back()));
  return out;
}

TEST(Handshake, OfTwoWhoKnowTheSecretProvesItToBoth) {
  Handshake joining(Side::kJoining, "secret"), accepting(Side::kAccepting, "secret");
  EXPECT_EQ(accepting.greeting(), "");
  EXPECT_EQ(messages_of(joining, accepting).size(), 5U);
  ASSERT_EQ(joining.state(), State::kProven);
  ASSERT_EQ(accepting.state(), State::kProven);
  EXPECT_TRUE(accepting.incoming().accepts("frame", joining.outgoing().seal("frame")));
  EXPECT_TRUE(joining.incoming().accepts("frame", accepting.outgoing().seal("frame")));
  EXPECT_FALSE(joining.incoming().accepts("frame", joining.outgoing().seal("frame")));  // reflected
}

TEST(Handshake, TakesItsBytesInWhateverPiecesTheyCome) {
  Handshake joining(Side::kJoining, "secret"), accepting(Side::kAccepting, "secret");
  const auto in_bytes = [](Handshake& to, const std::string& message) {
    std::string out;
    for (const char c : message)
      out += to.receive({&c, 1});
    return out;
  };
  const std::string nonce = in_bytes(accepting, joining.greeting());
  const std::string proof = in_bytes(joining, nonce);
  EXPECT_EQ(in_bytes(joining, in_bytes(accepting, proof)), "");
  EXPECT_EQ(joining.state(), State::kProven);
}

TEST(Handshake, ProcessZeroTellsNothingToWhoDoesNotKnowTheSecret) {
  for (const char* secret : {"secreT", "secret and more", "s"}) {
    Handshake joining(Side::kJoining, secret), accepting(Side::kAccepting, "secret");
    const std::vector<std::string> messages = messages_of(joining, accepting);
    EXPECT_EQ(messages.back(), "");
    EXPECT_EQ(messages.size(), 4U);  // its nonce was the second
    EXPECT_EQ(accepting.state(), State::kRefused);
    EXPECT_EQ(joining.state(), State::kWaiting);
  }
}

TEST(Handshake, WhoListensInPlaceOfProcessZeroProvesNothing) {
  Handshake joining(Side::kJoining, "secret");
  const std::string proof = joining.receive(std::string(Handshake::kNonceBytes, 'n'));
  EXPECT_EQ(joining.receive(proof), "");  // a reflected proof
  EXPECT_EQ(joining.state(), State::kRefused);
  EXPECT_EQ(joining.receive(proof), "");
}

TEST(Handshake, ThatIsRecordedIsOfNoUseAgain) {
  Handshake joining(Side::kJoining, "secret"), accepting(Side::kAccepting, "secret");
  const std::vector<std::string> recorded = messages_of(joining, accepting);
  Handshake another(Side::kAccepting, "secret");
  EXPECT_NE(another.receive(recorded[0]), recorded[1]);
  EXPECT_EQ(another.receive(recorded[2]), "");
  EXPECT_EQ(another.state(), State::kRefused);
  Handshake later(Side::kJoining, "secret");
  EXPECT_NE(later.greeting(), recorded[0]);
  static_cast<void>(later.receive(recorded[1]));
  EXPECT_EQ(later.receive(recorded[3]), "");
  EXPECT_EQ(later.state(), State::kRefused);
}

TEST(Handshake, MoreThanAMessageOrAnotherProtocolIsRefused) {
  Handshake joining(Side::kJoining, "secret");
  for (const std::string& come :
       {joining.greeting() + "x", std::string(1 << 20, 'x'), std::string(40, 'x')}) {
    Handshake accepting(Side::kAccepting, "secret");
    EXPECT_EQ(accepting.receive(come), "");
    EXPECT_EQ(accepting.state(), State::kRefused);
  }
  EXPECT_EQ(joining.receive(std::string(Handshake::kNonceBytes + 1, 'n')), "");
  EXPECT_EQ(joining.state(), State::kRefused);
}

TEST(Handshake, NewSecretsAre64HexadecimalDigits) {
  const std::string secret = new_secret();
  EXPECT_EQ(secret.size(), 64U);
  EXPECT_EQ(secret.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(secret, new_secret());
}

}  // namespace
}  // namespace muo
