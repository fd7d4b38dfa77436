#pragma once

// State of the protocol's model (peer_model.h).

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

namespace muo::test {

inline constexpr int kMaxAgents = 4;
inline constexpr int kMaxPlaces = 40;  // data and flags
inline constexpr int kMaxFlags = 8;
inline constexpr int kMaxHistory = 4;  // values of a place that may still be read

namespace peer_model {

using View = std::array<std::uint8_t, kMaxPlaces>;  // by place: oldest value that may be read

struct History {
  std::uint8_t size = 1;
  std::array<std::uint8_t, kMaxHistory> values{};
};

struct AgentState {
  std::uint8_t step = 0;
  std::uint8_t outstanding_count = 0;
  std::array<std::uint8_t, 8> outstanding{};     // steps whose moves were issued
  std::array<std::uint8_t, kMaxAgents> lanes{};  // progress of each lane in this step's signals
  View knows{};
  View acquired{};  // by lanes of this step, not yet visible to the others
};

struct State {
  std::array<AgentState, kMaxAgents> agents{};
  std::array<History, kMaxPlaces> places{};
  std::array<std::array<View, kMaxHistory>, kMaxFlags> carried{};  // by value of a flag
};

inline void join(View& to, const View& from) {
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = std::max(to[i], from[i]);
}

// 128 bits: a collision among millions of states is practically impossible.
struct Fingerprint {
  std::uint64_t a = 0x9E3779B97F4A7C15U, b = 0xC2B2AE3D27D4EB4FU;
  bool operator==(const Fingerprint&) const = default;
};
struct FingerprintHash {
  std::size_t operator()(const Fingerprint& f) const { return f.a; }
};

// Fingerprints the used parts of a state.
class Fingerprinter {
 public:
  Fingerprinter(std::size_t agents, std::size_t lanes, std::size_t places, std::size_t first_flag)
      : agents_(agents), lanes_(lanes), places_(places), first_flag_(first_flag) {}

  Fingerprint operator()(const State& state) {
    text_.clear();
    for (std::size_t a = 0; a < agents_; ++a) {
      const AgentState& agent = state.agents[a];
      text_ += static_cast<char>(agent.step);
      text_ += static_cast<char>(agent.outstanding_count);
      add(agent.outstanding, agent.outstanding_count);
      add(agent.lanes, lanes_);
      add(agent.knows, places_);
      add(agent.acquired, places_);
    }
    for (std::size_t p = 0; p < places_; ++p) {
      const History& history = state.places[p];
      text_ += static_cast<char>(history.size);
      add(history.values, history.size);
      if (p < first_flag_) continue;
      for (std::size_t i = 0; i < history.size; ++i)
        add(state.carried[p - first_flag_][i], places_);
    }
    text_.resize((text_.size() + 7) / 8 * 8, '\0');
    Fingerprint out;
    for (std::size_t i = 0; i < text_.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, text_.data() + i, 8);
      out.a = (out.a ^ word) * 0xFF51AFD7ED558CCDU;
      out.a ^= out.a >> 32;
      out.b = (out.b + word) * 0xC4CEB9FE1A85EC53U;
      out.b ^= out.b >> 29;
    }
    return out;
  }

 private:
  template <class Array>
  void add(const Array& bytes, std::size_t count) {
    text_.append(reinterpret_cast<const char*>(bytes.data()), count);
  }

  const std::size_t agents_, lanes_, places_, first_flag_;
  std::string text_;
};

}  // namespace peer_model
}  // namespace muo::test
