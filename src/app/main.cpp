#include <cstddef>

#include "app/cli.h"

int main(int argc, char** argv) {
  return muo::run_program({argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)});
}
