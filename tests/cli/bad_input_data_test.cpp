// Data that cannot be used: exit code 3, file:line and reason, and no run begun.
#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kGoodRow = "{\"instruction\": \"fox?\", \"output\": \"dog\"}\n";

class BadData : public BadInput {
 protected:
  /// Preparing a file with this content fails so, and leaves nothing. (Training reads data by the
  /// same code; preprocess starts faster.)
  void expect_refused(const std::string& name, const std::string& content,
                      const std::vector<std::string>& words) const {
    expect_error(run({"preprocess", "--input", write(name, content), "--tokenizer", good("model"),
                      "--output_prefix", "ids/x", "--seq_length", "64"}),
                 3, words);
    if (!fs::exists((*this) / "ids")) return;
    for (const auto& entry : fs::directory_iterator((*this) / "ids"))
      ADD_FAILURE() << entry.path() << " is left of a refused data set";
  }
};

TEST_F(BadData, MissingEmptyAndTruncatedFiles) {
  expect_error(train("nowhere.jsonl"), 3, {"nowhere.jsonl: no such file", "hint: "});
  expect_refused("empty.jsonl", "", {"empty.jsonl: the file is empty"});
  expect_refused("short.jsonl", std::string(kGoodRow) + "{\"instruction\": \"a\", \"out",
                 {"short.jsonl:2:", "not valid JSON"});
  expect_refused("picture.jsonl", "\x89PNG\r\n\x1a\n", {"picture.jsonl:1:1: not valid JSON"});
  expect_refused("short.jsonl.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\x56", 12),
                 {"short.jsonl.gz: damaged gzip data"});
}

TEST_F(BadData, NoUsableRow) {
  expect_refused("columns.jsonl", "{\"foo\": 1}\n",
                 {"no known layout has these columns: foo", "hint: say what they mean"});
  expect_refused("blank.jsonl",
                 "{\"instruction\": \"\", \"output\": \"x\"}\n{\"instruction\": \"a\", \"output\": "
                 "\"\"}\n",
                 {"no usable row among 2", "blank.jsonl:1", "empty answer", "blank.jsonl:2"});
  std::string words;
  for (int i = 0; i < 100; ++i) words += "fox ";
  expect_refused("long.jsonl", "{\"instruction\": \"" + words + "\", \"output\": \"x\"}\n",
                 {"1 row: longer than 63 tokens", "long.jsonl:1", "hint: raise --max-length"});
  expect_error(train((*this) / "long.jsonl"), 3,
               {"no usable row among 1", "long.jsonl:1", "hint: raise --max-length"});
  EXPECT_FALSE(fs::exists((*this) / "run" / "checkpoint-1"));
}

TEST_F(BadData, RolesOutOfOrder) {
  expect_refused("roles.jsonl",
                 R"({"messages": [{"role": "assistant", "content": "a"},)"
                 R"( {"role": "user", "content": "b"}]})"
                 "\n",
                 {"roles out of order", "roles.jsonl:1: message 1 is \"assistant\""});
}

TEST_F(BadData, AllLabelsMasked) {
  expect_refused("masked.jsonl",
                 R"({"input_ids": [5, 6, 7], "labels": [-100, -100, -100]})"
                 "\n",
                 {"all labels masked", "masked.jsonl:1"});
  expect_refused("ids.jsonl",
                 R"({"input_ids": [5, 999], "labels": [5, 999]})"
                 "\n",
                 {"outside the vocabulary", "ids.jsonl:1: 999 >= 280"});
}

TEST_F(BadData, WrongTypeInOneRow) {
  const fs::path rows = write(
      "rows.jsonl", std::string(kGoodRow) + kGoodRow + "{\"instruction\": 7, \"output\": \"x\"}\n");
  const std::string place = "rows.jsonl:3: ";
  const ProgramResult kept = train(rows, {"--max_steps", "1"});
  EXPECT_EQ(kept.exit_code, 0) << kept.err;
  EXPECT_THAT(kept.err, HasSubstr("column \"instruction\" is not a string"));
  EXPECT_THAT(kept.err, HasSubstr(place + "got a number"));

  expect_error(run({"preprocess", "--input", rows, "--tokenizer", good("model"), "--output_prefix",
                    "ids/strict", "--strict"}),
               3, {place, "is not a string", "hint: without --strict such rows are dropped"});
  EXPECT_FALSE(fs::exists((*this) / "ids" / "strict_packed_input_ids_document.idx"));
}

TEST_F(BadData, DamagedIndexedData) {
  const ProgramResult made = run({"preprocess", "--input", good("good.jsonl"), "--tokenizer",
                                  good("model"), "--output_prefix", "ids/x"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string index = "x_packed_input_ids_document.idx",
                    tokens = "x_packed_labels_document.bin";
  const fs::path index_file = (*this) / "ids" / index, tokens_file = (*this) / "ids" / tokens;
  const auto train_on_ids = [&] {
    return run({"sft", "--model", good("model"), "--data-path", "ids/x", "--output_dir", "run",
                "--no-version-dir", "--tuner", "full", "--max_steps", "1"});
  };
  const std::string good_tokens = content_of(tokens_file), good_index = content_of(index_file);
  write_content(tokens_file, good_tokens.substr(0, 10));
  expect_error(train_on_ids(), 3, {tokens + " has 10 bytes", "hint: the file is damaged"});
  write_content(tokens_file, good_tokens);
  write_content(index_file, "XXXXXXXXX" + good_index.substr(9));
  expect_error(train_on_ids(), 3, {index, "does not start with the magic MMIDIDX"});
  write_content(index_file, good_index.substr(0, 20));
  expect_error(train_on_ids(), 3, {index, "this file has 20"});
}

}  // namespace
}  // namespace danlu::test
