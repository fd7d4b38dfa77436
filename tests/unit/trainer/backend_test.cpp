#include "trainer/run/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "support/environment.h"
#include "support/errors.h"

namespace muo::trainer {
namespace {

using test::environment;
using test::message_of;
using test::ScopedEnvironment;
using test::SimtForCuda;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Choice {
  GroupOptions group;
  std::vector<std::string> notes;
};
Choice choose(DeviceOptions& options) {
  Choice choice;
  choice.group = choose_devices(options, choice.notes);
  return choice;
}
std::string refusal(DeviceOptions options) {
  return message_of<InputError>([&] { static_cast<void>(choose(options)); });
}

TEST(ChooseDevices, TheHostHasTheRequestedNumberOfRanks) {
  DeviceOptions options{.backend = Backend::kHost, .count = 3};
  const Choice choice = choose(options);
  EXPECT_EQ(choice.group.plugin, nullptr);
  EXPECT_EQ(choice.group.world, 3);
  EXPECT_EQ(choice.group.communicator, CommunicatorKind::kHost);
  EXPECT_EQ(options.comm, Comm::kHost);
  EXPECT_THAT(choice.notes, IsEmpty());
}

TEST(ChooseDevices, RefusesWhatTheHostDoesNotHave) {
  EXPECT_THAT(refusal({.backend = Backend::kHost, .ranks_per_device = 2}),
              HasSubstr("give --devices"));
  EXPECT_EQ(refusal({.backend = Backend::kHost, .comm = Comm::kNccl}),
            "--comm nccl: requires --backend cuda");
}

TEST(ChooseDevices, UsesNcclWithoutPeerAccess) {
  const SimtForCuda simt;
  const ScopedEnvironment apart("SIMT_GPUS_APART", "1");
  DeviceOptions peer{.backend = Backend::kCuda, .comm = Comm::kPeer, .count = 2};
  const Choice choice = choose(peer);
  DeviceOptions alone{.backend = Backend::kCuda, .count = 1, .ranks_per_device = 2};
  const Choice shared = choose(alone);
  const std::string refused =
      refusal({.backend = Backend::kCuda, .count = 2, .ranks_per_device = 2});
  EXPECT_EQ(choice.group.communicator, CommunicatorKind::kNccl);
  EXPECT_EQ(peer.comm, Comm::kNccl);
  EXPECT_THAT(choice.notes, ElementsAre("comm: nccl (GPU 0 cannot access the memory of GPU 1)"));
  EXPECT_EQ(shared.group.communicator, CommunicatorKind::kPeer);
  EXPECT_THAT(refused, HasSubstr("GPU 0 cannot access"));
  EXPECT_THAT(refused, HasSubstr("give --ranks-per-device 1 or --devices 1"));
}

TEST(ChooseDevices, VirtualRanksCommunicateThroughTheMemoryOfTheirDevice) {
  const SimtForCuda simt;
  DeviceOptions options{.backend = Backend::kCuda, .count = 2, .ranks_per_device = 4};
  const Choice choice = choose(options);
  ASSERT_NE(choice.group.plugin, nullptr);
  EXPECT_EQ(choice.group.world, 8);
  EXPECT_EQ(choice.group.ranks_per_device, 4);
  EXPECT_EQ(choice.group.communicator, CommunicatorKind::kPeer);
  EXPECT_THAT(choice.notes, ElementsAre("comm: peer"));
}

TEST(ChooseDevices, SeveralGpusUseNcclByDefault) {
  const SimtForCuda simt;
  DeviceOptions automatic{.backend = Backend::kCuda, .count = 2};
  EXPECT_EQ(choose(automatic).group.communicator, CommunicatorKind::kNccl);
  DeviceOptions peer{.backend = Backend::kCuda, .comm = Comm::kPeer, .count = 2};
  EXPECT_EQ(choose(peer).group.communicator, CommunicatorKind::kPeer);
  DeviceOptions alone{.backend = Backend::kCuda, .count = 1};
  EXPECT_EQ(choose(alone).group.communicator, CommunicatorKind::kPeer);
}

TEST(ChooseDevices, RefusesMoreGpusThanThereAre) {
  const SimtForCuda simt;
  EXPECT_THAT(refusal({.backend = Backend::kCuda, .count = 65}), HasSubstr("--ranks-per-device"));
  EXPECT_EQ(refusal({.backend = Backend::kCuda, .comm = Comm::kHost}),
            "--comm host: requires --backend host");
}

TEST(ChooseDevices, RefusesAnEnvironmentInWhichRanksWouldHang) {
  const SimtForCuda simt;
  ScopedEnvironment blocking("CUDA_LAUNCH_BLOCKING", "1");
  EXPECT_THAT(refusal({.backend = Backend::kCuda}), HasSubstr("CUDA_LAUNCH_BLOCKING=1"));
  blocking.set("0");
  EXPECT_EQ(refusal({.backend = Backend::kCuda}), "no exception");
  EXPECT_EQ(environment("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
  EXPECT_EQ(environment("CUDA_MODULE_LOADING"), "LAZY");
}

TEST(ChooseDevices, SaysWhyThereIsNoCudaBackend) {
  const ScopedEnvironment plugin("MUO_CUDA_PLUGIN", "muograph_nowhere");
  EXPECT_EQ(refusal({.backend = Backend::kCuda}),
            "--backend cuda: this build has no libmuograph_nowhere.so");
}

}  // namespace
}  // namespace muo::trainer
