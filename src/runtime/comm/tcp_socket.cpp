#include "runtime/comm/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/system_error_text.h"

namespace muo {
namespace {

constexpr int kBacklog = 128;

FileDescriptor open_socket(int family) {
  return FileDescriptor(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

bool set_option(const FileDescriptor& socket, int level, int option) {
  const int on = 1;
  return ::setsockopt(socket.number(), level, option, &on, sizeof(on)) == 0;
}

// Without this, the answer to a short message waits for the acknowledgement of the one before it.
void send_at_once(const FileDescriptor& socket) { set_option(socket, IPPROTO_TCP, TCP_NODELAY); }

sockaddr* as_generic(sockaddr_storage& storage) { return reinterpret_cast<sockaddr*>(&storage); }

FileDescriptor listen_on(const SocketAddress& address, int& error) {
  FileDescriptor socket = open_socket(address.family());
  // SO_REUSEADDR: allows a port on which connections of an earlier run are still closing.
  if (socket && set_option(socket, SOL_SOCKET, SO_REUSEADDR) &&
      (address.family() != AF_INET6 || set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY)) &&
      ::bind(socket.number(), address.get(), address.size()) == 0 &&
      ::listen(socket.number(), kBacklog) == 0)
    return socket;
  error = errno;
  return FileDescriptor();
}

// If nobody listens on a local port, the system may choose that very port for the connecting
// socket, which is then connected to itself and blocks the port for the process that is to listen
// on it.
bool is_connected_to_itself(const FileDescriptor& socket) {
  const auto ask = [&](auto get_name) {
    sockaddr_storage storage = {};
    socklen_t size = sizeof(storage);
    static_cast<void>(get_name(socket.number(), as_generic(storage), &size));
    return SocketAddress(as_generic(storage), size);
  };
  return ask(::getsockname) == ask(::getpeername);
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t size)
    : size_(std::min<socklen_t>(size, sizeof(storage_))) {
  std::memcpy(&storage_, address, size_);
}

const sockaddr* SocketAddress::get() const { return reinterpret_cast<const sockaddr*>(&storage_); }

std::string SocketAddress::host() const {
  std::array<char, NI_MAXHOST> text = {};
  if (::getnameinfo(get(), size_, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "?";
  return text.data();
}

bool SocketAddress::is_wildcard() const {
  const std::string text = host();
  return text == "0.0.0.0" || text == "::";
}

bool SocketAddress::is_loopback() const {
  const std::string text = host();
  return text.starts_with("127.") || text == "::1";
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  return size_ == other.size_ && std::memcmp(&storage_, &other.storage_, size_) == 0;
}

ResolvedName resolve_name(const std::string& name, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return {.addresses = {}, .error = ::gai_strerror(error)};
  ResolvedName found;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    const SocketAddress address(entry->ai_addr, entry->ai_addrlen);
    if (std::ranges::find(found.addresses, address) == found.addresses.end())
      found.addresses.push_back(address);
  }
  ::freeaddrinfo(list);
  return found;
}

std::string endpoint_text(const std::string& host, int port) {
  const bool brackets = host.find(':') != std::string::npos;
  return concat(brackets ? "[" : "", host, brackets ? "]:" : ":", port);
}

ListeningSockets listen_at(const std::string& name, int port, std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kBetween(50);
  const auto refuse = [&](const auto&... why) {
    throw InputError(concat("cannot listen on ", endpoint_text(name, port), ": ", why...));
  };
  const ResolvedName resolved = resolve_name(name, port);
  if (resolved.addresses.empty())
    refuse("cannot resolve the name (", resolved.error, "); give this host's name or address");
  ListeningSockets result;
  int error = 0;
  for (const SocketAddress& address : resolved.addresses) {
    if (address.is_wildcard())
      refuse("the other processes need one address of this host, or its name");
    FileDescriptor socket = listen_on(address, error = 0);
    for (; error == EADDRINUSE && timeout > kBetween; timeout -= kBetween) {
      std::this_thread::sleep_for(kBetween);
      socket = listen_on(address, error = 0);
    }
    if (error == EADDRINUSE) refuse("the port is in use by another program; give another port");
    if (!socket) continue;  // another address of the name may be this host's
    result.only_this_host = result.only_this_host && address.is_loopback();
    const std::string digits = address.host();
    if (digits != name) result.where += concat(result.where.empty() ? "" : ", ", digits);
    result.sockets.push_back(std::move(socket));
  }
  if (result.sockets.empty() && error == EADDRNOTAVAIL)
    refuse("this is not an address of this host; run process 0 on the host that has it");
  if (result.sockets.empty()) refuse(system_error_text(error));
  return result;
}

FileDescriptor accept_from(const FileDescriptor& listening, int& error) {
  FileDescriptor socket(
      ::accept4(listening.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  error = socket || errno == EAGAIN ? 0 : errno;
  if (socket) send_at_once(socket);
  return socket;
}

FileDescriptor connect_to(const SocketAddress& to, std::chrono::milliseconds timeout, int& error) {
  return connect_to(to, open_socket(to.family()), timeout, error);
}

FileDescriptor connect_to(const SocketAddress& to, FileDescriptor socket,
                          std::chrono::milliseconds timeout, int& error) {
  if (socket && ::connect(socket.number(), to.get(), to.size()) == 0) {
    error = 0;
  } else {
    error = errno;
  }
  if (socket && error == EINPROGRESS) {
    pollfd wanted = {.fd = socket.number(), .events = POLLOUT, .revents = 0};
    if (::poll(&wanted, 1, static_cast<int>(timeout.count())) <= 0) {
      error = ETIMEDOUT;
    } else {
      socklen_t size = sizeof(error);
      static_cast<void>(::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &size));
    }
  }
  if (error == 0 && is_connected_to_itself(socket)) error = ECONNREFUSED;
  if (error != 0) return FileDescriptor();
  send_at_once(socket);
  return socket;
}

}  // namespace muo
