#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muo::test {

// An event of a TensorBoard file, as a reader of ours that shares no code with the writer takes it.
struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version;
  bool starts = false;  // SessionLog START
  std::vector<std::pair<std::string, float>> scalars;
  std::map<std::string, std::string> texts;    // of the plug-in text, by tag
  std::map<std::string, std::string> hparams;  // HParamsPluginData as bytes, by tag
};

// Every record of the file; Error if a length or a checksum is not right, or the file ends in one.
std::vector<ReadEvent> read_events(const std::filesystem::path& file);

// The event files of a run directory, in TensorBoard's order: by name.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& run);

// What TensorBoard shows of a run directory: scalars by tag, values by step, in the order in which
// they were written. Its two readers forget points of earlier files in two ways.
enum class Forgets : std::uint8_t {
  kAtStart,  // all that is not before the step of a START but the first; --load_fast=false
  kPerTag,   // of a tag, all that is not before the step of its next point; the fast one
};
using Curves = std::map<std::string, std::vector<std::pair<std::int64_t, float>>>;
Curves shown_curves(const std::filesystem::path& run, Forgets how);

}  // namespace muo::test
