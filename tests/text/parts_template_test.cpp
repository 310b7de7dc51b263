// Chat templates that walk through the parts of a message: a text is given to them as one part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/throws.h"
#include "text/fake_tokenizer.h"
#include "text/jinja_encoder.h"

namespace danlu::text {
namespace parts_template_test {

/// As LLaVA's: nothing but parts is shown.
constexpr const char* kWalking =
    "{% for message in messages %}<|{{ message['role'] }}|>"
    "{% for content in message['content'] %}{% if content['type'] == 'text' %}"
    "{{ content['text'] }}{% endif %}{% endfor %}<end>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

std::shared_ptr<const ChatEncoder> encoder(const std::string& source) {
  const auto tokenizer = std::make_shared<FakeTokenizer>(std::vector<std::string>{"<end>"},
                                                         std::vector<std::string>{}, "", "<end>");
  return make_jinja_encoder(tokenizer, source, "t", nullptr);
}

Conversation talk() {
  return {.messages = {{"system", "S"}, {"user", "hello"}, {"assistant", "hi"}}, .tools = nullptr};
}

TEST(PartsTemplate, TextsAreGivenAsParts) {
  EXPECT_EQ(encoder(kWalking)->render(talk(), false),
            "<|system|>S<end><|user|>hello<end><|assistant|>hi<end>");
}

TEST(PartsTemplate, AnswersAreLearntAllTheSame) {
  const EncodedConversation encoded = encoder(kWalking)->encode(talk());
  std::string learnt;
  for (const TokenId label : encoded.labels) {
    if (label == kIgnoreLabel) continue;
    learnt += label < 256 ? std::string(1, static_cast<char>(label)) : "<end>";
  }
  EXPECT_EQ(learnt, "hi<end>");
}

/// As some of LLaVA's: the system message stands as it is, the others in parts.
TEST(PartsTemplate, EachRoleHasItsOwnForm) {
  const std::string mixed =
      "{% for m in messages %}{% if m['role'] == 'user' %}U:"
      "{% for c in m['content'] %}{{ c['text'] }}{% endfor %}"
      "{% else %}{{ m['role'] }}:{{ m['content'] }}{% endif %}<end>{% endfor %}";
  EXPECT_EQ(encoder(mixed)->render(talk(), false), "system:S<end>U:hello<end>assistant:hi<end>");
}

TEST(PartsTemplate, ATemplateThatTakesTextsGetsTexts) {
  const std::string both =
      "{% for m in messages %}{% if m['content'] is string %}={{ m['content'] }}"
      "{% else %}{% for c in m['content'] %}~{{ c['text'] }}{% endfor %}{% endif %}{% endfor %}";
  EXPECT_EQ(encoder(both)->render(talk(), false), "=S=hello=hi");
}

TEST(PartsTemplate, OneThatShowsNoUserIsRefused) {
  const auto silent = encoder("{% for m in messages %}<end>{% endfor %}");
  const Conversation asked{.messages = {{"user", "hello"}}, .tools = nullptr};
  EXPECT_THAT(test::error_of<DataError>([&] { silent->encode_prompt(asked); }),
              testing::HasSubstr("shows no message of a user"));
}

}  // namespace parts_template_test
}  // namespace danlu::text
