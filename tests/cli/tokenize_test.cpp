// `danlu tokenize`, `detokenize` and `tokenizer train`, as a shell would call them.
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "cli/bad_input.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Tokenize : public BadInput {
 protected:
  ProgramResult with_input(std::vector<std::string> arguments, const std::string& input) const {
    ProgramSettings settings;
    settings.input = input;
    settings.directory = ((*this) / "").string();
    return run_danlu(arguments, settings);
  }
  /// What `danlu VERB --model MODEL MORE…` prints with `input` on stdin.
  std::string output_of(const std::string& verb, const std::vector<std::string>& more,
                        const std::string& input, const fs::path& model = good("tokenizer")) const {
    std::vector<std::string> arguments = {verb, "--model", model.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = with_input(arguments, input);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  std::string ids_of(const std::string& text, const std::vector<std::string>& more = {}) const {
    return output_of("tokenize", more, text);
  }
};

std::string quoted(const std::string& text) { return Json(text).dump() + "\n"; }

// A byte-level vocabulary begins with the 256 bytes in the order of their printable stand-ins:
// 33–126 first ('!' is 0), so 'z' is 'z' - '!' = 89 and '~' is 93.
TEST_F(Tokenize, WholeInputIsOneText) {
  EXPECT_EQ(ids_of("~z"), "93 89\n");
  // '\n' is byte 10, the 11th of the 68 bytes without a printable form of their own, which get the
  // ids after the 188 printable ones: 188 + 10.
  EXPECT_EQ(ids_of("~\nz\n"), "93 198 89 198\n");
  EXPECT_EQ(output_of("tokenize", {"~", "z"}, "not read"), ids_of("~ z"));
  EXPECT_EQ(output_of("tokenize", {"--input", write("t.txt", "~z").string()}, "not read"),
            "93 89\n");
}

TEST_F(Tokenize, LineByLine) {
  EXPECT_EQ(ids_of("~z\n\n~\n", {"--lines"}), "93 89\n\n93\n");
  EXPECT_EQ(ids_of("~z\n~", {"--lines"}), "93 89\n93\n");
  const std::string file = write("t.txt", "~z\n\n~\n").string();
  EXPECT_EQ(output_of("tokenize", {"--lines", "--input", file}, ""), "93 89\n\n93\n");
}

TEST_F(Tokenize, AsJsonAndBesideTheTokens) {
  EXPECT_EQ(ids_of("~z", {"--json"}), "[93, 89]\n");
  EXPECT_EQ(ids_of("~z\n\n~\n", {"--lines", "--json"}), "[93, 89]\n[]\n[93]\n");
  EXPECT_EQ(ids_of("~\"", {"--tokens"}), "      93  \"~\"\n       1  \"\\\"\"\n");
}

TEST_F(Tokenize, TypedBytesThatAreNotUtf8AreRefused) {
  expect_error(run_danlu({"tokenize", "--model", good("tokenizer").string(), "\xC4\xE3"}), 2,
               {"[TEXT] not UTF-8: byte 0xC4 at 1"});
}

TEST_F(Tokenize, EmptyInput) {
  EXPECT_EQ(ids_of(""), "\n");
  EXPECT_EQ(ids_of("", {"--json"}), "[]\n");
  EXPECT_EQ(ids_of("", {"--lines"}), "");
  EXPECT_EQ(output_of("tokenize", {"--input", write("empty.txt", "").string()}, "x"), "\n");
  EXPECT_EQ(output_of("tokenize", {"--lines", "--input", write("empty.txt", "").string()}, "x"),
            "");
  EXPECT_EQ(output_of("detokenize", {}, ""), "");
}

TEST_F(Tokenize, SpecialTokensCanBeLeftOut) {
  DANLU_REQUIRES_SHARED();
  const fs::path llama2 = unpacked("tokenizers") / "llama2";
  // 1 is <s>; ids of "Hello world" as Llama 2's model card shows them.
  EXPECT_EQ(output_of("tokenize", {}, "Hello world", llama2), "1 15043 3186\n");
  EXPECT_EQ(output_of("tokenize", {"--no-special"}, "Hello world", llama2), "15043 3186\n");
  EXPECT_EQ(output_of("detokenize", {"--skip-special"}, "1 15043 3186", llama2), "Hello world\n");
  EXPECT_THAT(output_of("detokenize", {}, "1 15043 3186", llama2), StartsWith("<s>"));
}

TEST_F(Tokenize, WhatWasTokenisedComesBack) {
  const std::string text = "the quick fox\t— 敏捷的棕色狐狸 🦊\r\n\n  <|im_start|>user\n";
  const std::string ids = ids_of(text);
  EXPECT_EQ(output_of("detokenize", {"--no-newline"}, ids), text);
  EXPECT_EQ(output_of("detokenize", {"--json"}, ids_of(text, {"--json"})), quoted(text));
  const std::string lines = "fox\n\n dog jumps\n";
  EXPECT_EQ(output_of("detokenize", {}, ids_of(lines, {"--lines"})), lines);
  EXPECT_EQ(output_of("detokenize", {}, ids_of(lines, {"--lines", "--json"})), lines);
}

TEST_F(Tokenize, BytesThatAreNotUtf8AreReplaced) {
  // \xff is no UTF-8: it counts as U+FFFD, as for HF, whose strings are always valid.
  EXPECT_EQ(ids_of("~\xff"), ids_of("~\xEF\xBF\xBD"));
  EXPECT_EQ(output_of("detokenize", {}, ids_of("~\xff")), "~\xEF\xBF\xBD\n");
}

TEST_F(Tokenize, DetokenizeReadsIdsFromEverywhere) {
  EXPECT_EQ(output_of("detokenize", {"93", "89"}, "not read"), "~z\n");
  EXPECT_EQ(output_of("detokenize", {}, "93 89\r\n\n[93, 89]\n93,89"), "~z\n\n~z\n~z\n");
  const std::string file = write("ids.txt", "93\n89\n").string();
  EXPECT_EQ(output_of("detokenize", {"--input", file}, "not read"), "~\nz\n");
}

TEST_F(Tokenize, WhatCannotBeDone) {
  const std::string model = good("tokenizer").string();
  expect_error(run({"tokenize", "--model", "nowhere", "x"}), 4, {"nowhere"});
  expect_error(run({"detokenize", "--model", "nowhere", "1"}), 4, {"nowhere"});
  expect_error(run({"tokenize", "x"}), 2, {"--model"});
  fs::create_directories((*this) / "hollow");
  expect_error(run({"tokenize", "--model", "hollow", "x"}), 4, {"hollow", "tokenizer"});
  for (const char* verb : {"tokenize", "detokenize"}) {
    expect_error(run({verb, "--model", model, "--input", "none.txt"}), 8, {"none.txt", "No such"});
    expect_error(run({verb, "--model", model, "--input", "hollow"}), 8, {"hollow", "directory"});
  }
  expect_error(run({"detokenize", "--model", model, "12x"}), 3,
               {"command line: token ids are integers, got '12x'"});
  expect_error(with_input({"detokenize", "--model", model}, "1 2\n3 x\n"), 3,
               {"standard input:2: token ids are integers, got 'x'", "hint: write ids as"});
  const std::string ids = write("ids.txt", "1\n\n5 99999999999\n").string();
  expect_error(run({"detokenize", "--model", model, "--input", ids}), 3,
               {"ids.txt:3: token ids are integers"});
}

TEST_F(Tokenize, AnIdOutsideTheVocabularyIsAnError) {
  const std::string model = good("tokenizer").string();
  for (const char* id : {"280", "2000000000", "-1"}) {
    expect_error(
        with_input({"detokenize", "--model", model}, std::string("93\n93 ") + id + "\n"), 3,
        {std::string("standard input:2: token id ") + id, "none of the tokenizer's 280 ids"});
  }
}

TEST_F(Tokenize, ATrainedTokenizerHasTheSizeAskedForAndKnowsItsText) {
  const std::string text = content_of(good("text.txt"));
  // After 288 tokens no pair of this text is left: 290 is the most that two special ones allow.
  const ProgramResult made = run({"tokenizer", "train", "--input", good("text.txt"), "--vocab_size",
                                  "290", "--special_tokens", "<a>,<b>", "--output", "new/made"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("290 tokens (32 merges, 2 special)"));
  const Json json = Json::parse(content_of((*this) / "new/made/tokenizer.json"));
  EXPECT_EQ(json.at("model").at("vocab").size() + json.at("added_tokens").size(), 290u);
  const Json config = Json::parse(content_of((*this) / "new/made/tokenizer_config.json"));
  EXPECT_EQ(config.at("pad_token"), "<a>");
  EXPECT_FALSE(config.contains("chat_template"));
  const std::string ids = output_of("tokenize", {}, text, (*this) / "new/made");
  EXPECT_EQ(output_of("detokenize", {"--no-newline"}, ids, (*this) / "new/made"), text);
  EXPECT_EQ(output_of("tokenize", {"--json"}, " quick", (*this) / "new/made"), "[287]\n");
  EXPECT_EQ(output_of("tokenize", {}, "<b>", (*this) / "new/made"), "289\n");
}

TEST_F(Tokenize, ATokenizerThatCannotBeTrainedLeavesNothing) {
  const auto train = [&](const std::string& input, const std::string& size) {
    return run(
        {"tokenizer", "train", "--input", input, "--vocab_size", size, "--output", "new/made"});
  };
  expect_error(train("none.txt", "300"), 8, {"none.txt"});
  expect_error(train(write("empty.txt", "").string(), "300"), 3, {"no text"});
  expect_error(train(good("text.txt"), "100"), 2, {"vocab_size", "257"});
  EXPECT_FALSE(fs::exists((*this) / "new"));
  fs::create_directories((*this) / "new");
  expect_error(train("none.txt", "300"), 8, {"none.txt"});
  EXPECT_TRUE(fs::exists((*this) / "new")) << "not made by the program";
  EXPECT_FALSE(fs::exists((*this) / "new/made"));
}

TEST_F(Tokenize, AnExistingTokenizerIsKept) {
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"tokenizer",    "train", "--input",  good("text.txt"),
                                          "--vocab_size", "270",   "--output", "made"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  ASSERT_EQ(train({}).exit_code, 0);
  const std::string before = content_of((*this) / "made/tokenizer.json");
  expect_error(train({"--vocab_size", "280"}), 2, {"tokenizer.json exists", "--overwrite"});
  EXPECT_EQ(content_of((*this) / "made/tokenizer.json"), before);
  EXPECT_EQ(train({"--vocab_size", "280", "--overwrite"}).exit_code, 0);
  EXPECT_NE(content_of((*this) / "made/tokenizer.json"), before);
}

}  // namespace
}  // namespace danlu::test
