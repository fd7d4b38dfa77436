#include "data/examples/csv.h"

#include "base/check.h"

namespace muo::data {
namespace {

class Reader {
 public:
  Reader(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
  CsvRow row() {
    CsvRow row{.line = line_, .fields = {field()}};
    while (!at_end() && text_[at_] == ',') {
      ++at_;
      row.fields.push_back(field());
    }
    if (!at_end() && text_[at_] == '\r') ++at_;
    if (!at_end() && text_[at_] == '\n') {
      ++at_;
      ++line_;
    }
    return row;
  }

 private:
  std::string field() {
    if (at_end() || text_[at_] != '"') {
      const std::size_t begin = at_;
      while (!at_end() && !ends_field())
        ++at_;
      return std::string(text_.substr(begin, at_ - begin));
    }
    const std::int64_t line = line_;
    std::string out;
    for (++at_;; ++at_) {
      if (at_end()) throw InputError(concat(what_, ": line ", line, ": a quote is not closed"));
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (c == '"') {
        ++at_;
        if (at_end() || text_[at_] != '"') break;
      }
      out.push_back(c);
    }
    if (!at_end() && !ends_field())
      throw InputError(concat(what_, ": line ", line_, ": text follows a closing quote"));
    return out;
  }
  [[nodiscard]] bool ends_field() const {
    const char c = text_[at_];
    return c == ',' || c == '\n' || c == '\r';
  }

  std::string_view text_, what_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
};

}  // namespace

std::vector<CsvRow> parse_csv(std::string_view text, std::string_view what) {
  Reader reader(text, what);
  std::vector<CsvRow> out;
  while (!reader.at_end())
    if (CsvRow row = reader.row(); row.fields.size() > 1 || !row.fields.front().empty())
      out.push_back(std::move(row));
  return out;
}

}  // namespace muo::data
