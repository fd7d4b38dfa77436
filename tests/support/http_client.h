#pragma once

#include <string>
#include <string_view>

namespace muo::test {

// A connection to a port of this machine, byte by byte, which can send what no library would send.
class HttpConnection {
 public:
  explicit HttpConnection(int port, const char* address = "127.0.0.1");  // throws Error
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Returns false if the peer has closed the connection.
  bool send(std::string_view text);
  // Receives until the peer closes the connection, or sends nothing for ten seconds.
  std::string receive();
  // Whether the peer has closed the connection without sending anything.
  [[nodiscard]] bool is_closed() const;

 private:
  int socket_;
};

// Sends "METHOD TARGET HTTP/1.1" with the port's Host, and `more` header lines.
// Returns the response.
std::string http(int port, const std::string& method, const std::string& target,
                 const std::string& more = "");

int status_of(const std::string& answer);  // 0: not a response
std::string body_of(const std::string& answer);

}  // namespace muo::test
