#pragma once

#include <string>
#include <string_view>

namespace muo::app {

// What an option of another program ("--head-dim", "-i") is called here, by the tables of
// docs/coming_from.md: "nanochat's, here --n-head: width and heads themselves". Empty: of none.
std::string foreign_option(std::string_view name);

// That document, as the build found it.
extern const std::string_view kComingFrom;

}  // namespace muo::app
