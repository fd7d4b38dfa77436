#include "kernels/host/onednn.h"

#include <dnnl.hpp>
#include <dnnl_debug.h>
#include <sys/mman.h>

#include <array>
#include <bit>
#include <cerrno>
#include <compare>
#include <map>
#include <string_view>
#include <type_traits>

#include "base/check.h"
#include "base/system_error_text.h"
#include "kernels/host_kernels.h"

// A function of OpenMP, which oneDNN uses. It is declared here, because clang does not find
// the omp.h of g++.
extern "C" void omp_set_num_threads(int count);  // NOLINT(readability-identifier-naming)

namespace muo::host {
namespace {

using dnnl::memory;

// Makes oneDNN use only the calling thread; OpenMP stores the team size per calling thread.
void use_one_thread() {
  thread_local const bool alone = (omp_set_num_threads(1), true);
  static_cast<void>(alone);
}

[[noreturn]] void fail(const Product& p, const char* what) {
  throw Error(concat("gemm of ", p.m, " x ", p.k, " x ", p.n, ": oneDNN: ", what));
}

// The properties of a product for which oneDNN creates a primitive.
struct Problem {
  std::int64_t m, n, k;
  std::int64_t stride_a, stride_b, stride_d;
  bool transpose_a, transpose_b, rounds;
  std::uint32_t alpha, beta;                         // bits
  auto operator<=>(const Problem&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14
};

dnnl::engine& cpu() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

#ifdef __x86_64__
// Whether oneDNN uses kernels for `isa`, or for an ISA that includes it, on this CPU. The
// values are bit sets.
bool runs(dnnl::cpu_isa isa) {
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}
bool is_amd() { return __builtin_cpu_is("amd") != 0; }
constexpr const char* kLeastCpu = "CPUs without AVX2";
#else
bool runs(dnnl::cpu_isa /*isa*/) { return false; }  // all ISAs are x86 ISAs
bool is_amd() { return false; }
constexpr const char* kLeastCpu = "this kind of CPU";
#endif

// oneDNN chooses the first implementation that supports a problem: blocked products. On a CPU
// without AMX, the `*_gemm` implementation was measured to be up to 10 % faster for fp32 results
// and for long sums of few columns (docs/experiments.md). Otherwise it is slower, because it rounds
// a copy of the result.
bool prefers_gemm(const Problem& p) {
  return runs(dnnl::cpu_isa::avx512_core_bf16) && !runs(dnnl::cpu_isa::avx512_core_amx) &&
         (!p.rounds || p.k >= 8 * p.n);
}

// Whether there is a single row of a transposed a, or a single column of d, that has a stride: the
// blocked products of oneDNN 3.7 treat the elements of such a vector as contiguous.
bool has_strided_vector(const Problem& p) {
  return (p.m == 1 && p.transpose_a && p.stride_a != 1) || (p.n == 1 && p.stride_d != 1);
}

// Returns the implementation for d <- alpha a b + beta d. oneDNN 3 has neither separate operation
// descriptors nor output scales.
dnnl::matmul::primitive_desc choose(const memory::desc& a, const memory::desc& b,
                                    const memory::desc& d, const Problem& p) {
  const auto alpha = std::bit_cast<float>(p.alpha), beta = std::bit_cast<float>(p.beta);
  dnnl::primitive_attr attributes;
  dnnl::post_ops after;
#if DNNL_VERSION_MAJOR < 3
  if (alpha != 1.0F) attributes.set_output_scales(0, {alpha});
  const dnnl::matmul::desc what(a, b, d);  // read again by next_impl()
  const auto first = [&] { return dnnl::matmul::primitive_desc(what, attributes, cpu()); };
#else
  if (alpha != 1.0F) after.append_eltwise(dnnl::algorithm::eltwise_linear, alpha, 0.0F);
  const auto first = [&] { return dnnl::matmul::primitive_desc(cpu(), a, b, d, attributes); };
#endif
  if (beta != 0.0F) after.append_sum(beta);
  attributes.set_post_ops(after);
  const bool not_blocked = DNNL_VERSION_MAJOR >= 3 && has_strided_vector(p);
  if (not_blocked || prefers_gemm(p))
    for (auto next = first(); next.next_impl();) {
      const std::string_view name = next.impl_info_str();
      if (name.starts_with("gemm:") || (not_blocked && !name.starts_with("brg"))) return next;
    }
  return first();
}

class Matmul {
 public:
  explicit Matmul(const Problem& p) {
    const auto matrix = [](std::int64_t rows, std::int64_t columns, memory::data_type type,
                           std::int64_t stride, bool transposed) {
      return memory(
          {{rows, columns}, type, transposed ? memory::dims{1, stride} : memory::dims{stride, 1}},
          cpu(), nullptr);
    };
    using Type = memory::data_type;
    a_ = matrix(p.m, p.k, Type::bf16, p.stride_a, p.transpose_a);
    b_ = matrix(p.k, p.n, Type::bf16, p.stride_b, p.transpose_b);
    d_ = matrix(p.m, p.n, p.rounds ? Type::bf16 : Type::f32, p.stride_d, false);
    matmul_ = dnnl::matmul(choose(a_.get_desc(), b_.get_desc(), d_.get_desc(), p));
  }

  void operator()(const BF16* a, const BF16* b, void* d) {
    thread_local dnnl::stream stream(cpu());
    // oneDNN only reads sources, but its interface lacks pointers to const.
    a_.set_data_handle(const_cast<BF16*>(a));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    b_.set_data_handle(const_cast<BF16*>(b));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    d_.set_data_handle(d);
    matmul_.execute(stream, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, d_}});
    stream.wait();
  }

 private:
  memory a_, b_, d_;
  dnnl::matmul matmul_;
};

template <class T>
void matmul(const Product& p, MatrixBlock<const BF16> a, MatrixBlock<const BF16> b,
            MatrixBlock<T> d) {
  use_one_thread();
  const Problem problem{.m = p.m,
                        .n = p.n,
                        .k = p.k,
                        .stride_a = a.stride,
                        .stride_b = b.stride,
                        .stride_d = d.stride,
                        .transpose_a = p.transpose_a,
                        .transpose_b = p.transpose_b,
                        .rounds = std::is_same_v<T, BF16>,
                        .alpha = std::bit_cast<std::uint32_t>(p.alpha),
                        .beta = std::bit_cast<std::uint32_t>(p.beta)};
  thread_local std::map<Problem, Matmul> made;
  try {
    auto at = made.find(problem);
    if (at == made.end()) at = made.emplace(problem, Matmul(problem)).first;
    at->second(a.data, b.data, d.data);
  } catch (const dnnl::error& error) {
    fail(p, error.what());
  }
}

// Makes oneDNN create all its fp32 kernels, which take 17 MB in 60 maps. Otherwise it creates them
// at the first product for each pair of transpositions. If it gets no memory for them, it calls a
// null pointer, so this first checks that there is enough.
void make_kernels() {
  constexpr std::size_t kRoom = std::size_t{32} << 20;
  void* const room =
      ::mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    throw Error(concat("not enough memory for oneDNN's kernels: ", kRoom >> 20, " MiB are needed (",
                       system_error_text(errno), ")"));
  ::munmap(room, kRoom);
  constexpr std::int64_t kSize = 8;
  const std::array<float, kSize * kSize> zeros{};
  std::array<float, kSize * kSize> out{};
  for (const char a : {'N', 'T'})
    for (const char b : {'N', 'T'})
      static_cast<void>(dnnl_sgemm(a, b, kSize, kSize, kSize, 1.0F, zeros.data(), kSize,
                                   zeros.data(), kSize, 0.0F, out.data(), kSize));
}

}  // namespace

void product(const Product& p, MatrixBlock<const float> a, MatrixBlock<const float> b,
             MatrixBlock<float> d) {
  use_one_thread();
  static const bool has_kernels = (make_kernels(), true);
  static_cast<void>(has_kernels);
  const dnnl_status_t status =
      dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, p.alpha,
                 a.data, a.stride, b.data, b.stride, p.beta, d.data, d.stride);
  if (status != dnnl_success) fail(p, dnnl_status2str(status));
}

void product(const Product& p, MatrixBlock<const BF16> a, MatrixBlock<const BF16> b,
             MatrixBlock<float> d) {
  matmul(p, a, b, d);
}
void product(const Product& p, MatrixBlock<const BF16> a, MatrixBlock<const BF16> b,
             MatrixBlock<BF16> d) {
  matmul(p, a, b, d);
}

bool multiplies_bf16() {
  // Without AMX, the bf16 rate is twice the fp32 rate on Zen 4 and later. On Intel's CPUs it equals
  // the fp32 rate, and oneDNN does not reach it (docs/experiments.md).
  static const bool fast = runs(dnnl::cpu_isa::avx512_core_amx) || (has_avx512_bf16() && is_amd());
  return fast;
}

bool has_avx512_bf16() { return runs(dnnl::cpu_isa::avx512_core_bf16); }

}  // namespace muo::host

namespace muo {

std::string describe_gemm_library() {
  const dnnl::version_t& version = *dnnl::version();
  using dnnl::cpu_isa;
  const char* const isa = host::runs(cpu_isa::avx512_core_amx)    ? "AMX"
                          : host::runs(cpu_isa::avx512_core_bf16) ? "AVX-512 and bf16"
                          : host::runs(cpu_isa::avx512_core)      ? "AVX-512"
                          : host::runs(cpu_isa::avx2)             ? "AVX2"
                                                                  : host::kLeastCpu;
  return concat("oneDNN ", version.major, ".", version.minor, ".", version.patch, ", kernels for ",
                isa,
                host::multiplies_bf16() ? "; bf16 products in bf16" : "; bf16 products in fp32");
}

}  // namespace muo
