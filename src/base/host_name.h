#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace muo {

// The name of this host, or "localhost" if it has none.
inline std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

}  // namespace muo
