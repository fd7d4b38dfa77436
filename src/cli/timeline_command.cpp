#include "base/file_bytes.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "kit/bench/timeline_report.h"

namespace muo::cli {

int run_command(const trainer::TimelineOptions& options) {
  const FileBytes bytes(options.file);
  const kit::TimelineFile timeline = kit::read_timeline(bytes.text(), options.file);
  say(stdout, options.json ? kit::timeline_report_json(timeline) : kit::timeline_text(timeline));
  return 0;
}

}  // namespace muo::cli
