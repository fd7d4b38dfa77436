#include "app/checkpoint_saver.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "app/durable_files.h"
#include "app/manifest.h"
#include "app/tensor_checksum.h"
#include "base/check.h"

namespace muo {
namespace {

namespace fs = std::filesystem;

// What a rank will write of one tensor.
struct Part {
  SafetensorsSpec spec;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

std::vector<SafetensorsSpec> whole_tensors(std::vector<Part> parts) {
  std::ranges::sort(parts, [](const Part& a, const Part& b) {
    return std::tuple(std::string_view(a.spec.name), a.begin, a.end) <
           std::tuple(std::string_view(b.spec.name), b.begin, b.end);
  });
  std::vector<SafetensorsSpec> tensors;
  for (std::size_t i = 0; i < parts.size();) {
    const SafetensorsSpec& spec = parts[i].spec;
    std::int64_t covered = 0;
    for (; i < parts.size() && parts[i].spec.name == spec.name; ++i) {
      MUO_CHECK(parts[i].spec.shape == spec.shape && parts[i].spec.dtype == spec.dtype,
                "ranks disagree about ", spec.name);
      MUO_CHECK(parts[i].begin == covered, spec.name, ": elements from ", covered, " to ",
                parts[i].begin, " have no writer, or two");
      covered = parts[i].end;
    }
    MUO_CHECK(covered == spec.shape.numel(), spec.name, ": elements from ", covered, " to ",
              spec.shape.numel(), " have no writer");
    tensors.push_back(spec);
  }
  return tensors;
}

// A safetensors file that the ranks fill together.
class FileInProgress {
 public:
  FileInProgress(const fs::path& path, std::span<const SafetensorsSpec> specs)
      : layout_(layout_safetensors(specs, {{"format", "pt"}})),
        file_(path, layout_.file_bytes),
        checksums_(layout_.entries.size()) {
    for (std::size_t i = 0; i < layout_.entries.size(); ++i)
      index_[layout_.entries[i].spec.name] = i;
  }

  // Elements from `begin` on of the tensor; thread-safe.
  void write(std::string_view tensor, std::int64_t begin, std::span<const std::byte> bytes) {
    const std::size_t i = index_.find(tensor)->second;
    const SafetensorsEntry& entry = layout_.entries[i];
    checksums_[i] += tensor_checksum(entry.spec.dtype, begin, bytes);
    file_.write(entry.begin + begin * size_of(entry.spec.dtype), bytes);
  }
  void write_head() const { file_.write(0, layout_.head); }
  void sync() const { file_.sync(); }

  [[nodiscard]] ManifestFile describe() const {
    ManifestFile out;
    out.bytes = layout_.file_bytes;
    out.head_checksum = tensor_checksum(DType::kBytes, 0, layout_.head);
    for (const SafetensorsEntry& entry : layout_.entries)
      out.tensors.push_back(entry.spec);
    out.checksums.assign(checksums_.begin(), checksums_.end());
    return out;
  }

 private:
  SafetensorsLayout layout_;
  OutputFile file_;
  std::vector<std::atomic<std::uint64_t>> checksums_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace

class CheckpointSaver::Impl {
 public:
  Impl(fs::path run, int world) : run_(std::move(run)), parts_(static_cast<std::size_t>(world)) {}
  ~Impl() { abandon(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void save(const RankContext& rank, const CheckpointInfo& info,
            std::span<const StateEntry> entries);

  std::function<void(std::string_view)> hook;

 private:
  void begin(std::int64_t step);
  void write(const RankContext& rank, std::span<const StateEntry> entries);
  void commit(CheckpointInfo info);
  void abandon() noexcept;
  void remove_leftovers() const;
  template <class Action>
  void attempt(const RankContext& rank, const Action& action);
  void change(std::string_view what) const {
    RankProgress::alive();
    if (hook) hook(what);
  }

  const fs::path run_;
  std::vector<std::vector<Part>> parts_;  // [rank]
  fs::path temporary_;                    // empty: no save is under way
  fs::path aside_;                        // where a replaced checkpoint goes
  DirectoryLock lock_;
  std::vector<std::unique_ptr<FileInProgress>> files_;
  bool begun_ = false;
  std::mutex failure_mutex_;
  std::string failure_;   // the first; empty: none
  int failed_rank_ = -1;  // whose it was
};

template <class Action>
void CheckpointSaver::Impl::attempt(const RankContext& rank, const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_.empty()) return;
    failure_ = error.what();
    failed_rank_ = rank.rank;
  }
}

// The ranks meet twice: before, the leader knows what each of them will write and makes the files;
// after, it knows that all have written. No rank may leave early, so failures wait for the end.
void CheckpointSaver::Impl::save(const RankContext& rank, const CheckpointInfo& info,
                                 std::span<const StateEntry> entries) {
  MUO_CHECK(static_cast<std::size_t>(rank.world) == parts_.size(), rank.world, " ranks");
  const RankProgress::Scope saving(Activity::kFiles);
  std::vector<Part>& mine = parts_[static_cast<std::size_t>(rank.rank)];
  mine.clear();
  for (const StateEntry& entry : entries) {
    if (!entry.writer) continue;
    mine.push_back({.spec = {.name = entry.name, .dtype = entry.values.dtype, .shape = entry.shape},
                    .begin = entry.begin,
                    .end = entry.begin + entry.values.numel()});
  }
  const auto start = [&] {
    failure_.clear();
    begun_ = false;
    attempt(rank, [&] {
      begin(info.step);
      begun_ = true;
    });
  };
  const auto end = [&] {
    if (failure_.empty()) attempt(rank, [&] { commit(info); });
    abandon();
  };
  rank.barrier.arrive(start, "checkpoint save");
  if (begun_) attempt(rank, [&] { write(rank, entries); });
  rank.barrier.arrive(end, "checkpoint save");
  if (failure_.empty()) return;
  const std::string what = concat("checkpoint of step ", info.step, " not saved: ", failure_);
  if (rank.rank == failed_rank_) throw Error(what);
  throw PeerFailed(what);
}

void CheckpointSaver::Impl::begin(std::int64_t step) {
  std::vector<Part> all;
  for (const std::vector<Part>& part : parts_)
    all.insert(all.end(), part.begin(), part.end());
  std::array<std::vector<SafetensorsSpec>, kCheckpointFiles.size()> specs;
  for (SafetensorsSpec& spec : whole_tensors(std::move(all)))
    specs[checkpoint_file_of(spec.name)].push_back(std::move(spec));

  const fs::path target = checkpoint_directory(run_, step);
  const fs::path parent = target.parent_path();
  if (std::error_code error; !fs::is_directory(parent, error)) {
    change("create the run directory");
    fs::create_directories(parent, error);
    if (error)
      throw Error(concat("cannot create ", parent.string(), ": ", error.message(),
                         "; check the path and its permissions, or write elsewhere (--out)"));
    sync_directory(run_);
  }
  remove_leftovers();
  const std::string hidden = "." + target.filename().string();
  aside_ = parent / fmt::format("{}.old-{}", hidden, getpid());
  const fs::path temporary = parent / fmt::format("{}.tmp-{}", hidden, getpid());
  change("create the temporary directory");
  make_directory(temporary);
  temporary_ = temporary;
  lock_ = DirectoryLock::try_lock(temporary_);
  for (std::size_t f = 0; f < kCheckpointFiles.size(); ++f) {
    change("create a file");
    files_.push_back(std::make_unique<FileInProgress>(temporary_ / kCheckpointFiles[f], specs[f]));
  }
}

void CheckpointSaver::Impl::write(const RankContext& rank, std::span<const StateEntry> entries) {
  constexpr std::int64_t kStagingBytes = 4 << 20;
  std::vector<std::byte> staging(kStagingBytes);
  for (const StateEntry& entry : entries) {
    if (!entry.writer) continue;
    const DType dtype = entry.values.dtype;
    const std::int64_t most = kStagingBytes / size_of(dtype);
    const std::int64_t count = entry.values.numel();
    for (std::int64_t at = 0; at < count; at += most) {
      const std::int64_t elements = std::min(most, count - at);
      const Tensor host{.data = staging.data(), .shape = {elements}, .dtype = dtype};
      rank.compute.copy(host, entry.values.elements(at, elements));
      rank.wait(rank.compute);
      change("write a part");
      files_[checkpoint_file_of(entry.name)]->write(
          entry.name, entry.begin + at, {staging.data(), static_cast<std::size_t>(host.bytes())});
    }
  }
}

void CheckpointSaver::Impl::commit(CheckpointInfo info) {
  Manifest manifest;
  info.world = static_cast<int>(parts_.size());
  manifest.info = std::move(info);
  for (std::size_t f = 0; f < files_.size(); ++f) {
    change("write a header");
    files_[f]->write_head();
    change("sync a file");
    files_[f]->sync();
    manifest.files[f] = files_[f]->describe();
  }
  const std::string text = manifest_text(manifest);
  change("create the manifest");
  const OutputFile file(temporary_ / kManifestName, static_cast<std::int64_t>(text.size()));
  change("write the manifest");
  file.write(0, std::as_bytes(std::span(text)));
  change("sync the manifest");
  file.sync();
  change("sync the temporary directory");
  sync_directory(temporary_);
  const fs::path target = checkpoint_directory(run_, manifest.info.step);
  change("rename");
  move_directory(temporary_, target, aside_);
  change("sync the run directory");
  sync_directory(target.parent_path());
}

// Leaves nothing of a save but, if it was committed, the checkpoint. What cannot be removed now is
// removed by a later save.
void CheckpointSaver::Impl::abandon() noexcept {
  files_.clear();
  if (temporary_.empty()) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
  fs::remove_all(aside_, ignored);
  temporary_.clear();
  lock_ = {};
}

void CheckpointSaver::Impl::remove_leftovers() const {
  std::error_code ignored;
  for (fs::directory_iterator it(run_ / "checkpoints", ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    const bool hidden = name.starts_with(".step_") && (name.find(".tmp-") != std::string::npos ||
                                                       name.find(".old-") != std::string::npos);
    if (!hidden) continue;
    if (const DirectoryLock lock = DirectoryLock::try_lock(it->path())) {
      change("remove a leftover");
      std::error_code failed;
      fs::remove_all(it->path(), failed);
    }
  }
}

CheckpointSaver::CheckpointSaver(fs::path run, int world)
    : impl_(std::make_unique<Impl>(std::move(run), world)) {}

CheckpointSaver::~CheckpointSaver() = default;

void CheckpointSaver::save(const RankContext& rank, const CheckpointInfo& info,
                           std::span<const StateEntry> entries) {
  impl_->save(rank, info, entries);
}

void CheckpointSaver::on_change(std::function<void(std::string_view change)> hook) {
  impl_->hook = std::move(hook);
}

}  // namespace muo
