#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kit/report/run_history.h"

namespace muo::kit {

// Returns the number of points per curve in a report of this many runs: 4,000 for one run, fewer
// for many, so that the data of 200 runs are less than 10 MB.
std::size_t points_per_curve(std::size_t runs);

// Returns the names of the runs in a report: the last part of each path, or the whole path if two
// names would be equal.
std::vector<std::string> run_names(std::span<const std::filesystem::path> directories);

// Returns a run as a JSON object for the page's script (report/page/model.js), with at most about
// `points` points per curve.
std::string run_data(const RunHistory& run, const std::string& name, std::size_t points);

// Returns the page: its HTML, style and script, plotly.js, `runs` (from run_data()), and
// `transfers` (JSON objects from sweep/transfer.h). The page loads nothing else. Throws InputError
// if `plotly` contains the end of a script element.
std::string report_page(std::span<const std::string> runs, std::string_view plotly,
                        std::span<const std::string> transfers = {});

// Returns the page without runs, for a server: its script requests them (report/page/live.js). The
// Content-Security-Policy is `policy`, and the scripts have `nonce`. Throws as report_page() does.
std::string live_page(std::string_view plotly, std::string_view policy, std::string_view nonce);

// Finds plotly.min.js where it was installed (share/muograph beside the program's folder) or
// fetched in the source tree of the build. Throws InputError with instructions.
std::filesystem::path find_plotly();

}  // namespace muo::kit
