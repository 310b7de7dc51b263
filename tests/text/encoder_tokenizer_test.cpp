// Tokenizers of encoders: vocab.txt, and two texts that are read together. Ids are worked out by
// hand from the rules of transformers' BertTokenizer and the templates of tokenizer.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/token_type.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "text/query_and_document.h"
#include "text/tokenizer/pipeline_tokenizer.h"

namespace danlu::text {
namespace encoder_tokenizer_test {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kLines =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\ncafe\ncafé\n你\n好\n,\nHi\nhi\n";
enum : TokenId { kPad, kUnk, kCls, kSep, kMask, kUn, kAff, kAble, kPlain, kAccent, kNi, kHao };

std::shared_ptr<const Tokenizer> tokenizer_of(const test::TemporaryDirectory& directory,
                                              const std::string& config = "") {
  write_file_atomic(directory / "vocab.txt", kLines);
  if (!config.empty()) write_file_atomic(directory / "tokenizer_config.json", config);
  return Tokenizer::load(directory.path());
}

TEST(VocabTxt, WordsAreCutIntoTheLongestPiecesBetweenSpecialTokens) {
  const test::TemporaryDirectory directory;
  const auto tokenizer = tokenizer_of(directory);
  EXPECT_THAT(tokenizer->encode("UnAffable, 你好"),
              ElementsAre(kCls, kUn, kAff, kAble, 12, kNi, kHao, kSep));
  // Lower case goes with accents that are stripped.
  EXPECT_THAT(tokenizer->encode("Café Hi", false), ElementsAre(kPlain, 14));
  EXPECT_THAT(tokenizer->encode("unx [MASK]", false), ElementsAre(kUnk, kMask));
  EXPECT_EQ(tokenizer->size(), 15u);
  EXPECT_EQ(tokenizer->pad_id(), kPad);
  EXPECT_EQ(tokenizer->unk_id(), kUnk);
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{kUn, kAff, kAble}), "unaffable");
}

TEST(VocabTxt, TokenizerConfigSaysHowTextsAreNormalised) {
  const test::TemporaryDirectory directory;
  const auto tokenizer =
      tokenizer_of(directory, R"({"do_lower_case": false, "tokenize_chinese_chars": false})");
  EXPECT_THAT(tokenizer->encode("Café Hi hi", false), ElementsAre(kUnk, 13, 14));
  EXPECT_THAT(tokenizer->encode("café", false), ElementsAre(kAccent));
  EXPECT_THAT(tokenizer->encode("你好", false), ElementsAre(kUnk));
}

TEST(VocabTxt, AVocabularyWithoutSpecialTokensIsAnErrorThatNamesThem) {
  const test::TemporaryDirectory directory;
  write_file_atomic(directory / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\na\n");
  EXPECT_THAT(test::error_of<ModelError>([&] { Tokenizer::load(directory.path()); }),
              HasSubstr("no line is \"[SEP]\", its sep_token"));
}

TEST(TwoTexts, BertsTemplateMarksTheSecond) {
  const test::TemporaryDirectory directory;
  const auto tokenizer = tokenizer_of(directory);
  const auto ids = tokenizer->encode_two("un", "hi 你");
  ASSERT_TRUE(ids);
  EXPECT_THAT(
      *ids, ElementsAre(kCls, kUn, kSep, 14 + kSecondText, kNi + kSecondText, kSep + kSecondText));
  EXPECT_EQ(tokenizer->decode(*ids, /*skip_special=*/true), "un hi 你");
  const Conversation pair = conversation_of({.query = "un", .document = "hi 你"});
  EXPECT_EQ(pair_ids(pair, *tokenizer, nullptr), *ids);
  // The end of the document is left out, and its [SEP] stays.
  EXPECT_THAT(pair_ids(pair, *tokenizer, nullptr, 5),
              ElementsAre(kCls, kUn, kSep, 14 + kSecondText, kSep + kSecondText));
}

Json small_json(const Json& post_processor) {
  return {{"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Whitespace"}}},
          {"post_processor", post_processor},
          {"decoder", nullptr},
          {"model",
           {{"type", "WordLevel"},
            {"unk_token", "?"},
            {"vocab", {{"?", 0}, {"<s>", 1}, {"</s>", 2}, {"a", 3}, {"b", 4}}}}}};
}

std::optional<std::vector<TokenId>> two_of(const Json& post_processor) {
  return parse_tokenizer_json(small_json(post_processor).dump(), "here")->encode_two("a", "b");
}

Json special(const char* token, int type) {
  return {{"SpecialToken", {{"id", token}, {"type_id", type}}}};
}
Json sequence(const char* name, int type) {
  return {{"Sequence", {{"id", name}, {"type_id", type}}}};
}
Json template_of(const Json& pair) {
  return {{"type", "TemplateProcessing"},
          {"single", {special("<s>", 0), sequence("A", 0), special("</s>", 0)}},
          {"pair", pair},
          {"special_tokens",
           {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}},
            {"</s>", {{"id", "</s>"}, {"ids", {2}}, {"tokens", {"</s>"}}}}}}};
}

TEST(TwoTexts, ATemplateSaysWhatStandsBetweenThem) {
  EXPECT_THAT(*two_of(template_of({special("<s>", 0), sequence("A", 0), special("</s>", 0),
                                   special("</s>", 0), sequence("B", 0), special("</s>", 0)})),
              ElementsAre(1, 3, 2, 2, 4, 2));
  EXPECT_THAT(*two_of(template_of({special("<s>", 0), sequence("A", 0), special("</s>", 0),
                                   sequence("B", 1), special("</s>", 1)})),
              ElementsAre(1, 3, 2, 4 + kSecondText, 2 + kSecondText));
  EXPECT_THAT(*two_of({{"type", "RobertaProcessing"}, {"cls", {"<s>", 1}}, {"sep", {"</s>", 2}}}),
              ElementsAre(1, 3, 2, 2, 4, 2));
  // A decoder's: nothing ends the texts.
  EXPECT_FALSE(two_of(
      template_of({special("<s>", 0), sequence("A", 0), special("<s>", 1), sequence("B", 1)})));
  EXPECT_FALSE(two_of(nullptr));
}

}  // namespace encoder_tokenizer_test
}  // namespace danlu::text
