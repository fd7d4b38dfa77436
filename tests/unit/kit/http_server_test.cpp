#include "kit/report/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "base/check.h"
#include "support/errors.h"
#include "support/eventually.h"
#include "support/http_client.h"

namespace muo::kit {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::http;
using test::HttpConnection;
using testing::HasSubstr;
using testing::Not;
using Clock = std::chrono::steady_clock;

// Echoes requests.
std::unique_ptr<HttpServer> echo(milliseconds request_timeout = seconds(10)) {
  return serve_http({.headers = {{"X-Always", "yes"}},
                     .request_timeout = request_timeout,
                     .answer = [](const HttpRequest& request, int /*port*/) {
                       return HttpAnswer{
                           .body = std::make_shared<const std::string>(
                               request.method + " " + request.target + " of " + request.host)};
                     }});
}

TEST(HttpServer, PassesRequestsOnUnchanged) {
  const auto server = echo();
  const std::string host = "localhost:" + std::to_string(server->port());
  const std::string answer = http(server->port(), "GET", "/../a%2e%00?b=%41&c#d");
  EXPECT_THAT(answer, HasSubstr("X-Always: yes\r\n"));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_EQ(test::body_of(answer), "GET /../a%2e%00?b=%41&c of " + host);
  EXPECT_EQ(test::body_of(http(server->port(), "PUT", "/", "Content-Length: 9\r\n")),
            "PUT / of " + host);
  const std::string head = http(server->port(), "HEAD", "/");
  EXPECT_THAT(head, HasSubstr("Content-Length: " + std::to_string(10 + host.size())));
  EXPECT_EQ(test::body_of(head), "");
  EXPECT_EQ(test::body_of(http(server->port(), "GET", "/", "Host: another\r\n")), "GET / of ");
}

TEST(HttpServer, IgnoresCompressionRangesAndExpectations) {
  const auto server = echo();
  const std::string answer = http(server->port(), "GET", "/",
                                  "Accept-Encoding: gzip, br\r\nRange: bytes=0-1,0-1\r\n"
                                  "Expect: 100-continue\r\n");
  EXPECT_EQ(test::status_of(answer), 200);
  EXPECT_THAT(test::body_of(answer), testing::StartsWith("GET / of "));
}

TEST(HttpServer, RejectsMalformedAndEndlessRequests) {
  const auto server = echo();
  const auto status = [&](const std::string& text) {
    HttpConnection connection(server->port());
    connection.send(text);
    const std::string answer = connection.receive();
    EXPECT_THAT(answer, Not(HasSubstr("GET")));
    return test::status_of(answer);
  };
  EXPECT_EQ(status("hello\r\n\r\n"), 400);
  EXPECT_EQ(status(std::string("GET /\0 HTTP/1.1\r\n\r\n", 19)), 400);
  EXPECT_EQ(status("BREW / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status("GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n"), 414);
  // A request that never ends: at most a few kilobytes of it are kept.
  EXPECT_EQ(status("GET /" + std::string(4'000'000, 'a')), 431);
  std::string headers = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 10'000; ++i)
    headers += "X-Header: yes\r\n";
  EXPECT_EQ(status(headers), 400);
}

TEST(HttpServer, ATrickleDoesNotHoldAConnection) {
  const auto server = echo(milliseconds(300));
  HttpConnection connection(server->port());
  const auto start = Clock::now();
  bool open = true;
  while (open && Clock::now() - start < seconds(20)) {
    open = connection.send("G");
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_FALSE(open) << "after 20 s of single bytes";
}

TEST(HttpServer, ARequestWithoutEndDoesNotHoldAConnection) {
  const auto server = echo();
  HttpConnection connection(server->port());
  const std::string much(1 << 16, 'a');
  const auto start = Clock::now();
  bool open = connection.send("POST / HTTP/1.1\r\nContent-Length: 9000000000000\r\n\r\n");
  while (open && Clock::now() - start < seconds(20))
    open = connection.send(much);
  EXPECT_FALSE(open) << "after 20 s at full speed";
}

// Uses one client fewer than there are threads.
TEST(HttpServer, SilentClientsDoNotBlockOthers) {
  const auto server = echo(seconds(60));
  std::deque<HttpConnection> silent;
  for (int i = 0; i < 15; ++i)
    silent.emplace_back(server->port());
  EXPECT_EQ(test::status_of(http(server->port(), "GET", "/")), 200);
}

// At most 16 clients have a thread, and 64 wait for one.
TEST(HttpServer, ClosesExcessConnections) {
  auto server = echo(std::chrono::hours(1));
  std::deque<HttpConnection> silent;
  for (int i = 0; i < 200; ++i)
    silent.emplace_back(server->port());
  const auto closed = [&] { return std::ranges::count_if(silent, &HttpConnection::is_closed); };
  EXPECT_TRUE(test::eventually([&] { return closed() >= 120; }));
  server.reset();  // closes all connections without waiting for a request
  EXPECT_EQ(closed(), 200);
}

TEST(HttpServer, ServesOnlyThisMachineOnAnExclusivePort) {
  const auto server = echo();
  EXPECT_THROW(HttpConnection(server->port(), "127.0.0.2"), Error);
  EXPECT_THAT(
      test::message_of<InputError>([&] { serve_http({.port = server->port(), .answer = {}}); }),
      HasSubstr("already in use: give another port, or 0 for any free port"));
}

TEST(HttpServer, AnExceptionIsAServerError) {
  const auto server = serve_http(
      {.answer = [](const HttpRequest&, int) -> HttpAnswer { throw Error("a failure"); }});
  const std::string answer = http(server->port(), "GET", "/");
  EXPECT_EQ(test::status_of(answer), 500);
  EXPECT_EQ(test::body_of(answer), "a failure");
}

}  // namespace
}  // namespace muo::kit
