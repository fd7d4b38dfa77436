#pragma once

#include "kernels/fingerprint.h"

namespace muo::host {
void fingerprint(const FingerprintArgs& args);
}
