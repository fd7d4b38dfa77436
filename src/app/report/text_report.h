#pragma once

#include <span>
#include <string>

#include "app/report/run_history.h"

namespace muo {

struct TextReportOptions {
  int columns = 80;
  bool braille = false;  // dots of UTF-8's braille characters; else ASCII
};

// A run for a terminal: what came out, and small curves of loss, held-out loss (in bits per byte
// where they are known) and tokens per second by step. Each column shows all that is in it from the
// lowest to the highest value, so that no spike is lost.
std::string text_report(const RunHistory& run, const std::string& name,
                        const TextReportOptions& options);

}  // namespace muo
