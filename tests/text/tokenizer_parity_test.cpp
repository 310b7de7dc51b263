// Ids of whole tokenizers against HF's tokenizers library, spm_encode and llama.cpp's vectors, over
// all reference texts (golden_tokenizers/*.json, made by tools/tokenizer_goldens).
#include <gmock/gmock.h>

#include <mutex>

#include "base/file.h"
#include "base/threads.h"
#include "golden_comparison.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "text/conversation.h"
#include "text/tokenizer/pipeline_tokenizer.h"

namespace danlu::text {
namespace {

namespace fs = std::filesystem;
using test::compare;
using test::shared_texts;

TEST(TokenizerParity, IdsEqualHuggingFaceOverAllTexts) {
  DANLU_REQUIRES_SHARED();
  const std::vector<std::string> names = {"qwen2_5", "qwen3",     "qwen1_5", "llama3",
                                          "gpt2",    "internlm2", "yi",      "mistral_v1"};
  const fs::path root = test::unpacked("tokenizers");
  test::unpacked("corpora");
  test::unpacked("instruct");
  std::vector<std::string> differences;
  size_t total = 0;
  std::mutex mutex;
  parallel_for(names.size(), default_thread_count(), [&](size_t i) {
    const Json golden = read_json_file(test::golden_dir() / (names[i] + ".json"));
    // tokenizer.json alone: the companion files are no part of what the oracle was given.
    const std::string file = (root / names[i] / "tokenizer.json").string();
    const auto tokenizer = parse_tokenizer_json(read_file(file), file);
    std::vector<std::string> found;
    size_t num_ids = 0;
    compare(
        golden, [&](const std::string& text) { return tokenizer->encode(text); },
        [](const std::string&) { return true; }, found, num_ids);
    const std::lock_guard lock(mutex);
    differences.insert(differences.end(), found.begin(), found.end());
    total += num_ids;
  });
  EXPECT_THAT(differences, testing::IsEmpty());
  EXPECT_GT(total, 50'000'000u);
}

TEST(TokenizerParity, DecodedTextEqualsHuggingFace) {
  DANLU_REQUIRES_SHARED();
  const fs::path root = test::unpacked("tokenizers");
  for (const char* name :
       {"qwen2_5", "qwen3", "qwen1_5", "llama3", "gpt2", "internlm2", "yi", "mistral_v1"}) {
    const Json golden =
        read_json_file(test::golden_dir() / (std::string(name) + ".json"))["decode"];
    const std::string file = (root / name / "tokenizer.json").string();
    const auto tokenizer = parse_tokenizer_json(read_file(file), file);
    test::expect_decoded(golden, *tokenizer, name);
  }
}

TEST(TokenizerParity, SentencePieceModelsEqualSpmEncode) {
  DANLU_REQUIRES_SHARED();
  const fs::path root = test::unpacked("tokenizers");
  test::unpacked("corpora");
  for (const char* name : {"llama2", "baichuan2", "internlm2"}) {
    const Json golden = read_json_file(test::golden_dir() / (std::string(name) + ".model.json"));
    const auto tokenizer = Tokenizer::load(root / name / "tokenizer.model");
    std::vector<std::string> differences;
    size_t num_ids = 0;
    compare(
        golden,
        [&](const std::string& text) {
          // spm_encode knows no added tokens; the generator did the same to its input.
          std::string plain = text;
          std::replace(plain.begin(), plain.end(), '<', '(');
          return tokenizer->encode(plain, false);
        },
        [](const std::string& text) {
          return text.find('\n') == std::string::npos && text.find('\0') == std::string::npos;
        },
        differences, num_ids);
    EXPECT_THAT(differences, testing::IsEmpty());
  }
}

TEST(TokenizerParity, VocabJsonAndMergesTxtGiveTheIdsOfTokenizerJson) {
  DANLU_REQUIRES_SHARED();
  const fs::path root = test::unpacked("tokenizers");
  test::unpacked("instruct");
  const auto parts = Tokenizer::load(root / "qwen2_vocab_merges");
  const auto whole = Tokenizer::load(root / "qwen1_5");
  for (const std::string& text : *shared_texts("strings:instruct/alpaca_zh_demo.json")) {
    ASSERT_EQ(whole->encode(text), parts->encode(text)) << text;
  }
  for (const auto& [name, text] : test::nasty_texts()) {
    ASSERT_EQ(whole->encode(text), parts->encode(text)) << name;
  }
}

/// Under the names that Megatron's scripts give them, without any other file.
TEST(TokenizerParity, Gpt2InTwoFilesGivesTheIdsOfTokenizerJson) {
  DANLU_REQUIRES_SHARED();
  const fs::path root = test::unpacked("tokenizers");
  const auto whole = Tokenizer::load(root / "gpt2");
  const Json model = read_json_file(root / "gpt2" / "tokenizer.json")["model"];
  const test::TemporaryDirectory directory;
  write_json_file(directory / "gpt2-vocab.json", model["vocab"]);
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : model["merges"]) {
    merges += merge.is_string() ? merge.get<std::string>()
                                : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    merges += "\n";
  }
  write_file_atomic(directory / "gpt2-merges.txt", merges);
  const auto parts = Tokenizer::load(directory / "gpt2-vocab.json");
  for (const auto& [name, text] : test::nasty_texts())
    ASSERT_EQ(whole->encode(text), parts->encode(text)) << name;
  EXPECT_EQ(parts->eos_id(), TokenId{50256});
  EXPECT_EQ(parts->encode("a<|endoftext|>"), whole->encode("a<|endoftext|>"));
  fs::remove(directory / "gpt2-merges.txt");
  EXPECT_THAT(test::error_of<ModelError>([&] { Tokenizer::load(directory / "gpt2-vocab.json"); }),
              testing::HasSubstr("gpt2-merges.txt is missing beside it"));
}

/// ChatGLM2 and 3 have a tokenizer.model and code that numbers further tokens behind its pieces;
/// the pieces here are Llama-2's.
TEST(TokenizerParity, ChatGlmNumbersItsTokensBehindThePieces) {
  DANLU_REQUIRES_SHARED();
  const fs::path llama = test::unpacked("tokenizers") / "llama2" / "tokenizer.model";
  const auto pieces = Tokenizer::load(llama);
  ASSERT_EQ(pieces->size(), 32000u);
  const auto with_config = [&](const Json& more) {
    const test::TemporaryDirectory directory;
    fs::copy_file(llama, directory / "tokenizer.model");
    Json config = {{"tokenizer_class", "ChatGLMTokenizer"}};
    config.update(more);
    write_json_file(directory / "tokenizer_config.json", config);
    return Tokenizer::load(directory.path());
  };
  const auto tokenizer = with_config(Json::object());
  const TokenId mask = 32001, sop = 32003, user = 32006, assistant = 32007;
  for (const std::string text : {"hello 世界", "<|user|> [gMASK]sop"}) {
    const std::vector<TokenId> plain = pieces->encode(text, false);
    EXPECT_EQ(tokenizer->encode(text, false), plain) << text;
    std::vector<TokenId> expected = {mask, sop};
    expected.insert(expected.end(), plain.begin(), plain.end());
    EXPECT_EQ(tokenizer->encode(text, true), expected) << text;
  }
  EXPECT_EQ(tokenizer->token_to_id("<|user|>"), user);
  EXPECT_TRUE(tokenizer->is_special(user));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{user}, false), "<|user|>");

  // As build_chat_input of that code: a role, a newline, the text, the next role.
  const auto encoder = ChatEncoder::create(tokenizer, "chatglm3");
  std::vector<TokenId> expected = {mask, sop, user};
  for (const char* text : {"\n", "hello"}) {
    const std::vector<TokenId> ids = pieces->encode(text, false);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  expected.push_back(assistant);
  EXPECT_EQ(
      encoder->encode_prompt({.messages = {{.role = "user", .content = "hello"}}, .tools = {}}),
      expected);

  const auto listed = with_config(
      {{"added_tokens_decoder",
        {{"32006", {{"content", "<|user|>"}, {"normalized", true}, {"special", false}}}}}});
  EXPECT_EQ(listed->encode("<|user|>", false), std::vector<TokenId>{user});
}

TEST(TokenizerParity, LlamaCppVectors) {
  DANLU_REQUIRES_SHARED();
  const fs::path root = test::unpacked("tokenizers");
  const std::pair<const char*, const char*> pairs[] = {{"qwen2", "qwen2_5"},
                                                       {"qwen2", "qwen2_vocab_merges"},
                                                       {"llama-bpe", "llama3"},
                                                       {"gpt-2", "gpt2"},
                                                       {"llama-spm", "llama2"},
                                                       // Llama-2's pieces, and more special tokens.
                                                       {"phi-3", "llama2"}};
  for (const auto& [vectors, name] : pairs) {
    const auto tokenizer = Tokenizer::load(root / name);
    const auto expected = test::llamacpp_vectors(root / "llamacpp_vectors", vectors);
    EXPECT_GT(expected.size(), 40u) << vectors;
    for (const auto& [input, ids] : expected)
      EXPECT_EQ(ids, tokenizer->encode(input, false)) << vectors << ": " << input;
  }
}

}  // namespace
}  // namespace danlu::text
