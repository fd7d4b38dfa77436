#pragma once

namespace muo {

// Opens /dev/null for each of descriptors 0, 1 and 2 that is closed, as a program's may be that is
// started with >&-: else a file that is opened gets the number, and what is printed. Standard
// output cannot be written then, which is an error of whoever prints. To be called before anything
// is opened. Throws Error.
void open_standard_streams();

}  // namespace muo
