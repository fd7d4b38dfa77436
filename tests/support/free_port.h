#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/file_descriptor.h"

namespace muo::test {

// Returns a port on which no process listens, until the system assigns it to another process.
inline int free_port() {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  MUO_CHECK(::bind(socket.number(), generic, size) == 0 &&
                ::getsockname(socket.number(), generic, &size) == 0,
            "no free port");
  return ntohs(address.sin_port);
}

}  // namespace muo::test
