// Calls that a constraint allows are calls that the parser finds.
#include <gtest/gtest.h>

#include <random>

#include "api/tool_calls.h"
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

}  // namespace
}  // namespace danlu::api
