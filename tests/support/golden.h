#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/paths.h"
#include "trainer/checkpoint/safetensors.h"

namespace muo::test {

// Reference values from tests/golden/NAME. If a value is missing or has another type, throws Error
// or InputError, which names it, so that a test cannot pass without data.
class Golden {
 public:
  explicit Golden(std::string_view name) : file_(directory() + std::string(name)) {}

  [[nodiscard]] static std::string directory() { return source_directory() + "/tests/golden/"; }
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool has(std::string_view name) const { return file_.find(name) != nullptr; }
  [[nodiscard]] Shape shape(std::string_view name) const { return entry(name).spec.shape; }

  [[nodiscard]] std::vector<float> floats(std::string_view name) const;           // F32 or F64
  [[nodiscard]] std::vector<double> doubles(std::string_view name) const;         // F32 or F64
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view name) const;  // I32 or I64

  [[nodiscard]] bool has_metadata(const std::string& key) const;
  [[nodiscard]] const std::string& metadata(const std::string& key) const;
  [[nodiscard]] std::int64_t metadata_integer(const std::string& key) const;
  [[nodiscard]] double metadata_double(const std::string& key) const;

 private:
  [[nodiscard]] const trainer::SafetensorsEntry& entry(std::string_view name) const;
  template <class Out, class Narrow, class Wide>
  [[nodiscard]] std::vector<Out> values(std::string_view name) const;

  trainer::SafetensorsFile file_;
};

}  // namespace muo::test
