#include "support/command_line.h"

#include <iterator>
#include <sstream>

namespace muo::test {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

cli::Command parse(const std::vector<std::string>& words) {
  std::vector<const char*> arguments;
  arguments.reserve(words.size());
  for (const std::string& word : words)
    arguments.push_back(word.c_str());
  return cli::parse_command_line(arguments);
}

}  // namespace muo::test
