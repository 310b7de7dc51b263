// Tokenizers read from GGUF files: ids against llama.cpp's vectors and against the directories that
// the files were made from.
#include "text/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/gguf_header.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "text/base64.h"
#include "text/gguf_metadata.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "tokenizer_golden.h"

namespace danlu::text {
namespace {

using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A GGUF file of these keys and no tensors.
std::string file_of(const gguf::Metadata& metadata) {
  std::string bytes = "GGUF";
  const auto number = [&](auto value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto string = [&](std::string_view text) {
    number(uint64_t{text.size()});
    bytes += text;
  };
  number(uint32_t{3});
  number(uint64_t{0});
  number(uint64_t{metadata.size()});
  for (const auto& [key, value] : metadata) {
    string(key);
    number(static_cast<uint32_t>(value.index()));
    std::visit(
        [&](const auto& held) {
          using T = std::decay_t<decltype(held)>;
          if constexpr (std::is_same_v<T, std::string>) {
            string(held);
          } else if constexpr (std::is_same_v<T, gguf::Array>) {
            number(held.element);
            number(held.count);
            bytes += held.numbers;
            for (const std::string& item : held.strings) string(item);
          } else {
            number(held);
          }
        },
        value);
  }
  return bytes;
}

std::string gguf_of(const GgufVocabulary& vocabulary) {
  gguf::Metadata metadata = {{"general.architecture", std::string("llama")}};
  append_vocabulary(vocabulary, metadata);
  return file_of(metadata);
}

std::shared_ptr<const Tokenizer> tokenizer_of(const gguf::Metadata& metadata) {
  const test::TemporaryDirectory directory;
  write_file_atomic(directory / "x.gguf", file_of(metadata));
  return Tokenizer::load(directory / "x.gguf");
}
std::shared_ptr<const Tokenizer> read_back(const GgufVocabulary& vocabulary) {
  const test::TemporaryDirectory directory;
  write_file_atomic(directory / "x.gguf", gguf_of(vocabulary));
  return Tokenizer::load(directory / "x.gguf");
}

// --- real tokenizers -----------------------------------------------------------------------------

TEST(GgufTokenizer, IdsOfLlamaCppsOwnFilesAreItsVectors) {
  DANLU_REQUIRES_SHARED();
  const fs::path vectors = test::unpacked("tokenizers") / "llamacpp_vectors";
  for (const char* name : {"gpt-2", "llama-spm"}) {
    const auto tokenizer = Tokenizer::load(vectors / (std::string("ggml-vocab-") + name + ".gguf"));
    const auto expected = test::llamacpp_vectors(vectors, name);
    EXPECT_GT(expected.size(), 40u);
    for (const auto& [text, ids] : expected)
      EXPECT_EQ(tokenizer->encode(text, false), ids) << name << ": " << text;
  }
  // Baichuan's has no vectors; its pieces without a merge are of single characters.
  const auto baichuan = Tokenizer::load(vectors / "ggml-vocab-baichuan.gguf");
  EXPECT_EQ(baichuan->size(), 64000u);
  EXPECT_EQ(baichuan->bos_id(), 1);
  EXPECT_EQ(baichuan->decode(baichuan->encode("你好, world\n", false)), "你好, world\n");
}

/// Files of whose vocabulary only the vectors are there: made from the models' directories, and
/// read as another program's.
TEST(GgufTokenizer, IdsOfNamedPreTokenizersAreLlamaCppsVectors) {
  DANLU_REQUIRES_SHARED();
  const fs::path root = test::unpacked("tokenizers");
  struct Case {
    const char *vectors, *directory;
    int64_t size;
  };
  for (const Case& c : {Case{"qwen2", "qwen2_5", 152064}, Case{"llama-bpe", "llama3", 128256}}) {
    GgufVocabulary vocabulary = read_gguf_vocabulary(root / c.directory, c.size);
    vocabulary.own = nullptr;
    vocabulary.pre = c.vectors;
    const auto tokenizer = read_back(vocabulary);
    for (const auto& [text, ids] : test::llamacpp_vectors(root / "llamacpp_vectors", c.vectors))
      EXPECT_EQ(tokenizer->encode(text, false), ids) << c.vectors << ": " << text;
    if (c.vectors != std::string("qwen2")) continue;
    vocabulary.pre = "deepseek-r1-qwen";
    EXPECT_EQ(read_back(vocabulary)->encode("33 don't\u00e9"), tokenizer->encode("33 don't\u00e9"));
  }
}

/// Words, spaces, scripts, numbers, marks and the tokenizer's own special tokens, at random.
std::vector<std::string> random_texts(const Tokenizer& tokenizer, size_t count) {
  std::vector<std::string> parts = {"Hello",  " world", "  ",   "\n",     "\n\n", "\t",  "123",
                                    "4",      "don't",  "'S",   "你好",   "한글", "é",   "e\u0301",
                                    "</s",    "<|im_",  "🦙",   "\u00a0", ".",    "...", "x=f(y);",
                                    "\u2581", "ß",      "नमस्ते", "I",      "\r\n", "a"};
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer.size()); ++id) {
    if (tokenizer.is_special(id) && parts.size() < 60)
      parts.push_back(tokenizer.id_to_token(id).value_or("a"));
  }
  std::vector<std::string> texts;
  uint32_t state = 7;
  const auto next = [&](size_t limit) {
    state = state * 1103515245u + 12345u;
    return (state >> 8) % limit;
  };
  for (size_t i = 0; i < count; ++i) {
    std::string& text = texts.emplace_back();
    for (size_t k = next(9); k > 0; --k) text += parts[next(parts.size())];
  }
  for (const auto& [name, text] : test::nasty_texts()) texts.push_back(text);
  return texts;
}

TEST(GgufTokenizer, AFileThatWeMadeGivesTheIdsOfItsDirectory) {
  DANLU_REQUIRES_SHARED();
  const fs::path root = test::unpacked("tokenizers");
  const std::pair<const char*, int64_t> cases[] = {{"qwen2_5", 151936},   {"llama3", 128256},
                                                   {"mistral_v1", 32000}, {"llama2", 32000},
                                                   {"internlm2", 92544},  {"gpt2", 50304}};
  for (const auto& [name, rows] : cases) {
    const auto whole = Tokenizer::load(root / name);
    const auto alone = read_back(read_gguf_vocabulary(root / name, rows));
    EXPECT_EQ(alone->size(), whole->size()) << name;
    EXPECT_EQ(alone->chat_template(), whole->chat_template()) << name;
    EXPECT_EQ(alone->bos_id(), whole->bos_id()) << name;
    EXPECT_EQ(alone->eos_id(), whole->eos_id()) << name;
    EXPECT_EQ(alone->pad_id(), whole->pad_id()) << name;
    for (const std::string& text : random_texts(*whole, 400)) {
      const auto ids = whole->encode(text);
      ASSERT_EQ(alone->encode(text), ids) << name << ": " << text;
      ASSERT_EQ(alone->decode(ids), whole->decode(ids)) << name << ": " << text;
      ASSERT_EQ(alone->decode(ids, true), whole->decode(ids, true)) << name << ": " << text;
    }
  }
}

void expect_same_alone(const fs::path& directory, const GgufVocabulary& vocabulary) {
  const auto whole = Tokenizer::load(directory);
  const auto alone = read_back(vocabulary);
  EXPECT_EQ(alone->size(), whole->size());
  EXPECT_EQ(alone->eos_id(), whole->eos_id());
  std::vector<std::string> texts = random_texts(*whole, 400);
  texts.insert(texts.end(), {"", "<|user|>\n hello", "[gMASK]sop", "<|im_start|>user"});
  for (const std::string& text : texts) {
    const auto ids = whole->encode(text);
    ASSERT_EQ(alone->encode(text), ids) << text;
    ASSERT_EQ(alone->decode(ids), whole->decode(ids)) << text;
    ASSERT_EQ(alone->decode(ids, true), whole->decode(ids, true)) << text;
  }
}

/// Its code numbers tokens behind the pieces and finds them in no text; the pieces are Llama-2's.
TEST(GgufTokenizer, ChatGlmsComesBack) {
  DANLU_REQUIRES_SHARED();
  const test::TemporaryDirectory directory;
  fs::copy_file(test::unpacked("tokenizers") / "llama2" / "tokenizer.model",
                directory / "tokenizer.model");
  write_json_file(directory / "tokenizer_config.json", {{"tokenizer_class", "ChatGLMTokenizer"}});
  const GgufVocabulary vocabulary = read_gguf_vocabulary(directory, 32064);
  EXPECT_EQ(vocabulary.model, "llama");
  EXPECT_EQ(vocabulary.tokens[32006], "<|user|>");
  EXPECT_EQ(vocabulary.types[32006], GgufTokenType::kControl);
  EXPECT_FALSE(vocabulary.add_bos);
  EXPECT_THAT(vocabulary.notes, ElementsAre(HasSubstr("[gMASK]")));
  expect_same_alone(directory, vocabulary);
}

/// Qwen 1's vocabulary is that of Qwen 1.5, whose merges are those that the ranks give.
TEST(GgufTokenizer, TiktokensRanksBecomeTheMergesOfQwen15) {
  DANLU_REQUIRES_SHARED();
  const fs::path qwen15 = test::unpacked("tokenizers") / "qwen1_5";
  const auto reference = Tokenizer::load(qwen15);
  const test::TemporaryDirectory directory;
  std::string ranks;
  constexpr TokenId kRanks = 151643;
  for (TokenId id = 0; id < kRanks; ++id) {
    std::string bytes;
    ASSERT_TRUE(append_bytes_of_token(reference->id_to_token(id).value(), bytes)) << id;
    ranks += encode_base64(bytes) + " " + std::to_string(id) + "\n";
  }
  write_file_atomic(directory / "qwen.tiktoken", ranks);
  write_json_file(directory / "tokenizer_config.json", {{"tokenizer_class", "QWenTokenizer"}});
  const GgufVocabulary vocabulary = read_gguf_vocabulary(directory, 151936);
  EXPECT_EQ(vocabulary.pre, "qwen2");
  EXPECT_EQ(vocabulary.merges, read_gguf_vocabulary(qwen15, 151936).merges);
  expect_same_alone(directory, vocabulary);

  // GLM-4's own repository has such a file too, under SentencePiece's name.
  const test::TemporaryDirectory glm;
  write_file_atomic(glm / "tokenizer.model", ranks);
  Json config = {{"tokenizer_class", "ChatGLM4Tokenizer"}};
  config["added_tokens_decoder"]["151643"] = {{"content", "[gMASK]"}, {"special", true}};
  config["added_tokens_decoder"]["151644"] = {{"content", "<sop>"}, {"special", true}};
  write_json_file(glm / "tokenizer_config.json", config);
  const GgufVocabulary of_glm = read_gguf_vocabulary(glm, 151936);
  EXPECT_EQ(of_glm.pre, "smaug-bpe");
  expect_same_alone(glm, of_glm);
}

// --- how names cut -------------------------------------------------------------------------------

/// Cut by Python's regex module with the patterns as the models publish them.
TEST(GgufPreTokenizer, EveryNameCutsAsItsModels) {
  const std::string text = "I'VE it's 12345 $x=f(y);  \n\n\tHelloWorld, 你好。한글 éa\u0301!";
  const std::pair<const char*, const char*> cases[] = {
      {"gpt-2",
       "I¦'¦VE¦ it¦'s¦ 12345¦ $¦x¦=¦f¦(¦y¦);¦  \n\n¦\t¦HelloWorld¦,¦ 你好¦。¦한글¦ éa¦\u0301!"},
      {"starcoder",
       "I¦'¦VE¦ it¦'s¦ ¦1¦2¦3¦4¦5¦ $¦x¦=¦f¦(¦y¦);¦  \n\n¦\t¦HelloWorld¦,¦ 你好¦。¦한글¦ "
       "éa¦\u0301!"},
      {"qwen2",
       "I¦'VE¦ it¦'s¦ ¦1¦2¦3¦4¦5¦ $¦x¦=f¦(y¦);¦  \n\n¦\tHelloWorld¦,¦ 你好¦。한글¦ éa¦\u0301!"},
      {"llama-bpe",
       "I¦'VE¦ it¦'s¦ ¦123¦45¦ $¦x¦=f¦(y¦);¦  \n\n¦\tHelloWorld¦,¦ 你好¦。한글¦ éa¦\u0301!"},
      {"falcon",
       "I¦'¦VE¦ it¦'¦s¦ ¦123¦45¦ ¦$¦x¦=¦f¦(¦y¦);¦  \n\n¦\t¦HelloWorld¦,¦ 你好¦。¦한글¦ "
       "éa¦\u0301¦!"},
      {"default",
       "I¦'¦VE¦ it¦'¦s¦ ¦123¦45¦ ¦$¦x¦=¦f¦(¦y¦);¦  \n\n¦\t¦HelloWorld¦,¦ 你好¦。¦한글¦ "
       "éa¦\u0301¦!"},
      {"bloom", "I'VE¦ it's¦ 12345¦ $x=f¦(¦y¦)¦;¦  \n\n\t¦HelloWorld¦,¦ 你好¦。¦한글¦ éa\u0301¦!"},
      {"viking",
       "I'VE¦ it's¦ ¦1¦2¦3¦4¦5¦ $x=f¦(¦y¦)¦;¦  \n\n\t¦HelloWorld¦,¦ 你好¦。¦한글¦ éa\u0301¦!"},
      {"deepseek-coder",
       "I¦'¦VE¦ it¦'¦s¦ ¦1¦2¦3¦4¦5¦ $¦x¦=¦f¦(¦y¦);¦  ¦\n¦\n¦\tHelloWorld¦,¦ ¦你好¦。¦한글¦ "
       "éa¦\u0301¦!"},
      {"deepseek-v3",
       "I¦'VE¦ it¦'s¦ ¦123¦45¦ $¦x¦=f¦(y¦);¦  \n\n¦\tHelloWorld¦,¦ ¦你好¦。¦한글¦ éa\u0301¦!"},
      {"tekken",
       "I¦'VE¦ it¦'s¦ ¦1¦2¦3¦4¦5¦ $¦x¦=f¦(y¦);¦  \n\n¦\tHello¦World¦,¦ 你好¦。한글¦ éa\u0301¦!"},
      {"deepseek-llm",
       "I¦'¦VE¦ it¦'¦s¦ ¦12345¦ $¦x¦=¦f¦(¦y¦);¦  ¦\n¦\n¦\tHelloWorld¦,¦ ¦你好¦。¦한글¦ "
       "é¦a¦\u0301¦!"}};
  for (const auto& [name, pieces] : cases) {
    const auto known = gguf_pre_tokenizer(name);
    ASSERT_TRUE(known) << name;
    const PreTokenizerBuild build = make_pre_tokenizer(known->pre_tokenizer, true, name);
    EXPECT_TRUE(build.raw_bytes) << name;
    std::string cut;
    build.pre_tokenizer->split(text, true, [&](std::string_view piece, bool) {
      cut += cut.empty() ? "" : "¦";
      cut += piece;
    });
    EXPECT_EQ(cut, pieces) << name;
  }
}

/// The pattern of BLOOM's tokenizer.json has a class inside a class, which Oniguruma joins.
TEST(GgufPreTokenizer, BloomsOwnPatternCutsAsItsName) {
  const Json own = {{"type", "Sequence"},
                    {"pretokenizers",
                     {{{"type", "Split"},
                       {"pattern", {{"Regex", " ?[^(\\s|[.,!?…。，、।۔،])]+"}}},
                       {"behavior", "Isolated"}},
                      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const auto cut = [](const Json& pre_tokenizer) {
    const PreTokenizerBuild build = make_pre_tokenizer(pre_tokenizer, true, "bloom");
    std::vector<std::string> pieces;
    build.pre_tokenizer->split("I'VE [x] $x=f(y);  \n\n\tHelloWorld, 你好。한글 (a|b) ok।!", true,
                               [&](std::string_view piece, bool) { pieces.emplace_back(piece); });
    return pieces;
  };
  EXPECT_EQ(cut(own), cut(gguf_pre_tokenizer("bloom")->pre_tokenizer));
  EXPECT_GT(cut(own).size(), 12u);
}

TEST(GgufPreTokenizer, NamesAreListedAndAllOfThemWork) {
  std::istringstream names(known_gguf_pre_tokenizers());
  std::string previous, name;
  size_t count = 0;
  for (; std::getline(names, name, ','); previous = name, ++count) {
    if (name.starts_with(' ')) name.erase(0, 1);
    const auto known = gguf_pre_tokenizer(name);
    ASSERT_TRUE(known) << name;
    EXPECT_TRUE(make_pre_tokenizer(known->pre_tokenizer, true, name).pre_tokenizer) << name;
    EXPECT_LT(previous, name);
  }
  EXPECT_GT(count, 40u);
  EXPECT_FALSE(gguf_pre_tokenizer("gemma-9"));
}

// --- files made by hand --------------------------------------------------------------------------

/// Three letters, a merge and special tokens, as another program would write them.
gguf::Metadata small_bpe(const std::string& pre = "gpt-2") {
  using Texts = std::vector<std::string>;
  return {{"tokenizer.ggml.model", std::string("gpt2")},
          {"tokenizer.ggml.pre", pre},
          {"tokenizer.ggml.tokens",
           gguf::string_array(Texts{"a", "b", "ab", "<s>", "<mark>", "[PAD5]", "Ġ", "abb"})},
          {"tokenizer.ggml.token_type",
           gguf::number_array(std::vector<int32_t>{1, 1, 1, 3, 4, 5, 1, 1})},
          {"tokenizer.ggml.merges", gguf::string_array(Texts{"a b"})},
          {"tokenizer.ggml.bos_token_id", uint32_t{3}}};
}
gguf::Metadata with(gguf::Metadata metadata, const std::string& key, gguf::Value value) {
  std::erase_if(metadata, [&](const auto& pair) { return pair.first == key; });
  metadata.emplace_back(key, std::move(value));
  return metadata;
}
gguf::Metadata without(gguf::Metadata metadata, const std::string& key) {
  std::erase_if(metadata, [&](const auto& pair) { return pair.first == key; });
  return metadata;
}

TEST(GgufTokenizer, TypesOfTokensSayHowTheyAreReadAndShown) {
  const auto tokenizer = tokenizer_of(small_bpe());
  EXPECT_THAT(tokenizer->encode("ab<s>a<mark>"), ElementsAre(2, 3, 0, 4));
  EXPECT_TRUE(tokenizer->is_special(3));
  EXPECT_FALSE(tokenizer->is_special(4));
  const std::vector<TokenId> ids = {2, 3, 4};
  EXPECT_EQ(tokenizer->decode(ids, true), "ab<mark>");
  // A row without a token is none.
  EXPECT_EQ(tokenizer->id_to_token(5), std::nullopt);
  EXPECT_EQ(tokenizer->size(), 8u);
}

TEST(GgufTokenizer, WhatIsPutAroundATextFollowsTheKeysAndTheName) {
  EXPECT_THAT(tokenizer_of(small_bpe())->encode("a"), ElementsAre(0));
  EXPECT_THAT(tokenizer_of(small_bpe("llama-bpe"))->encode("a"), ElementsAre(3, 0));
  const auto asked = with(with(small_bpe(), "tokenizer.ggml.add_bos_token", true),
                          "tokenizer.ggml.add_eos_token", true);
  EXPECT_THAT(tokenizer_of(with(asked, "tokenizer.ggml.eos_token_id", uint32_t{4}))->encode("a"),
              ElementsAre(3, 0, 4));
  EXPECT_THAT(tokenizer_of(with(small_bpe("llama-bpe"), "tokenizer.ggml.add_bos_token", false))
                  ->encode("a"),
              ElementsAre(0));
}

TEST(GgufTokenizer, WholeWordsSkipTheMergesWhereTheNameSaysSo) {
  EXPECT_THAT(tokenizer_of(small_bpe("smaug-bpe"))->encode("abb"), ElementsAre(2, 1));
  EXPECT_THAT(tokenizer_of(small_bpe("llama-bpe"))->encode("abb", false), ElementsAre(7));
}

TEST(GgufTokenizer, AnUnknownPreTokenizerIsNamedBesideTheKnownOnes) {
  const std::string error = error_of<ModelError>([] { tokenizer_of(small_bpe("gemma-9")); });
  EXPECT_THAT(error, HasSubstr("tokenizer.ggml.pre: \"gemma-9\" is unknown; known are"));
  EXPECT_THAT(error, HasSubstr("deepseek-llm, "));
  testing::internal::CaptureStderr();
  EXPECT_THAT(tokenizer_of(without(small_bpe(), "tokenizer.ggml.pre"))->encode("ab"),
              ElementsAre(2));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("\"default\" is taken"));
}

TEST(GgufTokenizerErrors, WhatIsNotReadOrContradictsItself) {
  const auto error = [](const gguf::Metadata& metadata) {
    return error_of<ModelError>([&] { tokenizer_of(metadata); });
  };
  EXPECT_THAT(error(without(small_bpe(), "tokenizer.ggml.tokens")),
              HasSubstr("this GGUF file holds no tokenizer | name one: --tokenizer DIR"));
  EXPECT_THAT(error(with(small_bpe(), "tokenizer.ggml.model", std::string("bert"))),
              HasSubstr("its tokenizer is of the kind \"bert\"; gpt2"));
  EXPECT_THAT(error(without(small_bpe(), "tokenizer.ggml.merges")),
              HasSubstr("tokenizer.ggml.merges: it is missing, or of another type"));
  EXPECT_THAT(error(with(small_bpe(), "tokenizer.ggml.token_type",
                         gguf::number_array(std::vector<int32_t>{1}))),
              HasSubstr("token_type: it must have as many items as there are tokens, 8"));
  EXPECT_THAT(error(with(small_bpe(), "tokenizer.ggml.token_type",
                         gguf::number_array(std::vector<int32_t>{1, 1, 1, 1, 1, 1, 1, 9}))),
              HasSubstr("token 7 has the type 9; they are 0 to 6"));
  EXPECT_THAT(error(with(small_bpe(), "tokenizer.ggml.bos_token_id", std::string("3"))),
              HasSubstr("bos_token_id: it must be a whole number"));
  EXPECT_THAT(error(with(small_bpe(), "danlu.tokenizer", std::string("["))),
              HasSubstr("danlu.tokenizer: it is no JSON object"));
  EXPECT_THAT(
      error(with(small_bpe(), "danlu.tokenizer", std::string("{\"tokenizer_json\": {\"a\": 1}}"))),
      HasSubstr("the key danlu.tokenizer is damaged"));
  // Ids of no token are left out, as llama.cpp leaves them out.
  EXPECT_EQ(tokenizer_of(with(small_bpe(), "tokenizer.ggml.bos_token_id", uint32_t{8}))->bos_id(),
            std::nullopt);
  EXPECT_EQ(tokenizer_of(with(small_bpe(), "tokenizer.ggml.bos_token_id", 4294967295u))->bos_id(),
            std::nullopt);
}

TEST(GgufTokenizer, TemplatesHaveNames) {
  const auto named = with(small_bpe(), "tokenizer.chat_template.tool_use", std::string("tools"));
  EXPECT_EQ(
      tokenizer_of(with(named, "tokenizer.chat_template", std::string("plain")))->chat_template(),
      "plain");
}

/// <unk> <s> </s> <mark>, the bytes, pieces with scores.
gguf::Metadata small_spm() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<mark>"};
  std::vector<int32_t> types = {2, 3, 3, 4};
  std::vector<float> scores(4, 0.0f);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    tokens.emplace_back(text);
    types.push_back(6);
    scores.push_back(0);
  }
  // 260 on. "ab" goes before "ba": it has the better score.
  for (const char* piece : {"▁", "a", "b", "ab", "ba", "▁a"}) {
    tokens.emplace_back(piece);
    types.push_back(1);
    scores.push_back(-static_cast<float>(tokens.size()));
  }
  return {{"tokenizer.ggml.model", std::string("llama")},
          {"tokenizer.ggml.tokens", gguf::string_array(tokens)},
          {"tokenizer.ggml.token_type", gguf::number_array(types)},
          {"tokenizer.ggml.scores", gguf::number_array(scores)}};
}

TEST(GgufTokenizer, PiecesAreJoinedByScoreAndUnknownCharactersAreBytes) {
  const auto tokenizer = tokenizer_of(small_spm());
  // bos is put in front and a space before the text, as llama.cpp does where no key says otherwise.
  EXPECT_THAT(tokenizer->encode("bab"), ElementsAre(1, 260, 262, 263));
  EXPECT_THAT(tokenizer->encode("é", false), ElementsAre(260, 4 + 0xC3, 4 + 0xA9));
  EXPECT_THAT(tokenizer->encode("b<mark>b</s>", false), ElementsAre(260, 262, 3, 260, 262, 2));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ab é ba"), true), "ab é ba");
  const auto bare = with(with(small_spm(), "tokenizer.ggml.add_space_prefix", false),
                         "tokenizer.ggml.add_bos_token", false);
  EXPECT_THAT(tokenizer_of(bare)->encode("bab"), ElementsAre(262, 263));
}

TEST(GgufTokenizerErrors, PiecesWithoutScores) {
  EXPECT_THAT(error_of<ModelError>([] {
                tokenizer_of(with(small_spm(), "tokenizer.ggml.scores",
                                  gguf::number_array(std::vector<float>{1})));
              }),
              HasSubstr("tokenizer.ggml.scores: it must have as many items as there are tokens"));
}

TEST(GgufTokenizer, WrittenAsFilesItIsTheSame) {
  for (const gguf::Metadata& metadata : {small_bpe("qwen2"), small_spm()}) {
    const test::TemporaryDirectory directory;
    write_file_atomic(directory / "x.gguf", file_of(metadata));
    fs::create_directory(directory / "hf");
    EXPECT_TRUE(write_gguf_tokenizer(directory / "x.gguf", directory / "hf"));
    const auto alone = Tokenizer::load(directory / "x.gguf"),
               files = Tokenizer::load(directory / "hf");
    EXPECT_EQ(alone->size(), files->size());
    for (const char* text : {"ab<s>ba <mark>a", "b<mark> ab", "é", ""}) {
      EXPECT_EQ(alone->encode(text), files->encode(text)) << text;
      EXPECT_EQ(alone->decode(alone->encode(text)), files->decode(files->encode(text))) << text;
    }
  }
  const test::TemporaryDirectory directory;
  write_file_atomic(directory / "x.gguf", file_of({}));
  EXPECT_FALSE(write_gguf_tokenizer(directory / "x.gguf", directory.path()));
}

TEST(GgufTokenizerErrors, AForeignTokenizerIsNamedWithItsFirstDifference) {
  const test::TemporaryDirectory directory;
  const auto file = directory / "x.gguf";
  write_file_atomic(file, file_of(small_bpe()));
  const auto other = [&](size_t id, const std::string& token) {
    std::vector<std::string> tokens = {"a", "b", "ab", "<s>", "<mark>", "[PAD5]", "Ġ", "abb"};
    if (id < tokens.size()) tokens[id] = token;
    if (id == tokens.size()) tokens.push_back(token);
    auto metadata = with(small_bpe(), "tokenizer.ggml.tokens", gguf::string_array(tokens));
    return tokenizer_of(without(metadata, "tokenizer.ggml.token_type"));
  };
  const auto error = [&](size_t id, const std::string& token) {
    return error_of<ModelError>([&] { refuse_other_tokenizer(file, *other(id, token), "DIR"); });
  };
  EXPECT_NO_THROW(refuse_other_tokenizer(file, *other(99, ""), "DIR"));
  EXPECT_THAT(error(7, "bb"), HasSubstr("the tokenizer DIR is another one than the file's own: "
                                        "token 7 is \"bb\" there and \"abb\" in the file"));
  EXPECT_THAT(error(8, "c"), HasSubstr("the tokenizer DIR has 9 ids, the file's own list 8"));
  // A file without a list agrees with any.
  write_file_atomic(file, file_of({}));
  EXPECT_NO_THROW(refuse_other_tokenizer(file, *other(7, "bb"), "DIR"));
  // An added token has spaces where its tokenizer has ▁.
  const std::vector<std::string> tokens = {"a", "b", "ab", "<s>", "  ", "[PAD5]", "Ġ", "abb"};
  const auto spaced = with(small_bpe(), "tokenizer.ggml.tokens", gguf::string_array(tokens));
  write_file_atomic(file, file_of(spaced));
  EXPECT_NO_THROW(refuse_other_tokenizer(file, *other(4, "\u2581\u2581"), "DIR"));
  EXPECT_THAT(error(4, "\u2581"), HasSubstr("token 4 is"));
}

}  // namespace
}  // namespace danlu::text
