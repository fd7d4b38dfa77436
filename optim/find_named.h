#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"

namespace muo::optim {

// Returns the item with that name. Throws InputError, which names the option and the known names.
template <class Item>
const Item& find_named(std::span<const Item> items, std::string_view name,
                       std::string_view option) {
  const auto found = std::ranges::find(items, name, &Item::name);
  if (found != items.end()) return *found;
  std::string known;
  for (const Item& item : items)
    known += concat(known.empty() ? "" : ", ", item.name);
  throw InputError(concat(option, ": '", name, "' is unknown: give ", known));
}

}  // namespace muo::optim
