#pragma once

// An explicit-state model checker for the peer communicator's protocol.
//
// Agents are CTAs. Each runs a list of steps. The checker explores every order of the agents'
// steps, with this memory model:
// - A location has a history of values, and an agent has a position in it: it may read any value
// from there on. A released signal carries its writer's positions, and its acquirer takes them
// over. Relaxed accesses carry nothing but their value.
// - Moves of data are issued, and carried out at any time until the agent's next release, in any
// order that keeps its own reads and writes of a location in order.
// - Lanes that signal and wait, one per peer, run concurrently: what one acquires is visible to the
// others only after all have finished.
// Errors are: a read that may see several values, or sees a wrong one; a write that may come before
// or after another one; and a state in which no agent can continue, though some are not done.

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "unit/runtime/peer_model_state.h"

namespace muo::test {

struct Signal {
  enum class Kind : std::uint8_t { kSignal, kWait };
  Kind kind;
  std::uint8_t value;  // the epoch
  bool ordered;        // as a release or an acquire
};

struct Step {
  enum class Kind : std::uint8_t {
    kMove,   // issues to = constant + sum of from
    kCheck,  // checks that `to` is the constant
    kLanes,  // signals to and waits for every peer CTA, each lane in this order
    kJoin,   // end of a kernel: all agents of the rank are here, without outstanding moves
  };
  Kind kind;
  std::uint8_t to = 0;
  std::uint8_t constant = 0;
  std::vector<std::uint8_t> from = {};
  std::vector<Signal> signals = {};
};

struct Agent {
  int rank = 0;
  std::vector<Step> steps = {};
  // By lane: the flag that this agent writes, and the one that it reads.
  std::vector<std::uint8_t> writes = {}, reads = {};
};

struct Verdict {
  std::string error;  // empty: none
  std::int64_t states = 0;
  std::int64_t cut = 0;  // orders not explored further: more than kMaxHistory values of a flag
};

namespace peer_model {

class Explorer {
 public:
  Explorer(const std::vector<Agent>& agents, int places, int first_flag)
      : agents_(agents),
        places_(places),
        first_flag_(first_flag),
        fingerprint_(agents.size(), agents[0].writes.size(), static_cast<std::size_t>(places),
                     static_cast<std::size_t>(first_flag)) {
    MUO_CHECK(
        agents.size() <= kMaxAgents && places <= kMaxPlaces && places - first_flag <= kMaxFlags,
        "a model that is too large");
    for (const Agent& agent : agents)
      MUO_CHECK(agent.steps.size() < 256, "too many steps");
  }

  Verdict run(std::int64_t max_states) {
    push({});
    while (!stack_.empty() && error_.empty()) {
      const State state = stack_.back();
      stack_.pop_back();
      if (++states_ > max_states) error_ = "too many states";
      if (steps_alone(state)) continue;
      const std::size_t before = moved_;
      for (std::size_t a = 0; a < agents_.size() && error_.empty(); ++a)
        expand(state, a);
      if (error_.empty() && moved_ == before && !finished(state)) error_ = "nobody can go on";
    }
    return {error_, states_, cut_};
  }

 private:
  // Steps that commute with all current and later steps of others are taken immediately, without
  // alternatives: issuing, the end of a kernel, and a signal, as older values of a flag stay
  // readable and no agent acts on its absence.
  bool steps_alone(const State& state) {
    for (std::size_t a = 0; a < agents_.size(); ++a) {
      const AgentState& mine = state.agents[a];
      if (mine.step >= agents_[a].steps.size()) continue;
      const Step& step = agents_[a].steps[mine.step];
      if (step.kind == Step::Kind::kMove) {
        issue(state, a);
        return true;
      }
      if (step.kind == Step::Kind::kJoin && join_rank(state, a)) return true;
      if (step.kind != Step::Kind::kLanes) continue;
      for (std::size_t lane = 0; lane < agents_[a].writes.size(); ++lane)
        if (signals(state, a, lane, step)) return true;
    }
    return false;
  }

  [[nodiscard]] bool finished(const State& state) const {
    for (std::size_t a = 0; a < agents_.size(); ++a)
      if (state.agents[a].step < agents_[a].steps.size()) return false;
    return true;
  }

  void expand(const State& state, std::size_t a) {
    const AgentState& mine = state.agents[a];
    for (std::uint8_t i = 0; i < mine.outstanding_count; ++i)
      if (!follows_outstanding(a, mine, i)) carry_out(state, a, i);
    if (mine.step >= agents_[a].steps.size()) return;
    const Step& step = agents_[a].steps[mine.step];
    switch (step.kind) {
      case Step::Kind::kMove:
      case Step::Kind::kJoin:
        break;
      case Step::Kind::kCheck: {
        std::uint8_t value = 0;
        if (!read(state, mine, step.to, value)) return;
        if (value != step.constant) {
          error_ = concat("agent ", a, " reads ", int{value}, " where ", int{step.constant},
                          " should be, at place ", int{step.to});
          return;
        }
        State next = state;
        ++next.agents[a].step;
        push(next);
        break;
      }
      case Step::Kind::kLanes: {
        // In the order of lanes: a lane's acquisitions are not visible until all have finished.
        std::size_t lane = 0;
        while (mine.lanes[lane] == step.signals.size())
          ++lane;
        waits(state, a, lane, step);
        break;
      }
    }
  }

  // Several moves in a row are issued together: no state in between is visible to others.
  void issue(const State& state, std::size_t a) {
    State next = state;
    AgentState& mine = next.agents[a];
    const std::vector<Step>& steps = agents_[a].steps;
    while (mine.step < steps.size() && steps[mine.step].kind == Step::Kind::kMove)
      mine.outstanding.at(mine.outstanding_count++) = mine.step++;
    push(next);
  }

  // True if an earlier outstanding move of this agent accesses a place of this one.
  [[nodiscard]] bool follows_outstanding(std::size_t a, const AgentState& mine,
                                         std::uint8_t index) const {
    const std::vector<Step>& steps = agents_[a].steps;
    const auto reads = [](const Step& step, std::uint8_t place) {
      return std::ranges::find(step.from, place) != step.from.end();
    };
    const Step& later = steps[mine.outstanding[index]];
    for (std::uint8_t i = 0; i < index; ++i) {
      const Step& earlier = steps[mine.outstanding[i]];
      if (earlier.to == later.to || reads(later, earlier.to) || reads(earlier, later.to))
        return true;
    }
    return false;
  }

  bool read(const State& state, const AgentState& mine, std::uint8_t place, std::uint8_t& value) {
    const History& history = state.places[place];
    if (mine.knows[place] + 1 != history.size) {
      error_ = concat("a read of place ", int{place}, " may see an old or a new value");
      return false;
    }
    value = history.values[history.size - 1U];
    return true;
  }

  bool write(State& state, AgentState& mine, std::uint8_t place, std::uint8_t value,
             const View& carries = {}) {
    History& history = state.places[place];
    if (mine.knows[place] + 1 != history.size) {
      error_ = concat("two writes to place ", int{place}, " may come in either order");
      return false;
    }
    if (history.size == kMaxHistory) {
      ++cut_;
      ++moved_;
      return false;
    }
    mine.knows[place] = history.size;
    if (place >= first_flag_)
      state.carried[static_cast<std::size_t>(place - first_flag_)][history.size] = carries;
    history.values[history.size++] = value;
    return true;
  }

  void carry_out(const State& state, std::size_t a, std::uint8_t index) {
    State next = state;
    AgentState& mine = next.agents[a];
    const Step& step = agents_[a].steps[mine.outstanding[index]];
    auto sum = step.constant;
    for (const std::uint8_t place : step.from) {
      std::uint8_t value = 0;
      if (!read(next, mine, place, value)) return;
      sum = static_cast<std::uint8_t>(sum + value);
    }
    if (!write(next, mine, step.to, sum)) return;
    std::copy(mine.outstanding.begin() + index + 1, mine.outstanding.end(),
              mine.outstanding.begin() + index);
    mine.outstanding[--mine.outstanding_count] = 0;
    push(next);
  }

  bool signals(const State& state, std::size_t a, std::size_t lane, const Step& step) {
    const std::uint8_t at = state.agents[a].lanes[lane];
    if (at == step.signals.size()) return false;
    const Signal& signal = step.signals[at];
    if (signal.kind != Signal::Kind::kSignal) return false;
    if (signal.ordered && state.agents[a].outstanding_count > 0) return false;
    State next = state;
    AgentState& mine = next.agents[a];
    if (write(next, mine, agents_[a].writes[lane], signal.value,
              signal.ordered ? mine.knows : View{}))
      advance(next, a, lane, step);
    return true;
  }

  void waits(const State& state, std::size_t a, std::size_t lane, const Step& step) {
    const Signal& signal = step.signals[state.agents[a].lanes[lane]];
    if (signal.kind != Signal::Kind::kWait) return;
    const std::uint8_t flag = agents_[a].reads[lane];
    const History& history = state.places[flag];
    for (std::uint8_t i = state.agents[a].knows[flag]; i < history.size; ++i) {
      if (history.values[i] < signal.value) continue;
      State next = state;
      AgentState& mine = next.agents[a];
      mine.acquired[flag] = std::max(mine.acquired[flag], i);
      if (signal.ordered)
        join(mine.acquired, state.carried[static_cast<std::size_t>(flag - first_flag_)][i]);
      advance(next, a, lane, step);
    }
  }

  void advance(State& next, std::size_t a, std::size_t lane, const Step& step) {
    AgentState& mine = next.agents[a];
    ++mine.lanes[lane];
    const std::size_t lanes = agents_[a].writes.size();
    if (std::all_of(mine.lanes.begin(), mine.lanes.begin() + static_cast<std::ptrdiff_t>(lanes),
                    [&](std::uint8_t at) { return at == step.signals.size(); })) {
      mine.lanes = {};
      join(mine.knows, mine.acquired);
      mine.acquired = {};
      ++mine.step;
    }
    push(next);
  }

  bool join_rank(const State& state, std::size_t a) {
    State next = state;
    View all{};
    const auto of_rank = [&](const auto& body) {
      for (std::size_t b = 0; b < agents_.size(); ++b)
        if (agents_[b].rank == agents_[a].rank && !body(b)) return false;
      return true;
    };
    const bool ready = of_rank([&](std::size_t b) {
      const AgentState& other = next.agents[b];
      join(all, other.knows);
      return other.step < agents_[b].steps.size() &&
             agents_[b].steps[other.step].kind == Step::Kind::kJoin && other.outstanding_count == 0;
    });
    if (!ready) return false;
    of_rank([&](std::size_t b) {
      next.agents[b].knows = all;
      ++next.agents[b].step;
      return true;
    });
    push(next);
    return true;
  }

  // Removes values that can no longer be read, so that states that differ only in the past are
  // equal.
  void normalise(State& state) const {
    for (std::size_t place = 0; place < static_cast<std::size_t>(places_); ++place) {
      std::uint8_t oldest = kMaxHistory;
      for (std::size_t a = 0; a < agents_.size(); ++a)
        oldest = std::min(oldest, state.agents[a].knows[place]);
      // A flag is read by its reader only.
      if (place >= static_cast<std::size_t>(first_flag_)) oldest = known_to_reader(state, place);
      if (oldest == 0) continue;
      const auto forget = [oldest](auto& array) {
        std::copy(array.begin() + oldest, array.end(), array.begin());
        std::fill(array.end() - oldest, array.end(),
                  typename std::decay_t<decltype(array)>::value_type{});
      };
      History& history = state.places[place];
      forget(history.values);
      history.size = static_cast<std::uint8_t>(history.size - oldest);
      if (place >= static_cast<std::size_t>(first_flag_))
        forget(state.carried[place - static_cast<std::size_t>(first_flag_)]);
      const auto shift = [&](View& view) {
        view[place] = static_cast<std::uint8_t>(std::max(0, view[place] - oldest));
      };
      for (AgentState& agent : state.agents) {
        shift(agent.knows);
        shift(agent.acquired);
      }
      for (auto& of_flag : state.carried)
        for (View& view : of_flag)
          shift(view);
    }
  }

  [[nodiscard]] std::uint8_t known_to_reader(const State& state, std::size_t flag) const {
    for (std::size_t a = 0; a < agents_.size(); ++a)
      if (std::ranges::find(agents_[a].reads, flag) != agents_[a].reads.end())
        return state.agents[a].knows[flag];
    return 0;
  }

  void push(State state) {
    ++moved_;
    normalise(state);
    if (seen_.insert(fingerprint_(state)).second) stack_.push_back(state);
  }

  const std::vector<Agent>& agents_;
  const int places_;
  const int first_flag_;
  std::vector<State> stack_;
  std::unordered_set<Fingerprint, FingerprintHash> seen_;
  Fingerprinter fingerprint_;
  std::string error_;
  std::int64_t states_ = 0;
  std::int64_t cut_ = 0;
  std::size_t moved_ = 0;  // successors found, new or not
};

}  // namespace peer_model

// Places are 0 at first. Those from `first_flag` on are flags. Returns an error beyond
// `max_states`.
inline Verdict explore(const std::vector<Agent>& agents, int places, int first_flag,
                       std::int64_t max_states) {
  return peer_model::Explorer(agents, places, first_flag).run(max_states);
}

}  // namespace muo::test
