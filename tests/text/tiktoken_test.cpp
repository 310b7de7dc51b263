#include "text/tiktoken.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/file.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer_golden.h"

namespace danlu::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string tiktoken_base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (int k = 3; k >= 0; --k) text += kDigits[bits >> (6 * k) & 63];
    if (i + 1 == bytes.size()) text.replace(text.size() - 2, 2, "==");
    if (i + 2 == bytes.size()) text.back() = '=';
  }
  return text;
}

/// The 256 bytes, then `more`.
std::string tiktoken_file(const std::vector<std::string>& more) {
  std::string text;
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte)
    text += tiktoken_base64(std::string(1, static_cast<char>(byte))) + " " +
            std::to_string(rank++) + "\n";
  for (const std::string& token : more)
    text += tiktoken_base64(token) + " " + std::to_string(rank++) + "\n";
  return text;
}

class Tiktoken : public testing::Test {
 protected:
  fs::path write(const std::string& text) const {
    const fs::path path = folder_ / "v.tiktoken";
    write_file_atomic(path, text);
    return path;
  }
  test::TemporaryDirectory folder_;
};

// Llama 3's vocabulary was made of such a file, and its text is cut as cl100k_base's: written back
// as one, it must give the ids of its tokenizer.json, which tokenizer_parity_test holds against
// Hugging Face's own.
TEST_F(Tiktoken, IdsEqualHuggingFaceOnLlama3sVocabulary) {
  DANLU_REQUIRES_SHARED();
  const std::string json = (test::unpacked("tokenizers") / "llama3/tokenizer.json").string();
  const auto reference = parse_tokenizer_json(read_file(json), json);
  constexpr TokenId kTokens = 128000;  // without its special tokens
  std::string file;
  for (TokenId id = 0; id < kTokens; ++id) {
    std::string bytes;
    ASSERT_TRUE(append_bytes_of_token(reference->id_to_token(id).value(), bytes)) << id;
    file += tiktoken_base64(bytes) + " " + std::to_string(id) + "\n";
  }
  const auto tokenizer = load_tiktoken(write(file));
  EXPECT_EQ(tokenizer->size(), static_cast<size_t>(kTokens));
  size_t compared = 0;
  for (const char* key :
       {"nasty", "lines:corpora/tinyshakespeare.txt", "lines:corpora/zh_sanguoyanyi.txt"}) {
    for (const std::string& text : test::texts_of(key)) {
      if (text.find("<|") != std::string::npos) continue;  // special tokens, which the file lacks
      ASSERT_EQ(tokenizer->encode(text, false), reference->encode(text, false)) << text;
      ++compared;
    }
  }
  EXPECT_GT(compared, 40000u);
}

// Ranks decide, not the order in which pairs could have been learned: of "abc" with the tokens
// bc (256), ab (257) and abc (258) the piece itself is a token; "xabc" joins bc first, then abc by
// a + bc although ab + c is a cut of it too.
TEST_F(Tiktoken, TheLowestRankIsJoinedFirst) {
  const auto tokenizer = load_tiktoken(write(tiktoken_file({"bc", "ab", "abc"})));
  EXPECT_THAT(tokenizer->encode("abc", false), ElementsAre(258));
  EXPECT_THAT(tokenizer->encode("xabc", false), ElementsAre('x', 258));
  EXPECT_THAT(tokenizer->encode("xab", false), ElementsAre('x', 257));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{'x', 258}), "xabc");
}

TEST_F(Tiktoken, LinesMayStandInAnyOrder) {
  std::string backwards, line;
  for (std::istringstream lines(tiktoken_file({"bc", "ab"})); std::getline(lines, line);)
    backwards.insert(0, line + "\r\n");
  EXPECT_THAT(load_tiktoken(write(backwards))->encode("xabc", false), ElementsAre('x', 'a', 256));
}

TEST_F(Tiktoken, NumbersAreCutInThrees) {
  const auto tokenizer = load_tiktoken(write(tiktoken_file({"12", "34", "1234"})));
  EXPECT_THAT(tokenizer->encode("1234", false), ElementsAre(256, '3', '4'));
}

TEST_F(Tiktoken, ABrokenFileSaysWhere) {
  const auto error = [&](const std::string& text) {
    const fs::path path = write(text);
    return test::error_of<ModelError>([&] { load_tiktoken(path); });
  };
  EXPECT_THAT(error("IQ== 0\nI* 1\n"), HasSubstr("v.tiktoken:2: a line must be a token in base64"));
  EXPECT_THAT(error("IQ==\n"), HasSubstr("got \"IQ==\""));
  EXPECT_THAT(error("IQ== 1x\n"), HasSubstr("v.tiktoken:1"));
  EXPECT_THAT(error("IQ== -1\n"), HasSubstr("v.tiktoken:1"));
  EXPECT_THAT(error("<!DOCTYPE html>\n"), HasSubstr("no tiktoken vocabulary, or damaged"));
  EXPECT_THAT(error("IQ== 0\nIg== 0\n"), HasSubstr("the rank 0 is given twice"));
  EXPECT_THAT(error("IQ== 0\nIQ== 1\n"), HasSubstr("rank 1 has the bytes of rank 0"));
  EXPECT_THAT(error("IQ== 0\n"), HasSubstr("byte 0 is no token"));
}

/// Qwen 1's file holds the vocabulary of Qwen 1.5, whose tokenizer.json tokenizer_parity_test holds
/// against Hugging Face's own; special tokens have the same numbers.
TEST_F(Tiktoken, IdsOfQwen1AreThoseOfQwen15) {
  DANLU_REQUIRES_SHARED();
  const std::string json = (test::unpacked("tokenizers") / "qwen1_5/tokenizer.json").string();
  const auto reference = parse_tokenizer_json(read_file(json), json);
  constexpr TokenId kTokens = 151643;  // without its special tokens
  std::string file;
  for (TokenId id = 0; id < kTokens; ++id) {
    std::string bytes;
    ASSERT_TRUE(append_bytes_of_token(reference->id_to_token(id).value(), bytes)) << id;
    file += tiktoken_base64(bytes) + " " + std::to_string(id) + "\n";
  }
  write_file_atomic(folder_ / "qwen.tiktoken", file);
  write_file_atomic(folder_ / "tokenizer_config.json", R"({"tokenizer_class": "QWenTokenizer"})");
  const auto tokenizer = Tokenizer::load(folder_.path());
  EXPECT_EQ(tokenizer->size(), 151851u);
  EXPECT_EQ(tokenizer->token_to_id("<|extra_204|>"), 151850);
  EXPECT_EQ(tokenizer->special_tokens().eos, "<|endoftext|>");
  size_t compared = 0;
  for (const char* key :
       {"nasty", "lines:corpora/tinyshakespeare.txt", "lines:corpora/zh_sanguoyanyi.txt"}) {
    for (const std::string& text : test::texts_of(key)) {
      const std::string turn = "<|im_start|>user\n" + text + "<|im_end|>";
      ASSERT_EQ(tokenizer->encode(turn, false), reference->encode(turn, false)) << text;
      ++compared;
    }
  }
  EXPECT_GT(compared, 40000u);
}

TEST_F(Tiktoken, Glm4TakesItsSpecialTokensFromItsConfig) {
  write_file_atomic(folder_ / "tokenizer.model", tiktoken_file({"12", "34", "1234"}));
  write_file_atomic(folder_ / "tokenizer_config.json", R"({
    "tokenizer_class": "ChatGLM4Tokenizer", "eos_token": "<|endoftext|>",
    "added_tokens_decoder": {"259": {"content": "<|endoftext|>", "special": true},
                             "260": {"content": "[gMASK]", "special": true},
                             "261": {"content": "<sop>", "special": true},
                             "262": {"content": "<|user|>", "special": true}}})");
  const auto tokenizer = Tokenizer::load(folder_.path());
  EXPECT_THAT(tokenizer->encode("<|user|>1234", false), ElementsAre(262, 256, '3', '4'));
  EXPECT_THAT(tokenizer->encode("1", true), ElementsAre(260, 261, '1'));
}

TEST_F(Tiktoken, OtherModelsVocabulariesAreRefusedByClass) {
  write_file_atomic(folder_ / "tokenizer.model", tiktoken_file({}));
  write_file_atomic(folder_ / "tokenizer_config.json", R"({"tokenizer_class": "XTokenizer"})");
  EXPECT_THAT(test::error_of<ModelError>([&] { Tokenizer::load(folder_.path()); }),
              HasSubstr("tokenizer_class \"XTokenizer\" is not read"));
}

}  // namespace
}  // namespace danlu::text
