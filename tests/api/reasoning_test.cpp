#include "api/reasoning.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "text/template_tools.h"

namespace danlu::api {
namespace {

ThoughtAndContent split(Thought thought, const std::vector<std::string>& pieces) {
  ReasoningSplitter splitter(thought);
  ThoughtAndContent all;
  const auto add = [&](const ThoughtAndContent& part) {
    all.reasoning += part.reasoning;
    all.content += part.content;
  };
  for (const std::string& piece : pieces) add(splitter.push(piece));
  add(splitter.finish());
  return all;
}

struct ReasoningCase {
  Thought thought;
  std::string text, reasoning, content;
};

const std::vector<ReasoningCase> kReasoningCases = {
    {Thought::kMayOpen, "<think>\nA b\n</think>\n\nAnswer.\n", "A b", "Answer.\n"},
    {Thought::kMayOpen, "\n <think>a</think>b", "a", "b"},
    {Thought::kMayOpen, "No thought <think>x</think>", "", "No thought <think>x</think>"},
    {Thought::kMayOpen, "<thin air>", "", "<thin air>"},
    {Thought::kMayOpen, "  plain", "", "  plain"},
    {Thought::kMayOpen, " <thi", "", " <thi"},
    {Thought::kMayOpen, "<think>never closed\n", "never closed", ""},
    {Thought::kMayOpen, "<think>\n\n</think>\n\nb", "", "b"},
    {Thought::kMayOpen, "<think>a</think>b</think>c", "a", "b</think>c"},
    {Thought::kOpen, "a < b </thin </think>c", "a < b </thin", "c"},
    {Thought::kOpen, "\n<think>\na</think>c", "a", "c"},
    {Thought::kOpen, "all of it </thi", "all of it </thi", ""},
    {Thought::kOpen, "</think>\nc", "", "c"},
    {Thought::kOpen, " a <\n</think>c", "a <", "c"},
    {Thought::kOpen, "想<</think>答", "想<", "答"},
    {Thought::kNone, "<think>a</think>b", "", "<think>a</think>b"},
    {Thought::kNone, "", "", ""},
};

TEST(Reasoning, PartsThoughtFromContentHoweverTheTextIsCut) {
  for (const ReasoningCase& c : kReasoningCases) {
    SCOPED_TRACE(c.text);
    for (size_t cut = 0; cut <= c.text.size(); ++cut) {
      const auto got = split(c.thought, {c.text.substr(0, cut), c.text.substr(cut)});
      ASSERT_EQ(got.reasoning, c.reasoning) << cut;
      ASSERT_EQ(got.content, c.content) << cut;
    }
    std::vector<std::string> bytes;
    for (const char b : c.text) bytes.emplace_back(1, b);
    ASSERT_EQ(split(c.thought, bytes).reasoning, c.reasoning);
    ASSERT_EQ(split(c.thought, bytes).content, c.content);
  }
}

TEST(Reasoning, AnyCutOfAnyTextGivesTheSame) {
  std::mt19937 random(2);
  const std::vector<std::string> words = {"<",        "/", "think", ">", "<think>",
                                          "</think>", " ", "\n",    "a"};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t i = random() % 9; i > 0; --i) text += words[random() % words.size()];
    const auto thought = static_cast<Thought>(random() % 3);
    const auto whole = split(thought, {text});
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, 1 + random() % 5));
      at += pieces.back().size();
    }
    const auto parts = split(thought, pieces);
    ASSERT_EQ(parts.reasoning, whole.reasoning) << text;
    ASSERT_EQ(parts.content, whole.content) << text;
  }
}

TEST(Reasoning, ContentIsWhatTemplatesKeepOfAnAnswer) {
  for (const std::string text : {"<think>\na\n</think>\n\nb", "<think>a</think>b\n", "plain"})
    EXPECT_EQ(split(Thought::kMayOpen, {text}).content, text::without_thought(text));
}

TEST(Reasoning, ThePromptSaysHowAnAnswerBegins) {
  EXPECT_EQ(thought_after("<|im_start|>assistant\n"), Thought::kMayOpen);
  EXPECT_EQ(thought_after("<｜Assistant｜><think>\n"), Thought::kOpen);
  EXPECT_EQ(thought_after("<|im_start|>assistant\n<think>\n\n</think>\n\n"), Thought::kNone);
  EXPECT_EQ(thought_after("what does <think> mean?<|im_end|>\n"), Thought::kMayOpen);
  EXPECT_EQ(thought_after(""), Thought::kMayOpen);
}

TEST(Reasoning, KnowsWhetherItIsInsideAThought) {
  ReasoningSplitter splitter(Thought::kMayOpen);
  EXPECT_FALSE(splitter.is_thinking());
  splitter.push("<think>a");
  EXPECT_TRUE(splitter.is_thinking());
  splitter.push("</think>");
  EXPECT_FALSE(splitter.is_thinking());
}

}  // namespace
}  // namespace danlu::api
