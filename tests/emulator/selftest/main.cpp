// One case, correct or with its bug: exit code 0 if its results are right, 1 if not.
//   simt_selftest_plain "no __syncwarp" planted|correct        without arguments: lists the cases

#include <cstdio>
#include <exception>
#include <span>
#include <string_view>

#include "emulator/selftest/cases.h"

namespace {

int run(std::span<char*> arguments) {
  using muo::selftest::Case;
  for (const auto& family :
       {muo::selftest::barrier_cases(), muo::selftest::memory_cases(),
        muo::selftest::pipeline_cases(), muo::selftest::async_cases(),
        muo::selftest::launch_cases(), muo::selftest::rank_cases(), muo::selftest::control_cases()})
    for (const Case& one : family) {
      if (arguments.size() < 3) {
        std::printf("%s\n", one.name);
      } else if (arguments[1] == std::string_view(one.name)) {
        if (one.run(arguments[2] == std::string_view("planted"))) return 0;
        std::printf("wrong result\n");
        return 1;
      }
    }
  return arguments.size() < 3 ? 0 : 2;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run({arguments, static_cast<std::size_t>(count)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
