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

// The environment for which the description of an algorithm is valid; other versions of the library
// number their algorithms differently.
struct GemmEnvironment {
  std::int64_t library = 0;  // version of cuBLASLt, e.g. 130100
  std::string gpu;           // name and number of multiprocessors
  friend bool operator==(const GemmEnvironment&, const GemmEnvironment&) = default;
};

// An algorithm for a product. `words` is the library's own description, from which the algorithm is
// restored exactly; the attributes are a readable form, and serve to detect a damaged table.
struct GemmAlgorithm {
  static constexpr std::array<std::string_view, 9> kAttributes = {
      "id",     "tile",   "split_k",     "reduction",    "swizzle",
      "custom", "stages", "inner_shape", "cluster_shape"};
  static constexpr std::int64_t kUnknown = -1;  // for attributes that the library does not report
  std::array<std::int64_t, kAttributes.size()> attributes{};
  std::array<std::uint64_t, 8> words{};
  double microseconds = 0.0;  // the time that was measured
  friend bool operator==(const GemmAlgorithm&, const GemmAlgorithm&) = default;
};

// The algorithms that were chosen by measuring, by problem (text_of). A run that loads the table of
// an earlier run computes every product in it in exactly the same way. All entries belong to one
// environment, that of the first entry. Thread-safe.
//
//   {"format": "muograph-gemm-algorithms", "version": 1, "library": 130100, "gpu": "...",
//    "algorithms": [{"problem": "...", "id": 66, ..., "words": ["0x...", ...],
//    "microseconds": 9.5}]}
class GemmAlgorithms {
 public:
  // Throws InputError if the file is not a table or belongs to another environment.
  void load(const std::filesystem::path& path, const GemmEnvironment& here);
  // Replaces the file atomically. Throws Error.
  void save(const std::filesystem::path& path) const;

  // use_gemm_table and save_gemm_table (kernels/gemm.h).
  void use(const GemmTableUse& use, const GemmEnvironment& here);
  std::size_t save_if_grown(const std::filesystem::path& path);

  [[nodiscard]] std::optional<GemmAlgorithm> find(const GemmEnvironment& here,
                                                  const std::string& problem) const;
  // Adds an entry. Returns false, without adding it, if `here` is not the
  // environment of the entries.
  bool record(const GemmEnvironment& here, const std::string& problem,
              const GemmAlgorithm& algorithm);
  [[nodiscard]] std::size_t size() const;

  // gemm_table_text and adopt_gemm_table (kernels/gemm.h).
  [[nodiscard]] std::string text() const;
  bool adopt(const std::string& text, const GemmEnvironment& here);
  // Number of adopted texts; plans made before the last one must not be used any more.
  [[nodiscard]] int adoptions() const { return adoptions_; }

  // Whether a problem that is not in the table is measured, and recorded, when it first
  // occurs. If not, the library's first proposal is used, which depends only on the problem
  // and the environment.
  void set_measuring(bool on);
  [[nodiscard]] bool measuring() const;
  [[nodiscard]] bool must_measure() const;  // GemmTableUse::required

 private:
  mutable std::mutex mutex_;
  GemmEnvironment environment_;
  std::map<std::string, GemmAlgorithm> by_problem_;
  bool measuring_ = false;
  bool required_ = true;
  std::filesystem::path used_;
  std::size_t measured_ = 0;  // entries that have not been saved
  std::atomic<int> adoptions_ = 0;
};

// The table of the process, for all devices.
GemmAlgorithms& gemm_algorithms();

// How often to run a product that takes `once_ms` between two events, so that the total is well
// above the resolution of events: for a millisecond, but at most a hundred times.
int measuring_repeats(float once_ms);

// Registers the table of the process as GemmBackend; `here` is called when a table is used.
void offer_gemm_table(GemmEnvironment (*here)());

}  // namespace muo::cuda
