#pragma once

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace muo {

// Where a TCP socket is.
class SocketAddress {
 public:
  SocketAddress(const sockaddr* address, socklen_t size);

  [[nodiscard]] const sockaddr* get() const;
  [[nodiscard]] socklen_t size() const { return size_; }
  [[nodiscard]] int family() const { return storage_.ss_family; }
  [[nodiscard]] std::string host() const;   // in digits
  [[nodiscard]] bool is_wildcard() const;   // any address of this host
  [[nodiscard]] bool is_this_host() const;  // one that no other host reaches
  bool operator==(const SocketAddress& other) const;

 private:
  sockaddr_storage storage_ = {};
  socklen_t size_;
};

// All that the system knows for a host's name or address, each once; if none, `error` says why.
struct ResolvedName {
  std::vector<SocketAddress> addresses;
  std::string error;
};
ResolvedName resolve_name(const std::string& name, int port);

// "node-a:29501"; IPv6 addresses in brackets.
std::string endpoint_text(const std::string& host, int port);

// All sockets here do not block, and are closed in programs that this one starts.
struct ListeningSockets {
  std::vector<FileDescriptor> sockets;
  std::string where;  // in digits, if the name is not
  bool only_this_host = true;
};
// On every address that the name has here, and on no other. A port that another program has may
// become free within `patience`. Throws InputError.
ListeningSockets listen_at(const std::string& name, int port,
                           std::chrono::milliseconds patience = {});
// The next who has come; none: nobody has, or `error` is set.
FileDescriptor accept_from(const FileDescriptor& listening, int& error);
// None: `error` is set.
FileDescriptor connect_to(const SocketAddress& to, std::chrono::milliseconds patience, int& error);
// By this socket, which may be bound to an address of its own.
FileDescriptor connect_to(const SocketAddress& to, FileDescriptor socket,
                          std::chrono::milliseconds patience, int& error);

}  // namespace muo
