#pragma once

namespace muo {

// Makes the BLAS library safe for one calling thread per device: one thread per call. Throws
// InputError, with the package to install, if the library is the serial flavour of OpenBLAS: its
// buffers are not locked, so two devices that multiply at once get wrong numbers, silently. Cheap
// after the first call; any thread may call it.
void require_safe_blas();

}  // namespace muo
