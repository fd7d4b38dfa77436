#pragma once

#include <string>
#include <system_error>

namespace muo {

// The text of an errno value: "No such file or directory".
inline std::string system_error_text(int error) { return std::generic_category().message(error); }

}  // namespace muo
