// Tokens that a tokenizer gains: ids as Hugging Face's tokenizers library gives them
// (golden_tokenizers/new_tokens.json), and files that hold them.
#include "text/new_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "golden_comparison.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::text {
namespace new_tokens_test {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<NewToken> tokens_of(const Json& golden) {
  std::vector<NewToken> tokens;
  for (const Json& word : golden.at("ordinary")) tokens.push_back({word.get<std::string>(), false});
  for (const Json& word : golden.at("special")) tokens.push_back({word.get<std::string>(), true});
  return tokens;
}

TEST(NewTokens, IdsAndFilesEqualHuggingFaces) {
  DANLU_REQUIRES_SHARED();
  const Json golden = read_json_file(test::golden_dir() / "new_tokens.json");
  const std::vector<NewToken> tokens = tokens_of(golden);
  const test::TemporaryDirectory folder;
  for (const char* name : {"gpt2", "mistral_v1"}) {
    const Json& expected = golden.at(name);
    // tokenizer.json alone: the companion files are no part of what the oracle was given.
    const fs::path plain = folder / name;
    fs::create_directories(plain);
    fs::copy_file(test::unpacked("tokenizers") / name / "tokenizer.json", plain / "tokenizer.json");
    const GrownTokenizer grown = load_with_tokens(plain, tokens);
    EXPECT_EQ(grown.tokenizer->size(), expected.at("size").get<size_t>()) << name;
    for (const Json& pair : expected.at("encoded")) {
      EXPECT_EQ(grown.tokenizer->encode(pair[0].get<std::string>(), false),
                pair[1].get<std::vector<TokenId>>())
          << name << ": " << pair[0];
    }
    write_new_tokens(plain, tokens);
    const auto file = nlohmann::json::parse(read_file(plain / "tokenizer.json"));
    std::vector<nlohmann::json> added;
    for (const nlohmann::json& entry : file.at("added_tokens")) {
      const auto is_it = [&](const NewToken& token) {
        return entry["content"].get<std::string>() == token.content;
      };
      if (std::any_of(tokens.begin(), tokens.end(), is_it)) added.push_back(entry);
    }
    // Nothing else of the file changed.
    auto original =
        nlohmann::json::parse(read_file(test::unpacked("tokenizers") / name / "tokenizer.json"));
    original["added_tokens"] = file.at("added_tokens");
    EXPECT_TRUE(original == file) << name;
    // The same members, in whatever order.
    ASSERT_EQ(added.size(), expected.at("added").size()) << name;
    for (size_t i = 0; i < added.size(); ++i)
      EXPECT_EQ(added[i], nlohmann::json(expected.at("added")[i])) << name;
    const auto written = Tokenizer::load(plain);
    EXPECT_EQ(written->encode("<|1|>a<|0|>", false), grown.tokenizer->encode("<|1|>a<|0|>", false));
    EXPECT_TRUE(written->is_special(*written->token_to_id("<|0|>")));
    EXPECT_FALSE(written->is_special(*written->token_to_id("wordpiece")));
    // Once more they are there already.
    write_new_tokens(plain, tokens);
    EXPECT_EQ(Tokenizer::load(plain)->size(), written->size());
  }
}

TEST(NewTokens, ATokenizerModelHasThemInTheFilesBesideIt) {
  DANLU_REQUIRES_SHARED();
  const test::TemporaryDirectory folder;
  fs::copy_file(test::unpacked("tokenizers") / "llama2" / "tokenizer.model",
                folder / "tokenizer.model");
  write_json_file(folder / "tokenizer_config.json", {{"tokenizer_class", "LlamaTokenizer"},
                                                     {"additional_special_tokens", {"<|old|>"}}});
  const auto before = Tokenizer::load(folder.path());
  const auto size = static_cast<TokenId>(before->size());
  const std::vector<NewToken> tokens = {{"<tool>", true}, {"wordpiece", false}};
  const GrownTokenizer grown = load_with_tokens(folder / "tokenizer.model", tokens);
  EXPECT_THAT(grown.new_ids, ElementsAre(size, size + 1));
  // Nothing was written beside the original.
  EXPECT_FALSE(fs::exists(folder / "added_tokens.json"));
  write_new_tokens(folder.path(), tokens);
  const auto after = Tokenizer::load(folder.path());
  for (const auto& tokenizer : {grown.tokenizer, after}) {
    EXPECT_THAT(tokenizer->encode("<tool>", false), ElementsAre(size));
    EXPECT_THAT(tokenizer->encode("wordpiece", false), ElementsAre(size + 1));
    EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{size, size + 1}, /*skip_special=*/true),
              "wordpiece");
  }
  EXPECT_EQ(after->encode("hello world", false), before->encode("hello world", false));
  const Json config = read_json_file(folder / "tokenizer_config.json");
  EXPECT_EQ(config.at("additional_special_tokens"), Json({"<|old|>", "<tool>"}));
  EXPECT_EQ(config.at("added_tokens_decoder").at(std::to_string(size)).at("special"), true);
  EXPECT_EQ(read_json_file(folder / "added_tokens.json").at("wordpiece"), size + 1);
}

TEST(NewTokens, FilesThatHoldNoneSaySo) {
  const test::TemporaryDirectory folder;
  write_file_atomic(folder / "gpt2-vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  write_file_atomic(folder / "gpt2-merges.txt", "#version: 0.2\na b\n");
  EXPECT_THAT(test::error_of<ModelError>(
                  [&] { load_with_tokens(folder / "gpt2-vocab.json", {{"<x>", true}}); }),
              HasSubstr("new tokens cannot be added to gpt2-vocab.json"));
  // Without new tokens everything is as it was.
  EXPECT_EQ(load_with_tokens(folder / "gpt2-vocab.json", {}).tokenizer->size(), 3u);
}

}  // namespace new_tokens_test
}  // namespace danlu::text
