#pragma once

#include <string>
#include <string_view>

namespace muo::trainer {

// Looks up an option ("--head-dim", "-i") or command ("serve") of another program in the tables of
// docs/coming_from.md. Returns a hint for the error message: "nanochat's, here --n-head: width and
// heads themselves". Empty if the option is unknown.
std::string foreign_option(std::string_view name);

// The text of docs/coming_from.md, embedded by the build.
extern const std::string_view kComingFrom;

}  // namespace muo::trainer
