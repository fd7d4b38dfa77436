#include "data/examples/yaml.h"

#include <yaml.h>

#include <algorithm>
#include <memory>

#include "base/check.h"

namespace muo::data {
namespace {

constexpr int kMaxDepth = 64;

struct EventDeleter {
  void operator()(yaml_event_t* event) const {
    yaml_event_delete(event);
    delete event;  // NOLINT(cppcoreguidelines-owning-memory): allocated by new
  }
};
using Event = std::unique_ptr<yaml_event_t, EventDeleter>;

std::string_view text_of(const yaml_char_t* text, std::size_t size) {
  return {reinterpret_cast<const char*>(text), size};
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view what) : what_(what) {
    MUO_CHECK(yaml_parser_initialize(&parser_) != 0, "no memory for a YAML parser");
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
  }
  ~Parser() { yaml_parser_delete(&parser_); }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  YamlValue document() {
    next();  // the start of the stream
    if (next()->type == YAML_STREAM_END_EVENT) fail(1, "no document");
    YamlValue value = read(next(), 0);
    next();  // the end of the document
    if (const Event more = next(); more->type != YAML_STREAM_END_EVENT)
      fail(line_of(*more), "a second document");
    return value;
  }

 private:
  [[noreturn]] void fail(std::int64_t line, std::string_view reason) const {
    throw InputError(concat(what_, ": line ", line, ": ", reason));
  }
  static std::int64_t line_of(const yaml_event_t& event) {
    return static_cast<std::int64_t>(event.start_mark.line) + 1;
  }

  Event next() {
    Event event(new yaml_event_t{});
    if (yaml_parser_parse(&parser_, event.get()) == 0)
      fail(static_cast<std::int64_t>(parser_.problem_mark.line) + 1,
           concat("malformed YAML: ", parser_.problem != nullptr ? parser_.problem : "unknown"));
    return event;
  }

  void refuse_tag(const yaml_char_t* tag, std::int64_t line) const {
    if (tag != nullptr) fail(line, "tags are not supported: leave the tag out");
  }

  YamlValue read(const Event& event, int depth) {
    YamlValue value{.line = line_of(*event)};
    if (depth > kMaxDepth) fail(value.line, concat("nested deeper than ", kMaxDepth, " levels"));
    switch (event->type) {
      case YAML_SCALAR_EVENT: {
        const auto& scalar = event->data.scalar;
        refuse_tag(scalar.tag, value.line);
        value.text = text_of(scalar.value, scalar.length);
        value.quoted = scalar.style != YAML_PLAIN_SCALAR_STYLE;
        return value;
      }
      case YAML_SEQUENCE_START_EVENT:
        refuse_tag(event->data.sequence_start.tag, value.line);
        value.kind = YamlValue::Kind::kSequence;
        for (Event item = next(); item->type != YAML_SEQUENCE_END_EVENT; item = next())
          value.items.push_back(read(item, depth + 1));
        return value;
      case YAML_MAPPING_START_EVENT:
        refuse_tag(event->data.mapping_start.tag, value.line);
        value.kind = YamlValue::Kind::kMapping;
        for (Event key = next(); key->type != YAML_MAPPING_END_EVENT; key = next())
          add_member(value, key, depth);
        return value;
      case YAML_ALIAS_EVENT:
        fail(value.line, "aliases are not supported: write out the value");
      default:
        fail(value.line, "expected a value");
    }
  }

  void add_member(YamlValue& mapping, const Event& event, int depth) {
    const YamlValue key = read(event, depth + 1);
    if (key.kind != YamlValue::Kind::kScalar) fail(key.line, "a key that is not a scalar");
    if (mapping.find(key.text) != nullptr)
      fail(key.line, concat("the key \"", key.text, "\" occurs twice"));
    mapping.members.emplace_back(key.text, read(next(), depth + 1));
  }

  std::string_view what_;
  yaml_parser_t parser_{};
};

}  // namespace

const YamlValue* YamlValue::find(std::string_view key) const {
  const auto found = std::ranges::find_if(members, [&](const auto& m) { return m.first == key; });
  return found == members.end() ? nullptr : &found->second;
}

bool YamlValue::is_null() const {
  return kind == Kind::kScalar && !quoted &&
         (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL");
}

YamlValue parse_yaml(std::string_view text, std::string_view what) {
  return Parser(text, what).document();
}

}  // namespace muo::data
