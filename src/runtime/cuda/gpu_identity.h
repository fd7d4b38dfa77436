#pragma once

#include <cstddef>
#include <string>

namespace muo::cuda {

// Globally unique identity of a GPU (its UUID). GPU numbers are local to a process: another process
// may see other GPUs, or the same ones in another order.
inline constexpr std::size_t kIdentityBytes = 16;
std::string identity_of(int gpu);
// In the format of `nvidia-smi -L`: "GPU-f7b3a6c0-...".
std::string identity_text(const std::string& bytes);

}  // namespace muo::cuda
