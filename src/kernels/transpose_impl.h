#pragma once

#include "kernels/transpose.h"

namespace muo::host {
void transpose(const TransposeArgs& args);
}
