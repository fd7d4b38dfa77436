#include "kernels/host_kernels.h"

#include "kernels/host/attention.h"

namespace muo {

std::string describe_host_kernels() {
#if defined(__AVX512F__)
  return host::attention_multiplies_bf16() ? "AVX-512; bf16 attention by AVX-512 BF16" : "AVX-512";
#elif defined(__AVX2__)
  return __builtin_cpu_supports("avx512f") != 0
             ? "AVX2: the library for this CPU's AVX-512 is not in use (glibc-hwcaps/x86-64-v4)"
             : "AVX2";
#else
  return "for any CPU";
#endif
}

}  // namespace muo
