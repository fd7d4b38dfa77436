#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "runtime/device_group.h"
#include "runtime/plugin.h"
#include "support/environment.h"

namespace muo::test {

// A backend that has to keep the contract. To join, add a line to kBackends below.
struct TestedBackend {
  const char* name;
  const char* plugin;  // nullptr: the host's own devices
  CommunicatorKind communicator;
  bool traces;              // graphs know their nodes
  bool adds_bf16 = true;    // in fp32, as communicator.h says; else such sums are refused
  bool shares_gpu = false;  // all ranks on the first GPU; else one each
};
// GoogleTest finds it by this name.
inline void PrintTo(const TestedBackend& tested,  // NOLINT(readability-identifier-naming)
                    std::ostream* out) {
  *out << tested.name;
}

inline constexpr TestedBackend kBackends[] = {
    {"host", nullptr, CommunicatorKind::kHost, true},
    {"simt_peer", "muograph_simt", CommunicatorKind::kPeer, false},
    {"simt_nccl", "muograph_simt", CommunicatorKind::kNccl, false, false},
    {"cuda_peer", "muograph_cuda", CommunicatorKind::kPeer, false, true, true},
    {"multi_gpu_peer", "muograph_cuda", CommunicatorKind::kPeer, false},
    {"multi_gpu_nccl", "muograph_cuda", CommunicatorKind::kNccl, false, false},
};

// Only what every backend offers is used: nothing is read or written but through copies.
class BackendContract : public testing::TestWithParam<TestedBackend> {
 public:
  void SetUp() override {
    const TestedBackend& tested = GetParam();
    if (tested.plugin == nullptr || std::string_view(tested.plugin) != "muograph_cuda") return;
    const LoadedPlugin cuda = load_cuda();
    if (cuda.plugin == nullptr) GTEST_SKIP() << cuda.missing;
    if (!tested.shares_gpu && cuda.plugin->device_count() < kMostRanks)
      GTEST_SKIP() << "fewer than " << kMostRanks << " GPUs";
  }

  static constexpr int kMostRanks = 4;  // of any test
  static void run(int world, const std::function<void(RankContext&)>& body) {
    const TestedBackend& tested = GetParam();
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
};

#define MUO_FOR_EVERY_BACKEND(suite)                                                   \
  INSTANTIATE_TEST_SUITE_P(Backends, suite, testing::ValuesIn(::muo::test::kBackends), \
                           [](const auto& tested) { return tested.param.name; })

// Memory of one rank's device, and the way of values into it and back.
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
