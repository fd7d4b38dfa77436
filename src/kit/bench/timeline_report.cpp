#include "kit/bench/timeline_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/json_text.h"
#include "base/strict_json.h"
#include "base/text_table.h"

namespace muo::kit {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kClockError = 2e-9;   // of a begin plus a duration, both rounded to nanoseconds
constexpr double kSmallestRow = 0.01;  // smallest share of the step that the text lists
constexpr double kSmallestGap = 1e-6;  // seconds of gaps on the critical paths that are reported
constexpr std::size_t kLongestRows = 10;
constexpr std::array<std::string_view, 4> kLanes = {"host", "compute", "comm", "update"};

// --- reading

class TimelineReader {
 public:
  TimelineReader(const nlohmann::json& root, const std::filesystem::path& file)
      : file_(file.string()) {
    for (const nlohmann::json& event : root.at("traceEvents"))
      read(event);
    for (const auto& [id, flow] : flows_)
      require(flow.first && flow.second && *flow.first <= *flow.second, "flow ", id,
              " has no end, or ends before it begins");
    nest();
    out_.ranks = static_cast<int>(ranks_.size());
    out_.peak_flops = root.value("/otherData/peak_flops"_json_pointer, 0.0);
    out_.steps_left_out = root.value("/otherData/steps_left_out"_json_pointer, false);
  }
  TimelineFile take() { return std::move(out_); }

 private:
  template <class... Parts>
  void require(bool holds, const Parts&... what) const {
    if (!holds) throw InputError(concat(file_, ": not a timeline of muograph: ", what...));
  }

  void read(const nlohmann::json& event) {
    const std::string kind = event.at("ph");
    if (kind == "s" || kind == "f") {
      auto& [begin, end] = flows_[event.at("id")];
      (kind == "s" ? begin : end) = event.at("ts");
    }
    if (kind == "M") ranks_.insert(event.at("pid").get<int>());
    if (kind != "X") return;
    const auto lane = event.at("tid").get<std::size_t>();
    require(lane < kLanes.size(), "lane ", lane);
    const double begin = event.at("ts").get<double>() / 1e6;
    const double duration = event.at("dur").get<double>() / 1e6;
    const std::string name = event.at("name");
    require(begin >= 0 && duration >= 0, "the slice ", name, " begins at ", begin, " s and takes ",
            duration, " s");
    TimelineSlice slice{.rank = event.at("pid"),
                        .lane = std::string(kLanes.at(lane)),
                        .name = name,
                        .begin = begin,
                        .end = begin + duration};
    if (const auto arguments = event.find("args"); arguments != event.end()) {
      slice.is_operation = arguments->contains("dtype");
      slice.dtype = arguments->value("dtype", "");
      slice.shape = arguments->value("shape", "");
      slice.flops = arguments->value("flops", 0.0);
      slice.bytes = arguments->value("bytes", 0.0);
      slice.critical = arguments->value("critical", false);
    }
    out_.slices.push_back(std::move(slice));
  }

  // Outer slices first.
  void nest() {
    std::vector<TimelineSlice>& all = out_.slices;
    std::ranges::stable_sort(all, [](const TimelineSlice& a, const TimelineSlice& b) {
      return std::tuple(a.rank, std::string_view(a.lane), a.begin, -a.end) <
             std::tuple(b.rank, std::string_view(b.lane), b.begin, -b.end);
    });
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < all.size(); ++i) {
      TimelineSlice& slice = all[i];
      while (!open.empty() &&
             (all[open.back()].rank != slice.rank || all[open.back()].lane != slice.lane ||
              all[open.back()].end <= slice.begin + kClockError))
        open.pop_back();
      if (!open.empty()) {
        TimelineSlice& around = all[open.back()];
        require(slice.end <= around.end + kClockError, "the slice ", slice.name, " at ",
                slice.begin, " s ends after ", around.name, ", in which it begins");
        slice.around = static_cast<std::int64_t>(open.back());
        if (around.is_operation && slice.name == "wait") around.waited += slice.end - slice.begin;
      }
      open.push_back(i);
    }
  }

  const std::string file_;
  TimelineFile out_;
  std::set<int> ranks_;
  std::map<std::int64_t, std::pair<std::optional<double>, std::optional<double>>> flows_;
};

// --- the report

struct WorkSum {
  std::int64_t calls = 0;
  double seconds = 0, waited = 0, flops = 0, bytes = 0;

  void add(const TimelineSlice& slice) {
    ++calls;
    seconds += slice.end - slice.begin;
    waited += slice.waited;
    flops += slice.flops;
    bytes += slice.bytes;
  }
  [[nodiscard]] std::string rate(double peak) const {
    const double worked = seconds - waited;
    if (worked <= 0 || (flops <= 0 && bytes <= 0)) return "";
    const double rate = flops / worked;
    if (rate <= 0) return fmt::format("{:.3g} GB/s", bytes / worked / 1e9);
    const std::string share = peak > 0 ? fmt::format(" ({})", percent_text(rate / peak)) : "";
    return (rate >= 1e12 ? fmt::format("{:.3g} TFLOP/s", rate / 1e12)
                         : fmt::format("{:.3g} GFLOP/s", rate / 1e9)) +
           share;
  }
};

// "block 5 forward" is one of "block * forward", "update lm_head.weight" one of "update *", and
// "reduce_scatter #12" one of "reduce_scatter".
std::string generic(const std::string& name) {
  constexpr std::array<std::string_view, 6> kOfBuckets = {"reduce", "exchange", "update",
                                                          "return", "commit",   "gather"};
  const std::string first = name.substr(0, name.find(' '));
  if (first != name && std::ranges::find(kOfBuckets, first) != kOfBuckets.end())
    return first + " *";
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto is_digit = [&](std::size_t at) {
      return at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0;
    };
    if (name.compare(i, 2, " #") == 0) break;
    if (!is_digit(i) || i == 0 || name[i - 1] != ' ') {
      out += name[i];
      continue;
    }
    std::size_t end = i;
    while (is_digit(end))
      ++end;
    const bool whole_word = end == name.size() || name[end] == ' ';
    out += whole_word ? "*" : name.substr(i, end - i);
    i = end - 1;
  }
  return out;
}

struct CriticalPath {  // seconds
  double begin = 0, end = 0, worked = 0;
};

struct LaneUse {
  double busy = 0, longest_gap = 0;  // seconds
  std::int64_t gaps = 0;
};

class TimelineReport {
 public:
  explicit TimelineReport(const TimelineFile& file) : file_(file) {
    const std::vector<TimelineSlice>& all = file.slices;
    paths_.resize(all.size());
    steps_.resize(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const TimelineSlice& slice = all[i];
      const auto around = static_cast<std::size_t>(slice.around);
      if (slice.around >= 0) paths_[i] = paths_[around];
      steps_[i] = slice.around < 0 ? i : steps_[around];
      if (slice.lane == "host") continue;
      if (slice.around < 0)
        add_step(i);
      else if (slice.is_operation)
        add_operation(i);
      else
        paths_[i] += (paths_[i].empty() ? "" : " > ") + generic(slice.name);
    }
    for (const auto& [rank, times] : comm_)
      exposed_ += uncovered(times, compute_.contains(rank) ? compute_.at(rank) : Intervals{});
    rank_steps_ = std::max<double>(1, static_cast<double>(compute_steps_));
    double gaps = 0;
    for (const auto& [step, path] : critical_paths_)
      gaps += path.end - path.begin - path.worked;
    if (gaps > kSmallestGap) critical_["(gaps)"].seconds = gaps;
  }

  [[nodiscard]] std::string text() const {
    std::string out =
        fmt::format("{} rank{}, {} step{} of {:.3f} ms{}\n", file_.ranks,
                    file_.ranks == 1 ? "" : "s", steps_in_file(), steps_in_file() == 1 ? "" : "s",
                    1e3 * step(), file_.steps_left_out ? " (the first and the slowest)" : "");
    if (operations_.empty())
      return out + "no operations: the graph was not replayed, or the backend records none\n";
    out += "\n" + table("path", by_path_, rank_steps_, false);
    out += "\n" + table("operation", by_kind_, rank_steps_, true);
    Table lanes({"lane", "busy", "gaps", "longest gap, ms"});
    for (const auto& [name, lane] : lanes_)
      lanes.add({name, percent_text(lane.busy / steps_seconds_), std::to_string(lane.gaps),
                 fmt::format("{:.3f}", 1e3 * lane.longest_gap)});
    out += "\n" + lanes.text();
    out += fmt::format("\nexposed communication: {:.3f} ms a step ({})\n",
                       1e3 * exposed_ / rank_steps_, percent_text(exposed_ / rank_steps_ / step()));
    out += "\n" + table("on the critical path", critical_, steps_in_file(), false);
    Table longest({"longest operations", "ms", "rank", "path"});
    for (const std::size_t i : longest_operations()) {
      const TimelineSlice& slice = file_.slices[i];
      longest.add({kind_of(slice), fmt::format("{:.3f}", 1e3 * (slice.end - slice.begin)),
                   std::to_string(slice.rank), paths_[i]});
    }
    return out + "\n" + longest.text();
  }

  [[nodiscard]] std::string json() const {
    const auto rows = [](const std::map<std::string, WorkSum>& sums, double steps) {
      Json out = Json::array();
      for (const auto& [name, sum] : sorted(sums))
        out.push_back({{"name", name},
                       {"calls", sum.calls},
                       {"ms", 1e3 * sum.seconds / steps},
                       {"waited_ms", 1e3 * sum.waited / steps},
                       {"flops", sum.flops},
                       {"bytes", sum.bytes}});
      return out;
    };
    Json lanes = Json::object();
    for (const auto& [name, lane] : lanes_)
      lanes[name] = {{"busy", lane.busy / steps_seconds_},
                     {"gaps", lane.gaps},
                     {"longest_gap_ms", 1e3 * lane.longest_gap}};
    Json longest = Json::array();
    for (const std::size_t i : longest_operations()) {
      const TimelineSlice& slice = file_.slices[i];
      longest.push_back({{"name", kind_of(slice)},
                         {"ms", 1e3 * (slice.end - slice.begin)},
                         {"rank", slice.rank},
                         {"path", paths_[i]}});
    }
    return json_text(Json{{"ranks", file_.ranks},
                          {"steps", static_cast<std::int64_t>(steps_in_file())},
                          {"step_ms", 1e3 * step()},
                          {"steps_left_out", file_.steps_left_out},
                          {"paths", rows(by_path_, rank_steps_)},
                          {"operations", rows(by_kind_, rank_steps_)},
                          {"lanes", lanes},
                          {"exposed_communication_ms", 1e3 * exposed_ / rank_steps_},
                          {"critical_path", rows(critical_, steps_in_file())},
                          {"longest", longest}}) +
           "\n";
  }

 private:
  using Intervals = std::vector<std::pair<double, double>>;  // in order, disjoint

  static std::string kind_of(const TimelineSlice& slice) {
    return fmt::format("{}{}{} {}", generic(slice.name), slice.shape.empty() ? "" : " ",
                       slice.shape, slice.dtype);
  }
  [[nodiscard]] double step() const { return steps_seconds_ / rank_steps_; }
  [[nodiscard]] double steps_in_file() const {
    return file_.ranks == 0 ? 0 : static_cast<double>(compute_steps_) / file_.ranks;
  }

  // The outermost slice of a lane.
  void add_step(std::size_t i) {
    const TimelineSlice& slice = file_.slices[i];
    if (slice.lane == "compute") {
      ++compute_steps_;
      steps_seconds_ += slice.end - slice.begin;
    }
    last_end_[{slice.rank, slice.lane}] = slice.begin;
  }

  void add_operation(std::size_t i) {
    const TimelineSlice& slice = file_.slices[i];
    operations_.push_back(i);
    by_path_[paths_[i].empty() ? "(no range)" : paths_[i]].add(slice);
    by_kind_[kind_of(slice)].add(slice);
    if (slice.critical) {
      WorkSum& sum = critical_[kind_of(slice)];
      sum.add(slice);
      sum.seconds -= std::exchange(sum.waited, 0);  // the path goes to another rank meanwhile
      CriticalPath& path = critical_paths_[file_.slices[steps_[i]].name];
      const double begin = slice.begin + slice.waited;
      path.begin = path.worked == 0 ? begin : std::min(path.begin, begin);
      path.end = std::max(path.end, slice.end);
      path.worked += slice.end - begin;
    }
    LaneUse& lane = lanes_[slice.lane];
    lane.busy += slice.end - slice.begin;
    double& last = last_end_[{slice.rank, slice.lane}];
    if (slice.begin > last + kClockError) {
      ++lane.gaps;
      lane.longest_gap = std::max(lane.longest_gap, slice.begin - last);
    }
    last = slice.end;
    if (slice.lane == "compute") compute_[slice.rank].emplace_back(slice.begin, slice.end);
    if (slice.lane == "comm") comm_[slice.rank].emplace_back(slice.begin, slice.end);
  }

  // Length of the intervals `of` outside of `by`.
  static double uncovered(const Intervals& of, const Intervals& by) {
    double out = 0;
    auto at = by.begin();
    for (const auto& [begin, end] : of) {
      double from = begin;
      while (at != by.end() && at->second <= from)
        ++at;
      for (auto cover = at; cover != by.end() && cover->first < end; ++cover) {
        out += std::max(0.0, cover->first - from);
        from = std::max(from, cover->second);
      }
      out += std::max(0.0, end - from);
    }
    return out;
  }

  static std::vector<std::pair<std::string, WorkSum>> sorted(
      const std::map<std::string, WorkSum>& sums) {
    std::vector<std::pair<std::string, WorkSum>> out(sums.begin(), sums.end());
    std::ranges::stable_sort(
        out, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    return out;
  }

  [[nodiscard]] std::string table(const std::string& what,
                                  const std::map<std::string, WorkSum>& sums, double steps,
                                  bool rates) const {
    std::vector<std::string> head = {what, "ms/step", "share", "calls"};
    if (rates) head.insert(head.end(), {"waiting, ms", "rate"});
    Table out(std::move(head));
    double rest = 0;
    for (const auto& [name, sum] : sorted(sums)) {
      const double seconds = sum.seconds / steps;
      if (seconds < kSmallestRow * step()) {
        rest += seconds;
        continue;
      }
      std::vector<std::string> row = {
          name, fmt::format("{:.3f}", 1e3 * seconds), percent_text(seconds / step()),
          fmt::format("{:.4g}", static_cast<double>(sum.calls) / steps)};
      if (rates) {
        row.push_back(sum.waited > 0 ? fmt::format("{:.3f}", 1e3 * sum.waited / steps) : "");
        row.push_back(sum.rate(file_.peak_flops));
      }
      out.add(std::move(row));
    }
    if (rest > 0) {
      std::vector<std::string> row = {"(others)", fmt::format("{:.3f}", 1e3 * rest),
                                      percent_text(rest / step()), ""};
      if (rates) row.insert(row.end(), {"", ""});
      out.add(std::move(row));
    }
    return out.text();
  }

  [[nodiscard]] std::vector<std::size_t> longest_operations() const {
    std::vector<std::size_t> out = operations_;
    std::ranges::stable_sort(out, std::ranges::greater(), [&](std::size_t i) {
      return file_.slices[i].end - file_.slices[i].begin;
    });
    out.resize(std::min(out.size(), kLongestRows));
    return out;
  }

  const TimelineFile& file_;
  std::vector<std::string> paths_;  // by slice, without the step
  std::vector<std::size_t> steps_;  // by slice: the outermost one around it
  std::vector<std::size_t> operations_;
  std::map<std::string, WorkSum> by_path_, by_kind_, critical_;
  std::map<std::string, CriticalPath> critical_paths_;  // by step
  std::map<std::string, LaneUse> lanes_;
  std::map<std::pair<int, std::string>, double> last_end_;
  std::map<int, Intervals> compute_, comm_;  // by rank
  double exposed_ = 0, steps_seconds_ = 0, rank_steps_ = 1;
  std::int64_t compute_steps_ = 0;
};

}  // namespace

TimelineFile read_timeline(std::string_view text, const std::filesystem::path& file) {
  const nlohmann::json root = parse_strict_json(text, file.string());
  try {
    return TimelineReader(root, file).take();
  } catch (const nlohmann::json::exception& error) {
    throw InputError(concat(file.string(), ": not a timeline of muograph: ", error.what()));
  }
}

std::string timeline_text(const TimelineFile& timeline) { return TimelineReport(timeline).text(); }
std::string timeline_report_json(const TimelineFile& timeline) {
  return TimelineReport(timeline).json();
}

}  // namespace muo::kit
