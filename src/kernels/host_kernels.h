#pragma once

#include <string>

namespace muo {

// The instructions of the host kernels that run here, of which the library has several builds:
// "AVX-512; bf16 attention by AVX-512 BF16".
std::string describe_host_kernels();

// Library of the host's matrix products, its version and whose kernels it runs: "oneDNN 2.6.3,
// kernels for AVX-512 and bf16; bf16 products in bf16".
std::string describe_gemm_library();

}  // namespace muo
