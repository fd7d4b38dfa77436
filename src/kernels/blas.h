#pragma once

#include <string_view>

namespace muo {

// Makes the BLAS library safe and fast for one calling thread per device. Throws InputError, with
// the package to install, if it is the serial flavour of OpenBLAS: its buffers are not locked, so
// two devices that multiply at once get wrong numbers, silently. Sets one thread per call. A CPU
// newer than the library gets the kernels of the newest CPU that the library knows and this one
// can run, where the library itself would fall back to SSE3, ten times slower; the environment's
// OPENBLAS_CORETYPE, if given, decides instead. Cheap after the first call; the first must not run
// beside other calls of BLAS or changes of the environment.
void require_safe_blas();

// The CPU whose kernels the library uses, in its own words, e.g. "SkylakeX".
std::string_view blas_core();

}  // namespace muo
