// Runs `muograph report --follow` as a user does, and requests its page as a browser does.
// scripts/look_at_live_report.py checks what the page does with the answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/eventually.h"
#include "support/files.h"
#include "support/http_client.h"
#include "support/program.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::body_of;
using test::http;
using test::Outcome;
using test::status_of;
using testing::HasSubstr;
using testing::StartsWith;

class Follow : public testing::Test {
 protected:
  // A one-line stand-in for the plotting library, which is not tested here.
  Follow() { test::write_file(path("plotly.js"), "window.Plotly = {};"); }

  [[nodiscard]] std::string path(const std::string& name) const { return directory_.path() / name; }
  // Starts a run, or adds steps to it.
  void train(const std::string& name, int first, int last) {
    fs::create_directories(path(name));
    std::ofstream out(path(name + "/metrics.jsonl"), std::ios::app);
    for (int step = first; step < last; ++step)
      out << R"({"kind":"train","step":)" << step << R"(,"loss":5})" << '\n';
  }
  [[nodiscard]] std::vector<std::string> command(std::vector<std::string> more) const {
    more.insert(more.begin(), {"report", "--follow", "--plotly", path("plotly.js")});
    return more;
  }
  // The port that the command prints.
  static int port_of(test::RunningProgram& program) {
    const std::string line = program.read_line(), begin = "http://127.0.0.1:";
    EXPECT_THAT(line, StartsWith(begin));
    return line.starts_with(begin) ? std::stoi(line.substr(begin.size())) : 0;
  }
  static json data_since(int port, std::uint64_t version) {
    return json::parse(body_of(http(port, "GET", "/data?since=" + std::to_string(version))));
  }
  Outcome refused(const std::string& arguments) {
    Outcome outcome =
        test::run_program("report --follow --plotly " + path("plotly.js") + " " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
    return outcome;
  }

  test::TemporaryDirectory directory_;
};

TEST_F(Follow, ServesThePageAndWhatIsAddedToItsRuns) {
  train("a", 0, 3);
  train("b", 0, 2);
  test::RunningProgram program(command({path("a"), path("b"), "--port", "0"}));
  const int port = port_of(program);
  const std::string page = http(port, "GET", "/");
  EXPECT_EQ(status_of(page), 200);
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'nonce-"));
  EXPECT_THAT(page, HasSubstr("<script type=\"application/json\" id=\"runs\">null</script>"));
  EXPECT_THAT(page, testing::EndsWith("</html>\n"));
  const json first = data_since(port, 0);
  ASSERT_EQ(first["runs"].size(), 2U);
  EXPECT_EQ(first["runs"][0][1]["steps"], 3);
  train("b", 2, 4);
  json next;
  EXPECT_TRUE(test::eventually([&] {
    next = data_since(port, first["version"]);
    return !next["runs"].empty();
  }));
  ASSERT_EQ(next["runs"].size(), 1U);
  EXPECT_EQ(next["runs"][0][0], 1);
  EXPECT_EQ(next["runs"][0][1]["steps"], 4);
  EXPECT_TRUE(data_since(port, next["version"])["runs"].empty());
  EXPECT_EQ(program.end_by(SIGTERM), 143);
}

TEST_F(Follow, RejectsForeignRequests) {
  train("a", 0, 1);
  test::RunningProgram program(command({path("a"), "--port", "0"}));
  const int port = port_of(program);
  const auto is_refused = [&](const std::string& answer, int status) {
    EXPECT_EQ(status_of(answer), status) << answer;
    EXPECT_LT(body_of(answer).size(), 100U);
    EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff"));
    EXPECT_THAT(answer, testing::Not(HasSubstr("Access-Control")));
  };
  for (const char* target : {"/../metrics.jsonl", "/%2e%2e/metrics.jsonl", "/a/metrics.jsonl", "//",
                             "/..%2f..%2fetc/passwd", "/metrics.jsonl%00"})
    is_refused(http(port, "GET", target), 404);
  is_refused(http(port, "GET", "/data?since=x"), 400);
  is_refused(http(port, "GET", "/" + std::string(9000, 'a')), 414);
  is_refused(http(port, "GET", std::string("/a\0b", 4)), 400);
  is_refused(http(port, "OPTIONS", "/", "Origin: http://evil.example\r\n"), 405);
  test::HttpConnection post(port);
  const std::string local = "Host: 127.0.0.1:" + std::to_string(port) + "\r\n";
  post.send("POST / HTTP/1.1\r\n" + local + "Content-Length: 200000\r\n\r\n" +
            std::string(200'000, 'x'));
  is_refused(post.receive(), 405);
  for (const std::string& host :
       {std::string("Host: evil.example\r\n"), std::string(), local + "Host: evil.example\r\n"}) {
    test::HttpConnection foreign(port);
    foreign.send("GET / HTTP/1.1\r\n" + host + "\r\n");
    is_refused(foreign.receive(), 403);
  }
  EXPECT_EQ(status_of(http(port, "HEAD", "/")), 200);
}

TEST_F(Follow, EndsAtOnceAtASignal) {
  train("a", 0, 1);
  test::RunningProgram program(command({path("a"), "--port", "0"}));
  const int port = port_of(program);
  const test::HttpConnection waits(port);
  EXPECT_EQ(status_of(http(port, "GET", "/")), 200) << "so the other one is being heard";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(program.end_by(SIGINT), 130);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
}

TEST_F(Follow, RefusesWhatItCannotServe) {
  train("a", 0, 1);
  test::RunningProgram program(command({path("a"), "--port", "0"}));
  const std::string busy = std::to_string(port_of(program));
  EXPECT_THAT(refused(path("a") + " --port " + busy).err,
              HasSubstr("--port " + busy + ": already in use: give another port, or 0"));
  EXPECT_THAT(refused(path("none") + " --port 0").err, HasSubstr("none: no such directory"));
  EXPECT_THAT(refused(path("a") + " --port 65536").err, HasSubstr("--port: '65536'"));
  EXPECT_THAT(refused(path("a") + " --text").err, HasSubstr("--follow writes no file"));
  EXPECT_THAT(refused(path("a") + " -o " + path("page.html")).err,
              HasSubstr("--follow writes no file"));
}

}  // namespace
}  // namespace muo
