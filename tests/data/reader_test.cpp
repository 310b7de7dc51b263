// From what a user names to rows in order, whatever the file type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "data/compressed.h"
#include "data/readers/byte_stream.h"
#include "data/readers/data_files.h"
#include "data/readers/dataset_name.h"
#include "data/readers/duckdb_api.h"
#include "data/readers/record_locator.h"
#include "data/readers/row_reader.h"
#include "preprocess_fakes.h"
#include "support/shared_data.h"

namespace danlu::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> texts_of(const Dataset& dataset) {
  RowReader reader(dataset);
  std::vector<RawRow> rows;
  while (reader.next_block(&rows)) {
  }
  std::vector<std::string> texts;
  for (const RawRow& row : rows) texts.push_back(row.text);
  return texts;
}

void copy_to_parquet(const std::string& select, const std::string& path) {
  DuckDb database;
  std::string_view ignored;
  database.stream("COPY (" + select + ") TO " + sql_quote(path) + " (FORMAT parquet)")
      ->next(&ignored);
}

TEST(RowReader, KeepsTheTextOfRecordsInArraysAndLines) {
  const TestDirectory directory;
  directory.write("a.json", "[ {\"b\": 1, \"a\": null},\n {\"a\": [1,\"x\"]} ]");
  directory.write("b.jsonl", "{\"b\": 1.0}\n\n{\"a\": {\"c\": true}}");
  EXPECT_THAT(texts_of(resolve_dataset(directory / "a.json")),
              ElementsAre("{\"b\": 1, \"a\": null}", "{\"a\": [1,\"x\"]}"));
  EXPECT_THAT(texts_of(resolve_dataset(directory / "b.jsonl")),
              ElementsAre("{\"b\": 1.0}", "{\"a\": {\"c\": true}}"));
}

TEST(RowReader, ReadsTheSameRowsFromEveryFileType) {
  const TestDirectory directory;
  const std::string lines =
      "{\"q\":\"a,\\\"b\\\"\",\"r\":\"c\"}\n{\"q\":\"汉\\n字\",\"r\":\"d\"}\n";
  directory.write("a.jsonl", lines);
  directory.write("b.jsonl.gz", gzip(lines));
  directory.write("c.jsonl.zst", zstd(lines));
  directory.write("d.csv", "q,r\n\"a,\"\"b\"\"\",c\n\"汉\n字\",d\n");
  directory.write("e.tsv", "q\tr\n\"a,\"\"b\"\"\"\tc\n\"汉\n字\"\td\n");
  copy_to_parquet("SELECT * FROM read_json(" + sql_quote(directory / "a.jsonl") + ")",
                  directory / "f.parquet");
  for (const char* name : {"a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.csv", "e.tsv", "f.parquet"}) {
    const auto texts = texts_of(resolve_dataset(directory / name));
    ASSERT_EQ(texts.size(), 2u) << name;
    EXPECT_EQ(parse_json(texts[0], name), (Json{{"q", "a,\"b\""}, {"r", "c"}})) << name;
    EXPECT_EQ(parse_json(texts[1], name), (Json{{"q", "汉\n字"}, {"r", "d"}})) << name;
  }
}

TEST(RowReader, TurnsNestedColumnsOfParquetIntoJson) {
  const TestDirectory directory;
  copy_to_parquet("SELECT [{'from':'human','value':'x'}] AS conversations, NULL AS n, 2 AS k",
                  directory / "a.parquet");
  const auto texts = texts_of(resolve_dataset(directory / "a.parquet"));
  ASSERT_EQ(texts.size(), 1u);
  const Json row = parse_json(texts[0], "row");
  EXPECT_EQ(row["conversations"][0]["value"], "x");
  EXPECT_EQ(row["k"], 2);
}

TEST(RowReader, SplitsTextFilesAtLinesOrTakesThemWhole) {
  const TestDirectory directory;
  directory.write("a.txt", "\xEF\xBB\xBFone\r\n\ntwo");
  Dataset dataset = resolve_dataset(directory / "a.txt");
  EXPECT_THAT(texts_of(dataset), ElementsAre("one", "", "two"));
  dataset.document_per_file = true;
  EXPECT_THAT(texts_of(dataset), ElementsAre("one\r\n\ntwo"));
}

TEST(RowReader, StopsAtTheLimitAcrossFiles) {
  const TestDirectory directory;
  directory.write("d/a.txt", "1\n2\n");
  directory.write("d/b.txt", "3\n4\n");
  EXPECT_THAT(texts_of(resolve_dataset(directory / "d#3")), ElementsAre("1", "2", "3"));
}

TEST(RowReader, ReadsARecordLargerThanTheUsualBuffer) {
  const TestDirectory directory;
  const std::string big(20 << 20, 'x');
  directory.write("a.jsonl", "{\"text\":\"1\"}\n{\"text\":\"" + big + "\"}\n");
  const auto texts = texts_of(resolve_dataset(directory / "a.jsonl"));
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[1].size(), big.size() + 11);
}

// The file is read again with larger buffers, and then comes in blocks of other sizes.
TEST(RowReader, LosesAndRepeatsNoRowWhenARecordNeedsALargerBuffer) {
  const TestDirectory directory;
  constexpr size_t kMoreThanTheUsualBuffer = 34 << 20;
  const std::string padding(1000, 'p');
  // Many rows before the large record, so that some are delivered before it is met.
  for (const auto& [large_at, num_rows] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 3000}, {2047, 3000}, {2999, 3000}, {150'000, 152'000}}) {
    {
      std::ofstream out(directory / "a.jsonl");
      for (int64_t i = 0; i < num_rows; ++i) {
        out << "{\"i\": " << i << ", \"p\": \""
            << (i == large_at ? std::string(kMoreThanTheUsualBuffer, 'x') : padding) << "\"}\n";
      }
    }
    const Dataset dataset = resolve_dataset(directory / "a.jsonl");
    RowReader reader(dataset);
    int64_t next = 0;
    for (std::vector<RawRow> rows; reader.next_block(&rows); rows.clear()) {
      for (const RawRow& row : rows) {
        const std::string head = fmt::format("{{\"i\": {}, ", next);
        ASSERT_EQ(row.text.substr(0, head.size()), head) << "large record at " << large_at;
        ASSERT_EQ(row.text.size() > kMoreThanTheUsualBuffer, next == large_at);
        ASSERT_EQ(row.index, next++);
      }
    }
    EXPECT_EQ(next, num_rows) << "large record at " << large_at;
  }
}

TEST(RowReader, FileNamesAreNotTakenForGlobs) {
  const TestDirectory directory;
  directory.write("a[1]*'.jsonl", "{\"text\":\"right\"}\n");
  directory.write("a1x'.jsonl", "{\"text\":\"wrong\"}\n");
  EXPECT_THAT(texts_of(resolve_dataset(directory / "a[1]*'.jsonl")),
              ElementsAre("{\"text\":\"right\"}"));
}

TEST(RowReader, SaysWhereJsonIsMalformed) {
  const TestDirectory directory;
  directory.write("a.json", "[\n {\"a\": 1},\n {\"a\": }\n]");
  directory.write("b.jsonl", "{\"a\": 1}\n{\"a\" 2}\n");
  directory.write("c.jsonl", "{\"a\": 1}\n{\"a\": \"cut o");
  EXPECT_THAT(error_text<DataError>([&] { texts_of(resolve_dataset(directory / "a.json")); }),
              HasSubstr("a.json:3:8: not valid JSON"));
  EXPECT_THAT(error_text<DataError>([&] { texts_of(resolve_dataset(directory / "b.jsonl")); }),
              HasSubstr("b.jsonl:2:6: not valid JSON"));
  EXPECT_THAT(error_text<DataError>([&] { texts_of(resolve_dataset(directory / "c.jsonl")); }),
              HasSubstr("c.jsonl:2:"));
}

TEST(RowReader, NamesTheFileOfDamagedTables) {
  const TestDirectory directory;
  directory.write("a.parquet", "PAR1 not really PAR1");
  directory.write("b.txt.gz", gzip("some text that is long enough to be cut").substr(0, 30));
  directory.write("c.jsonl", "");
  for (const char* name : {"a.parquet", "b.txt.gz", "c.jsonl"}) {
    EXPECT_THAT(error_text<DataError>([&] { texts_of(resolve_dataset(directory / name)); }),
                HasSubstr(name));
  }
}

TEST(RowReader, FindsTheFaultInARealMalformedFile) {
  DANLU_REQUIRES_SHARED();
  const auto file =
      test::unpacked("instruct") / "alpaca_zh" / "BROKEN_alpaca_data-9407-12345.zh.json";
  // The last record is followed by a comma (line 14006); the parser meets "]" on the next line.
  EXPECT_THAT(error_text<DataError>([&] { texts_of(resolve_dataset(file.string())); }),
              HasSubstr(".json:14007:1: not valid JSON"));
}

TEST(RowPlace, CountsLinesOfRecordsNotRecords) {
  const TestDirectory directory;
  directory.write("a.json",
                  "[\n {\"a\": \"]{\\\"\",\n  \"b\": [1,\n 2]},\n\n {\"a\": 1}, {\"c\": 2}]");
  directory.write("b.jsonl", "{\"a\": 1}\n\n\n{\"a\": 2}\n");
  JsonRecordLines lines(directory / "a.json");
  EXPECT_EQ(lines.line_of(0), 2);
  EXPECT_EQ(lines.line_of(1), 6);
  EXPECT_EQ(lines.line_of(2), 6);
  EXPECT_EQ(lines.line_of(3), 0);
  EXPECT_THAT(row_place(resolve_dataset(directory / "b.jsonl"), 0, 1), EndsWith("b.jsonl:4"));
}

TEST(RowPlace, IsTheNumberOfARecordThatSharesItsLine) {
  const TestDirectory directory;
  directory.write("a.json", "[{\"a\": 1},\n {\"a\": 2}, {\"a\": 3}, {\"a\":\n 4}, 5]");
  const Dataset dataset = resolve_dataset(directory / "a.json");
  RowPlaces places(dataset);
  const std::vector<std::string> expected = {"1", "record 2", "record 3", "record 4", "3"};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_THAT(row_place(dataset, 0, static_cast<int64_t>(i)), EndsWith("a.json:" + expected[i]));
    EXPECT_THAT(places.of(0, static_cast<int64_t>(i)), EndsWith("a.json:" + expected[i]));
  }
}

TEST(ByteStream, JoinsGzipMembersAndReadsInPiecesOfAnySize) {
  const TestDirectory directory;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += std::to_string(i) + "\n";
  directory.write("a.txt.gz", gzip(text) + gzip("end"));
  directory.write("b.txt.zst", zstd(text) + zstd("end"));
  for (const char* name : {"a.txt.gz", "b.txt.zst"}) {
    for (const size_t piece : {size_t{7}, text.size(), size_t{1} << 20}) {
      const auto stream = ByteStream::open(directory / name);
      std::string all, buffer(piece, '\0');
      while (const size_t got = stream->read(buffer.data(), piece)) all.append(buffer, 0, got);
      EXPECT_EQ(all, text + "end") << name << " in pieces of " << piece;
    }
  }
}

TEST(ResolveDataset, CountsTypesOfADirectoryAndNamesWhatItIgnores) {
  const TestDirectory directory;
  directory.write("d/b.jsonl", "{}");
  directory.write("d/sub/a.csv", "x\n1\n");
  directory.write("d/README.md", "#");
  directory.write("d/.hidden.json", "[]");
  directory.write("d/dataset_info.json", "{}");
  const Dataset dataset = resolve_dataset(directory / "d");
  EXPECT_EQ(dataset.files.size(), 2u);
  EXPECT_THAT(dataset.summary, StartsWith("1 csv file, 1 jsonl file, "));
  EXPECT_THAT(dataset.summary, HasSubstr("(ignored: 1 .json, 1 .md)"));
}

TEST(RowReader, RepeatsAndDrawsWhereThatIsAskedFor) {
  const TestDirectory directory;
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += "{\"n\":" + std::to_string(i) + "}\n";
  directory.write("d/a.jsonl", lines.substr(0, lines.find("{\"n\":6")));
  directory.write("d/b.jsonl", lines.substr(lines.find("{\"n\":6")));
  const auto taken = [&](const std::string& count, RowChoice choice, uint64_t seed = 1) {
    Dataset dataset = resolve_dataset(directory / ("d#" + count));
    dataset.choice = choice;
    dataset.draw_seed = seed;
    RowReader reader(dataset);
    std::vector<RawRow> rows;
    while (reader.next_block(&rows)) {
    }
    std::string digits;
    for (const RawRow& row : rows) {
      digits += row.text[5];
      EXPECT_EQ(row.file * 6 + row.index, row.text[5] - '0') << "the row's place in its file";
    }
    return digits;
  };
  EXPECT_EQ(taken("7", RowChoice::kFirst), "0123456");
  EXPECT_EQ(taken("25", RowChoice::kFirst), "0123456789");
  EXPECT_EQ(taken("7", RowChoice::kRepeated), "0123456");
  EXPECT_EQ(taken("25", RowChoice::kRepeated), "0001112223334445566778899");
  const std::string drawn = taken("7", RowChoice::kDrawn);
  EXPECT_EQ(drawn.size(), 7u);
  EXPECT_EQ(std::set<char>(drawn.begin(), drawn.end()).size(), 7u) << "without replacement";
  EXPECT_NE(drawn, "0123456");
  EXPECT_EQ(taken("7", RowChoice::kDrawn), drawn);
  EXPECT_NE(taken("7", RowChoice::kDrawn, 2), drawn);
  const std::string more = taken("25", RowChoice::kDrawn);
  EXPECT_EQ(more.size(), 25u);
  for (char digit = '0'; digit <= '9'; ++digit)
    EXPECT_THAT(std::count(more.begin(), more.end(), digit), testing::AnyOf(2, 3)) << digit;
}

TEST(RowReader, SplitsRowsBeforeTheyAreRepeated) {
  const TestDirectory directory;
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += "{\"n\":" + std::to_string(i) + "}\n";
  directory.write("a.jsonl", lines);
  const auto taken = [&](const std::string& count, RowPart part, RowChoice choice,
                         double share = 0.25, uint64_t seed = 1) {
    Dataset dataset = resolve_dataset(directory / ("a.jsonl" + count));
    dataset.choice = choice;
    dataset.draw_seed = seed;
    dataset.part = part;
    dataset.held_out_share = share;
    RowReader reader(dataset);
    std::vector<RawRow> rows;
    while (reader.next_block(&rows)) {
    }
    std::string digits;
    for (const RawRow& row : rows) digits += row.text[5];
    return digits;
  };
  // ms-swift holds out max(1, floor(share * min(rows, n))), and draws n less those of the others.
  for (const auto& [count, size, held] :
       {std::tuple("", 8u, 2u), std::tuple("#25", 23u, 2u), std::tuple("#6", 5u, 1u)}) {
    const std::string out = taken(count, RowPart::kHeldOut, RowChoice::kDrawn);
    const std::string in = taken(count, RowPart::kTraining, RowChoice::kDrawn);
    EXPECT_EQ(out.size(), held) << count;
    EXPECT_EQ(in.size(), size) << count;
    EXPECT_EQ(in.find_first_of(out), in.npos) << count << ": on both sides";
  }
  EXPECT_NE(taken("", RowPart::kHeldOut, RowChoice::kDrawn),
            taken("", RowPart::kHeldOut, RowChoice::kDrawn, 0.25, 2));
  EXPECT_EQ(taken("#25", RowPart::kHeldOut, RowChoice::kRepeated), "89");
  EXPECT_EQ(taken("#25", RowPart::kTraining, RowChoice::kRepeated), "00011122233344455566677");
  EXPECT_EQ(taken("#25", RowPart::kTraining, RowChoice::kFirst), "01234567");
  EXPECT_EQ(taken("", RowPart::kHeldOut, RowChoice::kRepeated, 0.01), "9") << "one at least";
  EXPECT_THAT(error_text<DataError>([&] { taken("#1", RowPart::kTraining, RowChoice::kDrawn); }),
              HasSubstr("of 1 rows 1 are to be held out: none is left for training"));
}

TEST(ResolveDataset, TakesTheFilesOfASplit) {
  const TestDirectory directory;
  directory.write("d/train-00000-of-00001.jsonl", "{}");
  directory.write("d/test-00000-of-00001.jsonl", "{}");
  directory.write("d/strain.jsonl", "{}");
  const Dataset dataset = resolve_dataset(directory / "d:train#5");
  ASSERT_EQ(dataset.files.size(), 1u);
  EXPECT_THAT(dataset.files[0].path.string(), HasSubstr("train-00000"));
  EXPECT_EQ(dataset.max_rows, 5);
  EXPECT_THAT(error_text<DataError>([&] { resolve_dataset(directory / "d:valid"); }),
              HasSubstr("no data file of the split \"valid\""));
}

TEST(DatasetName, IsAPathIfThatIsThereWhateverItHolds) {
  const TestDirectory directory;
  directory.write("a#1.jsonl", "{}");
  directory.write("b:train#5", "{}");
  directory.write("c", "{}");
  directory.write("d#x/e:f.jsonl", "{}");
  const auto parts = [&](const std::string& name) {
    const DatasetName parsed = parse_dataset_name(directory / name);
    return fmt::format("{} {} {}", parsed.path.substr(directory.path().string().size() + 1),
                       parsed.split, parsed.max_rows);
  };
  EXPECT_EQ(parts("a#1.jsonl"), "a#1.jsonl  -1");
  EXPECT_EQ(parts("a#1.jsonl#7"), "a#1.jsonl  7");
  EXPECT_EQ(parts("b:train#5"), "b:train#5  -1");
  EXPECT_EQ(parts("b:train#5#6"), "b:train#5  6");
  EXPECT_EQ(parts("c:train#5"), "c train 5");
  EXPECT_EQ(parts("gone:train#5"), "gone train 5");
  EXPECT_EQ(parts("d#x"), "d#x  -1");
  EXPECT_EQ(parts("d#x:train"), "d#x train -1") << "only a number is a number of rows";
  EXPECT_EQ(parts("d#x/*.jsonl"), "d#x/*.jsonl  -1");
  EXPECT_EQ(parts("d#x/*:f.jsonl#2"), "d#x/*:f.jsonl  2");
  EXPECT_EQ(resolve_dataset(directory / "d#x/*:f.jsonl#2").files.size(), 1u);
}

TEST(ResolveDataset, ReadsLlamaFactorysDatasetInfo) {
  const TestDirectory directory;
  directory.write("mine.json", "[]");
  directory.write("dataset_info.json", R"({
    "mine": {"file_name": "mine.json", "formatting": "sharegpt", "num_samples": 7,
             "columns": {"messages": "talk"}, "tags": {"role_tag": "who"}},
    "pairs": {"file_name": "mine.json", "ranking": true},
    "far": {"hf_hub_url": "a/b"}})");
  for (const std::string& name : {std::string("mine"), directory / "mine.json"}) {
    const Dataset dataset = resolve_dataset(name, {}, directory.path());
    EXPECT_EQ(dataset.max_rows, 7);
    EXPECT_EQ(dataset.format.handler_name, "SharegptStyleInstructionHandler");
    EXPECT_EQ(dataset.format.map_keys["messages"], "talk");
    EXPECT_EQ(dataset.format.map_keys["tags"]["role_tag"], "who");
  }
  EXPECT_TRUE(resolve_dataset("pairs", {}, directory.path()).format.ranking);
  EXPECT_THAT(error_text<UsageError>([&] { resolve_dataset("far", {}, directory.path()); }),
              HasSubstr("hub"));
}

// What a clone without git-lfs holds: three lines of text, which a .txt would be trained on.
TEST(RowReader, GitLfsPointersAreNoData) {
  const TestDirectory directory;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
  for (const char* name : {"a.txt", "a.json", "a.jsonl", "a.csv", "a.parquet", "a.jsonl.gz"}) {
    directory.write(name, pointer);
    const std::string error = error_text<DataError>([&] {
      const Dataset dataset = resolve_dataset(directory / name);
      RowReader reader(dataset);
      std::vector<RawRow> rows;
      reader.next_block(&rows);
    });
    EXPECT_THAT(error, AllOf(HasSubstr(name), HasSubstr("this is a Git LFS pointer, not the data"),
                             HasSubstr("git lfs pull")));
  }
  directory.write("a.txt", "a" + pointer);
  const Dataset dataset = resolve_dataset(directory / "a.txt");
  RowReader reader(dataset);
  std::vector<RawRow> rows;
  EXPECT_TRUE(reader.next_block(&rows));
}

TEST(ResolveDataset, AMisspeltKeyOfDatasetInfoIsNamedWithItsEntryAndTheNearest) {
  const TestDirectory directory;
  directory.write("mine.json", R"([{"messages": []}])");
  const auto error_of_entry = [&](const std::string& entry) {
    directory.write("dataset_info.json", R"({"mine": {"file_name": "mine.json", )" + entry + "}}");
    try {
      resolve_dataset("mine", {}, directory.path());
    } catch (const UsageError& error) {
      return std::string(error.what()) + "; " + error.hint();
    }
    return std::string();
  };
  EXPECT_THAT(error_of_entry(R"("format": "sharegpt")"),
              AllOf(HasSubstr("dataset_info.json: \"mine\": unknown key \"format\""),
                    HasSubstr("did you mean \"formatting\"?")));
  EXPECT_THAT(error_of_entry(R"("formatting": "sharegtp")"),
              AllOf(HasSubstr("unknown formatting \"sharegtp\""), HasSubstr("\"sharegpt\"?")));
  EXPECT_THAT(error_of_entry(R"("columns": ["messages"])"),
              HasSubstr("\"columns\" must be an object, got array"));
  EXPECT_THAT(error_of_entry(R"("zzz": 1)"), HasSubstr("known: file_name, formatting"));
  EXPECT_EQ(error_of_entry(R"("subset": null, "folder": "x", "tags": null, "file_sha1": "0")"), "");
}

TEST(ResolveDataset, ErrorsNameTheNearestFile) {
  const TestDirectory directory;
  directory.write("alpaca_data.json", "[]");
  try {
    resolve_dataset(directory / "alpaca_date.json");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.hint(), HasSubstr("alpaca_data.json"));
  }
  EXPECT_THAT(error_text<UsageError>([&] { resolve_dataset("x.json#many"); }), HasSubstr("#"));
  directory.write("a.doc", "x");
  EXPECT_THAT(error_text<DataError>([&] { resolve_dataset(directory / "a.doc"); }),
              HasSubstr("accepted: parquet, json"));
}

/// The error that reading all rows of a file of this content gives; "" if it is read to its end.
std::string fault_in(const TestDirectory& directory, const std::string& name,
                     const std::string& content) {
  directory.write(name, content);
  const std::string error =
      error_text<DataError>([&] { texts_of(resolve_dataset(directory / name)); });
  return error.substr(error.find(name) == std::string::npos ? 0 : error.find(name));
}

// A download that stopped early must not pass as a smaller data set.
TEST(RowReader, RefusesAJsonArrayCutAtAnyByte) {
  const TestDirectory directory;
  const std::string whole = "[{\"q\": \"a]\", \"r\": [1, 2]},\n {\"q\": \"}\"},\n 3]";
  const std::string mark = "\xEF\xBB\xBF";
  for (const std::string name : {"a.json", "a.json.gz", "a.json.zst", "marked.json"}) {
    const auto packed = [&](const std::string& text) {
      if (name.ends_with(".gz")) return gzip(text);
      if (name.ends_with(".zst")) return zstd(text);
      return name.starts_with("marked") ? mark + text : text;
    };
    EXPECT_EQ(fault_in(directory, name, packed(whole)), "") << name;
    EXPECT_EQ(fault_in(directory, name, packed(whole + " \n")), "") << name;
    for (size_t size = 1; size < whole.size(); ++size) {
      EXPECT_THAT(fault_in(directory, name, packed(whole.substr(0, size))),
                  HasSubstr("not valid JSON"))
          << name << " cut at " << size;
    }
    for (const std::string& wrong :
         {whole + "x", whole + ",", std::string("[1,,2]"), std::string("[,1]"),
          std::string("[1 2]"), std::string("[1]]"), std::string("{\"q\": 1}}")}) {
      EXPECT_THAT(fault_in(directory, name, packed(wrong)), HasSubstr("not valid JSON"))
          << name << ": " << wrong;
    }
  }
}

TEST(RowReader, ReadsMarkedAndPackedJsonAsItReadsPlainJson) {
  const TestDirectory directory;
  for (const std::string text : {R"([ {"b": "\\"},
            {"a": ["]", {"c": "\""}]} , [1], "s", 5 ,null]
         )",
                                 R"({"a": 1}

           {"b": "}{"}
           {"c": []})",
                                 "[]", "[{}]", R"({"a": "狐"})"}) {
    directory.write("plain.json", text);
    directory.write("marked.json", "\xEF\xBB\xBF" + std::string(text));
    directory.write("packed.json.gz", gzip(text));
    const auto plain = texts_of(resolve_dataset(directory / "plain.json"));
    EXPECT_EQ(texts_of(resolve_dataset(directory / "marked.json")), plain) << text;
    EXPECT_EQ(texts_of(resolve_dataset(directory / "packed.json.gz")), plain) << text;
  }
}

TEST(RowPlaces, AreThoseOfEachRowAskedForAlone) {
  const TestDirectory directory;
  directory.write("d/a.json", "[{},\n\n{\"a\":\n1}, {},\n5]");
  directory.write("d/b.jsonl", "{}\n\n{}\n");
  directory.write("d/c.csv", "a,\"b\nb\"\n1,\"x\n\ny\"\n\n2,\n\"\r\n\",3\n4,4\n");
  const Dataset dataset = resolve_dataset(directory / "d");
  RowPlaces places(dataset);
  const std::vector<int64_t> a_lines = {1, 3, 4, 5};
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(places.of(0, i), (directory / "d/a.json:") + std::to_string(a_lines[i]));
    EXPECT_EQ(row_place(dataset, 0, i), (directory / "d/a.json:") + std::to_string(a_lines[i]));
  }
  EXPECT_EQ(places.of(1, 1), directory / "d/b.jsonl:3");
  EXPECT_EQ(places.of(1, 0), directory / "d/b.jsonl:1");
  const std::vector<int64_t> c_lines = {3, 7, 8, 10};
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(places.of(2, i), (directory / "d/c.csv:") + std::to_string(c_lines[i]));
    EXPECT_EQ(row_place(dataset, 2, i), (directory / "d/c.csv:") + std::to_string(c_lines[i]));
  }
  EXPECT_EQ(places.of(2, 1), directory / "d/c.csv:7");
  EXPECT_EQ(places.of(1, 0), directory / "d/b.jsonl:1");
}

TEST(RowReader, TakesEveryRowOfATableOrNone) {
  const TestDirectory directory;
  const auto fault = [&](const std::string& content, const std::string& name = "a.csv") {
    return fault_in(directory, name, content);
  };
  EXPECT_EQ(fault("q,r\nfox,dog\nonly\n"), "a.csv:3: 1 field, the header has 2");
  EXPECT_EQ(fault("q,r\nfox,dog\n\na,b,c\n"), "a.csv:4: 3 fields, the header has 2");
  EXPECT_EQ(fault("q,r\nfox,\"dog\ncat,cow\n"), "a.csv:2: a quote is opened here and never closed");
  EXPECT_EQ(fault("q,r\n\"fox\"y,dog\n"),
            "a.csv:2: a , must follow the closing quote, or the end of the line");
  EXPECT_EQ(fault("q,r,q\n1,2,3\n"), "a.csv:1: two columns are called \"q\"");
  EXPECT_EQ(fault("q\tr\nfox\n", "a.tsv"), "a.tsv:2: 1 field, the header has 2");
  EXPECT_EQ(fault("q,r\n"), "");
}

TEST(RowReader, ReadsTablesAsTheyComeFromSpreadsheetsAndPandas) {
  const TestDirectory directory;
  const auto rows = [&](const std::string& content) {
    directory.write("a.csv", content);
    return texts_of(resolve_dataset(directory / "a.csv"));
  };
  const std::string row = R"({"q":"fox","r":"dog"})";
  for (const char* same :
       {"q,r\r\nfox,dog\r\n", "q;r\nfox;dog", "q\tr\nfox\tdog\n", "q|r\nfox|dog\n",
        "q,r\rfox,dog\r", "\"q\",\"r\"\n\"fox\",\"dog\"\n\n"}) {
    EXPECT_THAT(rows(same), ElementsAre(row)) << same;
  }
  EXPECT_THAT(rows(",q\n0,\n1,\"\"\n"),
              ElementsAre(R"({"column0":"0","q":null})", R"({"column0":"1","q":""})"));
  EXPECT_THAT(rows("q\nsay \"hi\"\n\"a, \"\"b\"\"\r\nc\"\n"),
              ElementsAre(R"({"q":"say \"hi\""})", R"({"q":"a, \"b\"\r\nc"})"));
  const std::string large(20 << 20, 'x');
  EXPECT_TRUE(rows("q\n" + large + "\n") == std::vector<std::string>{"{\"q\":\"" + large + "\"}"});
}

TEST(RowReader, RefusesWhatIsNestedWithoutEnd) {
  const TestDirectory directory;
  const auto nested = [](size_t levels) {
    return "{\"q\": " + std::string(levels - 1, '[') + "\"]\"" + std::string(levels - 1, ']') +
           "}\n";
  };
  EXPECT_EQ(fault_in(directory, "a.jsonl", nested(512)), "");
  EXPECT_EQ(fault_in(directory, "a.jsonl", "{}\n" + nested(513)),
            "a.jsonl:2: nested deeper than 512 levels");
  EXPECT_EQ(fault_in(directory, "a.jsonl", "{}\n" + nested(200'000)),
            "a.jsonl:2: nested deeper than 512 levels");
  // Many brackets, but one beside the other.
  std::string wide = "{\"q\": [";
  for (int i = 0; i < 2000; ++i) wide += "[1], \"[\", ";
  EXPECT_EQ(fault_in(directory, "b.jsonl", wide + "[]]}\n"), "");
}

TEST(RowReader, ChecksThePackingToItsEnd) {
  const TestDirectory directory;
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "{\"q\": \"fox\"}\n";
  for (const char* name : {"a.jsonl.gz", "a.txt.gz", "a.csv.gz"}) {
    std::string packed = gzip(lines);
    packed[packed.size() - 8] ^= 1;  // the CRC
    EXPECT_THAT(fault_in(directory, name, packed),
                HasSubstr("damaged gzip data: incorrect data check"));
    EXPECT_THAT(fault_in(directory, name, gzip(lines).substr(0, 40)),
                HasSubstr("ends in the middle"));
  }
}

TEST(ResolveDataset, LinksAndThingsThatAreNoFiles) {
  const TestDirectory directory;
  directory.write("d/a.jsonl", "{}\n");
  fs::create_directory(directory / "d/sub");
  fs::create_directory_symlink("..", directory / "d/sub/up");
  fs::create_symlink("gone.jsonl", directory / "d/broken.jsonl");
  const Dataset dataset = resolve_dataset(directory / "d");
  EXPECT_EQ(dataset.files.size(), 1u);
  EXPECT_THAT(dataset.summary, HasSubstr("(ignored: 1 broken link)"));
  fs::create_symlink("self.jsonl", directory / "self.jsonl");
  const auto error_for = [&](const std::string& name) {
    return error_text<DataError>([&] { resolve_dataset(name); });
  };
  EXPECT_THAT(error_for(directory / "self.jsonl"), HasSubstr("Too many levels of symbolic links"));
  EXPECT_THAT(error_for(std::string(5000, 'x')), HasSubstr("File name too long"));
  ASSERT_EQ(::mkfifo((directory / "pipe.jsonl").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((directory / "63").c_str(), 0600), 0);  // as a shell names <( )
  EXPECT_THAT(error_for(directory / "pipe.jsonl"), HasSubstr("pipe.jsonl: not a regular file"));
  EXPECT_THAT(error_for(directory / "63"), HasSubstr("63: not a regular file"));
}

}  // namespace
}  // namespace danlu::data
