// What a user of Tokenizer relies on: loading, errors, decoding, streaming.
#include "text/tokenizer.h"

#include <gmock/gmock.h>

#include <thread>

#include "base/error.h"
#include "support/temporary_directory.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/scanners.h"
#include "text/tokenizer/simple_models.h"
#include "tokenizer_golden.h"

namespace danlu::text {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

Json spec_of(const std::string& name) {
  static const Json kSpecs = read_json_file(test::golden_dir() / "component_specs.json");
  return kSpecs["tokenizers"][name];
}

std::shared_ptr<const Tokenizer> parse(const Json& spec) {
  return parse_tokenizer_json(spec.dump(), "tokenizer.json");
}

/// A byte-level tokenizer without merges: ids are bytes in the alphabet's order.
Json byte_level_spec() {
  Json vocab = Json::object();
  int id = 0;
  for (int byte = 0; byte < 256; ++byte) vocab[byte_to_utf8()[byte]] = id++;
  return {{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"added_tokens", {{{"id", 256}, {"content", "<end>"}, {"special", true}}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
}

template <typename F>
std::string model_error(F&& action) {
  try {
    action();
  } catch (const ModelError& error) {
    return error.what();
  }
  return "no error";
}

class TokenizerFiles : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) {
    write_file_atomic(directory_ / name, content);
  }
  const test::TemporaryDirectory directory_;
};

TEST(TokenizerErrors, NameFileLineAndFault) {
  const auto message = [](const std::string& text) {
    return model_error([&] { parse_tokenizer_json(text, "t.json"); });
  };
  EXPECT_THAT(message(""), HasSubstr("t.json:1:1: expected an object"));
  EXPECT_THAT(message("{\n \"model\": {\"vocab\": {\"a\": 0,\n \"b\": x}}}"),
              HasSubstr("t.json:3:7: expected an integer"));
  EXPECT_THAT(message("{\"model\": {\"vocab\": {\"a\": 0"), HasSubstr("may be truncated"));
  EXPECT_THAT(message("{\"model\": {\"vocab\": {\"a\": -1}}}"), HasSubstr("token id -1"));
  EXPECT_THAT(message("{\"model\": {\"vocab\": {\"a\": 99999999999}}}"), HasSubstr("token id"));
  EXPECT_THAT(message("{\"version\": \"1.0\"}"), HasSubstr("\"model\" is missing"));
  EXPECT_THAT(message("{\"model\": {\"type\": \"Magic\", \"vocab\": {}}}"),
              HasSubstr("t.json: a model of type \"Magic\" is not known"));
}

TEST(TokenizerErrors, NameUnknownAndBrokenComponents) {
  const auto with = [](const char* key, const Json& value) {
    Json spec = spec_of("wordlevel");
    spec[key] = value;
    return model_error([&] { parse(spec); });
  };
  EXPECT_THAT(with("normalizer", {{"type", "Shout"}}),
              HasSubstr("a normalizer of type \"Shout\" is not known"));
  EXPECT_THAT(with("pre_tokenizer", {{"type", "Guess"}}),
              HasSubstr("a pre-tokenizer of type \"Guess\" is not known"));
  EXPECT_THAT(with("decoder", {{"type", "Rot13"}}),
              HasSubstr("a decoder of type \"Rot13\" is not known"));
  EXPECT_THAT(with("post_processor", {{"type", "Sign"}}),
              HasSubstr("a post-processor of type \"Sign\" is not known"));
  EXPECT_THAT(with("pre_tokenizer",
                   {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}}),
              HasSubstr("cannot read the regular expression \"(a\""));
  EXPECT_THAT(
      with("pre_tokenizer",
           {{"type", "Split"}, {"pattern", {{"Regex", "[a&&b]"}}}, {"behavior", "Isolated"}}),
      HasSubstr("class intersection"));
  EXPECT_THAT(with("normalizer", {{"type", "Prepend"}, {"prepend", 3}}),
              HasSubstr("\"prepend\" has the wrong type: 3"));
}

TEST(TokenizerErrors, AMergeMustJoinTokens) {
  const Json spec = {
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", {"a b"}}}}};
  EXPECT_THAT(model_error([&] { parse(spec); }),
              HasSubstr("merge 0 (\"a\" \"b\") needs the token \"ab\""));
}

TEST(TokenizerErrors, AVocabularyAndMergesAreGivenOnce) {
  const auto message = [](const std::string& model) {
    return model_error([&] { parse_tokenizer_json("{\"model\": {" + model + "}}", "t.json"); });
  };
  const std::string object = R"("vocab": {"a": 5})", list = R"("vocab": [["<unk>", 0], ["b", -1]])";
  EXPECT_THAT(message(R"("type": "Unigram", "unk_id": 0, )" + object + ", " + list),
              HasSubstr("t.json:1:71: \"vocab\" is given twice"));
  EXPECT_THAT(message(R"("type": "Unigram", "unk_id": 0, )" + list + ", " + object),
              HasSubstr("\"vocab\" is given twice"));
  EXPECT_THAT(message(R"("vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], "merges": [])"),
              HasSubstr("\"merges\" is given twice"));
}

TEST(TokenizerErrors, EveryUnigramTokenHasAScore) {
  Vocabulary vocabulary;
  vocabulary.add("a", 5);
  EXPECT_THAT(model_error([&] { make_unigram_model(vocabulary, {0.0, -1.0}, {}, "t.json"); }),
              HasSubstr("t.json: a Unigram vocabulary of 6 ids has 2 scores"));
}

TEST(TokenizerErrors, MissingFilesAreAKindOfTheirOwn) {
  EXPECT_THROW(Tokenizer::load("/nonexistent"), MissingTokenizer);
  EXPECT_THROW(Tokenizer::load(fs::path(DANLU_SOURCE_DIR) / "tests"), MissingTokenizer);
}

TEST(TokenizerErrors, DecodingAnUnknownIdSaysTheRange) {
  const auto tokenizer = parse(byte_level_spec());
  EXPECT_THAT(model_error([&] { tokenizer->decode(std::vector<TokenId>{257}); }),
              HasSubstr("token id 257 is not in the vocabulary: ids are 0 to 256"));
  EXPECT_THAT(model_error([&] { tokenizer->decode(std::vector<TokenId>{-1}); }), HasSubstr("-1"));
}

TEST_F(TokenizerFiles, CompanionsNameSpecialTokensAndTheTemplate) {
  write("tokenizer.json", byte_level_spec().dump());
  write("tokenizer_config.json",
        Json{{"eos_token", {{"content", "<end>"}}},
             {"bos_token", nullptr},
             {"chat_template",
              {{{"name", "tools"}, {"template", "T"}}, {{"name", "default"}, {"template", "D"}}}},
             {"added_tokens_decoder",
              {{"256", {{"content", "<end>"}, {"special", true}}},
               {"257", {{"content", "<x>"}, {"special", false}}}}}}
            .dump());
  const auto tokenizer = Tokenizer::load(directory_);
  EXPECT_EQ(256, tokenizer->eos_id());
  EXPECT_EQ(std::nullopt, tokenizer->bos_id());
  EXPECT_EQ("D", tokenizer->chat_template());
  EXPECT_EQ(258u, tokenizer->size());
  EXPECT_THAT(tokenizer->encode("<x><end>"), ElementsAre(257, 256));
  EXPECT_TRUE(tokenizer->is_special(256));
  EXPECT_FALSE(tokenizer->is_special(257));
  EXPECT_EQ("<x>", tokenizer->decode(std::vector<TokenId>{257, 256}, /*skip_special=*/true));
  EXPECT_EQ(2u, tokenizer->files().size());
  write("chat_template.jinja", "J");
  EXPECT_EQ("J", Tokenizer::load(directory_)->chat_template());
}

// In a list of the configuration's, or in a folder beside chat_template.jinja.
TEST_F(TokenizerFiles, TheTemplateForToolsIsTheOneOfThatName) {
  write("tokenizer.json", byte_level_spec().dump());
  write(
      "tokenizer_config.json",
      Json{{"chat_template",
            {{{"name", "default"}, {"template", "D"}}, {{"name", "tool_use"}, {"template", "T"}}}}}
          .dump());
  EXPECT_EQ("T", Tokenizer::load(directory_)->tool_template());
  write("chat_template.jinja", "J");
  EXPECT_EQ("", Tokenizer::load(directory_)->tool_template());
  fs::create_directory(fs::path(directory_) / "additional_chat_templates");
  write("additional_chat_templates/tool_use.jinja", "U");
  EXPECT_EQ("U", Tokenizer::load(directory_)->tool_template());
}

TEST_F(TokenizerFiles, ContentHashFollowsTheFiles) {
  write("tokenizer.json", byte_level_spec().dump());
  const uint64_t before = Tokenizer::load(directory_)->content_hash();
  EXPECT_EQ(before, Tokenizer::load(directory_)->content_hash());
  write("tokenizer_config.json", "{\"eos_token\": \"<end>\"}");
  EXPECT_NE(before, Tokenizer::load(directory_)->content_hash());
}

TEST_F(TokenizerFiles, ABrokenCompanionIsAModelErrorThatNamesIt) {
  write("tokenizer.json", byte_level_spec().dump());
  write("tokenizer_config.json", "{\"eos_token\": ");
  EXPECT_THAT(model_error([&] { Tokenizer::load(directory_); }),
              HasSubstr("tokenizer_config.json:1:"));
}

TEST_F(TokenizerFiles, LlamaClassesObeyTheBosFlag) {
  Json spec = byte_level_spec();
  write("tokenizer.json", spec.dump());
  write(
      "tokenizer_config.json",
      R"({"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<end>", "add_bos_token": true})");
  EXPECT_THAT(Tokenizer::load(directory_)->encode(""), ElementsAre(256));
  EXPECT_THAT(Tokenizer::load(directory_)->encode("", /*add_special=*/false), ElementsAre());
}

TEST_F(TokenizerFiles, ATiktokenFileSaysWhatToDo) {
  write("tokenizer.model", "IQ== 0\nIg== 1\nIw== 2\n");
  EXPECT_THAT(model_error([&] { Tokenizer::load(directory_); }), HasSubstr("tiktoken"));
}

TEST(TokenizerDecode, ByteLevelRestoresEveryText) {
  const auto tokenizer = parse(byte_level_spec());
  for (const auto& [name, bytes] : test::nasty_texts()) {
    if (bytes.find("<end>") != std::string::npos) continue;
    EXPECT_EQ(test::repaired(bytes), tokenizer->decode(tokenizer->encode(bytes))) << name;
  }
}

/// Feeds ids one by one; every result must be whole characters, all together the decoded text.
void expect_streams(const std::shared_ptr<const Tokenizer>& tokenizer,
                    const std::vector<TokenId>& ids, const std::string& what) {
  for (const bool skip_special : {false, true}) {
    DecodeStream stream(tokenizer, skip_special);
    std::string all;
    for (const TokenId id : ids) {
      const std::string part = stream.push(id);
      EXPECT_TRUE(is_valid_utf8(part)) << what;
      all += part;
    }
    all += stream.finish();
    EXPECT_EQ(tokenizer->decode(ids, skip_special), all) << what;
  }
}

TEST(DecodeStreamTest, ConcatenationEqualsDecodeForEveryKindOfTokenizer) {
  Json specs = read_json_file(test::golden_dir() / "component_specs.json");
  for (const auto& [decoder_name, decoder] : specs["decoders"].items()) {
    Json spec = spec_of("bpe_bytes");
    spec["decoder"] = decoder;
    spec["added_tokens"] = {{{"id", 1}, {"content", "<s>"}, {"special", true}}};
    const auto tokenizer = parse(spec);
    uint32_t state = 7;
    for (int round = 0; round < 200; ++round) {
      std::vector<TokenId> ids;
      for (int i = 0; i < round % 25; ++i) {
        state = state * 1103515245u + 12345u;
        ids.push_back(static_cast<TokenId>((state >> 8) % tokenizer->size()));
      }
      // The Strip decoder of HF cannot take apart an empty token; ours leaves it.
      expect_streams(tokenizer, ids, decoder_name + " " + Json(ids).dump());
    }
  }
}

TEST(DecodeStreamTest, ByteLevelNeverGivesHalfACharacter) {
  const auto tokenizer = parse(byte_level_spec());
  for (const auto& [name, bytes] : test::nasty_texts()) {
    expect_streams(tokenizer, tokenizer->encode(bytes), name);
  }
  // 你 is E4 BD A0: nothing after one byte or two, the character after three.
  DecodeStream stream(tokenizer, false);
  EXPECT_EQ("", stream.push(0xE4));
  EXPECT_EQ("", stream.push(0xBD));
  EXPECT_EQ("你", stream.push(0xA0));
  EXPECT_EQ("", stream.push(0xE4));
  EXPECT_EQ("\xEF\xBF\xBD", stream.finish());
  EXPECT_EQ("a", stream.push('a'));
}

/// Counts the ids that it decodes.
class CountingTokenizer : public Tokenizer {
 public:
  explicit CountingTokenizer(std::shared_ptr<const Tokenizer> inner) : inner_(std::move(inner)) {}
  void encode_append(std::string_view text, bool add_special,
                     std::vector<TokenId>& ids) const override {
    inner_->encode_append(text, add_special, ids);
  }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    num_decoded += ids.size();
    return inner_->decode(ids, skip_special);
  }
  size_t size() const override { return inner_->size(); }
  std::optional<TokenId> token_to_id(std::string_view token) const override {
    return inner_->token_to_id(token);
  }
  std::optional<std::string> id_to_token(TokenId id) const override {
    return inner_->id_to_token(id);
  }
  bool is_special(TokenId id) const override { return inner_->is_special(id); }
  bool is_text_final_after(TokenId id) const override { return inner_->is_text_final_after(id); }

  mutable size_t num_decoded = 0;

 private:
  std::shared_ptr<const Tokenizer> inner_;
};

/// A model in a rut, or a client that asks for such bytes: each costs as much as the first.
TEST(DecodeStreamTest, BytesThatNeverBecomeACharacterAreGivenAsTheyCome) {
  const auto tokenizer = std::make_shared<CountingTokenizer>(parse(byte_level_spec()));
  for (const TokenId byte : {0x84, 0xE4, 0xF0}) {
    DecodeStream stream(tokenizer);
    std::string given;
    for (int i = 0; i < 1000; ++i) given += stream.push(byte);
    tokenizer->num_decoded = 0;
    for (int i = 0; i < 100; ++i) given += stream.push(byte);
    EXPECT_LT(tokenizer->num_decoded, 100 * 20u);
    EXPECT_GE(given.size(), 3 * 1095u) << "nothing is held that is final";
    // A character that begins among them is whole.
    for (const TokenId part : {0xF0, 0x9F, 0x98, 0x84}) given += stream.push(part);
    EXPECT_TRUE(given.ends_with("😄"));
    given += stream.finish();
    std::vector<TokenId> ids(1100, byte);
    ids.insert(ids.end(), {0xF0, 0x9F, 0x98, 0x84});
    EXPECT_EQ(given, tokenizer->decode(ids, true));
  }
}

/// Tokens that are not decoded stand in the midst of a character, and bytes that are none before.
TEST(DecodeStreamTest, SpecialTokensInACharacterLeaveItWhole) {
  const auto tokenizer = parse(byte_level_spec());
  const TokenId special = *tokenizer->token_to_id("<end>");
  expect_streams(tokenizer,
                 {0x84, 0x84, 0x84, 0x84, 0x84, 0x84, 0xF0, 0x9F, special, special, special,
                  special, special, special, 0x98, 0x84, 'a'},
                 "special");
}

TEST(TokenizerParityOfParts, ScannersEqualTheGeneralEngine) {
  // The same regexes in a group are not recognised and go through PCRE2.
  for (const auto regex : {kGpt2Regex, kQwen2Regex, kLlama3Regex}) {
    const auto split = [](const std::string& pattern, const std::string& text) {
      const Json spec = {
          {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
      const auto build = make_pre_tokenizer(spec, false, "test");
      std::vector<std::string> pieces;
      build.pre_tokenizer->split(text, true,
                                 [&](std::string_view piece, bool) { pieces.emplace_back(piece); });
      return pieces;
    };
    for (const auto& [name, bytes] : test::nasty_texts()) {
      const std::string text = test::repaired(bytes);
      if (text.empty()) continue;
      ASSERT_EQ(split("(?:" + std::string(regex) + ")", text), split(std::string(regex), text))
          << name;
    }
  }
}

TEST(TokenizerParityOfParts, ScannersEqualTheGeneralEngineWhereverAWordEnds) {
  // Words are taken eight bytes at a time: every way to end one, at every place of eight.
  const std::vector<std::string> parts = {
      "a", "Zz", "abcdefg", "ABCDEFGHij", " ",  "'s", "'LL", "@",        "[", "`",
      "{", "\n", "1",       "\xC3\xA9",   "汉", "，", "𝐀",   "\xCC\x81", "_", "\t"};
  for (const auto regex : {kGpt2Regex, kQwen2Regex, kLlama3Regex}) {
    const Json group = {{"Regex", "(?:" + std::string(regex) + ")"}};
    const Json known = {{"Regex", std::string(regex)}};
    const auto build = [](const Json& pattern) {
      const Json spec = {{"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}};
      return make_pre_tokenizer(spec, false, "test").pre_tokenizer;
    };
    const auto general = build(group), scanner = build(known);
    const auto pieces_of = [](const PreTokenizer& splitter, const std::string& text) {
      std::vector<std::string> pieces;
      splitter.split(text, true, [&](std::string_view piece, bool) { pieces.emplace_back(piece); });
      return pieces;
    };
    uint32_t state = 5;
    for (int round = 0; round < 3000; ++round) {
      std::string text;
      for (int i = 0; i < 1 + round % 24; ++i) {
        state = state * 1103515245u + 12345u;
        text += parts[(state >> 8) % parts.size()];
      }
      ASSERT_EQ(pieces_of(*general, text), pieces_of(*scanner, text)) << text;
    }
  }
}

TEST(TokenizerModels, CuttingAtJoinlessCharactersChangesNoIds) {
  // "bpe_fuse" cannot be cut (unknowns fuse), "bpe_bytes" is: with no unknown in the text the ids
  // of their common tokens must be the same.
  const auto whole = parse(spec_of("bpe_fuse")), cut = parse(spec_of("bpe_bytes"));
  const std::string alphabet = "aaaetthhinger01 \xE2\x96\x81";
  uint32_t state = 99;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 1 + round % 60; ++i) {
      state = state * 1103515245u + 12345u;
      const size_t at = (state >> 8) % 17;
      text += at == 16 ? "\xE2\x96\x81" : std::string(1, alphabet[at % 16]);
    }
    ASSERT_EQ(whole->encode(text), cut->encode(text)) << text;
  }
}

TEST(TokenizerModels, ShortPiecesOfUnigramAreRemembered) {
  Vocabulary vocabulary;
  const char* const tokens[] = {"<unk>", "a", "b", "ab", "aba"};
  for (TokenId id = 0; id < 5; ++id) vocabulary.add(tokens[id], id);
  const auto model =
      make_unigram_model(std::move(vocabulary), {0, -2, -2, -3, -6}, {.unk_id = 0}, "test");
  Scratch scratch;
  const auto ids_of = [&](std::string_view piece) {
    scratch.ids.clear();
    model->encode_piece(piece, scratch);
    return std::vector<TokenId>(scratch.ids.data(), scratch.ids.data() + scratch.ids.size());
  };
  // ab + a: -5; aba: -6; a + b + a: -6. Two unknown characters are one token.
  for (int i = 0; i < 2; ++i) EXPECT_THAT(ids_of("abaxyb"), ElementsAre(3, 1, 0, 2));
  const auto* entry = scratch.cache.find(PieceCache::make_key("abaxyb", 6));
  ASSERT_NE(nullptr, entry);
  EXPECT_EQ(4, entry->count);
  // Longer ones are not, and come after others as they would alone.
  std::string text;
  std::vector<TokenId> ids;
  for (int i = 0; i < 20; ++i) {
    text += "abx";
    ids.insert(ids.end(), {3, 0});
  }
  EXPECT_EQ(ids, ids_of(text));
  EXPECT_THAT(ids_of("b"), ElementsAre(2));
}

TEST(TokenizerModels, LongPiecesWithoutSpacesAreMergedLikeShortOnes) {
  // aa -> id of "aa", aaaa -> id of "aaaa": 4^k letters merge into 4^(k-1) tokens, whatever the
  // way.
  const auto tokenizer = parse(spec_of("bpe_unk"));
  const TokenId aaaa = *tokenizer->token_to_id("aaaa");
  const std::vector<TokenId> ids = tokenizer->encode(std::string(1 << 20, 'a'));
  EXPECT_EQ(size_t{1} << 18, ids.size());
  EXPECT_TRUE(std::all_of(ids.begin(), ids.end(), [&](TokenId id) { return id == aaaa; }));
}

TEST(TokenizerThreads, OneTokenizerServesManyThreads) {
  const auto tokenizer = parse(spec_of("bpe_bytes"));
  std::vector<std::vector<TokenId>> expected;
  for (const auto& [name, bytes] : test::nasty_texts())
    expected.push_back(tokenizer->encode(bytes));
  std::vector<std::thread> threads;
  std::vector<size_t> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      size_t i = 0;
      for (const auto& [name, bytes] : test::nasty_texts()) {
        wrong[t] += tokenizer->encode(bytes) != expected[i++];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

}  // namespace
}  // namespace danlu::text
