// Texts of tokenizers that leave out the space a text begins with, as SentencePiece does.
#include <gmock/gmock.h>

#include "serve/protocol_test.h"

namespace danlu::serve {
namespace spaced_text_test {

/// Bytes, and a token 1 that begins every text and is special. "_" spells a space.
class SpacedTokenizer : public test::ByteTokenizer {
 public:
  void encode_append(std::string_view text, bool add_special,
                     std::vector<text::TokenId>& ids) const override {
    if (add_special) ids.push_back(1);
    std::string marked = "_";
    for (const char c : text) marked += c == ' ' ? '_' : c;
    ByteTokenizer::encode_append(marked, false, ids);
  }
  std::string decode(std::span<const text::TokenId> ids, bool skip_special) const override {
    std::vector<text::TokenId> bytes;
    for (const text::TokenId id : ids) {
      if (id == 1 && !skip_special) bytes.insert(bytes.end(), {'<', 's', '>'});
      if (id != 1) bytes.push_back(id == '_' ? ' ' : id);
    }
    std::string text = ByteTokenizer::decode(bytes, false);
    const size_t begin = text.starts_with("<s>") ? 3 : 0;
    if (text.substr(begin).starts_with(' ')) text.erase(begin, 1);
    return text;
  }
  bool is_special(text::TokenId id) const override { return id == 1; }
};

class SpacedText : public ProtocolTest {
 protected:
  void SetUp() override {
    ProtocolTest::SetUp();
    model_.tokenizer = std::make_shared<SpacedTokenizer>();
    script_.answer = [](const infer::Request&) { return std::string("_b_c|"); };
    model_.stop_ids = {'|'};
  }
};

TEST_F(SpacedText, ACompletionGoesOnWithItsPromptsText) {
  const Json body = {{"prompt", "a"}};
  EXPECT_EQ(post("/v1/completions", body)["choices"][0]["text"], " b c");
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}, {"echo", true}})["choices"][0]["text"],
            "a b c");
  const Json ids = {1, '_', 'a'};
  EXPECT_EQ(post("/v1/completions", {{"prompt", ids}})["choices"][0]["text"], " b c");
  std::string streamed;
  for (const Json& event : stream(body, "/v1/completions"))
    streamed += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(streamed, " b c");
  // Nothing stands before it: it is the beginning of a text.
  EXPECT_EQ(post("/v1/completions", {{"prompt", {1}}})["choices"][0]["text"], "b c");
}

TEST_F(SpacedText, AMessageThatGoesOnKeepsItsSpaceAndANewOneHasNone) {
  EXPECT_EQ(chat()["choices"][0]["message"]["content"], "b c");
  const Json body = {
      {"messages",
       {{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", "so"}}}},
      {"continue_final_message", true}};
  EXPECT_EQ(post("/v1/chat/completions", body)["choices"][0]["message"]["content"], " b c");
}

/// Places are those in the text that the client gets, where "<s>" is not.
TEST_F(SpacedText, OffsetsArePlacesInTheText) {
  const Json body = {{"prompt", "a é"}, {"echo", true}, {"logprobs", 0}};
  const Json choice = post("/v1/completions", body)["choices"][0];
  EXPECT_EQ(choice["text"], "a é b c");
  const Json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"][0], "<s>");
  EXPECT_EQ(logprobs["tokens"][2], "a");
  EXPECT_EQ(logprobs["tokens"][3], " ");
  // "<s>", the space that is left out, "a", " ", the two bytes of "é", then " b c" and its end.
  EXPECT_EQ(logprobs["text_offset"], (Json{0, 0, 0, 1, 2, 2, 3, 4, 5, 6, 7}));
  const Json alone = post("/v1/completions", {{"prompt", "a"}, {"logprobs", 0}})["choices"][0];
  EXPECT_EQ(alone["logprobs"]["tokens"], (Json{" ", "b", " ", "c", "|"}));
  EXPECT_EQ(alone["logprobs"]["text_offset"], (Json{0, 1, 2, 3, 4}));
}

}  // namespace spaced_text_test
}  // namespace danlu::serve
