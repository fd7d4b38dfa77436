#pragma once

namespace muo {

// Opens /dev/null for each of descriptors 0, 1 and 2 that is closed (a program may be started with
// >&-). Otherwise the next opened file would get that number, and the printed text. Writing to such
// a standard output fails, which the writer must report. Call it before any file is opened. Throws
// Error.
void open_standard_streams();

}  // namespace muo
