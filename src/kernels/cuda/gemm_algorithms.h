#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/gemm.h"

namespace muo::cuda {

// What an algorithm's description is valid for: other versions number their algorithms otherwise.
struct GemmEnvironment {
  std::int64_t library = 0;  // of cuBLASLt, e.g. 130100
  std::string gpu;           // name and multiprocessors
  friend bool operator==(const GemmEnvironment&, const GemmEnvironment&) = default;
};

// One way to compute a product. `words` is the library's own description and restores it exactly;
// the attributes say the same to people, and betray a damaged table.
struct GemmAlgorithm {
  static constexpr std::array<std::string_view, 9> kAttributes = {
      "id",     "tile",   "split_k",     "reduction",    "swizzle",
      "custom", "stages", "inner_shape", "cluster_shape"};
  static constexpr std::int64_t kUnknown = -1;  // of an attribute that the library does not tell
  std::array<std::int64_t, kAttributes.size()> attributes{};
  std::array<std::uint64_t, 8> words{};
  double microseconds = 0.0;  // when it was measured
  friend bool operator==(const GemmAlgorithm&, const GemmAlgorithm&) = default;
};

// The algorithms chosen by measuring, by problem (text_of). Loading the table of an earlier run
// makes a run compute every product of it in exactly the same way. All of one environment: that of
// the first entry. Any thread may call anything.
//
//   {"format": "muograph-gemm-algorithms", "version": 1, "library": 130100, "gpu": "...",
//    "algorithms": [{"problem": "...", "id": 66, ..., "words": ["0x...", ...],
//    "microseconds": 9.5}]}
class GemmAlgorithms {
 public:
  // Throws InputError for a file that is no such table, or was made elsewhere.
  void load(const std::filesystem::path& path, const GemmEnvironment& here);
  // Replaces the file at once or not at all. Throws Error.
  void save(const std::filesystem::path& path) const;

  // As kernels/gemm.h says of use_gemm_table and save_gemm_table.
  void use(const GemmTableUse& use, const GemmEnvironment& here);
  std::size_t save_if_grown(const std::filesystem::path& path);

  [[nodiscard]] std::optional<GemmAlgorithm> find(const GemmEnvironment& here,
                                                  const std::string& problem) const;
  // False, and nothing is recorded, in another environment than that of the entries so far.
  bool record(const GemmEnvironment& here, const std::string& problem,
              const GemmAlgorithm& algorithm);
  [[nodiscard]] std::size_t size() const;

  // As kernels/gemm.h says of gemm_table_text and adopt_gemm_table.
  [[nodiscard]] std::string text() const;
  bool adopt(const std::string& text, const GemmEnvironment& here);
  // How often a text was adopted: plans made before are not to be used any more.
  [[nodiscard]] int adoptions() const { return adoptions_; }

  // Whether a problem that is not in the table is measured when it first comes, and recorded.
  // Otherwise the library's first proposal is taken: a function of problem and environment only.
  void set_measuring(bool on);
  [[nodiscard]] bool measuring() const;
  [[nodiscard]] bool must_measure() const;  // GemmTableUse::must

 private:
  mutable std::mutex mutex_;
  GemmEnvironment environment_;
  std::map<std::string, GemmAlgorithm> by_problem_;
  bool measuring_ = false;
  bool must_ = true;
  std::filesystem::path used_;
  std::size_t measured_ = 0;  // entries that no file has yet
  std::atomic<int> adoptions_ = 0;
};

// Of the process: one table serves all devices.
GemmAlgorithms& gemm_algorithms();

// How often a product that takes `once_ms` runs between two events, for a time well above their
// resolution: for a millisecond, but at most a hundred times.
int measuring_repeats(float once_ms);

// Makes it what use_gemm_table and save_gemm_table are about; `here` is asked when a table is used.
void offer_gemm_table(GemmEnvironment (*here)());

}  // namespace muo::cuda
