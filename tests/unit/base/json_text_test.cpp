#include "base/json_text.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

namespace muo {
namespace {

TEST(JsonText, ReplacesInvalidUtf8) {
  EXPECT_EQ(json_text(nlohmann::json{{"b", "caf\xE9"}, {"a", 1}}),
            "{\"a\":1,\"b\":\"caf\xEF\xBF\xBD\"}");
  EXPECT_EQ(json_text(nlohmann::ordered_json{{"b", "\xFF\u4e16"}, {"a", 1}}, 1),
            "{\n \"b\": \"\xEF\xBF\xBD\u4e16\",\n \"a\": 1\n}");
}

TEST(JsonText, RoundTripsPaths) {
  for (const std::filesystem::path path : {"", "/a b/caf\xE9", "\u4e16\xFF\n"})
    EXPECT_EQ(path_of_json(nlohmann::json::parse(json_text(json_of_path(path)))), path);
}

}  // namespace
}  // namespace muo
