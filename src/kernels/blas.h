#pragma once

#include <string>

namespace muo {

// Makes the BLAS library safe for one calling thread per device: one thread per call, and kernels
// that suit this CPU. The first call changes the environment for a moment: make it while there are
// no other threads. Throws InputError, with the package to install, if the library is the serial
// flavour of OpenBLAS: its buffers are not locked, so two devices that multiply at once get wrong
// numbers, silently. Cheap after the first call.
void require_safe_blas();

// Library, version, and whose kernels it runs: "OpenBLAS 0.3.21 ..., kernels for Haswell".
std::string describe_blas();

}  // namespace muo
