#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "runtime/device_group.h"
#include "runtime/plugin.h"
#include "support/environment.h"
#include "support/mpi_world.h"
#include "support/split_world.h"

namespace muo::test {

// Distribution of a world's ranks over processes.
enum class Processes : std::uint8_t {
  kOne,
  kSimulated,  // several, simulated in this process; once for each row of kSplits
  kMpi,        // those started by mpirun, including this one
};

// A backend under test. To test another one, add a line to kBackends below.
struct TestedBackend {
  const char* name;
  const char* plugin;  // nullptr: host devices
  CommunicatorKind communicator;
  bool shares_gpu = false;  // all ranks on the first GPU; else one GPU per rank
  Processes processes = Processes::kOne;
};
// Used by GoogleTest, which finds it by this name.
inline void PrintTo(const TestedBackend& tested,  // NOLINT(readability-identifier-naming)
                    std::ostream* out) {
  *out << tested.name;
}

inline constexpr TestedBackend kBackends[] = {
    {"host", nullptr, CommunicatorKind::kHost},
    {"simt_peer", "muograph_simt", CommunicatorKind::kPeer},
    {"simt_peer_shared", "muograph_simt", CommunicatorKind::kPeer, true},
    {"simt_nccl", "muograph_simt", CommunicatorKind::kNccl},
    {"cuda_peer", "muograph_cuda", CommunicatorKind::kPeer, true},
    {"multi_gpu_peer", "muograph_cuda", CommunicatorKind::kPeer},
    {"multi_gpu_nccl", "muograph_cuda", CommunicatorKind::kNccl},
};
// For tests of communicators only: other components do not depend on processes.
inline constexpr TestedBackend kSeveralProcesses[] = {
    {"simulated", nullptr, CommunicatorKind::kHost, false, Processes::kSimulated},
    {"mpi", nullptr, CommunicatorKind::kHost, false, Processes::kMpi},
};
// For tests of communicators only, too: NCCL's ranks on one GPU.
inline constexpr TestedBackend kSharedByNccl[] = {
    {"simt_nccl_shared", "muograph_simt", CommunicatorKind::kNccl, true},
    {"cuda_nccl_shared", "muograph_cuda", CommunicatorKind::kNccl, true},
};
inline const std::vector<std::vector<int>> kSplits = {{1, 1}, {1, 2}, {2, 1},   {2, 2},
                                                      {1, 3}, {3, 1}, {1, 1, 2}};

// Uses only what every backend offers: memory is accessed through copies alone.
class BackendContract : public testing::TestWithParam<TestedBackend> {
 public:
  void SetUp() override {
    const TestedBackend& tested = GetParam();
    if (tested.processes == Processes::kMpi && MpiWorld::processes() == 0)
      GTEST_SKIP() << "mpirun has not started it: system.Mpi does";
    const bool on_cuda =
        tested.plugin != nullptr && tested.plugin == std::string_view("muograph_cuda");
    if (tested.shares_gpu && tested.communicator == CommunicatorKind::kNccl) {
      if (on_cuda && !environment("NCCL_MULTI_RANK_GPU_ENABLE"))
        GTEST_SKIP() << "NCCL_MULTI_RANK_GPU_ENABLE is not set";
      version_.emplace("NCCL_STAND_IN_VERSION", "23000");
      sharing_.emplace("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    }
    if (!on_cuda) return;
    const LoadedPlugin cuda = load_cuda();
    if (cuda.plugin == nullptr) GTEST_SKIP() << cuda.missing;
    if (!tested.shares_gpu && cuda.plugin->device_count() < kMaxRanks)
      GTEST_SKIP() << "fewer than " << kMaxRanks << " GPUs";
  }

  static constexpr int kMaxRanks = 4;  // maximum of all tests
  static void run(int world, const std::function<void(RankContext&)>& body) {
    const TestedBackend& tested = GetParam();
    if (tested.processes != Processes::kOne) return run_in_processes(world, body);
    GroupOptions options{.world = world, .communicator = tested.communicator};
    if (tested.plugin != nullptr) {
      const LoadedPlugin loaded = tested.plugin == std::string_view("muograph_simt")
                                      ? load_simt()
                                      : load_plugin(tested.plugin);
      if (loaded.plugin == nullptr) throw Error(loaded.missing);
      options.plugin = loaded.plugin;
      options.ranks_per_device = tested.shares_gpu ? world : 1;
      options.watch = patient_watch();
    }
    DeviceGroup group(options);
    group.run(body);
  }

 private:
  std::optional<ScopedEnvironment> version_, sharing_;

  static void run_in_processes(int world, const std::function<void(RankContext&)>& body) {
    if (GetParam().processes == Processes::kMpi) return MpiWorld::run(world, body);
    SplitWorld({world}).run(body);
    for (const std::vector<int>& split : kSplits)
      if (std::accumulate(split.begin(), split.end(), 0) == world) SplitWorld(split).run(body);
  }
};

#define MUO_FOR_EVERY_BACKEND(suite) MUO_FOR_EVERY(Backends, suite, kBackends)
#define MUO_FOR_EVERY(set, suite, rows)                                      \
  INSTANTIATE_TEST_SUITE_P(set, suite, testing::ValuesIn(::muo::test::rows), \
                           [](const auto& tested) { return tested.param.name; })

// A vector in one rank's device memory, with copies of its values to and from the host.
template <class T>
class DeviceVector {
 public:
  DeviceVector(RankContext& rank, const std::vector<T>& values)
      : rank_(rank),
        buffer_(rank.device.allocate(bytes_of(values.size()), "a test's vector")),
        staging_(rank.device.allocate_pinned(bytes_of(values.size()), "a test's staging")),
        size_(static_cast<std::int64_t>(values.size())) {
    set(values);
  }
  DeviceVector(RankContext& rank, std::int64_t size)
      : DeviceVector(rank, std::vector<T>(static_cast<std::size_t>(size))) {}

  [[nodiscard]] Tensor tensor() const {
    return {buffer_->data(), {size_}, dtype_of<T>, rank_.rank};
  }
  operator Tensor() const { return tensor(); }  // NOLINT(google-explicit-constructor)

  void set(const std::vector<T>& values) {
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(staging_->data()));
    rank_.compute.copy(tensor(), staging());
    rank_.compute.synchronize();
  }
  [[nodiscard]] std::vector<T> get() const {
    rank_.compute.copy(staging(), tensor());
    rank_.compute.synchronize();
    const T* first = reinterpret_cast<const T*>(staging_->data());
    return {first, first + size_};
  }

 private:
  static std::int64_t bytes_of(std::size_t size) {
    return static_cast<std::int64_t>(size * sizeof(T));
  }
  [[nodiscard]] Tensor staging() const { return {staging_->data(), {size_}, dtype_of<T>, -1}; }

  RankContext& rank_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<Buffer> staging_;
  std::int64_t size_;
};

using Floats = std::vector<float>;

}  // namespace muo::test
