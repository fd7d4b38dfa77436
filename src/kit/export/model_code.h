#pragma once

#include <array>
#include <string_view>

namespace muo::kit {

// The files of transformers/, embedded by model_code.cmake: the model in PyTorch, for transformers.
struct CodeFile {
  std::string_view name, text;
};
extern const std::array<CodeFile, 2> kModelCode;

}  // namespace muo::kit
