// tokenizer.model against SentencePiece's own library: models of every kind, trained by it for the
// occasion, and what it makes of texts that are meant to break them (sentencepiece_oracle.py).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>

#include "base/file.h"
#include "base/json.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "text/tokenizer/pipeline_tokenizer.h"

namespace danlu::text {
namespace sentencepiece_test {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// The interpreter that has SentencePiece's library, or "".
std::string python_with_sentencepiece() {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    const std::string import = std::string(python) + " -c 'import sentencepiece' 2>/dev/null";
    if (std::system(import.c_str()) == 0) return python;
  }
  return "";
}

TEST(SentencePiece, ModelsOfEveryKindEqualTheLibrary) {
  DANLU_REQUIRES_SHARED();
  const std::string python = python_with_sentencepiece();
  if (python.empty()) {
    if (test::shared_must_exist()) FAIL() << "apt: python3-sentencepiece is missing";
    GTEST_SKIP() << "no SentencePiece to check against (apt: python3-sentencepiece)";
  }
  const test::TemporaryDirectory directory;
  const fs::path corpora = test::unpacked("corpora");
  const std::string command =
      fmt::format("{} '{}/tests/text/sentencepiece_oracle.py' '{}' '{}' '{}' >/dev/null 2>&1",
                  python, DANLU_SOURCE_DIR, directory.path().string(),
                  (corpora / "sherlock.txt").string(), (corpora / "zh_hongloumeng.txt").string());
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  size_t num_models = 0;
  for (const auto& entry : fs::directory_iterator(directory.path())) {
    if (!entry.is_directory()) continue;
    ++num_models;
    const std::string name = entry.path().filename().string();
    const auto tokenizer = Tokenizer::load(entry.path() / "tokenizer.model");
    const Json expected = read_json_file(entry.path() / "expected.json");
    size_t differences = 0;
    for (const Json& pair : expected["encoded"]) {
      const auto text = pair[0].get<std::string>();
      const auto ids = pair[1].get<std::vector<TokenId>>();
      if (tokenizer->encode(text, false) != ids && ++differences <= 3)
        ADD_FAILURE() << name << ": " << Json(text).dump() << "\n  "
                      << Json(tokenizer->encode(text, false)).dump() << "\n  " << pair[1].dump();
    }
    for (const Json& pair : expected["decoded"]) {
      const auto ids = pair[0].get<std::vector<TokenId>>();
      if (tokenizer->decode(ids) != pair[1].get<std::string>() && ++differences <= 3)
        ADD_FAILURE() << name << ": " << pair[0].dump() << "\n  "
                      << Json(tokenizer->decode(ids)).dump() << "\n  " << pair[1].dump();
    }
    EXPECT_EQ(differences, 0u) << name;
  }
  EXPECT_EQ(num_models, 12u);
}

/// A message field of the wire format: number, then bytes.
std::string field(int number, const std::string& bytes) {
  return static_cast<char>(number << 3 | 2) + std::string(1, static_cast<char>(bytes.size())) +
         bytes;
}
std::string number_field(int number, char value) { return {static_cast<char>(number << 3), value}; }
std::string piece(const std::string& text, char type = 1) {
  return field(1, field(1, text) + number_field(3, type));
}

TEST(SentencePiece, BrokenModelsAreNamed) {
  const auto message = [](const std::string& bytes) {
    return test::error_of<ModelError>([&] { parse_sentencepiece(bytes, "m.model"); });
  };
  const std::string unk = piece("<unk>", 2);
  const std::string byte_fallback =
      field(2, std::string("\x98\x02\x01", 3));  // field 35 of the trainer: 1
  EXPECT_EQ(parse_sentencepiece(unk + piece("a"), "m.model")->size(), 2u);
  EXPECT_THAT(message(unk + "\x0A\x7F"), HasSubstr("m.model: not a SentencePiece model"));
  EXPECT_THAT(message("\x0B"), HasSubstr("not a SentencePiece model"));
  EXPECT_THAT(message(piece("a")), HasSubstr("has one unknown piece, this has 0"));
  EXPECT_THAT(message(unk + piece("a", 2)), HasSubstr("has one unknown piece, this has 2"));
  EXPECT_THAT(message(unk + piece("")), HasSubstr("a piece is empty"));
  EXPECT_THAT(message(unk + piece("\xFF")), HasSubstr("piece 1 is not UTF-8"));
  EXPECT_THAT(message(unk + piece("a") + piece("a")), HasSubstr("\"a\" is given twice"));
  EXPECT_THAT(message(unk + piece("a", 9)), HasSubstr("the type 9"));
  EXPECT_THAT(message(unk + piece("<0x0A>", 6)), HasSubstr("without byte fallback"));
  EXPECT_THAT(message(unk + piece("0A", 6) + byte_fallback), HasSubstr("<0x00> to <0xFF>"));
  EXPECT_THAT(message(unk + piece("<0x00>", 6) + byte_fallback), HasSubstr("byte 1 is no piece"));
  EXPECT_THAT(message(unk + field(2, number_field(3, 7))), HasSubstr("the model type 7"));
  EXPECT_THAT(message(unk + field(3, field(2, "damaged"))), HasSubstr("character map is damaged"));
}

}  // namespace sentencepiece_test
}  // namespace danlu::text
