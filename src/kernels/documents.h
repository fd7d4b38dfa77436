#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// Where documents begin that are packed into rows, each behind a token that begins it: starts[r, i]
// is the position in row r of the last `document_token` at or before i, 0 if there is none. So
// 0 <= starts[r, i] <= i, starts never fall in a row, and a position begins a document, or its row,
// where it is its own start.
struct DocumentStartsArgs {
  Tensor starts;  // (b, t) int32 out
  Tensor tokens;  // (b, t) int32
  std::int32_t document_token = 0;
};
void document_starts(Stream& stream, const DocumentStartsArgs& args);

}  // namespace muo
