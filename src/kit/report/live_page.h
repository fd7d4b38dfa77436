#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kit/report/followed_runs.h"
#include "kit/report/http_server.h"

namespace muo::kit {

// Answers the requests of `report --follow`: for the page and for the data that its script
// requests. It writes nothing, maps no URL to a file, and only a page of the same server can read
// its answers. Thread-safe.
class LivePage {
 public:
  // `runs` must outlive this object. Throws as report_page() does.
  LivePage(FollowedRuns& runs, std::string_view plotly);

  // Answers GET and HEAD of / (the page) and of /data?since=VERSION
  // (FollowedRuns::changed_since()). Refuses other methods (405), other targets (404), invalid
  // versions (400), and any Host other than this machine with the server's port (403), which a page
  // of another site would send after DNS rebinding.
  HttpAnswer answer(const HttpRequest& request, int port);

  // Headers of every answer.
  [[nodiscard]] HttpHeaders headers() const;

 private:
  FollowedRuns& runs_;
  std::string policy_;
  std::shared_ptr<const std::string> page_;
};

}  // namespace muo::kit
