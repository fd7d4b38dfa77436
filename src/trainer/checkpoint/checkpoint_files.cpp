#include "trainer/checkpoint/checkpoint_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/host_name.h"
#include "runtime/rank_progress.h"
#include "trainer/checkpoint/checkpoint.h"

namespace muo::trainer {
namespace {

namespace fs = std::filesystem;

std::vector<SafetensorsSpec> whole_tensors(std::vector<CheckpointRange> ranges) {
  std::ranges::sort(ranges, [](const CheckpointRange& a, const CheckpointRange& b) {
    return std::tuple(std::string_view(a.spec.name), a.begin, a.end) <
           std::tuple(std::string_view(b.spec.name), b.begin, b.end);
  });
  std::vector<SafetensorsSpec> tensors;
  for (std::size_t i = 0; i < ranges.size();) {
    const SafetensorsSpec& spec = ranges[i].spec;
    std::int64_t covered = 0;
    for (; i < ranges.size() && ranges[i].spec.name == spec.name; ++i) {
      MUO_CHECK(ranges[i].spec.shape == spec.shape && ranges[i].spec.dtype == spec.dtype,
                "shape or dtype of ", spec.name, " differs between ranks");
      MUO_CHECK(ranges[i].begin == covered, spec.name, ": elements from ", covered, " to ",
                ranges[i].begin, " have no writer, or two");
      covered = ranges[i].end;
    }
    MUO_CHECK(covered == spec.shape.numel(), spec.name, ": elements from ", covered, " to ",
              spec.shape.numel(), " have no writer");
    tensors.push_back(spec);
  }
  return tensors;
}

// Returns the host's name as part of a file name.
std::string host_in_name() {
  std::string name = host_name();
  std::ranges::replace(name, '/', '_');
  return name;
}

// True if `name` is a hidden name created by this host. Locks held on another host may be invisible
// here, so its processes cannot be known to be dead.
bool is_leftover_of_here(const std::string& name) {
  if (!name.starts_with(".step_")) return false;
  for (const std::string_view kind : {".tmp-", ".old-"})
    if (const std::size_t at = name.find(kind); at != std::string::npos) {
      const std::string owner = name.substr(at + kind.size());
      const std::size_t dash = owner.rfind('-');
      return dash == std::string::npos || owner.substr(0, dash) == host_in_name();
    }
  return false;
}

}  // namespace

fs::path hidden_beside(const fs::path& checkpoint, std::string_view kind, HiddenName name) {
  const std::string host = name == HiddenName::kHostAndPid ? host_in_name() + "-" : "";
  return checkpoint.parent_path() /
         fmt::format(".{}.{}-{}{}", checkpoint.filename().string(), kind, host, getpid());
}

// A safetensors file that several writers fill.
class CheckpointFiles::File {
 public:
  enum class Open : std::uint8_t { kCreate, kJoin };
  File(const fs::path& path, std::span<const SafetensorsSpec> specs, Open how)
      : layout_(layout_safetensors(specs, {{"format", "pt"}})),
        file_(how == Open::kCreate ? OutputFile(path, layout_.file_bytes) : OutputFile(path)),
        checksums_(layout_.entries.size()) {
    for (std::size_t i = 0; i < layout_.entries.size(); ++i)
      index_[layout_.entries[i].spec.name] = i;
  }

  // Writes elements from `begin` on of the tensor. Thread-safe.
  void write(std::string_view tensor, std::int64_t begin, std::span<const std::byte> bytes) {
    const std::size_t i = index_.find(tensor)->second;
    const SafetensorsEntry& entry = layout_.entries[i];
    // No update commits a non-finite number, so either memory is corrupt or the program is wrong.
    if (!all_finite(entry.spec.dtype, bytes))
      throw Error(concat(tensor, " has a non-finite number: resume from an older checkpoint"));
    checksums_[i] += tensor_checksum(entry.spec.dtype, begin, bytes);
    file_.write(entry.begin + begin * size_of(entry.spec.dtype), bytes);
  }
  void write_head() const { file_.write(0, layout_.head); }
  void sync() const { file_.sync(); }

  [[nodiscard]] std::vector<SafetensorsSpec> tensors() const {
    std::vector<SafetensorsSpec> out;
    for (const SafetensorsEntry& entry : layout_.entries)
      out.push_back(entry.spec);
    return out;
  }
  [[nodiscard]] std::vector<std::uint64_t> checksums() const {
    return {checksums_.begin(), checksums_.end()};
  }
  void add(const std::vector<std::uint64_t>& others) {
    MUO_CHECK(others.size() == checksums_.size(), others.size(), " checksums for ",
              checksums_.size(), " tensors");
    for (std::size_t i = 0; i < others.size(); ++i)
      checksums_[i] += others[i];
  }
  [[nodiscard]] ManifestFile describe() const {
    return {.bytes = layout_.file_bytes,
            .head_checksum = tensor_checksum(DType::kBytes, 0, layout_.head),
            .tensors = tensors(),
            .checksums = checksums()};
  }

 private:
  SafetensorsLayout layout_;
  OutputFile file_;
  std::vector<std::atomic<std::uint64_t>> checksums_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

CheckpointFiles::CheckpointFiles(fs::path run, HiddenName name)
    : run_(std::move(run)), name_(name) {}

CheckpointFiles::~CheckpointFiles() { abandon(); }

void CheckpointFiles::change(std::string_view what) {
  changes_.fetch_add(1, std::memory_order_relaxed);
  RankProgress::alive();
  if (hook) hook(what);
}

void CheckpointFiles::begin(std::int64_t step, std::vector<CheckpointRange> ranges) {
  std::array<std::vector<SafetensorsSpec>, kCheckpointFiles.size()> specs;
  for (SafetensorsSpec& spec : whole_tensors(std::move(ranges)))
    specs[checkpoint_file_of(spec.name)].push_back(std::move(spec));

  const fs::path target = checkpoint_directory(run_, step);
  const fs::path parent = target.parent_path();
  if (std::error_code error; !fs::is_directory(parent, error)) {
    change("create the run directory");
    make_directories(parent);
  }
  remove_leftovers();
  aside_ = hidden_beside(target, "old", name_);
  const fs::path temporary = hidden_beside(target, "tmp", name_);
  change("create the temporary directory");
  make_directory(temporary);
  temporary_ = temporary;
  lock_ = FileLock::try_directory(temporary_);
  for (std::size_t f = 0; f < kCheckpointFiles.size(); ++f) {
    change("create a file");
    files_.push_back(
        std::make_unique<File>(temporary_ / kCheckpointFiles[f], specs[f], File::Open::kCreate));
  }
}

CheckpointPlan CheckpointFiles::plan() const {
  CheckpointPlan plan{.directory = fs::absolute(temporary_), .tensors = {}};
  for (std::size_t f = 0; f < files_.size(); ++f)
    plan.tensors[f] = files_[f]->tensors();
  return plan;
}

void CheckpointFiles::join(const CheckpointPlan& plan) {
  for (std::size_t f = 0; f < kCheckpointFiles.size(); ++f) {
    change("open a file");
    try {
      files_.push_back(std::make_unique<File>(plan.directory / kCheckpointFiles[f], plan.tensors[f],
                                              File::Open::kJoin));
    } catch (const WriteError& error) {
      throw WriteError(
          concat("host ", host_name(), ": ", error.what(),
                 "; all processes of a run need this path on a file system that they share"));
    }
  }
}

CheckpointSums CheckpointFiles::sync() {
  CheckpointSums sums;
  for (std::size_t f = 0; f < files_.size(); ++f) {
    change("sync a file");
    files_[f]->sync();
    sums[f] = files_[f]->checksums();
  }
  return sums;
}

void CheckpointFiles::add(const CheckpointSums& others) {
  for (std::size_t f = 0; f < files_.size(); ++f)
    files_[f]->add(others[f]);
}

void CheckpointFiles::write(std::string_view tensor, std::int64_t begin,
                            std::span<const std::byte> bytes) {
  change("write a range");
  files_[checkpoint_file_of(tensor)]->write(tensor, begin, bytes);
}

void CheckpointFiles::commit(CheckpointInfo info) {
  Manifest manifest;
  manifest.info = std::move(info);
  for (std::size_t f = 0; f < files_.size(); ++f) {
    change("write a header");
    files_[f]->write_head();
    change("sync a file");
    files_[f]->sync();
    manifest.files[f] = files_[f]->describe();
  }
  write_text(kConfigName, config_file_text(manifest.info));
  write_text(kManifestName, manifest_text(manifest));
  change("sync the temporary directory");
  sync_directory(temporary_);
  const fs::path target = checkpoint_directory(run_, manifest.info.step);
  change("rename");
  move_directory(temporary_, target, aside_);
  change("sync the run directory");
  sync_directory(target.parent_path());
  std::error_code ignored;
  fs::remove_all(aside_, ignored);
}

void CheckpointFiles::write_text(const char* name, const std::string& text) {
  change("create a text file");
  const OutputFile file(temporary_ / name, static_cast<std::int64_t>(text.size()));
  change("write a text file");
  file.write(0, std::as_bytes(std::span(text)));
  change("sync a text file");
  file.sync();
}

void CheckpointFiles::abandon() noexcept {
  files_.clear();
  if (temporary_.empty()) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
  temporary_.clear();
  lock_ = {};
}

void CheckpointFiles::remove_leftovers() {
  for (const fs::path& path : entries_of(run_ / "checkpoints")) {
    if (!is_leftover_of_here(path.filename().string())) continue;
    if (const FileLock lock = FileLock::try_directory(path)) {
      change("remove a leftover");
      std::error_code failed;
      fs::remove_all(path, failed);
    }
  }
}

}  // namespace muo::trainer
