#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace muo::app {

// A request as it came: nothing in it is decoded. It has no body: none is read.
struct HttpRequest {
  std::string method;
  std::string target;  // path and query
  std::string host;    // of its Host header; empty: it has none, or several
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain";
  std::shared_ptr<const std::string> body = {};
  HttpHeaders headers = {};
};

struct HttpOptions {
  int port = 0;              // 0: any that is free
  HttpHeaders headers = {};  // of every answer, refusals of malformed requests too
  std::chrono::milliseconds to_ask{
      5000};  // until a request is there, from when its client connects
  // Called by several threads at once, with the server's port. What it throws is answered with 500.
  std::function<HttpAnswer(const HttpRequest& request, int port)> answer = {};
};

// Answers one request a connection, on threads of its own, until it is destroyed, which ends all
// connections at once and waits for answers that are being computed.
class HttpServer {
 public:
  HttpServer() = default;
  virtual ~HttpServer() = default;
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] virtual int port() const = 0;
  [[nodiscard]] virtual bool is_serving() const = 0;  // false: it ended by itself
};

// Serves 127.0.0.1 only. Signals that the calling thread blocks do not reach the server's threads.
// Throws InputError that says why not: the port is busy, or libmuograph_http.so is not there.
std::unique_ptr<HttpServer> serve_http(HttpOptions options);

// What libmuograph_http.so exports under kHttpEntry. It has a library of its own, as the HTTP
// library brings OpenSSL, which training would load for nothing (decision http-is-a-plug-in).
// Null: `error` is an errno.
using HttpEntry = HttpServer* (*)(HttpOptions* options, int* error);
inline constexpr const char* kHttpEntry = "muograph_serve_http";

}  // namespace muo::app
