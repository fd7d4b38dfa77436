#pragma once

#include <string_view>

namespace muo {

// report/page as one file, by page.cmake, with @PLOTLY@ and @RUNS@ where those go.
extern const std::string_view kReportPage;

}  // namespace muo
