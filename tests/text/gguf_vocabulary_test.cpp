// Tokenizers as GGUF stores them, compared with what llama.cpp's own converter wrote.
#include "text/gguf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/plain_gguf.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "text/gguf_metadata.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"

namespace danlu::text {
namespace {

using test::error_of;
using test::PlainGguf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::filesystem::path tokenizers() { return test::unpacked("tokenizers"); }
GgufVocabulary vocabulary_of(const std::string& name, int64_t size) {
  return read_gguf_vocabulary(tokenizers() / name, size);
}
std::vector<double> numbers(const std::vector<GgufTokenType>& types) {
  std::vector<double> result;
  for (const GgufTokenType type : types) result.push_back(static_cast<double>(type));
  return result;
}

TEST(GgufVocabulary, SentencePieceAsLlamaCppConvertsIt) {
  DANLU_REQUIRES_SHARED();
  const PlainGguf theirs(tokenizers() / "llamacpp_vectors" / "ggml-vocab-llama-spm.gguf");
  const GgufVocabulary ours = vocabulary_of("llama2", 32000);
  EXPECT_EQ(ours.model, theirs.texts.at("tokenizer.ggml.model"));
  EXPECT_EQ(ours.pre, theirs.texts.at("tokenizer.ggml.pre"));
  EXPECT_EQ(ours.tokens, theirs.text_lists.at("tokenizer.ggml.tokens"));
  EXPECT_EQ(numbers(ours.types), theirs.number_lists.at("tokenizer.ggml.token_type"));
  EXPECT_EQ(std::vector<double>(ours.scores.begin(), ours.scores.end()),
            theirs.number_lists.at("tokenizer.ggml.scores"));
  EXPECT_EQ(ours.bos, 1);
  EXPECT_EQ(ours.eos, 2);
  EXPECT_EQ(ours.unk, 0);
  EXPECT_TRUE(ours.add_bos);
  EXPECT_FALSE(ours.add_eos);
  EXPECT_EQ(ours.add_space_prefix, true);
  EXPECT_THAT(ours.merges, IsEmpty());
}

TEST(GgufVocabulary, ByteLevelBpeAsLlamaCppConvertsIt) {
  DANLU_REQUIRES_SHARED();
  const PlainGguf theirs(tokenizers() / "llamacpp_vectors" / "ggml-vocab-gpt-2.gguf");
  const GgufVocabulary ours = vocabulary_of("gpt2", 50257);
  EXPECT_EQ(ours.model, "gpt2");
  EXPECT_EQ(ours.pre, "gpt-2");
  EXPECT_EQ(ours.tokens, theirs.text_lists.at("tokenizer.ggml.tokens"));
  EXPECT_EQ(ours.merges, theirs.text_lists.at("tokenizer.ggml.merges"));
  EXPECT_EQ(numbers(ours.types), theirs.number_lists.at("tokenizer.ggml.token_type"));
  EXPECT_THAT(ours.scores, IsEmpty());
  EXPECT_EQ(ours.add_space_prefix, std::nullopt);
}

TEST(GgufVocabulary, RowsWithoutATokenArePadding) {
  DANLU_REQUIRES_SHARED();
  const GgufVocabulary qwen = vocabulary_of("qwen2_5", 151936);
  EXPECT_EQ(qwen.pre, "qwen2");
  EXPECT_EQ(qwen.tokens.size(), 151936u);
  // Qwen2.5 has 151665 ids.
  EXPECT_EQ(qwen.tokens[151665], "[PAD151665]");
  EXPECT_EQ(qwen.types[151665], GgufTokenType::kUnused);
  EXPECT_EQ(qwen.types[151645], GgufTokenType::kControl);      // <|im_end|>
  EXPECT_EQ(qwen.types[151657], GgufTokenType::kUserDefined);  // <tool_call>
  EXPECT_EQ(qwen.types[100], GgufTokenType::kNormal);
  EXPECT_EQ(qwen.eos, 151645);
  EXPECT_EQ(qwen.pad, 151643);
  EXPECT_FALSE(qwen.add_bos);
  EXPECT_THAT(qwen.chat_template, HasSubstr("<|im_start|>"));
}

TEST(GgufVocabulary, EveryTokenizerIsNamedByTheWayItCuts) {
  DANLU_REQUIRES_SHARED();
  EXPECT_EQ(vocabulary_of("llama3", 128256).pre, "llama-bpe");
  EXPECT_EQ(vocabulary_of("qwen2_vocab_merges", 151936).pre, "qwen2");
  EXPECT_EQ(vocabulary_of("yi", 64000).model, "llama");
}

TEST(GgufVocabulary, MergesGiveTheScoresWhereThereIsNoModelFile) {
  DANLU_REQUIRES_SHARED();
  const GgufVocabulary mistral = vocabulary_of("mistral_v1", 32000);
  // "▁ t" is the first merge, "i n" among the next.
  const auto score = [&](const std::string& token) {
    const auto at = std::find(mistral.tokens.begin(), mistral.tokens.end(), token);
    return mistral.scores.at(static_cast<size_t>(at - mistral.tokens.begin()));
  };
  EXPECT_EQ(score("\xE2\x96\x81t"), 0);
  EXPECT_LT(score("the"), score("\xE2\x96\x81t"));
  EXPECT_EQ(mistral.types[3], GgufTokenType::kByte);  // <0x00>
  EXPECT_EQ(mistral.types[0], GgufTokenType::kUnknown);
  EXPECT_EQ(mistral.types[1], GgufTokenType::kControl);
  EXPECT_EQ(mistral.add_space_prefix, true);
  // InternLM2 puts no space in front, as its tokenizer.json says.
  EXPECT_EQ(vocabulary_of("internlm2", 92544).add_space_prefix, false);
}

TEST(GgufVocabularyErrors, AModelSmallerThanItsTokenizer) {
  DANLU_REQUIRES_SHARED();
  EXPECT_THAT(error_of<ModelError>([] { vocabulary_of("gpt2", 50000); }),
              HasSubstr("the tokenizer has 50257 ids, but vocab_size is 50000"));
}

/// A tokenizer of the 256 bytes and nothing else, cut by `pre_tokenizer`.
class ByteTokenizer : public ::testing::Test {
 protected:
  GgufVocabulary read(const Json& pre_tokenizer, const Json& more = Json::object(),
                      const Json& model = Json::object(), int64_t size = 4) const {
    Json vocab = {{"a", 0}, {"b", 1}, {"ab", 2}};
    Json json = {{"pre_tokenizer", pre_tokenizer},
                 {"decoder", {{"type", "ByteLevel"}}},
                 {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b"}}}}};
    if (!more.is_null()) json.update(more);
    json["model"].update(model);
    write_json_file(directory_ / "tokenizer.json", json);
    return read_gguf_vocabulary(directory_, size);
  }
  std::string error(const Json& pre_tokenizer, const Json& more = Json::object(),
                    const Json& model = Json::object()) const {
    return error_of<ModelError>([&] { read(pre_tokenizer, more, model); });
  }
  static Json byte_level(bool use_regex, bool prefix_space = false) {
    return {{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}, {"use_regex", use_regex}};
  }
  static Json split(const std::string& regex) {
    const Json part = {
        {"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
    return {{"type", "Sequence"}, {"pretokenizers", {part, byte_level(false)}}};
  }

  const test::TemporaryDirectory directory_;
};

TEST_F(ByteTokenizer, PreTokenizersThatLlamaCppKnows) {
  const std::string llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const GgufVocabulary gpt2 = read(byte_level(true));
  EXPECT_EQ(gpt2.pre, "gpt-2");
  EXPECT_THAT(gpt2.tokens, ElementsAre("a", "b", "ab", "[PAD3]"));
  EXPECT_THAT(gpt2.merges, ElementsAre("a b"));
  // The same pattern has two names: whole words of the vocabulary are taken at once, or not.
  EXPECT_EQ(read(split(llama3)).pre, "smaug-bpe");
  EXPECT_EQ(read(split(llama3), {}, {{"ignore_merges", true}}).pre, "llama-bpe");
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  EXPECT_EQ(read({{"type", "Sequence"}, {"pretokenizers", {digits, byte_level(true)}}}).pre,
            "starcoder");
  EXPECT_EQ(read(split(" ?[^(\\s|[.,!?…。，、।۔،])]+")).pre, "bloom");
  // Llama 4's, as its tokenizer.json has it: whole words skip the merges.
  const std::string llama4 =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_EQ(read(split(llama4), {}, {{"ignore_merges", true}}).pre, "llama4");
  EXPECT_EQ(read(split(llama4)).pre, "gpt-4o");
}

TEST_F(ByteTokenizer, OthersAreRefusedWithWhatTheyAre) {
  EXPECT_THAT(error(split("[a-z]+")), HasSubstr("llama.cpp has no pre-tokenizer for {\"type\":"));
  EXPECT_THAT(error(split("[a-z]+")), HasSubstr("| llama.cpp would give other ids"));
  EXPECT_THAT(error(byte_level(true, true)), HasSubstr("no pre-tokenizer for"));
  EXPECT_THAT(error(byte_level(true), {}, {{"ignore_merges", true}}),
              HasSubstr("no pre-tokenizer for"));
  EXPECT_THAT(error(byte_level(true), {{"normalizer", {{"type", "Lowercase"}}}}),
              HasSubstr("the normalizer Lowercase is unknown to llama.cpp"));
  EXPECT_THAT(error(byte_level(true), {}, {{"end_of_word_suffix", "b"}}),
              HasSubstr("byte-level BPE with end_of_word_suffix"));
}

TEST_F(ByteTokenizer, TwoFilesMeanWhatTheLoaderTakesThemFor) {
  write_json_file(directory_ / "vocab.json", {{"a", 0}, {"b", 1}, {"ab", 2}});
  write_file_atomic(directory_ / "merges.txt", "#version: 0.2\na b\n");
  const auto with_config = [&](const Json& config) {
    write_json_file(directory_ / "tokenizer_config.json", config);
    return read_gguf_vocabulary(directory_, 4);
  };
  EXPECT_EQ(with_config(Json::object()).pre, "gpt-2");
  EXPECT_THAT(with_config({{"tokenizer_class", "Qwen2Tokenizer"}}).pre, "qwen2");
  EXPECT_THAT(with_config({{"add_prefix_space", false}}).merges, ElementsAre("a b"));
  for (const char* name : {"GPT2Tokenizer", "Qwen2Tokenizer"}) {
    const Json config = {{"tokenizer_class", name}, {"add_prefix_space", true}};
    EXPECT_THAT(error_of<ModelError>([&] { with_config(config); }),
                HasSubstr("vocab.json: llama.cpp has no pre-tokenizer for"));
  }
}

TEST_F(ByteTokenizer, WhatIsPutAroundATextMustBeBosAndEos) {
  const auto template_of = [](const char* token) -> Json {
    return {{"type", "TemplateProcessing"},
            {"single",
             {{{"SpecialToken", {{"id", token}, {"type_id", 0}}}},
              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
            {"pair", Json::array()},
            {"special_tokens", {{token, {{"id", token}, {"ids", {1}}, {"tokens", {token}}}}}}};
  };
  write_json_file(directory_ / "tokenizer_config.json", {{"bos_token", "b"}});
  EXPECT_TRUE(read(byte_level(true), {{"post_processor", template_of("b")}}).add_bos);
  write_json_file(directory_ / "tokenizer_config.json", {{"bos_token", "a"}});
  EXPECT_THAT(error(byte_level(true), {{"post_processor", template_of("b")}}),
              HasSubstr("1 tokens before and 0 after it; llama.cpp knows bos and eos only"));
}

/// A directory whose tokenizer_config.json says null where a text or a truth could be.
TEST_F(ByteTokenizer, NullInTheConfigIsNothing) {
  write_json_file(directory_ / "tokenizer_config.json",
                  {{"tokenizer_class", nullptr}, {"legacy", nullptr}});
  EXPECT_EQ(read(byte_level(true)).pre, "gpt-2");
}

/// llama.cpp's llama4 always joins by merges, and this tokenizer takes words that are tokens whole.
TEST_F(ByteTokenizer, TokensThatNoMergesGiveAreNotedWhereLlamaCppTakesNoWordsWhole) {
  const Json cut = split(
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
  const Json whole = {{"ignore_merges", true}};
  EXPECT_THAT(read(cut, {}, whole).notes, IsEmpty());
  // "a b" comes first, so "bb" is never there to be joined to an "a".
  const Json vocab = {{"a", 0}, {"b", 1}, {"ab", 2}, {"bb", 3}, {"abb", 4}};
  const Json more = {{"ignore_merges", true}, {"vocab", vocab}, {"merges", {"a b", "b b", "a bb"}}};
  const GgufVocabulary out = read(cut, {}, more, 5);
  EXPECT_EQ(out.pre, "llama4");
  EXPECT_THAT(out.notes, ElementsAre(HasSubstr("1 tokens that no merges give, such as \"abb\"")));
  Json joined = more;
  joined["ignore_merges"] = false;
  EXPECT_THAT(read(cut, {}, joined, 5).notes, IsEmpty());
}

/// deepseek-coder cuts digits one by one, deepseek-llm takes runs of them: alike only without
/// merges that join two.
TEST_F(ByteTokenizer, RunsOfDigitsAreSingleOnesWhereNoMergeJoinsThem) {
  const Json known = gguf_pre_tokenizer("deepseek-llm")->pre_tokenizer;
  Json single = known;
  single["pretokenizers"][5]["pattern"]["Regex"] = R"(\p{N})";
  const auto model = [](const char* left, const char* right) -> Json {
    return {{"vocab", {{left, 0}, {right, 1}, {std::string(left) + right, 2}}},
            {"merges", {std::string(left) + " " + right}}};
  };
  for (const Json& cut : {known, single})
    EXPECT_EQ(read(cut, {}, model("a", "1")).pre, "deepseek-llm") << cut;
  EXPECT_EQ(read(known, {}, model("1", "2")).pre, "deepseek-llm");
  EXPECT_THAT(error(single, {}, model("1", "2")), HasSubstr("no pre-tokenizer for"));
  // The bytes of U+0661, a digit of Arabic, behind a digit.
  EXPECT_THAT(error(single, {}, model("1", "\u00D9\u00A1")), HasSubstr("no pre-tokenizer for"));
  EXPECT_EQ(read(single, {}, model("\u00D9", "\u00A1")).pre, "deepseek-llm");
}

/// Gemma 2's and 3's: runs of spaces are added tokens that no text is searched for, written with ▁.
TEST(GgufVocabulary, AddedTokensOfSentencePieceHaveSpacesInTheFileAndNotInTheTokenizer) {
  const std::string space = "\u2581", two = space + space;
  const Json json = {
      {"added_tokens",
       {{{"id", 0}, {"content", "<unk>"}, {"special", true}, {"normalized", false}},
        {{"id", 2}, {"content", two}, {"special", false}, {"normalized", false}}}},
      {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}}},
      {"decoder", {{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}}},
      {"model",
       {{"type", "BPE"},
        {"byte_fallback", true},
        {"unk_token", "<unk>"},
        {"vocab", {{"<unk>", 0}, {space, 1}, {two, 2}, {"a", 3}, {space + "a", 4}}},
        {"merges", {space + " " + space, space + " a"}}}}};
  const test::TemporaryDirectory directory;
  write_json_file(directory / "tokenizer.json", json);
  write_json_file(directory / "tokenizer_config.json", {{"unk_token", "<unk>"}});
  const GgufVocabulary out = read_gguf_vocabulary(directory.path(), 6);
  EXPECT_EQ(out.model, "llama");
  EXPECT_THAT(out.tokens, ElementsAre("<unk>", space, "  ", "a", space + "a", "[PAD5]"));
  EXPECT_EQ(out.types[2], GgufTokenType::kUserDefined);
  gguf::Metadata metadata;
  append_vocabulary(out, metadata);
  const GgufVocabulary read = vocabulary_in(metadata, "x.gguf").value();
  EXPECT_EQ(read.tokens[2], two);
  EXPECT_EQ(read.types[2], GgufTokenType::kUserDefined);
  const auto alone = make_gguf_tokenizer(read, "x.gguf"), whole = Tokenizer::load(directory.path());
  const std::vector<std::string> texts = {"a  a", "   a", " a a", "    ", two + "a"};
  for (const std::string& text : texts) {
    EXPECT_EQ(alone->encode(text), whole->encode(text)) << text;
    EXPECT_EQ(alone->decode(whole->encode(text)), whole->decode(whole->encode(text))) << text;
  }
}

TEST_F(ByteTokenizer, TokensThatLlamaCppCannotHoldAreUnused) {
  const GgufVocabulary out =
      read(byte_level(true), {},
           {{"vocab", {{"a", 0}, {"b", 1}, {std::string("\0", 1), 2}}}, {"merges", Json::array()}});
  EXPECT_EQ(out.tokens[2], "[EMPTY2]");
  EXPECT_EQ(out.types[2], GgufTokenType::kUnused);
}

}  // namespace
}  // namespace danlu::text
