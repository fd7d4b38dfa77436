#pragma once

#include <array>
#include <string_view>

namespace muo::app {

// The files of transformers/, by model_code.cmake: a model of ours in PyTorch, for transformers.
struct CodeFile {
  std::string_view name, text;
};
extern const std::array<CodeFile, 2> kModelCode;

}  // namespace muo::app
