#include "eval/data/data_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/readers/duckdb_api.h"
#include "eval/make_archive.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::eval {
namespace {

using test::make_archive;
using test::put_file;
using test::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;

Layout mmlu_layout() {
  Layout layout;
  layout.name = "the authors' data.tar";
  for (const char* split : {"dev", "val", "test"}) {
    const std::string name = split;
    layout.files[name] = {name + "/{subject}_" + name + ".csv"};
  }
  layout.columns = {"question", "A", "B", "C", "D", "answer"};
  return layout;
}

Layout layout_of_one_split(const std::string& split, std::vector<std::string> patterns) {
  Layout layout;
  layout.name = "a layout";
  layout.files[split] = std::move(patterns);
  return layout;
}

/// A sum over all rows' cells: FNV-1a of 64 bits over "<bytes>:<text>" of each. What python3's csv
/// or json gave went through the same sum.
struct RowSum {
  int64_t count = 0;
  uint64_t hash = 0xcbf29ce484222325u;
  void add(const std::string& text) {
    hash = hash_bytes(std::to_string(text.size()) + ":" + text, hash);
  }
};

std::vector<std::string> file_stems_in(const fs::path& directory, const std::string& ending) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(ending)) names.push_back(name.substr(0, name.size() - ending.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

RowSum sum_of_cells(const DataTree& tree, const Layout& layout, const std::string& split,
                    const std::vector<std::string>& subjects) {
  RowSum sum;
  for (const std::string& subject : subjects) {
    for (const Json& row : tree.rows(layout, split, subject)) {
      ++sum.count;
      for (const auto& [key, cell] : row.items()) sum.add(cell.get<std::string>());
    }
  }
  return sum;
}

void expect_sum(const RowSum& sum, int64_t count, uint64_t hash) {
  EXPECT_EQ(sum.count, count);
  EXPECT_EQ(sum.hash, hash);
}

TEST(BenchmarkData, MmluIsWhatPythonsCsvReads) {
  DANLU_REQUIRES_SHARED();
  const fs::path data = test::unpacked("eval") / "mmlu/data";
  const DataTree tree = DataTree::open(data);
  const auto subjects = file_stems_in(data / "test", "_test.csv");
  EXPECT_EQ(subjects.size(), 57u);
  const auto sum = [&](const char* split) {
    return sum_of_cells(tree, mmlu_layout(), split, subjects);
  };
  expect_sum(sum("dev"), 285, 0x2c5d3052c419995c);
  expect_sum(sum("val"), 1531, 0x0aa12f4605a16091);
  expect_sum(sum("test"), 14042, 0x30b6b35941dd07f6);
}

TEST(BenchmarkData, CmmluIsWhatPythonsCsvReads) {
  DANLU_REQUIRES_SHARED();
  const fs::path data = test::unpacked("eval") / "cmmlu";
  const DataTree tree = DataTree::open(data);
  Layout layout = layout_of_one_split("dev", {"dev/{subject}.csv"});
  layout.files["test"] = {"test/{subject}.csv"};
  const auto subjects = file_stems_in(data / "test", ".csv");
  EXPECT_EQ(subjects.size(), 67u);
  expect_sum(sum_of_cells(tree, layout, "dev", subjects), 335, 0x1c4ef206a0e19064);
  expect_sum(sum_of_cells(tree, layout, "test", subjects), 11582, 0x74af28353094cd39);
  // Its index has no name.
  EXPECT_EQ(tree.rows(layout, "dev", subjects[0])[1]["column0"], "1");
}

TEST(BenchmarkData, CevalIsWhatPythonsCsvReads) {
  DANLU_REQUIRES_SHARED();
  const fs::path data = test::unpacked("eval") / "ceval";
  const DataTree tree = DataTree::open(data);
  Layout layout = mmlu_layout();
  layout.columns.clear();
  const auto subjects = file_stems_in(data / "val", "_val.csv");
  EXPECT_EQ(subjects.size(), 52u);
  expect_sum(sum_of_cells(tree, layout, "dev", subjects), 260, 0xf0eab86f515646f3);
  expect_sum(sum_of_cells(tree, layout, "val", subjects), 1346, 0x996ef2ef6dbf6561);
  expect_sum(sum_of_cells(tree, layout, "test", subjects), 12342, 0xdd4f726d03759e94);
}

TEST(BenchmarkData, JsonFilesAreWhatPythonsJsonReads) {
  DANLU_REQUIRES_SHARED();
  const DataTree tree = DataTree::open(test::unpacked("eval"));
  const auto expect_json = [&](const std::string& pattern, const std::string& records,
                               int64_t count, uint64_t hash) {
    Layout layout = layout_of_one_split("test", {pattern});
    layout.records = records;
    RowSum sum;
    for (const Json& row : tree.rows(layout, "test", "")) {
      ++sum.count;
      sum.add(row.dump());
    }
    EXPECT_EQ(sum.count, count) << pattern;
    EXPECT_EQ(sum.hash, hash) << pattern;
  };
  expect_json("bbh/bbh/*.json", "examples", 6511, 0x2d005bb7def57aa2);
  expect_json("boolq/dev.jsonl", "", 3270, 0xbd85736a55311be6);
  expect_json("humaneval/HumanEval.jsonl.gz", "", 164, 0x45e691a6044a9c3c);
  expect_json("gsm8k/train.jsonl", "", 7473, 0xd88fb05147526352);
  expect_json("gsm8k/test.jsonl", "", 1319, 0xe5dd39b21c061415);
  expect_json("agieval/data/v1/*.jsonl", "", 8269, 0x775c00fe86fd5cd0);
  expect_json("hellaswag/*.jsonl", "", 1000, 0x9c6a61cc2cbbf1da);
  EXPECT_THAT(tree.text("bbh/cot-prompts/snarks.txt"), HasSubstr("-----\n"));
}

class SmallTree : public ::testing::Test {
 protected:
  SmallTree() {
    put_file(dir_ / "mmlu/data/dev/law_dev.csv", "\xEF\xBB\xBFq,a,b,c,d,A\n");
    put_file(dir_ / "mmlu/data/test/law_test.csv",
             "\"two\r\nlines, \"\"quoted\"\"\",a,,c,d,A\r\n\r\nlast,1,2,3,4,B");
  }
  TemporaryDirectory dir_;
  Layout layout_ = mmlu_layout();
};

TEST_F(SmallTree, HeaderlessCsvKeepsQuotesLinesAndEmptyCells) {
  const auto rows = DataTree::open(dir_ / "mmlu/data").rows(layout_, "test", "law");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(
      rows[0].dump(),
      R"({"question":"two\r\nlines, \"quoted\"","A":"a","B":"","C":"c","D":"d","answer":"A"})");
  EXPECT_EQ(rows[1]["answer"], "B");
}

TEST_F(SmallTree, MayBeNamedFromAboveFromWithinAndByOneFile) {
  for (const char* path : {"mmlu/data", "mmlu/data/", "mmlu", "", "mmlu/data/test",
                           "mmlu/data/test/", "mmlu/data/test/law_test.csv"}) {
    const DataTree tree = DataTree::open(dir_ / path);
    EXPECT_EQ(tree.rows(layout_, "test", "law").size(), 2u) << path;
    const auto dev = tree.rows(layout_, "dev", "law");
    ASSERT_EQ(dev.size(), 1u) << path;
    EXPECT_EQ(dev[0]["question"], "q") << "with its byte order mark";
    EXPECT_TRUE(tree.has(layout_, "", "law"));
    EXPECT_FALSE(tree.has(layout_, "val", "law"));
    EXPECT_FALSE(tree.has(layout_, "test", "art"));
  }
}

TEST_F(SmallTree, ADirectoryBesideTheDataLeadsNowhere) {
  put_file(dir_ / "mmlu/data/other/x.csv", "1");
  EXPECT_FALSE(DataTree::open(dir_ / "mmlu/data/other").has(layout_, "", "law"));
}

TEST_F(SmallTree, OtherColumnsAreNamedWithWhatWasFound) {
  put_file(dir_ / "hf/test/law_test.csv",
           "question,subject,choices,answer\nq,law,\"['a' 'b' 'c' 'd']\",0\n");
  const DataTree tree = DataTree::open(dir_ / "hf");
  EXPECT_THAT(
      test::error_of<DataError>([&] { tree.rows(layout_, "test", "law"); }),
      AllOf(HasSubstr("law_test.csv:1: 4 columns"), HasSubstr("'question'"),
            HasSubstr("has 6 and no header: question, A, B, C, D, answer"), HasSubstr("parquet")));
  // The layout's own header, which somebody wrote above the rows, is none of them.
  put_file(dir_ / "hf/test/art_test.csv", "Question,A,B,C,D,Answer\nq,1,2,3,4,D\n");
  EXPECT_EQ(tree.rows(layout_, "test", "art").size(), 1u);
}

TEST_F(SmallTree, EmptyFilesAndSplitsAreNamed) {
  put_file(dir_ / "mmlu/data/test/void_test.csv", "");
  put_file(dir_ / "mmlu/data/test/head_test.csv", "question,A,B,C,D,answer\n");
  const DataTree tree = DataTree::open(dir_.path());
  const auto error = [&](const char* split, const char* subject) {
    return test::error_of<DataError>([&] { tree.rows(layout_, split, subject); });
  };
  EXPECT_THAT(error("test", "void"), HasSubstr("void_test.csv: the file is empty"));
  EXPECT_THAT(error("test", "head"), HasSubstr("head_test.csv: the file holds no rows"));
  EXPECT_THAT(error("val", "law"), HasSubstr("val/law_val.csv"));
}

TEST_F(SmallTree, RowsOfADocumentStandInItsMember) {
  put_file(dir_ / "bbh/snarks.json",
           R"({"canary": "x", "examples": [{"input": "i"}, {"input": 2}]})");
  put_file(dir_ / "bbh/list.json", R"([{"input": "i"}])");
  put_file(dir_ / "bbh/odd.json", R"({"examples": [1]})");
  Layout layout = layout_of_one_split("test", {"{subject}.json"});
  layout.records = "examples";
  const DataTree tree = DataTree::open(dir_ / "bbh");
  EXPECT_EQ(Json(tree.rows(layout, "test", "snarks")).dump(), R"([{"input":"i"},{"input":2}])");
  EXPECT_THAT(test::error_of<DataError>([&] { tree.rows(layout, "test", "list"); }),
              AllOf(HasSubstr("list.json"), HasSubstr("'examples', found: input")));
  EXPECT_THAT(test::error_of<DataError>([&] { tree.rows(layout, "test", "odd"); }),
              HasSubstr("examples[0] must be an object"));
}

TEST_F(SmallTree, PatternsAreTriedInOrderAndPartsBelongTogether) {
  put_file(dir_ / "hf/law/test-00000-of-00002.jsonl", "{\"a\": 1}\n");
  put_file(dir_ / "hf/law/test-00001-of-00002.jsonl", "{\"a\": 2}");
  put_file(dir_ / "hf/art/test-00001-of-00002.jsonl", "{\"a\": 2}");
  put_file(dir_ / "hf/law/.test-00000-of-00001.jsonl", "{\"a\": 3}");
  const Layout layout =
      layout_of_one_split("test", {"data/{subject}.jsonl", "{subject}/test-*.jsonl"});
  const DataTree tree = DataTree::open(dir_ / "hf");
  EXPECT_EQ(Json(tree.rows(layout, "test", "law")).dump(), R"([{"a":1},{"a":2}])");
  EXPECT_THAT(test::error_of<DataError>([&] { tree.rows(layout, "test", "art"); }),
              HasSubstr("art/test: part 0 of 2 is missing"));
  put_file(dir_ / "hf/data/law.jsonl", "{\"a\": 4}");
  EXPECT_EQ(Json(DataTree::open(dir_ / "hf").rows(layout, "test", "law")).dump(), R"([{"a":4}])");
}

TEST_F(SmallTree, ParquetKeepsListsAndNumbers) {
  fs::create_directories(dir_ / "hf/law");
  const std::string file = (dir_ / "hf/law/test-00000-of-00001.parquet").string();
  std::string_view done;
  data::DuckDb()
      .stream(
          "COPY (SELECT 'q' AS question, ['a', 'b''s', '', '\xE4\xB8\xAD'] AS choices, 2::BIGINT "
          "AS "
          "answer, NULL::VARCHAR AS explanation) TO " +
          data::sql_path(file) + " (FORMAT parquet)")
      ->next(&done);
  const Layout layout = layout_of_one_split("test", {"{subject}/test-*.parquet"});
  EXPECT_EQ(Json(DataTree::open(dir_ / "hf").rows(layout, "test", "law")).dump(),
            "[{\"question\":\"q\",\"choices\":[\"a\",\"b's\",\"\",\"\xE4\xB8\xAD\"],\"answer\":2,"
            "\"explanation\":null}]");
}

TEST_F(SmallTree, NothingLeadsOutOfIt) {
  const DataTree tree = DataTree::open(dir_ / "mmlu/data/dev");
  EXPECT_THAT(test::error_of<DataError>([&] { tree.text("../test/law_test.csv"); }),
              HasSubstr("within the benchmark's data"));
  EXPECT_THAT(test::error_of<DataError>([&] { tree.text("/etc/hostname"); }),
              HasSubstr("within the benchmark's data"));
  const Layout layout = layout_of_one_split("test", {"{subject}/../../x.csv"});
  EXPECT_THAT(test::error_of<DataError>([&] { (void)tree.has(layout, "test", "law"); }),
              HasSubstr("within the benchmark's data"));
  EXPECT_THAT(test::error_of<DataError>([&] { tree.text("none.txt"); }), HasSubstr("is missing"));
}

TEST_F(SmallTree, WhatIsNotThereIsSaid) {
  EXPECT_THAT(test::error_of<DataError>([&] { DataTree::open(dir_ / "mmul"); }),
              AllOf(HasSubstr("mmul"), HasSubstr("mmlu")));
  put_file(dir_ / "notes.md", "x");
  EXPECT_THAT(test::error_of<DataError>([&] { DataTree::open(dir_ / "notes.md"); }),
              HasSubstr("neither a directory nor an archive"));
}

/// TMPDIR is a directory of the test's own while one lives.
class OwnTmpdir {
 public:
  OwnTmpdir() {
    if (const char* old = std::getenv("TMPDIR")) old_ = old;
    ::setenv("TMPDIR", dir_.path().c_str(), 1);
  }
  ~OwnTmpdir() { old_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", old_.c_str(), 1); }
  const fs::path& path() const { return dir_.path(); }

 private:
  TemporaryDirectory dir_;
  std::string old_;
};

TEST_F(SmallTree, AnArchiveIsUnpackedAndTakenAwayAgain) {
  const TemporaryDirectory other;
  make_archive(other / "data.tar.gz", {{"data/test/law_test.csv", "q,1,2,3,4,C\n"}});
  make_archive(other / "bad.tar", {{"data/test/law_test.csv", "x"}, {"../x.csv", ""}});
  const OwnTmpdir tmp;
  {
    DataTree copy = DataTree::open(other / "data.tar.gz");
    {
      const DataTree tree = copy;
      EXPECT_EQ(tree.rows(layout_, "test", "law")[0]["answer"], "C");
    }
    ASSERT_FALSE(fs::is_empty(tmp.path()));
    const auto made = *fs::directory_iterator(tmp.path());
    EXPECT_THAT(made.path().filename().string(), HasSubstr("danlu-eval"));
    EXPECT_EQ(fs::status(made.path()).permissions(), fs::perms::owner_all);
    EXPECT_EQ(copy.rows(layout_, "test", "law").size(), 1u);
  }
  EXPECT_TRUE(fs::is_empty(tmp.path()));
  test::error_of<DataError>([&] { DataTree::open(other / "bad.tar"); });
  EXPECT_TRUE(fs::is_empty(tmp.path())) << "after an error too";
}

TEST_F(SmallTree, AnArchiveInADirectoryIsOpenedOnlyIfItIsNeeded) {
  make_archive(dir_ / "mmlu/data.tar", {{"data/test/law_test.csv", "q,1,2,3,4,C\n"}});
  const OwnTmpdir tmp;
  const DataTree with_files = DataTree::open(dir_ / "mmlu");
  EXPECT_EQ(with_files.rows(layout_, "test", "law").size(), 2u);
  EXPECT_FALSE(with_files.has(layout_, "val", "law"));
  EXPECT_TRUE(fs::is_empty(tmp.path()));
  fs::remove_all(dir_ / "mmlu/data");
  make_archive(dir_ / "mmlu/unrelated.zip", {{"x/y.csv", "1"}});
  const DataTree packed = DataTree::open(dir_ / "mmlu");
  EXPECT_EQ(packed.rows(layout_, "test", "law")[0]["answer"], "C");
  EXPECT_EQ(std::distance(fs::directory_iterator(tmp.path()), {}), 1) << "the other stays packed";
}

}  // namespace
}  // namespace danlu::eval
