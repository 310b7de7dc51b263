// An answer's tokens in pieces: whatever they are, the pieces together are the whole.
#include "api/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "support/byte_tokenizer.h"

namespace danlu::api {
namespace answer_reader_test {

struct Read {
  std::string content, reasoning, calls;
  std::optional<std::string> stopped_by;
  int64_t reasoning_tokens = 0;
};

Read read(const std::string& text, AnswerReaderSettings settings) {
  const auto tokenizer = std::make_shared<test::ByteTokenizer>();
  AnswerReader reader(tokenizer, std::move(settings));
  Read all;
  const auto take = [&](const AnswerPiece& piece) {
    all.content += piece.content;
    all.reasoning += piece.reasoning;
    for (const ToolCallEvent& event : piece.calls) all.calls += event.name + event.text;
  };
  for (const text::TokenId id : tokenizer->encode(text)) {
    take(reader.push(id));
    if (reader.stopped_by()) break;
  }
  take(reader.finish());
  all.stopped_by = reader.stopped_by();
  all.reasoning_tokens = reader.reasoning_tokens();
  return all;
}

TEST(AnswerReader, TextIsContent) {
  EXPECT_EQ(read("plain text, nothing else", {}).content, "plain text, nothing else");
}

TEST(AnswerReader, AStopStringEndsTheContentBeforeIt) {
  const Read cut = read("one END two", {.stop = {"END"}});
  EXPECT_EQ(cut.content, "one ");
  EXPECT_EQ(cut.stopped_by, "END");
  EXPECT_EQ(read("one END two", {.stop = {"END"}, .includes_stop = true}).content, "one END");
  EXPECT_EQ(read("one EN", {.stop = {"END"}}).content, "one EN") << "what was held back comes";
}

TEST(AnswerReader, NoStopStringEndsTheFirstTokens) {
  const Read cut = read("END END", {.stop = {"END"}, .min_tokens = 3});
  EXPECT_EQ(cut.content, "END ");
}

TEST(AnswerReader, ThoughtsCallsAndContentAreParted) {
  const Read parts = read(
      "<think>hm</think>\n\nlook <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
      "1}}\n</tool_call>",
      {.thought = Thought::kMayOpen, .tool_format = text::ToolFormat::kHermes});
  EXPECT_EQ(parts.reasoning, "hm");
  EXPECT_EQ(parts.content, "look");
  EXPECT_EQ(parts.calls, "f{\"a\": 1}");
  EXPECT_GE(parts.reasoning_tokens, 2);
  EXPECT_LE(parts.reasoning_tokens, 18);
}

TEST(AnswerReader, CallsInThoughtsAreThoughts) {
  const Read parts = read("<think><tool_call>{}</tool_call></think>x",
                          {.thought = Thought::kMayOpen, .tool_format = text::ToolFormat::kHermes});
  EXPECT_EQ(parts.calls, "");
  EXPECT_EQ(parts.content, "x");
}

TEST(AnswerReader, WithoutAFormatCallsAreContent) {
  const std::string text = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(read(text, {}).content, text);
}

TEST(AnswerReader, RandomTextsLoseNothing) {
  std::mt19937 random(7);
  const std::vector<std::string> parts = {"a",      " ",        "\n", "<",   "<th",
                                          "think>", "</think>", "EN", "END", "你",
                                          "<tool",  "_call>",   "{",  "}",   "\""};
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int k = 0; k < 12; ++k) text += parts[random() % parts.size()];
    EXPECT_EQ(read(text, {}).content, text);
    const Read cut = read(text, {.stop = {"END"}});
    EXPECT_EQ(cut.content, text.substr(0, text.find("END"))) << text;
  }
}

}  // namespace answer_reader_test
}  // namespace danlu::api
