// libmuograph_http.so: cpp-httplib, which parses requests and writes answers, with limits that it
// lacks: without them it would read endless lines and headers, and wait as long as a byte arrives
// now and then.
#include <httplib.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "kit/report/http_server.h"

namespace muo::kit {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// A browser opens up to six connections, some of which it may leave idle.
constexpr std::size_t kThreads = 16, kMaxWaiting = 64;
constexpr std::size_t kMaxRequestBytes = std::size_t{16} << 10;
constexpr seconds kAnswerTimeout{30}, kCloseTimeout{1};

// One connection. Its deadlines are fixed: bytes that trickle in do not extend them.
class Connection final : public httplib::Stream {
 public:
  Connection(int socket, int stop, Clock::duration request_timeout)
      : socket_(socket), stop_(stop), deadline_(Clock::now() + request_timeout) {}

  [[nodiscard]] bool is_readable() const override { return true; }
  [[nodiscard]] bool is_writable() const override { return wait_for(POLLOUT); }

  ssize_t read(char* to, std::size_t size) override {
    if (next_ == end_ && !receive()) return -1;
    const std::size_t count = std::min(size, end_ - next_);
    std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(next_), count, to);
    next_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* from, std::size_t size) override {
    if (!answering_) deadline_ = Clock::now() + kAnswerTimeout;
    answering_ = true;
    for (std::size_t sent = 0; sent < size;) {
      const ssize_t count = ::send(socket_, from + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count > 0) {
        sent += static_cast<std::size_t>(count);
      } else if ((errno != EAGAIN && errno != EINTR) || !wait_for(POLLOUT)) {
        return -1;
      }
    }
    return static_cast<ssize_t>(size);
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  [[nodiscard]] int socket() const override { return socket_; }

  // Answers a request that is too large, to which the library sends no answer, and drains the
  // connection: closing it while the client is still sending would discard the answer.
  void finish() {
    constexpr std::string_view kTooLarge =
        "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n"
        "Connection: close\r\n\r\n";
    if (received_ == kMaxRequestBytes && !answering_) write(kTooLarge.data(), kTooLarge.size());
    ::shutdown(socket_, SHUT_WR);
    deadline_ = Clock::now() + kCloseTimeout;
    while (wait_for(POLLIN)) {
      const ssize_t count = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) break;
    }
  }

 private:
  [[nodiscard]] bool wait_for(short event) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    std::array<pollfd, 2> wanted = {{{socket_, event, 0}, {stop_, POLLIN, 0}}};
    return left.count() > 0 &&  // otherwise a socket that is always ready would never time out
           ::poll(wanted.data(), wanted.size(), static_cast<int>(left.count())) > 0 &&
           wanted[1].revents == 0;
  }

  bool receive() {
    const std::size_t room = std::min(buffer_.size(), kMaxRequestBytes - received_);
    if (room == 0 || !wait_for(POLLIN)) return false;
    const ssize_t count = ::recv(socket_, buffer_.data(), room, 0);
    if (count <= 0) return false;
    next_ = 0, end_ = static_cast<std::size_t>(count);
    received_ += end_;
    return true;
  }

  int socket_, stop_;
  Clock::time_point deadline_;
  bool answering_ = false;
  std::array<char, 4096> buffer_ = {};
  std::size_t next_ = 0, end_ = 0, received_ = 0;
};

// True while this thread closes a connection without reading it because too many are waiting.
thread_local bool refuses = false;

class Workers final : public httplib::TaskQueue {
 public:
  Workers() {
    try {
      for (std::size_t i = 0; i < kThreads; ++i)
        threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      shutdown();
      throw;
    }
  }
  ~Workers() override { shutdown(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // The library returns nothing here in Debian 12 and a bool in Debian 13.
  using Accepted = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));
  Accepted enqueue(std::function<void()> task) override {
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.size() < kMaxWaiting) {
        tasks_.push_back(std::move(task));
        ready_.notify_one();
        return accepted();
      }
    }
    refuses = true;
    task();
    refuses = false;
    return accepted();
  }

  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_)
      thread.join();
    threads_.clear();
  }

 private:
  template <class Result = Accepted>
  static Result accepted() {
    if constexpr (!std::is_void_v<Result>) return true;
  }

  void work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> tasks_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

class LimitedServer final : public httplib::Server {
 public:
  LimitedServer(int stop, Clock::duration request_timeout)
      : stop_(stop), request_timeout_(request_timeout) {}

  // The library sets a backlog of five connections; clients retry a sixth only after a second.
  void raise_backlog() const { ::listen(svr_sock_, SOMAXCONN); }

 private:
  bool process_and_close_socket(int socket) override {
    if (!refuses) {
      Connection connection(socket, stop_, request_timeout_);
      answer_one(*this, connection);
      connection.finish();
    }
    ::close(socket);
    return true;
  }

  // Debian 13's version of the library also takes addresses.
  template <class Server>
  static void answer_one(Server& server, Connection& connection) {
    bool closed = false;
    // Disables compression, ranges and interim answers (100 Continue).
    const auto simplify = [](httplib::Request& request) {
      request.ranges.clear();
      for (const char* name : {"Accept-Encoding", "Expect"})
        request.headers.erase(name);
    };
    if constexpr (requires { server.process_request(connection, true, closed, simplify); })
      server.process_request(connection, true, closed, simplify);
    else
      server.process_request(connection, "", 0, "", 0, true, closed, simplify);
  }

  int stop_;
  Clock::duration request_timeout_;
};

class Plugin final : public HttpServer {
 public:
  explicit Plugin(HttpOptions options) : options_(std::move(options)) {
    httplib::Headers headers;
    for (const auto& [name, value] : options_.headers)
      headers.emplace(name, value);
    server_.set_default_headers(std::move(headers));
    server_.set_address_family(AF_INET);
    // SO_REUSEPORT, the library's default, would allow two programs to share a port.
    server_.set_socket_options([](int socket) {
      const int on = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    });
    server_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          respond(request, response);
          return httplib::Server::HandlerResponse::Handled;
        });
  }

  ~Plugin() override {
    if (thread_.joinable()) {
      const std::uint64_t one = 1;
      static_cast<void>(!::write(stop_, &one, sizeof one));
      server_.stop();
      thread_.join();
    }
    ::close(stop_);
  }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  // Returns 0 or an errno. Creates the worker threads itself, not on the server's thread, so that a
  // failure to create them can be reported.
  int start() try {
    errno = 0;
    port_ = options_.port;
    if (port_ == 0)
      port_ = server_.bind_to_any_port("127.0.0.1");
    else if (!server_.bind_to_port("127.0.0.1", port_))
      port_ = -1;
    if (port_ <= 0) return errno != 0 ? errno : EADDRNOTAVAIL;
    server_.raise_backlog();
    auto workers = std::make_shared<std::unique_ptr<Workers>>(std::make_unique<Workers>());
    server_.new_task_queue = [workers] { return workers->release(); };
    thread_ = std::thread([this] {
      server_.listen_after_bind();
      ended_ = true;
    });
    while (!server_.is_running() && !ended_)  // stop() has no effect before the server is running
      std::this_thread::yield();
    return 0;
  } catch (const std::system_error& error) {
    return error.code().value();
  }

  [[nodiscard]] int port() const override { return port_; }
  [[nodiscard]] bool is_serving() const override { return !ended_; }

 private:
  void respond(const httplib::Request& request, httplib::Response& response) {
    HttpAnswer answer;
    try {
      const bool one_host = request.get_header_value_count("Host") == 1;
      answer = options_.answer({.method = request.method,
                                .target = request.target,
                                .host = one_host ? request.get_header_value("Host") : ""},
                               port_);
    } catch (const std::exception& error) {
      answer = {.status = 500, .body = std::make_shared<const std::string>(error.what())};
    }
    response.status = answer.status;
    for (const auto& [name, value] : answer.headers)
      response.set_header(name, value);
    if (answer.body == nullptr || answer.body->empty()) return;
    // Sent without a copy, so that many clients take no more memory than one.
    response.set_content_provider(
        answer.body->size(), answer.type,
        [body = answer.body](std::size_t offset, std::size_t length, httplib::DataSink& sink) {
          return sink.write(body->data() + offset, length);
        });
  }

  HttpOptions options_;
  int stop_ = ::eventfd(0, EFD_CLOEXEC);
  LimitedServer server_{stop_, options_.request_timeout};
  int port_ = -1;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace
}  // namespace muo::kit

extern "C" muo::kit::HttpServer* muograph_serve_http(muo::kit::HttpOptions* options, int* error) {
  auto server = std::make_unique<muo::kit::Plugin>(std::move(*options));
  *error = server->start();
  return *error == 0 ? server.release() : nullptr;
}
