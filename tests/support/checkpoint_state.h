#pragma once

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "runtime/device_group.h"
#include "support/tensors.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_saver.h"

namespace muo::test {

inline const std::vector<trainer::SafetensorsSpec> kStateTensors = {
    {.name = "transformer.wte.weight", .dtype = DType::kF32, .shape = {13, 6}},
    {.name = "transformer.wte.weight.adam_m", .dtype = DType::kF32, .shape = {13, 6}},
    {.name = "transformer.wte.weight.adam_v", .dtype = DType::kF32, .shape = {13, 6}},
    {.name = "transformer.h.0.attn.c_q.weight", .dtype = DType::kF32, .shape = {7, 5}},
    {.name = "transformer.h.0.attn.c_q.weight.momentum", .dtype = DType::kF32, .shape = {7, 5}},
    {.name = "transformer.h.0.attn.c_q.weight.variance", .dtype = DType::kF32, .shape = {7, 1}},
    {.name = "lm_head.weight", .dtype = DType::kBF16, .shape = {3, 2, 2, 5}},
    {.name = "resid_lambda", .dtype = DType::kF32, .shape = {}},
    {.name = "nothing", .dtype = DType::kF32, .shape = {0, 4}},
};

// One rank's parts of kStateTensors. Depending on name and world, some tensors are whole on
// one rank, some are replicated on all ranks with one writer, and some are divided at
// arbitrary positions.
class RankState {
 public:
  RankState(int rank, int world) {
    for (const trainer::SafetensorsSpec& spec : kStateTensors) {
      const CounterRandom random(static_cast<std::uint64_t>(world), spec.name);
      const std::int64_t n = spec.shape.numel();
      const auto ranks = static_cast<std::uint64_t>(world);
      const bool chosen = static_cast<int>(random.bits(0) % ranks) == rank;
      switch (random.bits(1) % 3) {
        case 0:
          add(spec, 0, chosen ? n : 0, /*writer=*/true);
          break;
        case 1:
          add(spec, 0, n, chosen);
          break;
        default:
          add(spec, cut(random, n, rank, world), cut(random, n, rank + 1, world), /*writer=*/true);
      }
    }
  }

  [[nodiscard]] std::vector<StateEntry>& entries() { return entries_; }

  // Random bits of finite numbers; values differ for each `seed`.
  void fill(std::uint64_t seed) {
    for (const StateEntry& entry : entries_) {
      const std::vector<std::byte> bytes = expected(entry, seed);
      std::copy(bytes.begin(), bytes.end(), entry.values.data);
    }
  }
  // The names of the entries that differ from fill(seed) in any bit.
  [[nodiscard]] std::vector<std::string> differing(std::uint64_t seed) const {
    std::vector<std::string> names;
    for (const StateEntry& entry : entries_) {
      const std::vector<std::byte> bytes = expected(entry, seed);
      if (!std::equal(bytes.begin(), bytes.end(), entry.values.data)) names.push_back(entry.name);
    }
    return names;
  }

 private:
  static std::int64_t cut(const CounterRandom& random, std::int64_t n, int part, int parts) {
    if (part == 0 || part == parts) return part == 0 ? 0 : n;
    std::vector<std::int64_t> cuts;
    for (int i = 1; i < parts; ++i)
      cuts.push_back(static_cast<std::int64_t>(random.bits(10 + static_cast<std::uint64_t>(i)) %
                                               static_cast<std::uint64_t>(n + 1)));
    std::sort(cuts.begin(), cuts.end());
    return cuts.at(static_cast<std::size_t>(part - 1));
  }
  static std::vector<std::byte> expected(const StateEntry& entry, std::uint64_t seed) {
    const CounterRandom random(seed, entry.name);
    const auto size = static_cast<std::size_t>(size_of(entry.values.dtype));
    std::vector<std::byte> bytes(static_cast<std::size_t>(entry.values.bytes()));
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      const std::uint64_t bits = random.bits(static_cast<std::uint64_t>(entry.begin) + at / size);
      std::memcpy(bytes.data() + at, &bits, size);
      bytes[at + size - 1] &= std::byte{0xBF};  // clears an exponent bit: finite
    }
    return bytes;
  }
  void add(const trainer::SafetensorsSpec& spec, std::int64_t begin, std::int64_t end,
           bool writer) {
    memory_.emplace_back(Shape{end - begin}, spec.dtype);
    entries_.push_back({.name = spec.name,
                        .shape = spec.shape,
                        .begin = begin,
                        .values = memory_.back(),
                        .writer = writer});
  }

  std::vector<HostTensor> memory_;
  std::vector<StateEntry> entries_;
};

// Saves the state of fill(seed) from `world` ranks. Throws like DeviceGroup::run.
inline void save_state(trainer::CheckpointSaver& saver, int world,
                       const trainer::CheckpointInfo& info, std::uint64_t seed,
                       const WatchOptions& watch = {}) {
  DeviceGroup group({.world = world, .watch = watch});
  group.run([&](RankContext& rank) {
    RankState state(rank.rank, world);
    state.fill(seed);
    saver.save(rank, info, state.entries());
  });
}

inline void save_state(const std::filesystem::path& run, int world, std::int64_t step,
                       std::uint64_t seed) {
  trainer::CheckpointSaver saver(run, world);
  save_state(saver, world, {.step = step}, seed);
}

// The entries of all ranks that a load by `world` ranks gets wrong.
inline std::vector<std::string> wrong_after_load(const trainer::Checkpoint& checkpoint, int world,
                                                 std::uint64_t seed) {
  std::vector<std::vector<std::string>> wrong(static_cast<std::size_t>(world));
  DeviceGroup group({.world = world});
  group.run([&](RankContext& rank) {
    RankState state(rank.rank, world);
    state.fill(~seed);
    checkpoint.load(rank.compute, state.entries());
    wrong[static_cast<std::size_t>(rank.rank)] = state.differing(seed);
  });
  std::vector<std::string> all;
  for (const std::vector<std::string>& names : wrong)
    all.insert(all.end(), names.begin(), names.end());
  return all;
}

// Names in a directory, sorted; empty if it does not exist.
inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  std::error_code absent;
  for (const auto& item : std::filesystem::directory_iterator(directory, absent))
    names.push_back(item.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace muo::test
