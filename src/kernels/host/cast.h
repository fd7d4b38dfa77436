#pragma once

#include "kernels/cast.h"

namespace muo::host {

// As part of another kernel, too.
void cast(const CastArgs& args);

}  // namespace muo::host
