// Data that cannot be used: exit code 3, file:line and reason, and no run begun.
#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
    EXPECT_FALSE(fs::exists((*this) / "ids")) << name << ": something is left of it";
  }
};

TEST_F(BadData, MissingEmptyAndTruncatedFiles) {
  expect_error(train("nowhere.jsonl"), 3, {"nowhere.jsonl: no such file", "hint: "});
  expect_refused("empty.jsonl", "", {"empty.jsonl: the file is empty"});
  expect_refused("short.jsonl", std::string(kGoodRow) + "{\"instruction\": \"a\", \"out",
                 {"short.jsonl:2:", "not valid JSON"});
  expect_refused("picture.jsonl", "\x89PNG\r\n\x1a\n", {"picture.jsonl:1:1: not UTF-8: byte 0x89"});
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

TEST_F(BadData, ChineseErrorsSayTheirReasonsInChinese) {
  const auto refused = [&](const std::string& name, const std::string& content) {
    return run_danlu({"preprocess", "--input", write(name, content), "--tokenizer", good("model"),
                      "--output_prefix", (*this) / "ids/x"},
                     {.environment = {{"DANLU_LANG", "zh"}}})
        .err;
  };
  EXPECT_THAT(refused("number.jsonl", "{\"instruction\": 7, \"output\": \"x\"}\n"),
              AllOf(HasSubstr("列 \"instruction\" 不是 字符串"), HasSubstr("实际为 数字")));
  EXPECT_THAT(refused("comma.jsonl", "{\"instruction\": \"a\",, \"output\": \"x\"}\n"),
              HasSubstr("comma.jsonl:1:21: 不是有效的 JSON：对象的键写法有误"));
  EXPECT_THAT(run_danlu({"preprocess", "--input", good("good.jsonl"), "--tokenizer", good("model"),
                         "--output_prefix", good("good.jsonl") / "x"},
                        {.environment = {{"DANLU_LANG", "zh"}}})
                  .err,
              HasSubstr("不是目录"));
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

// Rows that were dropped once must not pass as good because their tokens are kept.
TEST_F(BadData, StrictHoldsForTokensFromTheCacheToo) {
  const fs::path rows =
      write("rows.jsonl", std::string(kGoodRow) + "{\"instruction\": 7, \"output\": \"x\"}\n");
  const ProgramResult lenient = train(rows, {"--max_steps", "1"});
  ASSERT_EQ(lenient.exit_code, 0) << lenient.err;
  fs::remove_all((*this) / "run");
  // Under another name: the place must be the one of today.
  fs::rename(rows, (*this) / "again.jsonl");
  const fs::path again = (*this) / "again.jsonl";
  expect_error(train(again, {"--strict"}), 3,
               {"again.jsonl:2: column \"instruction\" is not a string", "without --strict"});
  EXPECT_FALSE(fs::exists((*this) / "run"));
  const ProgramResult cached = train(again, {"--max_steps", "1"});
  EXPECT_EQ(cached.exit_code, 0) << cached.err;
  EXPECT_THAT(cached.err, HasSubstr("tokens from the cache"));
  EXPECT_THAT(cached.err, HasSubstr("again.jsonl: 1 jsonl file"));
}

TEST_F(BadData, StrictHoldsForFilesThatWerePreprocessedBefore) {
  const fs::path rows =
      write("rows.jsonl", std::string(kGoodRow) + "{\"instruction\": 7, \"output\": \"x\"}\n");
  const std::vector<std::string> command = {"preprocess",  "--input",         rows,   "--tokenizer",
                                            good("model"), "--output_prefix", "ids/x"};
  ASSERT_EQ(run(command).exit_code, 0);
  const auto before = contents_below((*this) / "ids");
  std::vector<std::string> strict = command;
  strict.push_back("--strict");
  expect_error(run(strict), 3, {"rows.jsonl:2: ", "is not a string"});
  EXPECT_EQ(contents_below((*this) / "ids"), before);
  EXPECT_THAT(run(command).out, HasSubstr("up to date"));
}

TEST_F(BadData, ColumnsThatAreNotThere) {
  const std::string columns = R"({"question": "query", "nope": "response"})";
  expect_error(run({"infer", "--model", good("model"), "--dataset", good("good.jsonl"), "--columns",
                    R"({"nope":"query"})", "--max_new_tokens", "1"}),
               3,
               {"[columns] none of the first rows of", "good.jsonl has a column \"nope\"",
                "there are: instruction, output"});
  expect_error(train(good("good.jsonl"), {"--columns", R"({"instructions":"query"})"}), 3,
               {"column \"instructions\"", "hint: did you mean \"instruction\"?"});
  // Said once for two data sets: each column is in one of them.
  const fs::path a = write("a.jsonl", "{\"question\": \"fox\", \"response\": \"dog\"}\n");
  const fs::path b = write("b.jsonl", "{\"query\": \"fox\", \"nope\": \"dog\"}\n");
  const ProgramResult both = run({"preprocess", "--input", a, b, "--tokenizer", good("model"),
                                  "--output_prefix", "ids/x", "--columns", columns});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  expect_error(run({"preprocess", "--input", a, "--tokenizer", good("model"), "--output_prefix",
                    "ids/y", "--columns", columns}),
               3, {"a.jsonl has a column \"nope\"; there are: question, response"});
  expect_error(run({"preprocess", "--input", good("text.txt"), "--tokenizer", good("model"),
                    "--output_prefix", "ids/y", "--columns", columns}),
               3, {"text.txt has a column", "there are: none"});
}

TEST_F(BadData, ColumnsThatNothingReadsAreNamed) {
  const fs::path rows =
      write("rows.jsonl",
            "{\"instruction\": \"fox?\", \"inptu\": \"dog?\", \"output\": \"dog\", \"id\": 7}\n");
  const ProgramResult trained = train(rows);
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err,
              HasSubstr("column \"inptu\" is not read; if it holds the input: --columns "
                        "'{\"inptu\":\"input\"}'"));
  EXPECT_THAT(trained.err, HasSubstr("columns that are not read (rows): id (1)\n"));
  EXPECT_THAT(run({"inspect", rows}).out, HasSubstr("not read    inptu, id\n"));
  // As the warning says.
  const ProgramResult mapped =
      run({"preprocess", "--input", rows, "--tokenizer", good("model"), "--output_prefix", "ids/x",
           "--columns", R"({"inptu":"input"})"});
  EXPECT_EQ(mapped.exit_code, 0) << mapped.err;
  EXPECT_THAT(mapped.err, HasSubstr("alpaca (instruction,inptu,output)"));
  EXPECT_THAT(mapped.err, Not(HasSubstr("\"inptu\" is not read")));
}

TEST_F(BadData, AColumnThatComesLateIsNotLost) {
  std::string rows;
  for (int i = 0; i < 80; ++i) rows += kGoodRow;
  expect_refused(
      "late.jsonl",
      rows + "{\"instruction\": \"fox?\", \"input\": \"lazy\", \"output\": \"dog\"}\n",
      {"late.jsonl:81: column \"input\" is not part of query/response", "--handler-name"});
}

TEST_F(BadData, FilesOfAnotherTokenizerAreNamed) {
  const auto write_ids = [&](const fs::path& tokenizer, const std::string& prefix) {
    const ProgramResult made =
        run({"preprocess", "--input", good("good.jsonl"), good("good.jsonl"), "--tokenizer",
             tokenizer, "--output_prefix", prefix, "--overwrite"});
    EXPECT_EQ(made.exit_code, 0) << made.err;
  };
  const auto train_on_ids = [&] {
    return train((*this) / "ids/x", {"--overwrite_output_dir"}).err;
  };
  const auto prepare = [&](const fs::path& tokenizer) {
    write_ids(tokenizer, "ids/x");
    return train_on_ids();
  };
  const auto warned = HasSubstr("was tokenised with other tokenizer files");
  EXPECT_THAT(prepare(good("model")), Not(warned));
  const fs::path other = copy_model("other");
  replace_in_file(other / "tokenizer.json", "\"version\"", " \"version\"");
  EXPECT_THAT(prepare(other), warned);
  // A prefix that begins with another's name does not speak for it.
  prepare(good("model"));
  write_ids(other, "ids/xy");
  EXPECT_THAT(train_on_ids(), Not(warned));
}

TEST_F(BadData, JsonLinesInATextFileAreNamed) {
  const ProgramResult result = run({"preprocess", "--input", write("rows.txt", kGoodRow),
                                    "--tokenizer", good("model"), "--output_prefix", "ids/x"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rows.txt: the first line of this .txt file is a JSON object"));
}

// "狐" is BA FC in GBK, 72 D0 (little endian) in UTF-16.
TEST_F(BadData, OtherEncodingsAreNamedWithTheCommandThatConvertsThem) {
  const std::string gbk_row = "{\"instruction\": \"\xba\xfc\", \"output\": \"dog\"}\n";
  const std::string hint = "iconv -f GBK -t UTF-8 ";
  expect_refused("gbk.jsonl", kGoodRow + gbk_row, {"gbk.jsonl:2:18: not UTF-8: byte 0xBA", hint});
  expect_refused("gbk.json", "[" + gbk_row + "]", {"gbk.json:1:19: not UTF-8: byte 0xBA", hint});
  expect_refused("gbk.csv", "query,response\nfox,dog\n\xba\xfc,dog\n",
                 {"gbk.csv:3:1: not UTF-8: byte 0xBA", hint});
  expect_refused("gbk.txt", "fox\n the \xba\xfc\n", {"gbk.txt:2:6: not UTF-8: byte 0xBA", hint});
  expect_refused("latin.txt", "caf\xe9\n", {"latin.txt:1:4: not UTF-8: byte 0xE9"});

  const auto utf16 = [](const std::string& ascii, bool mark) {
    std::string wide = mark ? "\xff\xfe" : "";
    for (const char c : ascii) wide += {c, '\0'};
    return wide + "\x72\xd0";
  };
  for (const char* name : {"wide.json", "wide.jsonl", "wide.csv", "wide.txt"}) {
    expect_refused(
        name, utf16(kGoodRow, true),
        {std::string(name) + ": byte 0: this is UTF-16 text", "iconv -f UTF-16 -t UTF-8"});
    expect_refused(name, utf16(kGoodRow, false),
                   {"this is UTF-16LE text", "iconv -f UTF-16LE -t UTF-8"});
  }
}

TEST_F(BadData, AByteOrderMarkIsNoFault) {
  const std::string mark = "\xef\xbb\xbf", row(kGoodRow);
  for (const auto& [name, content] : std::vector<std::pair<std::string, std::string>>{
           {"a.json", "[" + row + "," + row + "]"},
           {"a.jsonl", row + row},
           {"a.csv", "query,response\nfox,dog\nfox,dog\n"},
           {"a.tsv", "query\tresponse\nfox\tdog\nfox\tdog\n"},
           {"a.txt", "fox\nfox\n"}}) {
    const auto tokens = [&](const std::string& prefix, const std::string& text) {
      const ProgramResult result =
          run({"preprocess", "--input", write(prefix + "/" + name, text), "--tokenizer",
               good("model"), "--output_prefix", prefix + "/x"});
      EXPECT_EQ(result.exit_code, 0) << name << ": " << result.err;
      std::string all;
      for (const auto& [path, bytes] : contents_below((*this) / prefix)) {
        if (path.ends_with(".bin")) all += bytes;
      }
      return all;
    };
    const std::string plain = tokens("plain-" + name, content);
    EXPECT_FALSE(plain.empty());
    EXPECT_EQ(tokens("mark-" + name, mark + content), plain) << name;
  }
  expect_refused("bad.json", mark + "[{\"instruction\": 1},\n oops]",
                 {"bad.json:2:2: not valid JSON"});
  expect_refused("bad.jsonl", mark + row + "{\"instruction\": \n", {"bad.jsonl:2:"});
}

TEST_F(BadData, ACacheThatCannotBeWrittenSaysHowToChooseAnother) {
  write("in_the_way", "precious");
  const std::string hint = "choose another place with --cache_dir DIR";
  expect_error(train(good("good.jsonl"), {"--cache_dir", "in_the_way"}), 8,
               {"[cache] in_the_way", "Not a directory", hint, "DANLU_CACHE=DIR"});
  ProgramSettings settings;
  settings.environment = {
      {"HOME", ((*this) / "in_the_way").string()}, {"XDG_CACHE_HOME", ""}, {"DANLU_CACHE", ""}};
  settings.directory = ((*this) / "").string();
  expect_error(run_danlu({"sft", "--model", good("model"), "--dataset", good("good.jsonl"),
                          "--output_dir", "run", "--max_steps", "1"},
                         settings),
               8, {"in_the_way/.cache/danlu", hint});
  EXPECT_FALSE(fs::exists((*this) / "run"));
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
