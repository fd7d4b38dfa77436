#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// Finds the starts of documents that are packed into rows and each begin with `document_token`:
// starts[r, i] is the position in row r of the last such token at or before i, or 0 if there is
// none. Hence 0 <= starts[r, i] <= i, starts are non-decreasing in a row, and position i begins a
// document, or its row, iff starts[r, i] == i.
struct DocumentStartsArgs {
  Tensor starts;  // (b, t) int32 out
  Tensor tokens;  // (b, t) int32
  std::int32_t document_token = 0;
};
void document_starts(Stream& stream, const DocumentStartsArgs& args);

}  // namespace muo
