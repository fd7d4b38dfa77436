#pragma once

#include <string>

namespace muo {

// The instruction sets of the host kernels that were chosen for this CPU, e.g. "AVX-512; bf16
// attention by AVX-512 BF16".
std::string describe_host_kernels();

// The library that computes the host's matrix products, its version, and the kernels that it uses
// on this CPU, e.g. "oneDNN 2.6.3, kernels for AVX-512 and bf16; bf16 products in bf16".
std::string describe_gemm_library();

}  // namespace muo
