#include "kit/report/html_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <set>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/json_text.h"
#include "kit/report/decimate.h"
#include "kit/report/report_page.h"

namespace muo::kit {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t kClockPoints = 200;  // enough because the curve is nearly straight
constexpr std::size_t kHeatColumns = 150;
constexpr std::size_t kBins = 48, kMaxSlowSteps = 50, kMaxSkips = 200, kMaxAlarms = 50;

// Rounds to 6 digits: more would not be visible, and would double the size of the page.
double rounded(double value) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6);
  std::from_chars(text.data(), end.ptr, value);
  return value;
}

Json number(double value) { return std::isfinite(value) ? Json(rounded(value)) : Json(); }

Json numbers(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double value : values)
    out.push_back(number(value));
  return out;
}

Json points_json(const Points& points) { return {{"x", points.x}, {"y", numbers(points.y)}}; }

// Returns null if no value is known.
Json curve(const std::vector<std::int64_t>& step, const std::vector<double>& values,
           std::size_t points) {
  if (std::ranges::none_of(values, [](double value) { return std::isfinite(value); })) return {};
  const DrawnCurve drawn = decimate(step, values, points);
  Json out = points_json(drawn.points);
  if (!drawn.means.x.empty()) out["means"] = points_json(drawn.means);
  return out;
}

// Returns the seconds of training until the end of each recorded step. Steps between two records
// are assumed to take as long as the later one.
std::vector<double> clock_of(const RunHistory& run) {
  std::vector<double> out;
  double seconds = 0;
  for (std::size_t i = 0; i < run.step.size(); ++i) {
    const double ms = run.of(Series::kStepMs)[i];
    const auto steps = static_cast<double>(i == 0 ? 1 : run.step[i] - run.step[i - 1]);
    if (std::isfinite(ms)) seconds += steps * ms / 1000;
    out.push_back(seconds);
  }
  return out;
}

Json clock_json(const RunHistory& run, const std::vector<double>& clock) {
  Points points;
  const std::size_t n = clock.size();
  for (std::size_t i = 0, kept = std::min(n, kClockPoints); i < kept; ++i) {
    const std::size_t at = kept == 1 ? 0 : i * (n - 1) / (kept - 1);
    points.x.push_back(run.step[at]);
    points.y.push_back(clock[at]);
  }
  return points_json(points);
}

// Returns the tokens per step between record i - 1 and record i.
double tokens_per_step(const RunHistory& run, std::size_t i) {
  const std::int64_t tokens = run.tokens[i] - (i == 0 ? 0 : run.tokens[i - 1]);
  const std::int64_t steps = run.step[i] - (i == 0 ? -1 : run.step[i - 1]);
  return static_cast<double>(tokens) / static_cast<double>(steps);
}

// Returns the tokens trained until the end of a step as a piecewise linear curve: only a resume
// changes the tokens per step.
Json tokens_json(const RunHistory& run) {
  Json steps = Json::array(), tokens = Json::array();
  for (std::size_t i = 0; i < run.step.size(); ++i) {
    if (i > 0 && i + 1 < run.step.size() && tokens_per_step(run, i) == tokens_per_step(run, i + 1))
      continue;
    steps.push_back(run.step[i]);
    tokens.push_back(run.tokens[i]);
  }
  return {{"x", steps}, {"y", tokens}};
}

Json times_json(const RunHistory& run) {
  const StepTimeHistogram times =
      step_time_histogram(run.step, run.of(Series::kStepMs), kBins, kMaxSlowSteps);
  if (times.counts.empty()) return {};
  Json slow = Json::array();
  for (const auto& [step, ms] : times.slow)
    slow.push_back({step, number(ms)});
  return {{"edges", numbers(times.edges)},
          {"counts", times.counts},
          {"median", number(times.median)},
          {"p90", number(times.p90)},
          {"p99", number(times.p99)},
          {"outliers", times.outliers},
          {"slow", slow}};
}

Json skips_json(const RunHistory& run) {
  Json named = Json::array();
  for (const RunHistory::Skip& skip : run.skipped) {
    if (named.size() == kMaxSkips) break;
    const auto at = std::ranges::lower_bound(run.step, skip.step) - run.step.begin();
    named.push_back({{"step", skip.step},
                     {"why", skip.why},
                     {"what", skip.bad_number},
                     {"norm", number(run.of(Series::kGradNorm)[static_cast<std::size_t>(at)])}});
  }
  return {{"count", run.skipped.size()}, {"named", named}};
}

Json alarms_json(const RunHistory& run) {
  Json named = Json::array();
  for (const RunHistory::Alarm& alarm : run.alarms) {
    if (named.size() == kMaxAlarms) break;
    named.push_back(alarm.text);
  }
  return {{"count", run.alarms.size()}, {"named", named}};
}

// Returns at most `most` samples: the first, the last, and some between them.
Json samples_json(const RunHistory& run, std::size_t most) {
  Json out = Json::array();
  const std::size_t n = run.samples.size();
  for (std::size_t i = 0, kept = std::min(n, most); i < kept; ++i) {
    const RunHistory::Sample& sample = run.samples[kept == 1 ? n - 1 : i * (n - 1) / (kept - 1)];
    out.push_back({{"step", sample.step}, {"text", sample.text}});
  }
  return out;
}

Json updates_json(const RunHistory& run, std::size_t points) {
  Json out = Json::object();
  for (const auto& [group, ratios] : run.update_ratio)
    if (Json drawn = curve(run.update_step, ratios, points); !drawn.is_null())
      out[group] = std::move(drawn);
  return out;
}

// Returns a heat map: its rows are layers, its columns at most kHeatColumns of the steps.
Json layers_json(const RunHistory& run) {
  std::size_t layers = 0;
  for (const std::vector<double>& ratios : run.layer_ratio)
    layers = std::max(layers, ratios.size());
  Json steps = Json::array();
  std::vector<Json> rows(layers, Json::array());
  const std::size_t n = run.layers_step.size();
  for (std::size_t i = 0, kept = std::min(n, kHeatColumns); i < kept; ++i) {
    const std::size_t at = kept == 1 ? 0 : i * (n - 1) / (kept - 1);
    steps.push_back(run.layers_step[at]);
    const std::vector<double>& ratios = run.layer_ratio[at];
    for (std::size_t layer = 0; layer < layers; ++layer)
      rows[layer].push_back(layer < ratios.size() ? number(ratios[layer]) : Json());
  }
  return {{"x", steps}, {"rows", rows}};
}

Json last_finite(const std::vector<double>& values) {
  const auto last = std::find_if(values.rbegin(), values.rend(),
                                 [](double value) { return std::isfinite(value); });
  return last == values.rend() ? Json() : number(*last);
}

Json finite_median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return {};
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, at);
  return number(*at);
}

bool is_plain(const Json& value) {
  return value.is_string() || value.is_number() || value.is_boolean();
}
bool is_row(const Json& value) { return value.is_object() && std::ranges::all_of(value, is_plain); }
// True if a fact has the form that the page's script expects: a malformed fact in one run would
// leave the whole page empty.
bool is_shown(std::string_view name, const Json& value) {
  if (name == "memory_bytes_by_category" || name == "learning_rates") return is_row(value);
  if (name == "buckets" || name == "ranks")
    return value.is_array() && std::ranges::all_of(value, is_row);
  return is_plain(value);
}

Json facts_json(const std::string& text) {
  if (text.empty()) return {};
  const Json facts = Json::parse(text);
  Json shown = Json::object();
  for (const auto& [name, value] : facts.items())
    if (is_shown(name, value)) shown[name] = value;
  return shown;
}

Json bookkeeping_options(const RunHistory& run) {
  Json out = Json::array();
  for (const auto& [name, value] : run.options)
    if (is_bookkeeping(name)) out.push_back(name);
  return out;
}

std::string filled_page(std::string_view policy, std::string_view nonce, std::string_view plotly,
                        std::string_view runs, std::string_view transfers) {
  // Either string would change where the HTML parser ends the script element.
  for (const std::string_view text : {"</script", "<!--"})
    if (plotly.find(text) != std::string_view::npos)
      throw InputError(
          fmt::format("plotly.js contains {}: give the minified file of its package", text));
  // In the order in which they occur in the page.
  const std::array<std::pair<std::string_view, std::string_view>, 6> values = {
      {{"@POLICY@", policy},
       {"@NONCE@", nonce},
       {"@PLOTLY@", plotly},
       {"@RUNS@", runs},
       {"@TRANSFERS@", transfers},
       {"@NONCE@", nonce}}};
  std::string page;
  std::string_view rest = kReportPage;
  for (const auto& [name, value] : values) {
    const std::size_t at = rest.find(name);
    MUO_CHECK(at != std::string_view::npos, name);
    page += rest.substr(0, at);
    page += value;
    rest.remove_prefix(at + name.size());
  }
  return page += rest;
}

// Joins JSON texts to an array that may stand in a script element.
std::string array_text(std::span<const std::string> items) {
  std::string out = "[";
  for (std::size_t i = 0; i < items.size(); ++i) {
    out += i == 0 ? "\n" : ",\n";
    // In JSON, < occurs only in strings.
    for (const char c : items[i])
      c == '<' ? out += "\\u003c" : out += c;
  }
  return out += ']';
}

}  // namespace

std::size_t points_per_curve(std::size_t runs) {
  constexpr std::size_t kAll = 300'000, kMin = 120, kMax = 4000;
  return std::clamp(kAll / (std::max<std::size_t>(runs, 1) * kSeriesNames.size()), kMin, kMax);
}

std::vector<std::string> run_names(std::span<const fs::path> directories) {
  std::vector<std::string> names;
  std::set<std::string> different;
  for (const fs::path& directory : directories) {
    names.push_back(
        fs::absolute(directory / ".").lexically_normal().parent_path().filename().string());
    different.insert(names.back());
  }
  if (different.size() == names.size()) return names;
  std::ranges::transform(directories, names.begin(),
                         [](const fs::path& directory) { return directory.string(); });
  return names;
}

std::string run_data(const RunHistory& run, const std::string& name, std::size_t points) {
  const std::vector<double> clock = clock_of(run);
  Json series;
  for (std::size_t i = 0; i < kSeriesNames.size(); ++i)
    series[std::string(kSeriesNames.at(i))] = curve(run.step, run.series.at(i), points);
  series["val_loss"] = curve(run.eval_step, run.val_loss, points);
  series["val_bpb"] = curve(run.eval_step, run.val_bpb, points);
  series["gradient_scale"] = curve(run.clipped, run.gradient_scale, points);
  Json options = Json::object();
  for (const auto& [key, value] : run.options)
    options[key] = value;
  const bool any = !run.step.empty();
  const Json per_step = any ? number(tokens_per_step(run, run.step.size() - 1)) : Json();
  const Json data = {{"name", name},
                     {"directory", run.directory.string()},
                     {"notes", run.notes},
                     {"config", run.config},
                     {"options", options},
                     {"asides", bookkeeping_options(run)},
                     {"heldOut", run.held_out},
                     {"facts", facts_json(run.facts)},
                     {"steps", any ? run.step.back() + 1 : 0},
                     {"seconds", any ? number(clock.back()) : Json()},
                     {"tokensPerStep", per_step},
                     {"loss", last_finite(run.of(Series::kLoss))},
                     {"valLoss", last_finite(run.val_loss)},
                     {"valBpb", last_finite(run.val_bpb)},
                     {"tokensPerS", finite_median(run.of(Series::kTokensPerS))},
                     {"mfu", finite_median(run.of(Series::kMfu))},
                     {"series", series},
                     {"updates", updates_json(run, points)},
                     {"layers", layers_json(run)},
                     {"clock", clock_json(run, clock)},
                     {"tokens", tokens_json(run)},
                     {"times", times_json(run)},
                     {"skipped", skips_json(run)},
                     {"clipped", run.clipped.size()},
                     {"alarms", alarms_json(run)},
                     {"samples", samples_json(run, std::clamp<std::size_t>(points / 20, 5, 40))}};
  return json_text(data);
}

std::string report_page(std::span<const std::string> runs, std::string_view plotly,
                        std::span<const std::string> transfers) {
  return filled_page(
      "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
      "img-src data: blob:",
      "", plotly, array_text(runs), array_text(transfers));
}

std::string live_page(std::string_view plotly, std::string_view policy, std::string_view nonce) {
  return filled_page(policy, fmt::format(" nonce=\"{}\"", nonce), plotly, "null", "[]");
}

fs::path find_plotly() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* folder : {"../share/muograph", "../third_party/plotly"})
    if (const fs::path file = program / folder / "plotly.min.js"; fs::exists(file, error))
      return file.lexically_normal();
  throw InputError(
      "report: plotly.min.js, which draws the charts, is missing: fetch it with "
      "scripts/fetch_plotly.sh (then install again, if this program is installed), or give "
      "--plotly FILE");
}

}  // namespace muo::kit
