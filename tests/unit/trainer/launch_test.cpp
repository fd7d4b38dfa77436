#include "trainer/options/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "trainer/run/world.h"

namespace muo::trainer {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::Le;

using Variables = std::map<std::string, std::string>;

std::optional<Launch> launch_of(const Variables& variables) {
  return find_launch([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables of_mpirun(int process, int processes) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(process)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(processes)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(process)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(processes)},
          {"PMIX_NAMESPACE", "1549926401"},
          {"PMIX_RANK", std::to_string(process)}};
}
const Variables kSrun = {{"SLURM_JOB_ID", "77"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "5"},
                         {"SLURM_STEP_NUM_TASKS", "8"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                         {"SLURM_STEP_NODELIST", "node[03-04]"}};

TEST(Launch, IsEmptyWithoutALauncherOrWithOneProcess) {
  EXPECT_FALSE(launch_of({}));
  EXPECT_FALSE(launch_of(of_mpirun(0, 1)));
  EXPECT_FALSE(launch_of({{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}}));
  EXPECT_FALSE(launch_of({{"WORLD_SIZE", "2"}, {"RANK", "0"}}));  // set by a container, for example
}

TEST(Launch, OfMpirunOnOneHostUsesLoopback) {
  const std::optional<Launch> launch = launch_of(of_mpirun(1, 3));
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->by, "mpirun");
  EXPECT_EQ(launch->process, 1);
  EXPECT_EQ(launch->processes, 3);
  EXPECT_EQ(launch->here, 1);
  EXPECT_EQ(launch->processes_here, 3);
  EXPECT_EQ(launch->address, "127.0.0.1");
  EXPECT_FALSE(launch->port);
  EXPECT_EQ(launch->id, "1549926401");
  EXPECT_TRUE(launch->has_mpi);
}

TEST(Launch, OfMpirunOnSeveralHostsUsesMasterAddr) {
  Variables variables = of_mpirun(0, 4);
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_EQ(launch_of(variables)->address, "");
  variables["MASTER_ADDR"] = "10.0.0.1";
  EXPECT_EQ(launch_of(variables)->address, "10.0.0.1");
}

TEST(Launch, OfTorchrunFollowsItsVariables) {
  const std::optional<Launch> launch = launch_of({{"RANK", "3"},
                                                  {"WORLD_SIZE", "4"},
                                                  {"LOCAL_RANK", "1"},
                                                  {"LOCAL_WORLD_SIZE", "2"},
                                                  {"MASTER_ADDR", "node-a"},
                                                  {"MASTER_PORT", "29500"},
                                                  {"TORCHELASTIC_RUN_ID", "abc"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->by, "torchrun");
  EXPECT_EQ(launch->process, 3);
  EXPECT_EQ(launch->processes, 4);
  EXPECT_EQ(launch->here, 1);
  EXPECT_EQ(launch->processes_here, 2);
  EXPECT_EQ(launch->address, "node-a");
  EXPECT_EQ(launch->port, 29500);
  EXPECT_EQ(launch->id, "abc");
}

TEST(Launch, OfSrunUsesTheFirstNode) {
  const std::optional<Launch> launch = launch_of(kSrun);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->by, "srun");
  EXPECT_EQ(launch->process, 5);
  EXPECT_EQ(launch->processes, 8);
  EXPECT_EQ(launch->processes_here, 4);
  EXPECT_EQ(launch->address, "node03");
  EXPECT_EQ(launch->id, "77.0");
  EXPECT_FALSE(launch->has_mpi);
  Variables with_mpi = kSrun;
  with_mpi["PMIX_RANK"] = "5";
  EXPECT_TRUE(launch_of(with_mpi)->has_mpi);
}

TEST(Launch, OfSrunCountsTheTasksOfItsOwnNode) {
  const std::map<std::string, std::vector<int>> tasks_by_node = {
      {"4", {4}}, {"4(x2)", {4, 4}}, {"2,1", {2, 1}}, {"2(x3),1,3(x2)", {2, 2, 2, 1, 3, 3}}};
  Variables variables = kSrun;
  variables["SLURM_LOCALID"] = "0";
  const auto tasks_here = [&](const std::string& list, std::size_t node) {
    variables["SLURM_STEP_TASKS_PER_NODE"] = list;
    variables["SLURM_NODEID"] = std::to_string(node);
    return launch_of(variables)->processes_here;
  };
  for (const auto& [list, tasks] : tasks_by_node) {
    for (std::size_t node = 0; node < tasks.size(); ++node)
      EXPECT_EQ(tasks_here(list, node), tasks[node]) << list << ", node " << node;
    EXPECT_EQ(tasks_here(list, tasks.size()), 1) << list << ": this task is all that is known";
  }
  for (const char* list : {"", "?", "2(x", "2(x)", ",2"})
    EXPECT_EQ(tasks_here(list, 0), 1) << list;
}

TEST(Launch, OfSlurmRequiresAStepNotABatchScript) {
  Variables script = kSrun;
  script.erase("SLURM_STEP_NUM_TASKS");
  script["SLURM_NTASKS"] = "8";
  EXPECT_FALSE(launch_of(script));
}

TEST(Launch, OfOtherMpisIsRejected) {
  const auto refusal = [](const Variables& variables) {
    return test::message_of<InputError>([&] { launch_of(variables); });
  };
  EXPECT_THAT(refusal({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), testing::HasSubstr("MPICH"));
  EXPECT_FALSE(launch_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}));
  Variables slurm = kSrun;  // with pmi2
  slurm.merge(Variables{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}});
  EXPECT_EQ(launch_of(slurm)->by, "srun");
}

TEST(Launch, AcceptsAddressesInBracketsAndPortsWithASuccessor) {
  Variables variables = of_mpirun(0, 2);
  variables["MASTER_ADDR"] = "[::1]";
  variables["MASTER_PORT"] = "65534";
  EXPECT_EQ(launch_of(variables)->address, "::1");
  EXPECT_EQ(launch_of(variables)->port, 65534);
  for (const char* port : {"0", "65535", "70000"}) {
    variables["MASTER_PORT"] = port;
    EXPECT_THAT(test::message_of<InputError>([&] { launch_of(variables); }),
                testing::HasSubstr(concat("MASTER_PORT=", port, ": ")));
  }
}

TEST(Launch, HasTheSecretOfTheVariableIfLongEnough) {
  Variables variables = of_mpirun(0, 2);
  EXPECT_EQ(launch_of(variables)->secret, "");
  variables["MUO_STORE_TOKEN"] = std::string(32, 's');
  EXPECT_EQ(launch_of(variables)->secret, std::string(32, 's'));
  variables["MUO_STORE_TOKEN"].pop_back();
  EXPECT_THAT(test::message_of<InputError>([&] { launch_of(variables); }),
              testing::HasSubstr("MUO_STORE_TOKEN: too short: 31 bytes, of 32 required"));
}

TEST(Launch, OfMpirunWithinSlurmFollowsMpirun) {
  Variables both = kSrun;
  both.merge(of_mpirun(1, 2));
  EXPECT_EQ(launch_of(both)->by, "mpirun");
}

TEST(Launch, WithContradictoryVariablesIsRejected) {
  for (const char* value : {"-1", "x", "1e3"}) {
    Variables variables = of_mpirun(0, 2);
    variables["OMPI_COMM_WORLD_RANK"] = value;
    EXPECT_THROW(launch_of(variables), InputError) << value;
  }
  EXPECT_THROW(launch_of(of_mpirun(2, 2)), InputError);
}

TEST(Launch, PortIsStorePortElseMasterPortPlusOneElseFromTheId) {
  DeviceOptions devices;
  const auto port_of = [&](const Launch& launch) {
    return process_group_options(launch, devices, 1).port;
  };
  const Launch torchrun{.by = "torchrun", .address = "node-a", .port = 29500, .id = "abc"};
  const Launch mpirun{.by = "mpirun", .address = "node-a", .id = "abc"};
  Launch another = mpirun;
  another.id = "abd";
  EXPECT_EQ(port_of(torchrun), 29501);
  EXPECT_NE(port_of(mpirun), port_of(another));
  for (const Launch& launch : {mpirun, another})
    EXPECT_THAT(port_of(launch), AllOf(Ge(20000), Le(29999)));  // docs/cluster.md
  devices.store_port = 4000;
  for (const Launch& launch : {torchrun, mpirun})
    EXPECT_EQ(port_of(launch), 4000);
}

TEST(Launch, FindsTheFirstHostOfASlurmList) {
  EXPECT_EQ(first_host("alone"), "alone");
  EXPECT_EQ(first_host("a1,b2"), "a1");
  EXPECT_EQ(first_host("node[03-07,09]"), "node03");
  EXPECT_EQ(first_host("gpu-[12,14],cpu1"), "gpu-12");
  EXPECT_EQ(first_host("n[1-2]-ib"), "n1-ib");
  EXPECT_EQ(first_host("r[1-2]n[3-4,9],x"), "r1n3");
  EXPECT_EQ(first_host("n[1-2"), "");
  EXPECT_EQ(first_host(""), "");
}

}  // namespace
}  // namespace muo::trainer
