#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace muo::kit {

// A timeline (runtime/timeline.h), read back.
struct TimelineSlice {
  int rank = 0;
  std::string lane;  // host, compute, comm or update
  std::string name;
  double begin = 0, end = 0;  // seconds
  std::int64_t around = -1;   // index of the slice around it on its lane; -1: none
  // The rest is of operations.
  bool is_operation = false;
  std::string dtype = {}, shape = {};
  double flops = 0, bytes = 0;
  double waited = 0;  // seconds, of a collective, for its last rank
  bool critical = false;
};
struct TimelineFile {
  std::vector<TimelineSlice> slices;  // by rank and lane, in the order in which they begin
  int ranks = 0;
  bool steps_left_out = false;
  double peak_flops = 0;  // FLOP/s of a device; 0: unknown
};

// Throws InputError that names `file` unless the text is a timeline in which no slice is negative
// or overlaps another of its lane without being inside it, and every flow has both ends in order.
TimelineFile read_timeline(std::string_view text, const std::filesystem::path& file);

// The steps by path, by kind of operation and by lane, the exposed communication, the critical path
// and the longest operations. Times are means over steps and ranks.
std::string timeline_text(const TimelineFile& timeline);
std::string timeline_report_json(const TimelineFile& timeline);

}  // namespace muo::kit
