#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace muo::kit {

// A request, with the target not decoded. Bodies are not read.
struct HttpRequest {
  std::string method;
  std::string target;  // path and query
  std::string host;    // value of the Host header; empty if there is none, or several
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain";
  std::shared_ptr<const std::string> body = {};
  HttpHeaders headers = {};
};

struct HttpOptions {
  int port = 0;              // 0: any free port
  HttpHeaders headers = {};  // sent with every answer, including refusals of malformed requests
  // Time from the connection until the request is complete.
  std::chrono::milliseconds request_timeout{5000};
  // Called by several threads concurrently, with the server's port. An exception is answered with
  // status 500.
  std::function<HttpAnswer(const HttpRequest& request, int port)> answer = {};
};

// Answers one request per connection, on its own threads. The destructor closes all connections
// immediately and waits for answers that are being computed.
class HttpServer {
 public:
  HttpServer() = default;
  virtual ~HttpServer() = default;
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] virtual int port() const = 0;
  [[nodiscard]] virtual bool is_serving() const = 0;  // false: the server ended because of an error
};

// Serves 127.0.0.1 only. The server's threads inherit the calling thread's blocked signals. Throws
// InputError if the port is in use or libmuograph_http.so is missing.
std::unique_ptr<HttpServer> serve_http(HttpOptions options);

// The function that libmuograph_http.so exports as kHttpEntry. It is a separate library because the
// HTTP library depends on OpenSSL, which training does not need (decision http-is-a-plug-in).
// Returns null on failure, with an errno value in `error`.
using HttpEntry = HttpServer* (*)(HttpOptions* options, int* error);
inline constexpr const char* kHttpEntry = "muograph_serve_http";

}  // namespace muo::kit
