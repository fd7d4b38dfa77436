#pragma once

#include <string_view>

namespace muo::app {

// report/page as one file, by page.cmake, with @POLICY@, @NONCE@, @PLOTLY@ and @RUNS@ where those
// go.
extern const std::string_view kReportPage;

}  // namespace muo::app
