#include "kit/report/http_server.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cerrno>

#include "base/check.h"
#include "base/system_error_text.h"
#include "base/system_limits.h"
#include "runtime/plugin.h"

namespace muo::kit {

std::unique_ptr<HttpServer> serve_http(HttpOptions options) {
  std::string missing;
  void* library = open_beside_core("libmuograph_http.so", missing);
  if (library == nullptr) throw InputError("report --follow: " + missing);
  const auto entry = reinterpret_cast<HttpEntry>(dlsym(library, kHttpEntry));
  MUO_CHECK(entry != nullptr, kHttpEntry);
  const int port = options.port;
  int error = 0;
  std::unique_ptr<HttpServer> server(entry(&options, &error));
  if (server != nullptr) return server;
  if (error == EADDRINUSE)
    throw InputError(
        fmt::format("--port {}: already in use: give another port, or 0 for any free port", port));
  if (error == EAGAIN) throw Error(refused_thread_text());
  throw InputError(fmt::format("--port {}: cannot listen: {}", port, system_error_text(error)));
}

}  // namespace muo::kit
