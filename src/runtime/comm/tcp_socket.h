#pragma once

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace muo {

// The address of a TCP socket.
class SocketAddress {
 public:
  SocketAddress(const sockaddr* address, socklen_t size);

  [[nodiscard]] const sockaddr* get() const;
  [[nodiscard]] socklen_t size() const { return size_; }
  [[nodiscard]] int family() const { return storage_.ss_family; }
  [[nodiscard]] std::string host() const;  // numeric
  [[nodiscard]] bool is_wildcard() const;  // any address of this host
  [[nodiscard]] bool is_loopback() const;  // no other host can reach it
  bool operator==(const SocketAddress& other) const;

 private:
  sockaddr_storage storage_ = {};
  socklen_t size_;
};

// All addresses of a host's name, without duplicates; if there are none, `error` is the reason.
struct ResolvedName {
  std::vector<SocketAddress> addresses;
  std::string error;
};
ResolvedName resolve_name(const std::string& name, int port);

// "node-a:29501"; IPv6 addresses in brackets.
std::string endpoint_text(const std::string& host, int port);

// All sockets below are non-blocking and close-on-exec.
struct ListeningSockets {
  std::vector<FileDescriptor> sockets;
  std::string where;  // numeric addresses, where they differ from the name
  bool only_this_host = true;
};
// Listens on every address that the name has on this host, and on no other. A port in use may
// become free within `timeout`. Throws InputError.
ListeningSockets listen_at(const std::string& name, int port,
                           std::chrono::milliseconds timeout = {});
// The next connection; none if there is none, or on an error, which sets `error`.
FileDescriptor accept_from(const FileDescriptor& listening, int& error);
// None on failure, which sets `error`.
FileDescriptor connect_to(const SocketAddress& to, std::chrono::milliseconds timeout, int& error);
// Uses this socket, which may be bound to an address of its own.
FileDescriptor connect_to(const SocketAddress& to, FileDescriptor socket,
                          std::chrono::milliseconds timeout, int& error);

}  // namespace muo
