#pragma once

#include <cstddef>
#include <string>

namespace muo::cuda {

// Bytes that no other GPU of any host has (its UUID): its number is one of this process, and
// another process may see other GPUs, or these in another order.
inline constexpr std::size_t kIdentityBytes = 16;
std::string identity_of(int gpu);
// As `nvidia-smi -L` writes them: "GPU-f7b3a6c0-...".
std::string identity_text(const std::string& bytes);

}  // namespace muo::cuda
