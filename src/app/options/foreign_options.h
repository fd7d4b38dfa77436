#pragma once

#include <string>
#include <string_view>

namespace muo::app {

// The answer to an option ("--head-dim", "-i") or command ("serve") of another program, by the
// tables of docs/coming_from.md: "nanochat's, here --n-head: width and heads themselves". Empty:
// unknown.
std::string foreign_option(std::string_view name);

// That document, as the build found it.
extern const std::string_view kComingFrom;

}  // namespace muo::app
