// The contract of communicators, between processes that mpirun starts, with real MPI.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "support/command.h"
#include "support/paths.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::run_command;
using testing::HasSubstr;

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(build() / "libmuograph_mpi.so"))
      GTEST_SKIP() << "this build has no libmuograph_mpi.so, as where there is no MPI";
    if (!fs::exists(build() / "contract_test")) GTEST_SKIP() << "this build has no contract_test";
    if (run_command("mpirun --version").code != 0) GTEST_SKIP() << "there is no mpirun";
  }
  static fs::path build() { return fs::path(test::program()).parent_path(); }
  static Outcome contract(const std::string& before) {
    return run_command(before + "'" + (build() / "contract_test").string() +
                           "' --gtest_brief=1 --gtest_color=no --gtest_filter='*/mpi'",
                       // Variables for Open MPI 4 and 5; other versions do not need them.
                       "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                       "OMPI_MCA_rmaps_base_oversubscribe=1 "
                       "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe");
  }
};

TEST_F(Mpi, TheContractOfCommunicatorsHoldsBetweenProcesses) {
  for (const int processes : {2, 3}) {
    const Outcome outcome = contract("mpirun -n " + std::to_string(processes) + " ");
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    std::size_t passed = 0;  // once per process
    for (std::size_t at = 0; (at = outcome.out.find("[  PASSED  ]", at)) != std::string::npos; ++at)
      ++passed;
    EXPECT_EQ(passed, static_cast<std::size_t>(processes)) << outcome.out;
    EXPECT_EQ(outcome.out.find("[  PASSED  ] 0"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find("SKIPPED"), std::string::npos) << outcome.out;
  }
}

TEST_F(Mpi, AProcessThatMpirunDidNotStartIsRefused) {
  const Outcome outcome = contract("env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 ");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out,
              HasSubstr("MPI numbers this process 0 of 1, the launch numbers it 1 of 2: "
                        "start all processes by one mpirun"));
}

}  // namespace
}  // namespace muo
