// The stand-in of cuBLASLt. Products are computed in float64 and rounded where the algorithm
// rounds: once, or per part of k if it splits k. Algorithms have different requirements, as in
// NVIDIA's library, and the heuristic's first choice depends on the problem.

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "cublasLt.h"
#include "stand_ins/world.h"

struct cublasLtContext {
  int magic = 0;
};

// Sanitizers are not yet initialised when the loader resolves function versions.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#  define MUO_FOR_EVERY_CPU
#else
#  define MUO_FOR_EVERY_CPU \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

namespace muo::stand_in {
namespace {

// Contents of the opaque structures.
struct Layout {
  std::uint64_t rows, columns;
  std::int64_t leading, stride;
  std::uint32_t type;
  std::int32_t batch;
};
struct Description {
  std::int32_t transpose_first, transpose_second;
  std::uint32_t compute, scale;
};
struct Preference {
  std::uint64_t workspace;
  std::uint32_t schemes;
  std::uint32_t alignment[4];
};
// An algorithm's configuration; `check` is a function of the rest.
struct Algorithm {
  std::uint64_t id, split, scheme, check;
};

template <class T, class Opaque>
T read(const Opaque& from) {
  static_assert(sizeof(T) <= sizeof(Opaque));
  T out;
  std::memcpy(&out, &from, sizeof out);
  return out;
}
template <class T, class Opaque>
void write(Opaque& to, const T& value) {
  static_assert(sizeof(T) <= sizeof(Opaque));
  to = {};
  std::memcpy(&to, &value, sizeof value);
}

// Sets an attribute, whose size must be the documented one.
template <class T>
cublasStatus_t set(T& to, const void* from, std::size_t bytes) {
  if (from == nullptr || bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, sizeof to);
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t get(T value, void* to, std::size_t bytes, std::size_t* written) {
  if (bytes == 0) {  // a query of the size
    if (written == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *written = sizeof value;
    return CUBLAS_STATUS_SUCCESS;
  }
  if (to == nullptr || bytes != sizeof value) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, &value, sizeof value);
  if (written != nullptr) *written = sizeof value;
  return CUBLAS_STATUS_SUCCESS;
}

struct Kind {
  std::uint64_t id;
  std::uint64_t split = 1;
  std::uint64_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
  std::size_t scratch = 0;    // bytes of workspace besides partial sums
  bool out_of_place = true;   // c may be another matrix than d
  bool says_little = false;   // reports no capability and few attributes
  std::size_t alignment = 2;  // required of all operands
  bool is_checked = true;     // accepted by cublasLtMatmulAlgoCheck when the heuristic proposes it
  const char* name;
};
constexpr std::array kKinds = {
    Kind{.id = 11, .scratch = 65536, .name = "a product with scratch"},
    Kind{.id = 24,
         .split = 3,
         .scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
         .name = "a product of three parts"},
    Kind{.id = 31,
         .split = 2,
         .scheme = CUBLASLT_REDUCTION_SCHEME_INPLACE,
         .name = "a product in place"},
    Kind{.id = 42, .scratch = 4096, .out_of_place = false, .name = "a product onto c"},
    Kind{.id = 55, .is_checked = false, .name = "a product for other sizes"},
    Kind{.id = 66, .says_little = true, .name = "a product that says little"},
    Kind{.id = 71, .scratch = 256, .alignment = 16, .name = "a product of vectors"}};

Algorithm algorithm_of(const Kind& kind) {
  return {kind.id, kind.split, kind.scheme, kind.id * 1000003 + kind.split * 101 + kind.scheme};
}
// Null if the words are not an algorithm of this library.
const Kind* kind_of(const cublasLtMatmulAlgo_t* words) {
  const auto algorithm = read<Algorithm>(*words);
  for (std::size_t i = 4; i < 8; ++i)
    if (words->data[i] != 0) return nullptr;
  const auto* found = std::ranges::find(kKinds, algorithm.id, &Kind::id);
  if (found == kKinds.end()) return nullptr;
  const Algorithm ours = algorithm_of(*found);
  return std::memcmp(&ours, &algorithm, sizeof ours) == 0 ? found : nullptr;
}

// d <- alpha op(a) op(b) + beta c, column-major: (m x k) times (k x n).
struct Problem {
  Description description;
  Layout a, b, c, d;
  std::int64_t m, n, k;

  Problem(const cublasLtMatmulDescOpaque_t& description_, const cublasLtMatrixLayoutOpaque_t& a_,
          const cublasLtMatrixLayoutOpaque_t& b_, const cublasLtMatrixLayoutOpaque_t& c_,
          const cublasLtMatrixLayoutOpaque_t& d_)
      : description(read<Description>(description_)),
        a(read<Layout>(a_)),
        b(read<Layout>(b_)),
        c(read<Layout>(c_)),
        d(read<Layout>(d_)),
        m(static_cast<std::int64_t>(d.rows)),
        n(static_cast<std::int64_t>(d.columns)),
        k(static_cast<std::int64_t>(description.transpose_first != 0 ? a.rows : a.columns)) {}

  [[nodiscard]] bool is_valid() const {
    const bool ta = description.transpose_first != 0;
    const bool tb = description.transpose_second != 0;
    const auto rows = [](const Layout& x, bool t) { return t ? x.columns : x.rows; };
    const auto columns = [](const Layout& x, bool t) { return t ? x.rows : x.columns; };
    for (const Layout& x : {a, b, c, d})
      if (x.leading < static_cast<std::int64_t>(x.rows) || x.batch != d.batch) return false;
    return description.compute == CUBLAS_COMPUTE_32F && description.scale == CUDA_R_32F &&
           rows(a, ta) == d.rows && columns(a, ta) == rows(b, tb) && columns(b, tb) == d.columns &&
           a.type == b.type && c.type == d.type && c.rows == d.rows && c.columns == d.columns;
  }
  [[nodiscard]] std::size_t workspace(const Kind& kind) const {
    const auto sums = static_cast<std::size_t>(m * n * d.batch) * sizeof(float);
    return kind.scratch +
           (kind.scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ? kind.split * sums : 0);
  }
};

double element(const void* data, const Layout& x, std::int64_t i) {
  if (x.type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  return static_cast<double>(to_f32(static_cast<const BF16*>(data)[i]));
}

// op(x) of one matrix, row-major.
std::vector<double> rows_of(const void* data, const Layout& x, std::int64_t batch, bool transpose) {
  const auto rows = static_cast<std::int64_t>(x.rows);
  const auto columns = static_cast<std::int64_t>(x.columns);
  std::vector<double> out(static_cast<std::size_t>(rows * columns));
  for (std::int64_t j = 0; j < columns; ++j)
    for (std::int64_t i = 0; i < rows; ++i)
      out[static_cast<std::size_t>(transpose ? j * rows + i : i * columns + j)] =
          element(data, x, batch * x.stride + j * x.leading + i);
  return out;
}

// out (m x n) <- the product's terms from `first` on up to `last`.
MUO_FOR_EVERY_CPU void sum_terms(double* out, const double* a, const double* b, std::int64_t m,
                                 std::int64_t n, std::int64_t k, std::int64_t first,
                                 std::int64_t last) {
  constexpr std::int64_t kRows = 4;
  constexpr std::int64_t kColumns = 16;
  for (std::int64_t row = 0; row < m; row += kRows)
    for (std::int64_t column = 0; column < n; column += kColumns) {
      double sum[kRows][kColumns] = {};
      const std::int64_t rows = std::min(kRows, m - row);
      const std::int64_t columns = std::min(kColumns, n - column);
      if (rows == kRows && columns == kColumns) {
        for (std::int64_t p = first; p < last; ++p)
          for (std::int64_t i = 0; i < kRows; ++i)
            for (std::int64_t j = 0; j < kColumns; ++j)
              sum[i][j] += a[(row + i) * k + p] * b[p * n + column + j];
      } else {
        for (std::int64_t p = first; p < last; ++p)
          for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < columns; ++j)
              sum[i][j] += a[(row + i) * k + p] * b[p * n + column + j];
      }
      for (std::int64_t i = 0; i < rows; ++i)
        std::copy_n(sum[i], columns, out + (row + i) * n + column);
    }
}

struct Operands {
  const void* a;
  const void* b;
  const void* c;
  void* d;
  float alpha, beta;
  void* workspace;
};

void multiply(const Problem& p, const Kind& kind, const Operands& operands) {
  const auto count = static_cast<std::size_t>(p.m * p.n);
  std::vector<double> sums(count);
  auto* partial =
      reinterpret_cast<float*>(static_cast<std::byte*>(operands.workspace) + kind.scratch);
  for (std::int64_t batch = 0; batch < p.d.batch; ++batch) {
    const std::vector<double> a =
        rows_of(operands.a, p.a, batch, p.description.transpose_first != 0);
    const std::vector<double> b =
        rows_of(operands.b, p.b, batch, p.description.transpose_second != 0);
    if (kind.split == 1) {
      sum_terms(sums.data(), a.data(), b.data(), p.m, p.n, p.k, 0, p.k);
    } else {
      const auto parts = static_cast<std::int64_t>(kind.split);
      for (std::int64_t part = 0; part < parts; ++part) {
        sum_terms(sums.data(), a.data(), b.data(), p.m, p.n, p.k, p.k * part / parts,
                  p.k * (part + 1) / parts);
        std::ranges::copy(sums, partial + static_cast<std::size_t>(part) * count);
      }
      for (std::size_t i = 0; i < count; ++i) {
        float sum = partial[i];
        for (std::size_t part = 1; part < kind.split; ++part)
          sum += partial[part * count + i];
        sums[i] = sum;
      }
    }
    for (std::int64_t j = 0; j < p.n; ++j)
      for (std::int64_t i = 0; i < p.m; ++i) {
        double value = double{operands.alpha} * sums[static_cast<std::size_t>(i * p.n + j)];
        if (operands.beta != 0.0F)
          value += double{operands.beta} *
                   element(operands.c, p.c, batch * p.c.stride + j * p.c.leading + i);
        const std::int64_t at = batch * p.d.stride + j * p.d.leading + i;
        if (p.d.type == CUDA_R_32F)
          static_cast<float*>(operands.d)[at] = static_cast<float>(value);
        else
          static_cast<BF16*>(operands.d)[at] = to_bf16(static_cast<float>(value));
      }
  }
}

bool is_aligned(const void* data, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

// Fills the scratch with this product's number while it runs, to detect another user of the
// scratch.
void run(const Problem& problem, const Kind& kind, const Operands& operands, std::uint64_t number,
         Gpu& gpu) {
  auto* words = static_cast<std::uint64_t*>(operands.workspace);
  const std::size_t count = kind.scratch / sizeof number;
  std::fill_n(words, count, number);
  multiply(problem, kind, operands);
  if (std::count(words, words + count, number) == static_cast<std::ptrdiff_t>(count)) return;
  const Lock lock;
  fault(gpu, std::string(kind.name) + ": another product uses its workspace");
}

}  // namespace
}  // namespace muo::stand_in

// NOLINTBEGIN(google-build-using-namespace): the global functions are cuBLASLt's
using namespace muo::stand_in;
// NOLINTEND(google-build-using-namespace)

std::size_t cublasLtGetVersion() { return 130100; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const Lock lock;
  if (unsafe("cublasLtCreate") != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType_t type,
                                        std::uint64_t rows, std::uint64_t columns,
                                        std::int64_t leading) {
  write(*layout, Layout{rows, columns, leading, 0, type, 1});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  auto now = read<Layout>(*layout);
  const cublasStatus_t status = attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
                                    ? set(now.batch, value, bytes)
                                    : set(now.stride, value, bytes);
  write(*layout, now);
  return status;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t description, cublasComputeType_t compute,
                                      cudaDataType_t scale) {
  write(*description, Description{0, 0, compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  auto now = read<Description>(*description);
  const cublasStatus_t status =
      set(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? now.transpose_first : now.transpose_second,
          value, bytes);
  write(*description, now);
  return status;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
  write(*preference, Preference{0, 7, {256, 256, 256, 256}});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  auto now = read<Preference>(*preference);
  cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      status = set(now.workspace, value, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      status = set(now.schemes, value, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      status =
          set(now.alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
      break;
  }
  write(*preference, now);
  return status;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  const Problem problem(*description, *a, *b, *c, *d);
  *count = 0;
  if (!problem.is_valid() || most < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const auto wanted = read<Preference>(*preference);
  const std::uint32_t aligned = *std::ranges::min_element(wanted.alignment);
  const auto first = static_cast<std::size_t>(problem.m + 3 * problem.n + 7 * problem.k);
  for (std::size_t i = 0; i < kKinds.size() && *count < most; ++i) {
    const Kind& kind = kKinds[(first + i) % kKinds.size()];
    if (problem.workspace(kind) > wanted.workspace || aligned < kind.alignment ||
        (kind.scheme != CUBLASLT_REDUCTION_SCHEME_NONE && (kind.scheme & wanted.schemes) == 0))
      continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    write(result.algo, algorithm_of(kind));
    result.workspaceSize = problem.workspace(kind);
    result.wavesCount = 1.0F;
  }
  return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t /*handle*/,
                                       cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const Problem problem(*description, *a, *b, *c, *d);
  const Kind* kind = kind_of(algo);
  if (kind == nullptr || !problem.is_valid()) return CUBLAS_STATUS_INVALID_VALUE;
  if (!kind->is_checked) return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {};
  result->algo = *algo;
  result->workspaceSize = problem.workspace(*kind);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                 cublasLtMatmulAlgoCapAttributes_t /*attribute*/,
                                                 void* value, std::size_t bytes,
                                                 std::size_t* written) {
  const Kind* kind = kind_of(algo);
  if (kind == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (kind->says_little) return CUBLAS_STATUS_NOT_SUPPORTED;
  return get<std::int32_t>(kind->out_of_place ? 1 : 0, value, bytes, written);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, std::size_t bytes,
                                                    std::size_t* written) {
  const Kind* kind = kind_of(algo);
  if (kind == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const auto id = static_cast<std::uint32_t>(kind->id);
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return get(static_cast<std::int32_t>(id), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return get(static_cast<std::int32_t>(kind->split), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      if (kind->says_little) return CUBLAS_STATUS_NOT_SUPPORTED;
      return get(static_cast<std::uint32_t>(kind->scheme), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      if (kind->says_little) return CUBLAS_STATUS_NOT_SUPPORTED;
      return get(static_cast<std::uint16_t>(id % 3), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      return get<std::uint32_t>(id % 5, value, bytes, written);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

// NOLINTNEXTLINE(readability-function-size): NVIDIA's parameters
cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t layout_a,
                              const void* b, cublasLtMatrixLayout_t layout_b, const void* beta,
                              const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  const Problem problem(*description, *layout_a, *layout_b, *layout_c, *layout_d);
  const Kind* kind = kind_of(algo);
  if (kind == nullptr || !problem.is_valid() || alpha == nullptr || beta == nullptr ||
      workspace_bytes < problem.workspace(*kind) || !is_aligned(workspace, 256))
    return CUBLAS_STATUS_INVALID_VALUE;
  for (const void* operand : {a, b, c, static_cast<const void*>(d)})
    if (operand == nullptr || !is_aligned(operand, kind->alignment))
      return CUBLAS_STATUS_INVALID_VALUE;
  if (!kind->is_checked || (!kind->out_of_place && c != d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Operands operands{.a = a,
                          .b = b,
                          .c = c,
                          .d = d,
                          .alpha = *static_cast<const float*>(alpha),
                          .beta = *static_cast<const float*>(beta),
                          .workspace = workspace};
  Lock lock;
  Gpu& gpu = current_gpu();
  const std::uint64_t number = ++world().numbers;
  const cudaError_t error = enqueue(
      lock, stream, kind->name, {.certain = {a, b, c, d, workspace}, .possible = {}},
      [=, &gpu] { run(problem, *kind, operands, number, gpu); }, kind);
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
