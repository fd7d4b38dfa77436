#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace muo {

// An enumeration whose values are consecutive from 0 declares their names beside it:
//   constexpr auto names_of(Backend) { return name_list("host", "cuda"); }
template <class... Names>
constexpr std::array<std::string_view, sizeof...(Names)> name_list(const Names&... names) {
  return {names...};
}

template <class Enum>
concept NamedEnum = std::is_enum_v<Enum> && requires(Enum value) {
  names_of(value);
};

template <NamedEnum Enum>
inline constexpr auto kNames = names_of(Enum{});

template <NamedEnum Enum>
inline constexpr auto kValues = [] {
  std::array<Enum, kNames<Enum>.size()> values{};
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<Enum>(i);
  return values;
}();

template <NamedEnum Enum>
constexpr std::string_view name_of(Enum value) {
  return kNames<Enum>.at(static_cast<std::size_t>(value));
}

// Returns nullopt if no value has that name.
template <NamedEnum Enum>
constexpr std::optional<Enum> value_of(std::string_view name) {
  const auto found = std::ranges::find(kNames<Enum>, name);
  if (found == kNames<Enum>.end()) return std::nullopt;
  return static_cast<Enum>(found - kNames<Enum>.begin());
}

}  // namespace muo
