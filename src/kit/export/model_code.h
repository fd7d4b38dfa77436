#pragma once

#include <array>
#include <string_view>

namespace muo::kit {

// A file of transformers/, embedded by model_code.cmake: the PyTorch code of the model for
// transformers.
struct CodeFile {
  std::string_view name, text;
};
extern const std::array<CodeFile, 2> kModelCode;

}  // namespace muo::kit
