#include "runtime/cuda/kernel_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "runtime/cuda/peer_kernels.h"
#include "support/files.h"
#include "support/paths.h"

namespace muo::cuda {
namespace {

TEST(KernelList, HasEveryKernelOnce) {
  std::set<const void*> functions;
  for (const ListedKernel& kernel : listed_kernels())
    EXPECT_TRUE(functions.insert(kernel.function).second) << kernel.name;
  for (const void* kernel : peer::kernels())
    EXPECT_TRUE(functions.contains(kernel)) << "a kernel of collectives";
}

// nvcc registers the kernels of a file together, and their names contain the name of the file.
TEST(KernelList, HasTheKernelsOfEveryFile) {
  int files = 0;
  for (const char* room : {"/src/kernels/cuda", "/src/runtime/cuda"})
    for (const auto& entry : std::filesystem::directory_iterator(test::source_directory() + room)) {
      if (entry.path().extension() != ".cu" ||
          test::read_file(entry.path()).find("__global__") == std::string::npos)
        continue;
      ++files;
      const std::string part = "_" + entry.path().stem().string() + "_cu_";
      EXPECT_TRUE(std::ranges::any_of(listed_kernels(), [&](const ListedKernel& kernel) {
        return kernel.name.find(part) != std::string::npos;
      })) << entry.path();
    }
  EXPECT_GT(files, 20);
}

}  // namespace
}  // namespace muo::cuda
