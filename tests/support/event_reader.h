#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muo::test {

// An event of a TensorBoard file, parsed by a reader that shares no code with the writer.
struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version;
  bool starts = false;  // SessionLog START
  std::vector<std::pair<std::string, float>> scalars;
  std::map<std::string, std::string> texts;    // those of the `text` plug-in, by tag
  std::map<std::string, std::string> hparams;  // HParamsPluginData as bytes, by tag
};

// Returns every record of the file. Throws Error if a length or checksum is wrong, or if the
// file is truncated.
std::vector<ReadEvent> read_events(const std::filesystem::path& file);

// The event files of a run directory in TensorBoard's order, i.e. by name.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& run);

// The data that TensorBoard shows for a run directory: scalars by tag, with values by step, in the
// order of writing. TensorBoard's two readers discard points of earlier files in different ways.
enum class Forgets : std::uint8_t {
  kAtStart,  // points not before the step of a START, except the first START; --load_fast=false
  kPerTag,   // per tag, points not before the step of a point written later; fast loader
};
using Curves = std::map<std::string, std::vector<std::pair<std::int64_t, float>>>;
Curves shown_curves(const std::filesystem::path& run, Forgets how);

}  // namespace muo::test
