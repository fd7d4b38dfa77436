#include "kit/report/live_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/files.h"

namespace muo::kit {
namespace {

using testing::HasSubstr;
using testing::Not;

class LivePages : public testing::Test {
 protected:
  LivePages() { test::write_file(directory_.path() / "config.toml", "depth = 4\n"); }

  [[nodiscard]] int status(const std::string& method, const std::string& target,
                           const std::string& host = "localhost:6007") {
    return page_.answer({.method = method, .target = target, .host = host}, 6007).status;
  }

  test::TemporaryDirectory directory_;
  FollowedRuns runs_{{directory_.path()}, std::chrono::milliseconds(0)};
  LivePage page_{runs_, "the library"};
};

TEST_F(LivePages, AreReadOnlyAndAtFixedPlaces) {
  EXPECT_EQ(status("GET", "/"), 200);
  EXPECT_EQ(status("HEAD", "/"), 200);
  EXPECT_EQ(status("GET", "/data?since=0"), 200);
  for (const char* method :
       {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get"})
    EXPECT_EQ(status(method, "/"), 405) << method;
  for (const char* target :
       {"", "/data", "/data/", "//", "/?", "/../", "/..", "/%2e%2e/", "/%2E%2e/etc/passwd",
        "/config.toml", "/data/../config.toml", "/DATA?since=0", "http://localhost:6007/", "*"})
    EXPECT_EQ(status("GET", target), 404) << target;
  for (const char* since : {"", "x", "-1", "1x", "0x1", " 1", "1&x=2", "99999999999999999999999"})
    EXPECT_EQ(status("GET", std::string("/data?since=") + since), 400) << since;
}

TEST_F(LivePages, AreForPagesOfThisServerOnly) {
  for (const char* host : {"localhost:6007", "LocalHost:6007", "127.0.0.1:6007", "[::1]:6007"})
    EXPECT_EQ(status("GET", "/", host), 200) << host;
  for (const char* host :
       {"", "localhost", "localhost:6008", "localhost:60070", "127.0.0.1", "evil.example:6007",
        "localhost.evil.example:6007", "127.0.0.1.evil.example:6007", "::1:6007",
        "localhost:6007, evil.example", "127.0.0.2:6007", "0.0.0.0:6007"})
    EXPECT_EQ(status("GET", "/", host), 403) << host;
}

TEST_F(LivePages, HaveSecurityHeaders) {
  std::string all;
  for (const auto& [name, value] : page_.headers())
    all.append(name).append(": ").append(value).append("\n");
  EXPECT_THAT(all, Not(HasSubstr("Access-Control")));
  EXPECT_THAT(all, Not(HasSubstr("script-src 'unsafe-inline'")));
  for (const char* part :
       {"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "nosniff",
        "Referrer-Policy: no-referrer", "Cross-Origin-Resource-Policy: same-origin", "no-store"})
    EXPECT_THAT(all, HasSubstr(part));
  // The policy allows the scripts of this page, but not those of another server.
  const std::string text = *page_.answer({"GET", "/", "localhost:6007"}, 6007).body;
  const std::size_t at = all.find("'nonce-") + 7;
  const std::string nonce = all.substr(at, all.find('\'', at) - at);
  EXPECT_EQ(nonce.size(), 32U);
  EXPECT_THAT(text, HasSubstr("<script nonce=\"" + nonce + "\">the library</script>"));
  EXPECT_THAT(text, Not(HasSubstr("<script>")));
  EXPECT_THAT(*LivePage(runs_, "").answer({"GET", "/", "localhost:6007"}, 6007).body,
              Not(HasSubstr(nonce)));
}

}  // namespace
}  // namespace muo::kit
