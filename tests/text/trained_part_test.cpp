// The part of a conversation that is learnt, by hand-worked labels.
#include "text/trained_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/throws.h"
#include "text/fake_tokenizer.h"

namespace danlu::text {
namespace {

using test::error_of;
using ::testing::HasSubstr;

/// As Qwen3's: an answer without a thought gets an empty one.
constexpr char kThinking[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and '<think>' "
    "not in m.content %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::string learnt(const std::string& words, std::initializer_list<const char*> contents,
                   std::vector<std::string> merges = {"<think>", "</think>", "\n\n"}) {
  const auto tokenizer =
      std::make_shared<FakeTokenizer>(std::vector<std::string>{"<|im_start|>", "<|im_end|>"},
                                      std::move(merges), kThinking, "<|im_end|>");
  Conversation c;
  for (const char* content : contents) {
    c.messages.push_back(
        {.role = c.messages.size() % 2 ? "assistant" : "user", .content = content});
  }
  const auto encoder = with_trained_part(ChatEncoder::create(tokenizer, ""), tokenizer,
                                         trained_part_from_name(words, "loss_scale"));
  const EncodedConversation encoded = encoder->encode(c);
  std::string text;
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    if (encoded.labels[i] == kIgnoreLabel) continue;
    EXPECT_EQ(encoded.labels[i], encoded.ids[i]);
    text += tokenizer->decode(std::span(encoded.ids).subspan(i, 1), false);
  }
  return text;
}

TEST(TrainedPart, IsWhatTheWordsSay) {
  const auto talk = {"a", "one", "b", "two"};
  const std::string empty = "<think>\n\n</think>\n\n";
  EXPECT_EQ(learnt("default", talk), empty + "one<|im_end|>" + empty + "two<|im_end|>");
  EXPECT_EQ(learnt("last_round", talk), empty + "two<|im_end|>");
  EXPECT_EQ(learnt("ignore_empty_think", talk), "one<|im_end|>two<|im_end|>");
  EXPECT_EQ(learnt("default+ignore_empty_think", talk), "one<|im_end|>two<|im_end|>");
  EXPECT_EQ(learnt("last_round+ignore_empty_think", talk), "two<|im_end|>");
  EXPECT_EQ(learnt("last_round_with_ignore_empty_think", talk), "two<|im_end|>");
  EXPECT_EQ(learnt("all", {"a", "b"}),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n" + empty + "b<|im_end|>\n");
}

TEST(TrainedPart, AThoughtThatSaysSomethingIsLearnt) {
  EXPECT_EQ(learnt("ignore_empty_think", {"a", "<think>x</think>b"}),
            "<think>x</think>b<|im_end|>");
  // Marks of several tokens.
  EXPECT_EQ(learnt("ignore_empty_think", {"a", "b"}, {"<th", "ink>", "</", "\n\n"}), "b<|im_end|>");
}

TEST(TrainedPart, EveryMessageBehindTheLastQuestionIsOfTheLastRound) {
  const auto tokenizer =
      std::make_shared<FakeTokenizer>(std::vector<std::string>{"<|im_start|>", "<|im_end|>"},
                                      std::vector<std::string>{}, kThinking, "<|im_end|>");
  Conversation c;
  for (const auto& [role, content] : {std::pair("user", "q"),
                                      {"assistant", "old"},
                                      {"user", "q"},
                                      {"assistant", "call"},
                                      {"tool", "r"},
                                      {"assistant", "end"}})
    c.messages.push_back({.role = role, .content = content});
  const auto encoder =
      with_trained_part(ChatEncoder::create(tokenizer, ""), tokenizer,
                        trained_part_from_name("last_round+ignore_empty_think", "loss_scale"));
  const EncodedConversation encoded = encoder->encode(c);
  std::string text;
  for (const TokenId label : encoded.labels) {
    if (label != kIgnoreLabel) text += tokenizer->decode(std::vector{label}, false);
  }
  EXPECT_EQ(text, "call<|im_end|>end<|im_end|>");
}

/// What `words` leave of three rounds; the row says of each answer, in turn: + learn it, - do not.
std::string learnt_where(const std::string& words, const std::string& said) {
  const auto tokenizer = std::make_shared<FakeTokenizer>(
      std::vector<std::string>{"<|end|>"}, std::vector<std::string>{},
      "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}<|end|>{% endif %}"
      "{% endfor %}",
      "<|end|>");
  Conversation c;
  for (size_t i = 0; i < said.size(); ++i) {
    c.messages.push_back({.role = "user", .content = "q"});
    c.messages.push_back({.role = "assistant",
                          .content = std::string(1, static_cast<char>('A' + i)),
                          .train = said[i] != '-',
                          .train_is_said = said[i] != ' '});
  }
  const auto encoder = with_trained_part(ChatEncoder::create(tokenizer, ""), tokenizer,
                                         trained_part_from_name(words, "loss_scale"));
  std::string text;
  for (const TokenId label : encoder->encode(c).labels)
    if (label != kIgnoreLabel) text += tokenizer->decode(std::vector{label}, false);
  EXPECT_THAT(encoder->encode_all_answers(c).labels,
              ::testing::ElementsAre(kIgnoreLabel, 'A', 256, kIgnoreLabel, 'B', 256, kIgnoreLabel,
                                     'C', 256));
  return text;
}

TEST(TrainedPart, WhatTheRowSaysOutweighsThePart) {
  EXPECT_EQ(learnt_where("default", " - "), "A<|end|>C<|end|>");
  EXPECT_EQ(learnt_where("all", " - "), "qA<|end|>qqC<|end|>");
  EXPECT_EQ(learnt_where("all", "   "), "qA<|end|>qB<|end|>qC<|end|>");
  EXPECT_EQ(learnt_where("last_round", "   "), "C<|end|>");
  EXPECT_EQ(learnt_where("last_round", "+ -"), "A<|end|>");
}

// LLaMA-Factory's mask_history masks all pairs but the last, calls behind the last question too.
TEST(TrainedPart, TheLastAnswerIsTheLastMessageAlone) {
  EXPECT_EQ(learnt_where("last_answer", "+  "), "C<|end|>");
  EXPECT_EQ(learnt_where("last_answer", "  -"), "");
  EXPECT_EQ(trained_part_from_name("last_answer+ignore_empty_think", "x").name(),
            "last_answer+ignore_empty_think");
}

TEST(TrainedPart, IsPartOfWhatCachesAreNamedBy) {
  const auto tokenizer = std::make_shared<FakeTokenizer>(std::vector<std::string>{"<|im_end|>"},
                                                         std::vector<std::string>{}, kThinking);
  const auto inner = ChatEncoder::create(tokenizer, "");
  const auto hash = [&](const char* words) {
    return with_trained_part(inner, tokenizer, trained_part_from_name(words, "x"))->content_hash();
  };
  EXPECT_EQ(hash("default"), inner->content_hash());
  EXPECT_NE(hash("last_round"), hash("default"));
  EXPECT_NE(hash("last_round"), hash("last_round+ignore_empty_think"));
}

TEST(TrainedPart, WordsOfMsSwiftThatAreNotHereAreNamed) {
  EXPECT_THAT(error_of<UsageError>([] { trained_part_from_name("hermes", "--loss_scale"); }),
              HasSubstr("[--loss_scale] hermes"));
  EXPECT_THAT(error_of<UsageError>([] { trained_part_from_name("lastround", "--loss_scale"); }),
              HasSubstr("got 'lastround'"));
}

}  // namespace
}  // namespace danlu::text
