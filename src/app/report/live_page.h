#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "app/report/followed_runs.h"
#include "app/report/http_server.h"

namespace muo::app {

// What `report --follow` answers: the page, and what its script asks for. Nothing is written, no
// file is found by a URL, and only a page of this very server can read the answers. Any thread may
// call it.
class LivePage {
 public:
  // `runs` must outlive it. Throws as report_page().
  LivePage(FollowedRuns& runs, std::string_view plotly);

  // GET and HEAD of / (the page) and of /data?since=VERSION (FollowedRuns::changed_since). Refused
  // are other methods (405), other targets (404) or versions (400), and a Host that is not this
  // machine with the server's port (403): a page elsewhere, whose name was made to mean this
  // machine, would be sent like that.
  HttpAnswer answer(const HttpRequest& request, int port);

  // Of every answer.
  [[nodiscard]] HttpHeaders headers() const;

 private:
  FollowedRuns& runs_;
  std::string policy_;
  std::shared_ptr<const std::string> page_;
};

}  // namespace muo::app
