#include "support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/check.h"

namespace muo::test {

HttpConnection::HttpConnection(int port, const char* address)
    : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const timeval patience = {.tv_sec = 10, .tv_usec = 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, address, &to.sin_addr);
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return;
  close(socket_);
  throw Error(concat("cannot connect to ", address, ":", port));
}

HttpConnection::~HttpConnection() { close(socket_); }

bool HttpConnection::send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::string HttpConnection::receive() {
  std::string out;
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; (count = recv(socket_, buffer.data(), buffer.size(), 0)) > 0;)
    out.append(buffer.data(), static_cast<std::size_t>(count));
  return out;
}

bool HttpConnection::is_closed() const {
  char byte = 0;
  return recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

std::string http(int port, const std::string& method, const std::string& target,
                 const std::string& more) {
  HttpConnection connection(port);
  connection.send(method + " " + target + " HTTP/1.1\r\nHost: localhost:" + std::to_string(port) +
                  "\r\n" + more + "\r\n");
  return connection.receive();
}

int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::atoi(answer.c_str() + 9) : 0;
}

std::string body_of(const std::string& answer) {
  const std::size_t at = answer.find("\r\n\r\n");
  return at == std::string::npos ? "" : answer.substr(at + 4);
}

}  // namespace muo::test
