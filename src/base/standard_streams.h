#pragma once

namespace muo {

// Opens /dev/null for each of descriptors 0, 1 and 2 that is closed (a program may be started with
// >&-). Otherwise the next opened file would get that number and receive the printed text. Writing
// to a standard output opened this way fails, and the writer must report the error. Call this
// before any file is opened. Throws Error.
void open_standard_streams();

}  // namespace muo
