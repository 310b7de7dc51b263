// What stands between an answer and the next one, by the template.
#include "text/next_turn.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/fake_tokenizer.h"

namespace danlu::text {
namespace {

std::shared_ptr<const Tokenizer> speaking(const std::string& source) {
  return std::make_shared<FakeTokenizer>(std::vector<std::string>{"<s>", "<e>", "</s>"},
                                         std::vector<std::string>{}, source, "<e>");
}

NextTurn turns_of(const std::shared_ptr<const Tokenizer>& tokenizer) {
  return NextTurn(ChatEncoder::create(tokenizer, "hf"));
}

Message text_of(const std::string& role, const std::string& content) {
  Message one;
  one.role = role;
  one.content = content;
  return one;
}

// As ChatML and Qwen3: thoughts of answers before the last question are left out, and the last
// prompt begins one.
constexpr const char* kThoughtful =
    "{% for m in messages %}{% if m.role == 'tool' %}<s>user\n[{{ m.content }}]<e>\n"
    "{% else %}<s>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.name }}){% endfor %}<e>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<s>assistant\n<think>{% endif %}";

TEST(NextTurn, IsWhatTheTemplateWritesBehindTheEndOfAnAnswer) {
  const auto tokenizer = speaking(kThoughtful);
  const NextTurn turns = turns_of(tokenizer);
  const NextTurn::Ids next =
      turns.behind(Json::array(), {text_of("user", "no"), text_of("user", "more")});
  EXPECT_EQ(tokenizer->decode(next.end, false), "<e>");
  EXPECT_EQ(tokenizer->decode(next.messages, false),
            "\n<s>user\nno<e>\n<s>user\nmore<e>\n<s>assistant\n<think>");
  const Json calls = Json::parse(
      R"([{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}])");
  const NextTurn::Ids called = turns.behind(calls, {text_of("tool", "7")});
  EXPECT_EQ(tokenizer->decode(called.end, false), "<e>") << "an answer has its calls already";
  EXPECT_EQ(tokenizer->decode(called.messages, false), "\n<s>user\n[7]<e>\n<s>assistant\n<think>");
}

TEST(NextTurn, ATemplateThatDoesNotSayWhereAnswersEndIsRefused) {
  EXPECT_THROW(turns_of(speaking("{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
                                 "{% endfor %}")),
               ModelError);
  // One token ends what users say alone.
  EXPECT_THROW(turns_of(speaking("{% for m in messages %}{{ m.content }}"
                                 "{% if m.role == 'user' %}<e>{% endif %}{% endfor %}")),
               ModelError);
  EXPECT_THROW(turns_of(speaking("{% if messages | length > 1 %}{{ raise_exception('one turn') }}"
                                 "{% endif %}{{ messages[0].content }}<e>")),
               ModelError);
}

}  // namespace
}  // namespace danlu::text
