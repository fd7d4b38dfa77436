#pragma once

namespace muo::cuda {

// True if this build has machine code for the current GPU.
bool has_kernels_for_current_device();

}  // namespace muo::cuda
