// Rows that no data set has: wide, long, without a value. And rows that stop for a signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <thread>

#include "base/interrupt.h"
#include "data/compressed.h"
#include "data/preprocess_pipeline.h"
#include "data/readers/duckdb_api.h"
#include "data/readers/record_limits.h"
#include "data/readers/row_json.h"
#include "data/readers/row_reader.h"
#include "preprocess_fakes.h"

namespace danlu::data {
namespace {

using ::testing::HasSubstr;

/// What reading and parsing every row of the file says, without the directory; "" if all is well.
std::string fault_of(const TestDirectory& directory, const std::string& name,
                     bool document_per_file = false) {
  const std::string error = error_text<DataError>([&] {
    Dataset dataset = resolve_dataset(directory / name);
    dataset.document_per_file = document_per_file;
    RowReader reader(dataset);
    for (std::vector<RawRow> rows; reader.next_block(&rows); rows.clear()) {
      for (const RawRow& row : rows) {
        if (row.is_json) parse_row(dataset, row);
      }
    }
  });
  const std::string where = directory / "";
  return error.starts_with(where) ? error.substr(where.size()) : error;
}

/// {"c0":1,"c1":1,…}
std::string object_of(size_t keys) {
  std::string text;
  for (size_t i = 0; i < keys; ++i) text += fmt::format("{}\"c{}\":1", i ? "," : "{", i);
  return text + "}\n";
}

TEST(WideRows, AreReadUpToALimit) {
  const TestDirectory directory;
  std::string header = "c0";
  for (size_t i = 1; i < kMaxColumns; ++i) header += fmt::format(",c{}", i);
  directory.write("a.csv", header + "\n" + std::string(kMaxColumns - 1, ',') + "\n");
  EXPECT_EQ(fault_of(directory, "a.csv"), "");
  directory.write("b.csv", header + ",one\n");
  EXPECT_EQ(fault_of(directory, "b.csv"),
            "b.csv:1: the line has more than 10000 columns: none so wide is read");
  directory.write("c.csv", "q,r\nfox,dog\n" + std::string(100'000, ',') + "\n");
  EXPECT_THAT(fault_of(directory, "c.csv"), HasSubstr("c.csv:3: the line has more than"));
  directory.write("d.jsonl", object_of(kMaxColumns));
  EXPECT_EQ(fault_of(directory, "d.jsonl"), "");
  directory.write("e.jsonl", "{}\n{\"messages\": [" + object_of(kMaxColumns + 1) + "]}\n");
  EXPECT_THAT(fault_of(directory, "e.jsonl"), HasSubstr("not valid JSON"));  // the line end inside
  directory.write("f.json", "[{},\n{\"messages\": [" + object_of(kMaxColumns + 1) + "]}]\n");
  EXPECT_EQ(fault_of(directory, "f.json"), "f.json:2: an object has more than 10000 keys");
}

TEST(WideRows, KeepTheirOrderAndMayNotHaveAKeyTwice) {
  const TestDirectory directory;
  directory.write("a.jsonl", "");
  RowRefusal refusal;
  const std::string wide = object_of(kMaxColumns - 1);
  const auto parsed = parse_row_text(wide, &refusal);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->dump() + "\n", wide);
  EXPECT_FALSE(parse_row_text(wide.substr(0, wide.size() - 2) + ",\"c4711\":2}", &refusal));
  EXPECT_EQ(refusal.why, "an object has \"c4711\" twice");
  const std::string nested = R"({"b":[1,-2,3.5,true,null,"x",[],{}],"a":{"b":"\u4f60"}})";
  EXPECT_EQ(parse_row_text(nested, &refusal), Json::parse(nested));
  EXPECT_FALSE(parse_row_text("{\"a\": NaN}", &refusal));
  EXPECT_EQ(refusal.why, "");
}

TEST(LongRows, MayNotHaveMoreValuesThanAWindowHasTokens) {
  RowRefusal refusal;
  std::string text = "[";
  for (size_t i = 0; i < kMaxRowValues; ++i) text += "0,";
  EXPECT_FALSE(parse_row_text(text + "0]", &refusal));
  EXPECT_EQ(refusal.why, "more than 16777216 values in one row");
}

TEST(LongRows, AreRefusedWhereverTheyLie) {
  const TestDirectory directory;
  // Members and frames may stand one behind the other: a few kilobytes unpack to 130 MiB.
  const std::string mega(1 << 20, 'x');
  const auto repeated = [](const std::string& head, const std::string& piece) {
    std::string text = head;
    for (size_t i = 0; i < (kMaxRecordBytes >> 20) + 2; ++i) text += piece;
    return text;
  };
  const auto expect_too_long = [&](const std::string& name, const std::string& place,
                                   const std::string& content, bool document_per_file = false) {
    directory.write(name, content);
    EXPECT_EQ(fault_of(directory, name, document_per_file),
              place + ": a row of more than 128 MiB: none so long is read");
    fs::remove(directory / name);
  };
  const std::string x_gz = gzip(mega), x_zst = zstd(mega);
  expect_too_long("a.jsonl.gz", "a.jsonl.gz:2",
                  repeated(gzip("{\"q\": 1}\n{\"q\": \""), x_gz) + gzip("\"}\n"));
  expect_too_long("a.json.zst", "a.json.zst:1", repeated(zstd("[{\"q\": \""), x_zst));  // cut off
  expect_too_long("a.txt.gz", "a.txt.gz:2", repeated(gzip("fox\n"), x_gz));
  expect_too_long("b.txt.zst", "b.txt.zst", repeated("", x_zst), /*document_per_file=*/true);
  expect_too_long("a.csv.gz", "a.csv.gz:2", repeated(gzip("q,r\n1,\""), x_gz));
}

TEST(LongRows, AreNotQuotedInMessages) {
  const TestDirectory directory;
  directory.write("a.jsonl", "{\"q\": \"" + std::string(1 << 20, 'x') + "\n");
  EXPECT_LT(fault_of(directory, "a.jsonl").size(), 400u);
  directory.write("a.json", "{\"q\": \"" + std::string(1 << 20, 'x') + "\n");
  EXPECT_LT(fault_of(directory, "a.json").size(), 400u);
}

TEST(LongRows, OfTablesAreRefusedToo) {
  const TestDirectory directory;
  DuckDb database;
  std::string_view ignored;
  database
      .stream("COPY (SELECT repeat('x', i * 135000000) AS q FROM range(2) t(i)) TO " +
              sql_quote(directory / "a.parquet") + " (FORMAT parquet)")
      ->next(&ignored);
  EXPECT_EQ(fault_of(directory, "a.parquet"),
            "a.parquet:row 2: a row of more than 128 MiB: none so long is read");
}

/// Rows of a data set that wait for each other: the second of a batch is not done before it is
/// allowed to, or a few seconds have gone.
class WaitingHandler : public RowHandler {
 public:
  RowFormat format() const override { return RowFormat::kTokens; }
  std::string description() const override { return "waiting"; }
  mutable std::atomic<int> rows{0};
  mutable std::promise<void> reached;
  std::promise<void> allowed;

 private:
  std::vector<std::string> columns_read() const override { return {"input_ids"}; }
  RowResult read_row(const Json&) const override {
    if (++rows == 2) {
      reached.set_value();
      may_go_on_.wait_for(std::chrono::seconds(5));
    }
    return Row(TokenRow{{1, 2}, {1, 2}});
  }
  std::shared_future<void> may_go_on_ = allowed.get_future();
};

TEST(Interrupt, IsSeenBetweenRowsNotBatches) {
  const TestDirectory directory;
  std::string rows;
  for (int i = 0; i < 100; ++i) rows += "{\"input_ids\": [1, 2]}\n";
  directory.write("a.jsonl", rows);
  const Dataset dataset = resolve_dataset(directory / "a.jsonl");
  WaitingHandler handler;
  const RowEncoder encoder({}, handler);
  watch_interrupts();
  {
    EncodePipeline pipeline(dataset, encoder, 1, 0);
    handler.reached.get_future().wait();
    std::raise(SIGINT);
    EncodedBatch batch;
    EXPECT_TRUE(pipeline.next(&batch));
    EXPECT_EQ(batch.rows, 0);
    EXPECT_EQ(handler.rows, 2);
    // Only now does the pipeline end; its worker is at the second of a hundred rows.
    std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      handler.allowed.set_value();
    }).detach();
  }
  EXPECT_EQ(handler.rows, 2);
  clear_interrupt();
}

// A value would print 2.025010112345679e+19; Python keeps the digits. What is not written into a
// text may round.
TEST(RowLimits, WideIntegersOfToolsAreRefused) {
  const std::string wide = "20250101123456789012";
  for (const std::string& row :
       {R"({"messages": [{"tool_calls": [{"function": {"arguments": {"order": )" + wide + "}}}]}]}",
        R"({"tools": [{"x": {"enum": [1, )" + wide + "]}}]}",
        R"({"function_call": {"a": -)" + wide + "}}"}) {
    RowRefusal refusal;
    EXPECT_FALSE(parse_row_text(row, &refusal)) << row;
    EXPECT_NE(refusal.why.find(wide), std::string::npos) << row;
    EXPECT_EQ(refusal.hint, "write it as a string");
  }
  for (const std::string& row :
       {R"({"tools": [{"a": 1}], "id": )" + wide + "}", R"({"tools": [)" + wide + ".5]}",
        std::string(R"({"tools": [2e30, 9223372036854775807, "20250101123456789012"]})")}) {
    RowRefusal refusal;
    EXPECT_TRUE(parse_row_text(row, &refusal)) << row << refusal.why;
  }
}

}  // namespace
}  // namespace danlu::data
