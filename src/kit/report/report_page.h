#pragma once

#include <string_view>

namespace muo::kit {

// The files of report/page, combined by page.cmake, with the placeholders @POLICY@, @NONCE@,
// @PLOTLY@, @RUNS@ and @TRANSFERS@.
extern const std::string_view kReportPage;

}  // namespace muo::kit
