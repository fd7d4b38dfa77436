#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/report/run_history.h"

namespace muo::app {

// How many points of each curve a report of so many runs keeps: 4,000 of one, fewer of many, so
// that 200 runs are less than 10 MB.
std::size_t points_per_curve(std::size_t runs);

// What runs are called in a report: the last part of their paths, or all of them where two would be
// the same.
std::vector<std::string> run_names(std::span<const std::filesystem::path> directories);

// A run as the page's script reads it (report/page/model.js): a JSON object, decimated.
std::string run_data(const RunHistory& run, const std::string& name, std::size_t points);

// The page: its own HTML, style and script, plotly.js, and `runs` (of run_data). Nothing in it is
// loaded from elsewhere. Throws InputError if `plotly` would end the page's script element.
std::string report_page(std::span<const std::string> runs, std::string_view plotly);

// The same page without runs, for a server: its script asks for them (report/page/live.js). Its
// Content-Security-Policy is `policy`, and its scripts bear `nonce`. Throws as report_page().
std::string live_page(std::string_view plotly, std::string_view policy, std::string_view nonce);

// plotly.min.js where it was installed (share/muograph beside the program's folder) or fetched for
// the clone that the program was built in. Throws InputError that says how to get it.
std::filesystem::path find_plotly();

}  // namespace muo::app
