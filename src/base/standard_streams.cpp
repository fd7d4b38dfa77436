#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/check.h"

namespace muo {

void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0)  // open() takes the lowest free number
      MUO_CHECK(::open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY) == stream,
                "/dev/null for descriptor ", stream);
}

}  // namespace muo
