#pragma once

#include "kernels/cast.h"

namespace muo::host {
void cast(const CastArgs& args);
}  // namespace muo::host
