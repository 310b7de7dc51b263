// Calls that a constraint allows are calls that the parser finds.
#include <gtest/gtest.h>

#include <random>

#include "api/tool_calls.h"
#include "api/whole_answer.h"
#include "base/json_text.h"
#include "grammar/compiler.h"
#include "grammar/follow.h"
#include "text/fake_tokenizer.h"

namespace danlu::api {
namespace {

TEST(ConstrainedCalls, AreFoundAgain) {
  const auto tokenizer = std::make_shared<text::FakeTokenizer>(
      std::vector<std::string>{"<end>", "[TOOL_CALLS]", "<｜tool▁calls▁begin｜>"},
      std::vector<std::string>{"</tool_call>", "\": "});
  const grammar::Compiler compiler(tokenizer, {256});
  const Json tools = Json::parse(R"([
      {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
       "properties": {"a": {"type": "string", "maxLength": 5}, "b": {"type": "integer"}}, "required": ["b"]}}},
      {"type": "function", "function": {"name": "g"}}])");
  std::mt19937 random(9);
  for (const text::ToolFormat format :
       {text::ToolFormat::kHermes, text::ToolFormat::kLlama3, text::ToolFormat::kMistral,
        text::ToolFormat::kDeepSeekV3}) {
    for (int round = 0; round < 40; ++round) {
      const std::string name = round % 3 == 0 ? "f" : "";
      const auto constraint = compiler.begin(compiler.tool_calls(
          {.format = format, .tools = tools, .name = name, .many = round % 2 == 0}));
      const std::string text =
          tokenizer->decode(grammar::draw(*constraint, *tokenizer, 256, random, 150), false);
      const ParsedAnswer answer = parse_tool_calls(text, format);
      ASSERT_EQ(answer.content, "") << text;
      ASSERT_FALSE(answer.calls.empty()) << text;
      if (round % 2 == 1) {
        ASSERT_EQ(answer.calls.size(), 1u) << text;
      }
      for (const ParsedCall& call : answer.calls) {
        ASSERT_TRUE(call.name == "f" || (name.empty() && call.name == "g")) << text;
        const Json arguments = Json::parse(call.arguments);
        ASSERT_EQ(arguments.contains("b"), call.name == "f") << text;
      }
    }
  }
}

/// Arguments between tags, of which strings are as they are: tags in them would end them.
TEST(ConstrainedCalls, TextBetweenTagsHoldsNoTag) {
  const std::vector<std::string> tags = {"<arg_key>",    "</arg_key>",  "<arg_value>",
                                         "</arg_value>", "<tool_call>", "</tool_call>"};
  const Json tools = Json::parse(R"([
      {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
       "properties": {"text": {"type": "string"}, "short": {"type": "string", "minLength": 1, "maxLength": 3},
         "kind": {"type": "string", "enum": ["a", "b c"]}, "like": {"type": "string", "pattern": "^[^a]{1,4}$"},
         "day": {"type": "string", "format": "date"}, "count": {"type": "integer", "minimum": 3},
         "any": {"type": ["string", "null"]}, "of": {"type": "object", "properties": {"x<": {"type": "string"},
         "y": {"enum": ["</arg_value>", 2]}}}, "many": {"items": {"enum": ["</arg_value>", "a<"]}}},
       "required": ["text", "count"], "additionalProperties": false}}},
      {"type": "function", "function": {"name": "g"}},
      {"type": "function", "function": {"name": "h", "parameters": {"type": "object"}}}])");
  // Tags as tokens of their own, and as text alone.
  for (const bool are_special : {true, false}) {
    std::vector<std::string> special = {"<end>"};
    std::vector<std::string> words = {"</arg_value", "</arg", "_value>", ">\n<arg_key>"};
    if (!are_special) words.insert(words.end(), tags.begin(), tags.end());
    if (are_special) special.insert(special.end(), tags.begin(), tags.end());
    const auto tokenizer = std::make_shared<text::FakeTokenizer>(special, words);
    const grammar::Compiler compiler(tokenizer, {256});
    std::mt19937 random(11);
    size_t num_text = 0, num_of = 0;
    for (int round = 0; round < 300; ++round) {
      const std::string name = round % 2 == 0 ? "f" : "";
      const auto constraint = compiler.begin(
          compiler.tool_calls({.format = text::ToolFormat::kGlm45, .tools = tools, .name = name}));
      const std::string text =
          tokenizer->decode(grammar::draw(*constraint, *tokenizer, 256, random, 60,
                                          {"</arg_key>", "</arg_value>", "</tool_call>"}),
                            false);
      const ParsedAnswer answer =
          parse_tool_calls(text, text::ToolFormat::kGlm45, {.tools = tools});
      ASSERT_EQ(answer.content, "") << text;
      ASSERT_FALSE(answer.calls.empty()) << text;
      for (const ParsedCall& call : answer.calls) {
        const Json arguments = Json::parse(call.arguments);
        if (call.name != "f") continue;
        ASSERT_TRUE(arguments["text"].is_string()) << text;
        ASSERT_GE(arguments["count"].get<int64_t>(), 3) << text;
        num_text += arguments["text"] != "";
        num_of += arguments.contains("of");
        if (arguments.contains("of")) {
          ASSERT_TRUE(arguments["of"].is_object()) << text;
        }
        if (arguments.contains("kind")) {
          ASSERT_TRUE(arguments["kind"] == "a" || arguments["kind"] == "b c") << text;
        }
        if (arguments.contains("any")) {
          ASSERT_TRUE(arguments["any"].is_string() || arguments["any"].is_null()) << text;
        }
      }
    }
    EXPECT_GT(num_text, 30u);
    EXPECT_GT(num_of, 0u);
  }
}

/// Arguments that the schema does not name come behind those that it names, and none comes twice.
TEST(ConstrainedCalls, FurtherArgumentsBetweenTags) {
  const auto tokenizer = std::make_shared<text::FakeTokenizer>(
      std::vector<std::string>{"<end>"},
      std::vector<std::string>{"<arg_key>", "</arg_key>", "</arg_value>", "</tool_call>"});
  const grammar::Compiler compiler(tokenizer, {256});
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {
      "type": "object", "properties": {"ab": {"type": "string"}, "b c": {"type": "integer"}},
      "required": ["ab"], "additionalProperties": {"type": "integer"}}}}])");
  const auto rules = compiler.tool_calls({.format = text::ToolFormat::kGlm45, .tools = tools});
  const auto is_accepted = [&](const std::string& text) {
    const auto constraint = compiler.begin(rules);
    for (const text::TokenId id : tokenizer->encode(text, false)) {
      if (!grammar::is_allowed(constraint->allowed(), id)) return false;
      constraint->accept(id);
    }
    return true;
  };
  const auto argument = [](const std::string& key, const std::string& value) {
    return "<arg_key>" + key + "</arg_key>\n<arg_value>" + value + "</arg_value>\n";
  };
  const std::string named = "<tool_call>f\n" + argument("ab", "x");
  EXPECT_TRUE(is_accepted(named + argument("b c", "1") + "</tool_call>"));
  EXPECT_TRUE(is_accepted(named + argument("a", "1") + argument("abc", "2") + "</tool_call>"));
  EXPECT_TRUE(is_accepted(named + argument("é", "1")));
  EXPECT_FALSE(is_accepted(named + argument("ab", "1")));
  EXPECT_FALSE(is_accepted(named + argument("a", "\"x\"")));
  EXPECT_FALSE(is_accepted(named + argument("", "1")));
  EXPECT_FALSE(is_accepted("<tool_call>f\n" + argument("a", "1")));
  const ParsedAnswer answer = parse_tool_calls(named + argument("zoom", "3") + "</tool_call>",
                                               text::ToolFormat::kGlm45, {.tools = tools});
  EXPECT_EQ(Json::parse(answer.calls.at(0).arguments), (Json{{"ab", "x"}, {"zoom", 3}}));
  std::mt19937 random(13);
  size_t num_further = 0;
  for (int round = 0; round < 100; ++round) {
    const auto constraint = compiler.begin(rules);
    const std::string text =
        tokenizer->decode(grammar::draw(*constraint, *tokenizer, 256, random, 60,
                                        {"</arg_key>", "</arg_value>", "</tool_call>"}),
                          false);
    for (const ParsedCall& call :
         parse_tool_calls(text, text::ToolFormat::kGlm45, {.tools = tools}).calls) {
      const Json arguments = Json::parse(call.arguments);
      ASSERT_TRUE(arguments.at("ab").is_string()) << text;
      for (const auto& [key, value] : arguments.items()) {
        if (key == "ab" || key == "b c") continue;
        ++num_further;
        ASSERT_TRUE(value.is_number_integer()) << text;
      }
    }
  }
  EXPECT_GT(num_further, 0u);
}

}  // namespace
}  // namespace danlu::api
