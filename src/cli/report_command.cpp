#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/file_bytes.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "cli/given_runs.h"
#include "cli/result_file.h"
#include "kit/report/followed_runs.h"
#include "kit/report/html_report.h"
#include "kit/report/http_server.h"
#include "kit/report/live_page.h"
#include "kit/report/text_report.h"
#include "kit/sweep/find_sweep.h"
#include "kit/sweep/transfer.h"
#include "trainer/train/stop_signal.h"

namespace muo::cli {
namespace {

namespace fs = std::filesystem;

// The interval at which the files of runs are polled, for all pages together.
constexpr std::chrono::milliseconds kPause{500};
constexpr std::chrono::milliseconds kSignalPoll{50};

// Prints the curves of each run, or for a sweep the table of its trials.
void print_text(const std::vector<fs::path>& given) {
  const Terminal terminal(STDOUT_FILENO);
  const kit::TextReportOptions options{.columns = terminal.is_live() ? terminal.columns() : 80,
                                       .braille = terminal.unicode()};
  const std::vector<std::string> names = kit::run_names(given);
  std::vector<kit::RunSummary> all;
  all.reserve(given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::vector<fs::path> directories = runs_of({given[i]});
    std::vector<kit::RunSummary> trials;
    trials.reserve(directories.size());
    const bool is_sweep = kit::holds_sweep(given[i]);
    if (i > 0) say(stdout, "\n");
    for (const fs::path& directory : directories) {
      const kit::RunHistory history = read_noted(directory);
      const std::string name = printable(is_sweep ? directory.filename().string() : names[i]);
      trials.push_back(kit::summary_of(history, name));
      if (!is_sweep) say(stdout, kit::text_report(history, name, options));
    }
    if (is_sweep) say(stdout, kit::trial_table(trials));
    // The trials of a sweep share their data.
    all.push_back(std::move(trials.front()));
    all.back().name = printable(names[i]);
  }
  if (const std::string text = kit::incomparable_text(all); !text.empty())
    say(stdout, fmt::format("\n{}", text));
}

// The predictions of sweeps with --transfer-to that have ended.
std::vector<std::string> transfers_of(const std::vector<fs::path>& given) {
  std::vector<std::string> out;
  for (const fs::path& directory : given)
    if (const fs::path file = directory / kit::kTransferFile;
        kit::holds_sweep(directory) && fs::exists(file)) {
      const FileBytes bytes(file);
      if (nlohmann::json::accept(bytes.text()))
        out.emplace_back(bytes.text());
      else
        note(fmt::format("{} is left out: it is not JSON", file.string()));
    }
  return out;
}

// Serves the page until a signal arrives, and returns the signal's number.
int follow(const trainer::ReportOptions& options) {
  kit::FollowedRuns runs(without_duplicates(options.runs), kPause);
  const FileBytes plotly(options.plotly.empty() ? kit::find_plotly() : fs::path(options.plotly));
  kit::LivePage page(runs, plotly.text());
  const trainer::StopSignal signals;
  const auto server = kit::serve_http({.port = static_cast<int>(options.port),
                                       .headers = page.headers(),
                                       .answer = [&](const kit::HttpRequest& request, int port) {
                                         return page.answer(request, port);
                                       }});
  say(stdout, fmt::format("http://127.0.0.1:{}/ shows the runs live; press Ctrl-C to stop\n",
                          server->port()));
  static_cast<void>(std::fflush(stdout));
  while (signals.number() == 0) {
    std::this_thread::sleep_for(kSignalPoll);
    if (!server->is_serving()) throw Error("report --follow: the server has ended");
  }
  runs.stop();
  return signals.number();
}

}  // namespace

int run_command(const trainer::ReportOptions& options) {
  if (options.follow) return 128 + follow(options);
  if (options.text) {
    print_text(without_duplicates(options.runs));
    return 0;
  }
  require_writable("--out", options.out);  // first, because reading runs may take a long time
  const FileBytes plotly(options.plotly.empty() ? kit::find_plotly() : fs::path(options.plotly));
  const std::vector<fs::path> directories = without_duplicates(runs_of(options.runs));
  const std::vector<std::string> names = kit::run_names(directories);
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < directories.size(); ++i) {
    runs.push_back(kit::run_data(read_noted(directories[i]), names[i],
                                 kit::points_per_curve(directories.size())));
  }
  const std::string page = kit::report_page(runs, plotly.text(), transfers_of(options.runs));
  replace_file(options.out, page);
  say(stdout, fmt::format("{}: {} run{}, {:.1f} MB\n", options.out, runs.size(),
                          runs.size() == 1 ? "" : "s", static_cast<double>(page.size()) / 1e6));
  return 0;
}

}  // namespace muo::cli
