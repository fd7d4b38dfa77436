#pragma once

#include <string>
#include <string_view>

namespace muo::test {

// A connection to a port of this machine, byte by byte: what no library would send as well.
class HttpConnection {
 public:
  explicit HttpConnection(int port, const char* address = "127.0.0.1");  // throws Error
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // False: the other side has closed it.
  bool send(std::string_view text);
  // All that comes until the other side closes it, or for ten seconds nothing does.
  std::string receive();
  // Whether the other side has closed it by now, and said nothing.
  [[nodiscard]] bool is_closed() const;

 private:
  int socket_;
};

// "GET /path HTTP/1.1" with the Host of the port, and `more` lines of headers. The answer's text.
std::string http(int port, const std::string& method, const std::string& target,
                 const std::string& more = "");

int status_of(const std::string& answer);  // 0: it is none
std::string body_of(const std::string& answer);

}  // namespace muo::test
