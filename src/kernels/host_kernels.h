#pragma once

#include <string>

namespace muo {

// The instructions of the host kernels that run here, of which the library has several builds:
// "AVX-512; bf16 attention by AVX-512 BF16".
std::string describe_host_kernels();

}  // namespace muo
