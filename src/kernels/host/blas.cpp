#include "kernels/blas.h"

#include <cblas.h>

#include "base/check.h"

namespace muo {

void require_safe_blas() {
  // openblas_get_parallel: 0 serial, 1 threads, 2 OpenMP.
  static const bool kSafe = [] {
    if (openblas_get_parallel() == 0)
      throw InputError(
          concat("BLAS: the loaded OpenBLAS is its serial flavour (", openblas_get_config(),
                 "), which returns wrong numbers when several devices multiply at once; install "
                 "libopenblas0-pthread and remove other OpenBLAS libraries from LD_LIBRARY_PATH"));
    openblas_set_num_threads(1);
    return true;
  }();
  static_cast<void>(kSafe);
}

}  // namespace muo
