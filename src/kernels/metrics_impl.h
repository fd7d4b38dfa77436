#pragma once

#include "kernels/metrics.h"

namespace muo::host {
void write_metrics(const WriteMetricsArgs& args);
}  // namespace muo::host
