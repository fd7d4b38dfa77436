#pragma once

#include "kernels/adamw.h"

namespace muo::host {
void adamw(const AdamwArgs& args);
}  // namespace muo::host
