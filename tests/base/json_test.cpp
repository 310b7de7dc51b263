#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "support/temporary_directory.h"

namespace danlu {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string syntax_error(std::string_view text) {
  try {
    parse_json(text, "a.json");
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

TEST(ParseJson, KeepsTheOrderOfKeys) {
  EXPECT_EQ(parse_json(R"({"b":1,"a":2})", "x").dump(), R"({"b":1,"a":2})");
}

TEST(ParseJson, TheLastOfTwoEqualKeysWins) {
  EXPECT_EQ(parse_json(R"({"a":1,"b":2,"a":3})", "x")["a"], 3);
}

TEST(ParseJson, SkipsAByteOrderMark) { EXPECT_EQ(parse_json("\xEF\xBB\xBF[1]", "x")[0], 1); }

TEST(ParseJson, ErrorsNameFileLineAndColumn) {
  EXPECT_THAT(syntax_error("{\n  \"a\": 1,\n  \"b\": oops\n}"),
              StartsWith("a.json:3:8: not valid JSON"));
  EXPECT_THAT(syntax_error("[1, 2"), HasSubstr("not valid JSON"));
  EXPECT_THAT(syntax_error(""), StartsWith("a.json:1:1: not valid JSON"));
  EXPECT_THAT(syntax_error("[1] x"), StartsWith("a.json:1:5: not valid JSON"));
}

TEST(ParseJson, ANumberThatIsTooLargeIsAnError) {
  EXPECT_THAT(syntax_error("[1e400]"),
              HasSubstr("1:2: not valid JSON: the number 1e400 is too large"));
}

TEST(ParseJson, NestingIsLimited) {
  const auto nested = [](size_t depth, const char* open, const char* close) {
    std::string text;
    for (size_t i = 0; i < depth; ++i) text += open;
    for (size_t i = 0; i < depth; ++i) text += close;
    return text;
  };
  const std::string most = nested(kMaxJsonDepth, "[", "]");
  const std::string deep = "{\"a\":\n" + most + "}";
  EXPECT_EQ(parse_json(most, "x").dump(), most);
  EXPECT_EQ(syntax_error(deep), "a.json:2:512: not valid JSON: nested more than 512 deep");
  EXPECT_FALSE(try_parse_json(deep).has_value());
  EXPECT_FALSE(is_json(deep));
  for (const std::string& hostile :
       {nested(200000, "[", "]"), nested(200000, "[", ""), nested(200000, "{\"a\":[", "]}")}) {
    EXPECT_THAT(syntax_error(hostile), HasSubstr("nested more than 512 deep"));
  }
  // Brackets side by side, and brackets in texts, are not nested.
  std::string wide = "[\"\\\"" + std::string(1000, '[') + "\"";
  for (int i = 0; i < 1000; ++i) wide += ",[{}]";
  EXPECT_EQ(parse_json(wide + "]", "x").size(), 1001U);
  EXPECT_TRUE(is_json(wide + "]"));
  EXPECT_FALSE(is_json(wide));
}

TEST(ParseJson, MembersOfOneObjectAreCounted) {
  const std::string text = R"({"a": {"b": 1, "c": [{"d": 1}, {"d": 2}, {"d": ":::,"}]}, "e": 2})";
  EXPECT_TRUE(has_wider_object(text, 1));
  EXPECT_FALSE(has_wider_object(text, 2));
  EXPECT_FALSE(has_wider_object(R"({"a:b:c:d": "x:\"y:z", "e": [1, 2, 3]})", 2));
  EXPECT_TRUE(has_wider_object(R"([{"a": {"b": 1}, "c": 1, "d": 1)", 2));
  EXPECT_FALSE(has_wider_object("}}]]:\"", 2));
}

TEST(JsonGet, TakesAbsentAndNullAsNothing) {
  const Json object = parse_json(R"({"a":null,"b":2})", "x");
  EXPECT_FALSE(json_get<int>(object, "a").has_value());
  EXPECT_FALSE(json_get<int>(object, "c").has_value());
  EXPECT_EQ(json_get<int>(object, "b"), 2);
}

TEST(JsonGet, NamesKeyWantedAndFoundType) {
  const Json object = parse_json(R"({"n":"100","b":1,"s":[7],"x":1.5,"whole":5.0})", "x");
  const auto error = [&](auto read) {
    try {
      read();
    } catch (const DataError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error([&] { json_get<int64_t>(object, "n"); }),
            R"("n" must be a whole number, got "100")");
  EXPECT_EQ(error([&] { json_get<bool>(object, "b"); }), R"("b" must be true or false, got 1)");
  EXPECT_EQ(error([&] { json_get<std::string>(object, "s"); }), R"("s" must be a string, got [7])");
  EXPECT_EQ(error([&] { json_get<int64_t>(object, "x"); }),
            R"("x" must be a whole number, got 1.5)");
  EXPECT_EQ(error([&] { json_get<double>(object, "n"); }), R"("n" must be a number, got "100")");
  EXPECT_EQ(json_get<int64_t>(object, "whole"), 5);
}

TEST(JsonFiles, RoundTripWithATrailingNewline) {
  const test::TemporaryDirectory directory;
  const fs::path path = directory / "a.json";
  write_json_file(path, parse_json(R"({"名":"丹炉"})", "x"));
  EXPECT_EQ(read_file(path), "{\n  \"名\": \"丹炉\"\n}\n");
  EXPECT_EQ(read_json_file(path)["名"], "丹炉");
  fs::remove(path);
  EXPECT_THROW(read_json_file(path), IoError);
}

}  // namespace
}  // namespace danlu
