#include "data/input_files.h"

#include <dirent.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include "base/check.h"
#include "base/file_bytes.h"

namespace muo::data {
namespace {

using Identity = std::pair<std::uint64_t, std::uint64_t>;

std::string_view kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a fifo";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "of an unknown type";
}

bool is_pattern(const std::filesystem::path& path) {
  return path.native().find_first_of("*?[") != std::string::npos;
}

// Returns the paths that match, sorted by bytes; none if `pattern` is not a pattern.
std::vector<std::filesystem::path> match(const std::filesystem::path& pattern) {
  if (!is_pattern(pattern)) return {};
  glob_t found{};
  std::vector<std::filesystem::path> out;
  // glob() is unsafe only concurrently with setlocale or setenv, which nothing here calls.
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.native() < b.native();  // operator< compares element by element
  });
  return out;
}

class Walk {
 public:
  void add_named(const std::filesystem::path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      const int error = errno;
      const auto matches = match(path);
      for (const auto& one : matches)
        add_named(one);
      if (!matches.empty()) return;
      if (path.native().find("://") != std::string::npos)
        throw InputError(concat(path.native(), ": is a URL, not a file: download it ",
                                path.native().starts_with("hf://")
                                    ? "(`hf download NAME --repo-type dataset --local-dir data`)"
                                    : "(`curl -LO ADDRESS`)",
                                " and give the file"));
      if (error == ENOENT || error == ENOTDIR)
        throw InputError(
            concat(path.empty() ? "an empty path: " : path.native() + ": ",
                   is_pattern(path) ? "nothing matches this pattern" : "no such file or directory",
                   "; give files, or directories of files"));
      fail_to_read(path, error);
    }
    if (S_ISDIR(status.st_mode)) {
      const auto before = list_.files.size();
      const auto repeated_before = list_.repeated;
      if (is_new(status)) add_directory(path);
      if (list_.files.size() == before && list_.repeated == repeated_before)
        throw InputError(concat(path.native(),
                                ": no file in this directory (hidden files do not count); give one "
                                "that holds text or .bin token shards"));
    } else if (S_ISREG(status.st_mode)) {
      add_file(path, status, true);
    } else {
      throw InputError(concat(path.native(), ": is ", kind_of(status.st_mode),
                              ", not a file; save its contents in a file and give that"));
    }
  }

  FileList take() { return std::move(list_); }

 private:
  struct Entry {
    std::string name;  // with a slash for a directory, so that names sort like whole paths
    struct stat status;
  };

  static Identity identity_of(const struct stat& status) {
    return {std::uint64_t{status.st_dev}, std::uint64_t{status.st_ino}};
  }

  bool is_new(const struct stat& status) {
    const bool fresh = seen_.insert(identity_of(status)).second;
    if (!fresh) ++list_.repeated;
    return fresh;
  }

  void add_file(const std::filesystem::path& path, const struct stat& status, bool named) {
    if (is_new(status))
      list_.files.push_back({.path = path, .named = named, .identity = identity_of(status)});
  }

  std::vector<Entry> entries(const std::filesystem::path& directory) {
    const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), &::closedir);
    if (!open) fail_to_read(directory, errno);
    std::vector<Entry> out;
    for (;;) {
      errno = 0;
      // readdir is safe here, because each call has its own DIR.
      const dirent* const found = ::readdir(open.get());  // NOLINT(concurrency-mt-unsafe)
      if (found == nullptr && errno != 0) fail_to_read(directory, errno);
      if (found == nullptr) break;
      Entry entry{.name = static_cast<const char*>(found->d_name), .status = {}};
      if (entry.name.front() == '.') continue;
      const auto path = directory / entry.name;
      if (::stat(path.c_str(), &entry.status) != 0) {
        const int error = errno;
        // If lstat() fails as well, the directory cannot be searched; otherwise the target of a
        // link is unreadable.
        if (error == EACCES && ::lstat(path.c_str(), &entry.status) != 0)
          fail_to_read(directory, error);
        if (error != ENOENT && error != ELOOP) fail_to_read(path, error);
        ++list_.special;
        continue;
      }
      if (S_ISDIR(entry.status.st_mode)) entry.name += '/';
      out.push_back(std::move(entry));
    }
    std::sort(out.begin(), out.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    return out;
  }

  void add_directory(const std::filesystem::path& directory) {
    for (Entry& entry : entries(directory)) {
      if (entry.name.back() == '/') {
        entry.name.pop_back();
        if (is_new(entry.status)) add_directory(directory / entry.name);
      } else if (S_ISREG(entry.status.st_mode)) {
        add_file(directory / entry.name, entry.status, false);
      } else {
        ++list_.special;
      }
    }
  }

  FileList list_;
  std::set<Identity> seen_;
};

}  // namespace

FileList list_files(std::span<const std::filesystem::path> paths) {
  Walk walk;
  for (const auto& path : paths)
    walk.add_named(path);
  return walk.take();
}

}  // namespace muo::data
