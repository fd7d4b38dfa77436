#include "emulator/settings.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/check.h"

namespace muo::simt {
namespace {

std::string_view environment(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no thread sets variables
  return text == nullptr ? "" : text;
}

template <class T>
T number(std::string_view text, std::string_view what, T least) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  MUO_CHECK(error == std::errc{} && end == text.data() + text.size() && value >= least, what);
  return value;
}

Settings read() {
  Settings out;
  const std::string_view order = environment("SIMT_ORDER");
  if (order == "seq")
    out.order = Order::kForward;
  else if (order == "rev")
    out.order = Order::kReverse;
  else if (!order.empty())
    out.seed = number<std::uint64_t>(order, "SIMT_ORDER is seq, rev or a seed", 0);
  const std::string_view workers = environment("SIMT_WORKERS");
  if (!workers.empty()) out.workers = number(workers, "SIMT_WORKERS is a number from 1 on", 1U);
  if (const std::string_view name = environment("SIMT_ARCHITECTURE"); !name.empty())
    out.architecture = name;
  return out;
}

}  // namespace

const Settings& settings() {
  static const Settings values = read();
  return values;
}

}  // namespace muo::simt
