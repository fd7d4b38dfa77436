#pragma once

#include "kernels/commit.h"

namespace muo::host {
void agree_commit(const AgreeCommitArgs& args);
void note_nonfinite(const NoteNonfiniteArgs& args);
}  // namespace muo::host
