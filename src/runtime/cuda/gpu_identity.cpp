#include "runtime/cuda/gpu_identity.h"

#include "base/check.h"
#include "runtime/cuda/cuda_check.h"

namespace muo::cuda {

std::string identity_of(int gpu) {
  cudaDeviceProp properties{};
  MUO_CUDA_CHECK(cudaGetDeviceProperties(&properties, gpu));
  static_assert(sizeof properties.uuid == kIdentityBytes);
  return {properties.uuid.bytes, kIdentityBytes};
}

std::string identity_text(const std::string& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "GPU";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(bytes[i]);
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

}  // namespace muo::cuda
