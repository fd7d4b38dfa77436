#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muo {

// A table of an article that a strategy of this program comes from, beside what holds here: both
// computed, what holds from plans and from what a rank's arena is asked for. docs/strategies.md has
// the same text.
struct ArticleTable {
  std::string_view title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::string_view reason;  // why they differ
};
std::vector<ArticleTable> article_tables();

std::string markdown(const ArticleTable& table);  // without its title
std::string articles_text();                      // all of them
std::string articles_json();

}  // namespace muo
