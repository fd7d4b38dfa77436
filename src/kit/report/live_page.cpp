#include "kit/report/live_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>

#include "kit/report/html_report.h"
#include "trainer/options/option_row.h"

namespace muo::kit {
namespace {

HttpAnswer refusal(int status, std::string why) {
  return {.status = status, .body = std::make_shared<const std::string>(std::move(why) + "\n")};
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_this_machine(std::string host, int port) {
  std::ranges::transform(host, host.begin(), lower);
  constexpr std::array<std::string_view, 3> kNames = {"127.0.0.1", "localhost", "[::1]"};
  return std::ranges::any_of(
      kNames, [&](std::string_view name) { return host == fmt::format("{}:{}", name, port); });
}

// Only scripts with this nonce run, so that text which got into the page as markup does not.
std::string new_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

LivePage::LivePage(FollowedRuns& runs, std::string_view plotly) : runs_(runs) {
  const std::string nonce = new_nonce();
  policy_ = fmt::format(
      "default-src 'none'; script-src 'nonce-{}' 'unsafe-eval'; style-src 'unsafe-inline'; "
      "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'",
      nonce);
  page_ = std::make_shared<const std::string>(live_page(plotly, policy_, nonce));
}

HttpAnswer LivePage::answer(const HttpRequest& request, int port) {
  if (!is_this_machine(request.host, port))
    return refusal(403, fmt::format("This server is http://127.0.0.1:{}/ only.", port));
  if (request.method != "GET" && request.method != "HEAD") {
    HttpAnswer out = refusal(405, "This server is read-only: use GET or HEAD.");
    out.headers = {{"Allow", "GET, HEAD"}};
    return out;
  }
  if (request.target == "/") return {.type = "text/html; charset=utf-8", .body = page_};
  constexpr std::string_view kData = "/data?since=";
  if (!request.target.starts_with(kData)) return refusal(404, "No such page.");
  const auto version = trainer::whole_number(request.target.substr(kData.size()));
  if (!version) return refusal(400, "since: not a version number.");
  return {.type = "application/json",
          .body = std::make_shared<const std::string>(
              runs_.changed_since(static_cast<std::uint64_t>(*version)))};
}

HttpHeaders LivePage::headers() const {
  return {{"Content-Security-Policy", policy_ + "; frame-ancestors 'none'"},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Resource-Policy", "same-origin"},
          {"Cache-Control", "no-store"}};
}

}  // namespace muo::kit
