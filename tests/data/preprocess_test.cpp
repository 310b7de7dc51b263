// `danlu preprocess` as a function: rows to Megatron files, restarts, caches, refusals.
#include "data/preprocess.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "data/megatron/indexed_dataset.h"
#include "preprocess_fakes.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Counts the texts it encodes, and takes its time over them.
class CountingTokenizer : public ByteTokenizer {
 public:
  explicit CountingTokenizer(int delay_us = 0) : delay_us_(delay_us) {}
  void encode_append(std::string_view text, bool special,
                     std::vector<text::TokenId>& ids) const override {
    if (delay_us_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us_));
    ++count;
    ByteTokenizer::encode_append(text, special, ids);
  }
  mutable std::atomic<int64_t> count{0};

 private:
  int delay_us_;
};

PreprocessText fakes(std::shared_ptr<const text::Tokenizer> tokenizer = nullptr) {
  if (!tokenizer) tokenizer = std::make_shared<ByteTokenizer>();
  return {[tokenizer] { return tokenizer; },
          [](auto) { return std::make_shared<ByteChatEncoder>(); }};
}

PreprocessSpec spec_for(const std::string& input, const std::string& prefix) {
  PreprocessSpec spec;
  spec.inputs = {input};
  spec.output_prefix = prefix;
  spec.show_progress = false;
  spec.num_workers = 2;
  return spec;
}

std::vector<std::vector<int32_t>> sequences_of(const std::string& prefix) {
  const IndexedDataset dataset(prefix);
  EXPECT_EQ(dataset.type(), TokenType::kI32);
  EXPECT_EQ(dataset.num_documents(), dataset.num_sequences());
  std::vector<std::vector<int32_t>> sequences;
  for (int64_t i = 0; i < dataset.num_sequences(); ++i) sequences.push_back(dataset.tokens(i));
  return sequences;
}

std::vector<std::vector<int32_t>> field_of(const std::string& prefix, const std::string& field) {
  return sequences_of(prefix + "_packed_" + field + "_document");
}

std::string alpaca_rows(int count, int longest = 40) {
  std::string rows;
  for (int i = 0; i < count; ++i) {
    rows += fmt::format(R"({{"instruction":"q{}","input":"","output":"{}"}})", i,
                        std::string(static_cast<size_t>(1 + i * 7 % longest), 'a'));
    rows += "\n";
  }
  return rows;
}

/// The bytes of every output of `prefix`, by name without it.
std::map<std::string, std::string> output_bytes(const std::string& prefix) {
  std::map<std::string, std::string> bytes;
  const std::string stem = fs::path(prefix).filename().string();
  for (const auto& entry : fs::directory_iterator(fs::path(prefix).parent_path())) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(stem + "_") || name.ends_with(".json")) continue;
    bytes[name.substr(stem.size())] = read_file(entry.path());
  }
  return bytes;
}

// ids: u + 10 = 127 opens a question, a + 10 = 107 an answer (also the letter a), 2 closes it.
constexpr int32_t kUser = 'u' + 10, kAnswer = 'a' + 10, kX = 'x' + 10, kY = 'y' + 10;

TEST(Preprocess, WritesOneDocumentPerSampleWithMaskOfOnes) {
  const TestDirectory directory;
  directory.write("a.json", R"([{"instruction":"x","input":"","output":"y"},
                                {"instruction":"xx","input":"","output":"y"}])");
  const auto result = preprocess(spec_for(directory / "a.json", directory / "new/dir/p"), fakes());
  EXPECT_THAT(field_of(directory / "new/dir/p", "input_ids"),
              ElementsAre(std::vector{kUser, kX, kAnswer, kY, 2},
                          std::vector{kUser, kX, kX, kAnswer, kY, 2}));
  EXPECT_THAT(field_of(directory / "new/dir/p", "attention_mask"),
              ElementsAre(std::vector{1, 1, 1, 1, 1}, std::vector{1, 1, 1, 1, 1, 1}));
  EXPECT_THAT(field_of(directory / "new/dir/p", "labels"),
              ElementsAre(std::vector{-100, -100, -100, kY, 2},
                          std::vector{-100, -100, -100, -100, kY, 2}));
  EXPECT_EQ(result.outputs.size(), 3u);
  EXPECT_EQ(result.report.lengths.max, 6);
}

TEST(Preprocess, DropsSamplesOfSeqLengthOrMore) {
  const TestDirectory directory;
  directory.write("a.jsonl", alpaca_rows(40));
  PreprocessSpec spec = spec_for(directory / "a.jsonl", directory / "p");
  spec.seq_length = 20;
  spec.max_dropped_ratio = 1;
  const auto result = preprocess(spec, fakes());
  EXPECT_EQ(result.report.lengths.max, 19);
  ASSERT_EQ(result.report.dropped.size(), 1u);
  EXPECT_EQ(result.report.dropped[0].reason, "longer than 19 tokens");
  // The third row: "uq2", "a", 1 + 14 letters, </s>: 20 tokens.
  EXPECT_THAT(result.report.dropped[0].examples[0], HasSubstr("a.jsonl:3: 20 tokens"));
  EXPECT_EQ(result.report.rows_kept + result.report.dropped[0].count, 40);
}

TEST(Preprocess, PackPadsToSeqLengthWithMaskOfOnes) {
  const TestDirectory directory;
  // 5 tokens, 6 tokens; seq_length 12 holds at most 11 tokens of samples: both.
  directory.write("a.json", R"([{"instruction":"x","input":"","output":"y"},
                                {"instruction":"xx","input":"","output":"y"}])");
  PreprocessSpec spec = spec_for(directory / "a.json", directory / "p");
  spec.seq_length = 12;
  spec.pack = PackMode::kPack;
  const auto result = preprocess(spec, fakes());
  // The longer sample goes first, one pad token (0) ends the sequence.
  EXPECT_THAT(
      field_of(directory / "p", "input_ids"),
      ElementsAre(std::vector{kUser, kX, kX, kAnswer, kY, 2, kUser, kX, kAnswer, kY, 2, 0}));
  EXPECT_THAT(field_of(directory / "p", "attention_mask"),
              ElementsAre(std::vector<int32_t>(12, 1)));
  EXPECT_THAT(
      field_of(directory / "p", "labels"),
      ElementsAre(std::vector{-100, -100, -100, -100, kY, 2, -100, -100, -100, kY, 2, -100}));
  EXPECT_EQ(result.report.packed_sequences, 1);
  EXPECT_EQ(result.report.padding_tokens, 1);
}

TEST(Preprocess, NeatPackNumbersSamplesAndCutsLongOnes) {
  const TestDirectory directory;
  directory.write("a.json", R"([{"instruction":"x","input":"","output":"y"},
                                {"instruction":"x","input":"","output":"yyyyyyyyyyyyyyyy"}])");
  PreprocessSpec spec = spec_for(directory / "a.json", directory / "p");
  spec.seq_length = 8;
  spec.pack = PackMode::kNeat;
  const auto result = preprocess(spec, fakes());
  // 20 tokens are cut to 7; 5 tokens do not fit beside them.
  EXPECT_THAT(field_of(directory / "p", "input_ids"),
              ElementsAre(std::vector{kUser, kX, kAnswer, kY, kY, kY, kY, 0},
                          std::vector{kUser, kX, kAnswer, kY, 2, 0, 0, 0}));
  EXPECT_THAT(
      field_of(directory / "p", "attention_mask"),
      ElementsAre(std::vector{1, 1, 1, 1, 1, 1, 1, 0}, std::vector{1, 1, 1, 1, 1, 0, 0, 0}));
  ASSERT_EQ(result.report.truncated.size(), 1u);
  EXPECT_EQ(result.report.truncated[0].count, 1);

  spec.seq_length = 14;
  spec.output_prefix = directory / "q";
  directory.write("b.json", R"([{"instruction":"x","input":"","output":"y"},
                                {"instruction":"xx","input":"","output":"y"}])");
  spec.inputs = {directory / "b.json"};
  preprocess(spec, fakes());
  EXPECT_THAT(field_of(directory / "q", "attention_mask"),
              ElementsAre(std::vector{1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0, 0, 0}));
}

TEST(Preprocess, WritesEachTextColumnAsItsOwnDataSet) {
  const TestDirectory directory;
  directory.write("a.jsonl", "{\"x\":\"x\",\"y\":\"yy\"}\n{\"x\":\"\",\"y\":\"y\"}\n{\"x\":3}\n");
  PreprocessSpec spec = spec_for(directory / "a.jsonl", directory / "p");
  spec.format.json_keys = {"x", "y"};
  spec.append_eod = true;
  const auto result = preprocess(spec, fakes());
  EXPECT_THAT(sequences_of(directory / "p_x_document"), ElementsAre(std::vector{kX, 2}));
  EXPECT_THAT(sequences_of(directory / "p_y_document"),
              ElementsAre(std::vector{kY, kY, 2}, std::vector{kY, 2}));
  EXPECT_EQ(result.report.rows_dropped(), 1);
  EXPECT_EQ(result.report.dropped[0].reason, "column \"x\" is not a string");
}

TEST(Preprocess, TokenisedRowsNeedNoTokenizer) {
  const TestDirectory directory;
  directory.write("a.jsonl", "{\"input_ids\":[3,4,5],\"labels\":[-100,4,5]}\n");
  preprocess(spec_for(directory / "a.jsonl", directory / "p"), {});
  EXPECT_THAT(field_of(directory / "p", "input_ids"), ElementsAre(std::vector{3, 4, 5}));
  EXPECT_THAT(field_of(directory / "p", "labels"), ElementsAre(std::vector{-100, 4, 5}));
}

TEST(Preprocess, FilesDoNotDependOnTheNumberOfWorkers) {
  const TestDirectory directory;
  directory.write("a.jsonl", alpaca_rows(6000));
  for (const size_t workers : {1, 2, 7}) {
    PreprocessSpec spec =
        spec_for(directory / "a.jsonl", directory / fmt::format("w{}/p", workers));
    spec.num_workers = workers;
    spec.seq_length = 64;
    spec.pack = PackMode::kNeat;
    preprocess(spec, fakes());
  }
  const auto one = output_bytes(directory / "w1/p");
  EXPECT_EQ(one.size(), 6u);
  EXPECT_EQ(one, output_bytes(directory / "w2/p"));
  EXPECT_EQ(one, output_bytes(directory / "w7/p"));
}

TEST(Preprocess, DoesNothingWhenNothingChanged) {
  const TestDirectory directory;
  directory.write("a.jsonl", alpaca_rows(10));
  PreprocessSpec spec = spec_for(directory / "a.jsonl", directory / "p");
  EXPECT_FALSE(preprocess(spec, fakes()).up_to_date);
  EXPECT_TRUE(preprocess(spec, fakes()).up_to_date);
  spec.num_workers = 1;
  EXPECT_TRUE(preprocess(spec, fakes()).up_to_date);
  fs::remove(directory / "p_packed_labels_document.bin");
  EXPECT_FALSE(preprocess(spec, fakes()).up_to_date);
  spec.overwrite = true;
  EXPECT_FALSE(preprocess(spec, fakes()).up_to_date);
}

TEST(Preprocess, ReplacesADataSetOfOtherContentOnlyIfAskedTo) {
  const TestDirectory directory;
  directory.write("a.jsonl", alpaca_rows(10));
  directory.write("t.txt", "some text\n");
  PreprocessSpec spec = spec_for(directory / "a.jsonl", directory / "p");
  preprocess(spec, fakes());
  const auto before = output_bytes(directory / "p");
  const auto expect_refused = [&](const char* what) {
    const std::string error = error_text<UsageError>([&] { preprocess(spec, fakes()); });
    EXPECT_THAT(error, HasSubstr("made from other input or settings")) << what;
    EXPECT_THAT(error, HasSubstr("a.jsonl: 1 jsonl file")) << what;
    EXPECT_EQ(output_bytes(directory / "p"), before) << what;
  };
  spec.append_eod = true;
  expect_refused("settings");
  spec.append_eod = false;
  spec.inputs = {directory / "t.txt"};
  expect_refused("another kind");
  spec.inputs = {directory / "a.jsonl"};
  directory.write("a.jsonl", alpaca_rows(11));
  expect_refused("rows");
  spec.overwrite = true;
  EXPECT_EQ(preprocess(spec, fakes()).report.rows_read, 11);
  spec.overwrite = false;
  EXPECT_TRUE(preprocess(spec, fakes()).up_to_date);
}

TEST(Preprocess, ReplacesFilesOfAnotherProgramOnlyIfAskedTo) {
  const TestDirectory directory;
  directory.write("a.jsonl", alpaca_rows(10));
  PreprocessSpec spec = spec_for(directory / "a.jsonl", directory / "p");
  for (const char* damage : {"no manifest", "broken manifest"}) {
    directory.write("p_packed_labels_document.idx", "mine");
    if (damage == std::string("broken manifest")) directory.write("p_preprocess.json", "{");
    EXPECT_THAT(error_text<UsageError>([&] { preprocess(spec, fakes()); }),
                HasSubstr("p_packed_labels_document.idx exists, and no p_preprocess.json"))
        << damage;
    EXPECT_EQ(read_file(directory / "p_packed_labels_document.idx"), "mine") << damage;
  }
  spec.overwrite = true;
  EXPECT_EQ(preprocess(spec, fakes()).report.rows_read, 10);
}

TEST(Preprocess, FinishesTheFilesThatItsKilledRunHadBegunToWrite) {
  const TestDirectory directory;
  directory.write("a.jsonl", alpaca_rows(10));
  const PreprocessSpec spec = spec_for(directory / "a.jsonl", directory / "p");
  preprocess(spec, fakes());
  const auto whole = output_bytes(directory / "p");
  const Json manifest = read_json_file(directory / "p_preprocess.json");
  // As a kill between two files leaves it: no manifest, work beside it.
  fs::remove(directory / "p_preprocess.json");
  fs::remove(directory / "p_packed_labels_document.bin");
  const std::string work = ".danlu-p-" + manifest["key"].get<std::string>();
  directory.write(work + "/0.tokens", "");
  EXPECT_THAT(error_text<UsageError>([&] { preprocess(spec, fakes()); }), HasSubstr("exists"))
      << "that work had not begun to write files";
  directory.write(work + "/may_replace", "");
  EXPECT_FALSE(preprocess(spec, fakes()).up_to_date);
  EXPECT_EQ(output_bytes(directory / "p"), whole);
  EXPECT_FALSE(fs::exists(directory / work));
}

TEST(Preprocess, WorkThatAKillLeftBehindTheManifestIsRemoved) {
  const TestDirectory directory;
  directory.write("a.jsonl", alpaca_rows(10));
  const PreprocessSpec spec = spec_for(directory / "a.jsonl", directory / "p");
  preprocess(spec, fakes());
  const Json manifest = read_json_file(directory / "p_preprocess.json");
  const std::string work = ".danlu-p-" + manifest["key"].get<std::string>();
  directory.write(work + "/0.tokens", "");
  directory.write(".danlu-p-mine", "no work");
  EXPECT_TRUE(preprocess(spec, fakes()).up_to_date);
  EXPECT_FALSE(fs::exists(directory / work));
  EXPECT_TRUE(fs::exists(directory / ".danlu-p-mine"));
}

TEST(Preprocess, RecordsTheTemplateBesideTheFiles) {
  const TestDirectory directory;
  directory.write("a.jsonl", alpaca_rows(3));
  const RecordedTemplate bytes{"bytes", "0000000000000007"};
  const PreprocessSpec spec = spec_for(directory / "a.jsonl", directory / "p");
  EXPECT_EQ(preprocess(spec, fakes()).recorded_template, bytes);
  EXPECT_EQ(preprocess(spec, fakes()).recorded_template, bytes) << "up to date";
  EXPECT_EQ(read_recorded_template(directory / "p"), bytes);
  directory.write("p_packed_labels_document.bin", "of another program");
  EXPECT_EQ(read_recorded_template(directory / "p"), RecordedTemplate{});
  EXPECT_EQ(read_recorded_template(directory / "q"), RecordedTemplate{});
}

TEST(Preprocess, MalformedInputLeavesTheOldFilesAndNothingElse) {
  const TestDirectory directory;
  directory.write("a.jsonl", alpaca_rows(10));
  PreprocessSpec spec = spec_for(directory / "a.jsonl", directory / "out/p");
  preprocess(spec, fakes());
  spec.overwrite = true;
  const auto before = output_bytes(directory / "out/p");
  directory.write("a.jsonl", alpaca_rows(3000) + "{\"instruction\": \n");
  EXPECT_THAT(error_text<DataError>([&] { preprocess(spec, fakes()); }),
              HasSubstr("a.jsonl:3001:"));
  EXPECT_EQ(output_bytes(directory / "out/p"), before);
  size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(directory / "out")) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
    ++entries;
  }
  EXPECT_EQ(entries, before.size() + 1);  // the manifest
}

TEST(Preprocess, RefusesAnObjectThatHasAKeyTwice) {
  const TestDirectory directory;
  const std::string good = R"({"instruction":"a:\"b","input":"","output":"y"})";
  // Behind the rows by which the layout is detected.
  std::string before;
  for (int i = 0; i < 70; ++i) before += good + "\n";
  const auto error_for = [&](const std::string& row) {
    directory.write("a.jsonl", before + row + "\n");
    PreprocessSpec spec = spec_for(directory / "a.jsonl", directory / "p");
    spec.overwrite = true;
    return error_text<DataError>([&] { preprocess(spec, fakes()); });
  };
  EXPECT_EQ(error_for(good), "");
  EXPECT_THAT(error_for(R"({"instruction":"a","output":"x","input":"","output":"y"})"),
              HasSubstr("a.jsonl:71: an object has \"output\" twice"));
  EXPECT_THAT(error_for(R"({"instruction":"a","input":"","output":"y",)"
                        R"("meta":[{"k":1,"l":{"k":2}},{"k":1,"\u006b":2}]})"),
              HasSubstr("a.jsonl:71: an object has \"k\" twice"));
  EXPECT_EQ(error_for(R"({"instruction":"a","input":"","output":"y",)"
                      R"("meta":[{"k":{"k":{}}},{"k":[]},{}],"s":"\\","t":"\":"})"),
            "");
}

TEST(Preprocess, RefusesAnInputWithoutAUsableRow) {
  const TestDirectory directory;
  directory.write("a.jsonl", R"({"instruction":"x","input":"","output":""})");
  const std::string error = error_text<DataError>(
      [&] { preprocess(spec_for(directory / "a.jsonl", directory / "p"), fakes()); });
  EXPECT_THAT(error, HasSubstr("no usable row among 1"));
  EXPECT_THAT(error, HasSubstr("1 row: empty answer"));
  EXPECT_THAT(error, HasSubstr("a.jsonl:1"));
}

TEST(Preprocess, StrictStopsAtTheFirstBadRow) {
  const TestDirectory directory;
  directory.write("a.jsonl", alpaca_rows(5) + R"({"instruction":"x","output":7})");
  PreprocessSpec spec = spec_for(directory / "a.jsonl", directory / "p");
  EXPECT_EQ(preprocess(spec, fakes()).report.rows_dropped(), 1);
  spec.strict = true;
  spec.overwrite = true;
  EXPECT_THAT(error_text<DataError>([&] { preprocess(spec, fakes()); }),
              HasSubstr("a.jsonl:6: column \"output\" is not a string (got a number)"));
}

TEST(Preprocess, RefusesWhatDoesNotGoTogether) {
  const TestDirectory directory;
  directory.write("a.jsonl", alpaca_rows(3));
  directory.write("b.txt", "some text\n");
  PreprocessSpec spec = spec_for(directory / "a.jsonl", directory / "p");
  spec.pack = PackMode::kPack;
  EXPECT_THAT(error_text<UsageError>([&] { preprocess(spec, fakes()); }),
              HasSubstr("[pack] needs --seq-length"));
  spec.seq_length = 64;
  spec.inputs = {directory / "b.txt"};
  EXPECT_THAT(error_text<UsageError>([&] { preprocess(spec, fakes()); }),
              HasSubstr("plain texts are not packed"));
  spec.pack = PackMode::kNone;
  spec.inputs = {directory / "a.jsonl", directory / "b.txt"};
  EXPECT_THAT(error_text<UsageError>([&] { preprocess(spec, fakes()); }),
              HasSubstr("do not fit into the same files"));
  spec.inputs = {directory / "b.txt"};
  EXPECT_THAT(error_text<UsageError>([&] { preprocess(spec, {}); }), HasSubstr("need a tokenizer"));
}

TEST(Preprocess, MergesDataSetsByKey) {
  const TestDirectory directory;
  directory.write("a.txt", "x\n");
  directory.write("b.txt", "yy\n");
  preprocess(spec_for(directory / "a.txt", directory / "parts/1"), fakes());
  preprocess(spec_for(directory / "b.txt", directory / "parts/2"), fakes());
  const auto merged =
      merge_preprocessed(directory / "parts", "text_document", directory / "out/all");
  EXPECT_EQ(merged, directory / "out/all_text_document");
  const auto again = [&](bool overwrite) {
    merge_preprocessed(directory / "parts", "text_document", directory / "out/all", overwrite);
  };
  EXPECT_THAT(error_text<UsageError>([&] { again(false); }),
              HasSubstr("all_text_document.bin exists"));
  again(true);
  EXPECT_THAT(sequences_of(merged.string()), ElementsAre(std::vector{kX}, std::vector{kY, kY}));
  EXPECT_THAT(error_text<DataError>(
                  [&] { merge_preprocessed(directory / "parts", "labels", directory / "out/x"); }),
              HasSubstr("no .idx file whose name contains \"labels\""));
}

PreprocessSpec kill_spec(const std::string& directory) {
  PreprocessSpec spec = spec_for(directory + "/a.jsonl", directory + "/p");
  spec.format.json_keys = {"output"};
  spec.commit_interval_s = 0;  // after every batch
  return spec;
}

// Not a test: the process that the next test kills.
TEST(PreprocessKill, DISABLED_Victim) {
  const char* directory = std::getenv("DANLU_TEST_VICTIM");
  if (!directory) GTEST_SKIP();
  preprocess(kill_spec(directory), fakes(std::make_shared<CountingTokenizer>(100)));
}

TEST(PreprocessKill, ARunKilledInTheMiddleIsContinuedToTheSameFiles) {
  constexpr int kRows = 20000;
  const TestDirectory directory;
  directory.write("a.jsonl", alpaca_rows(kRows));
  PreprocessSpec clean = kill_spec(directory.path().string());
  clean.output_prefix = directory / "clean/p";
  preprocess(clean, fakes());

  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("DANLU_TEST_VICTIM", directory.path().c_str(), 1);
    ::execl("/proc/self/exe", "test_data", "--gtest_filter=PreprocessKill.DISABLED_Victim",
            "--gtest_also_run_disabled_tests", nullptr);
    ::_exit(127);
  }
  // Wait for some certain work, then kill without mercy.
  const auto work_exists = [&] {
    for (const auto& entry : fs::directory_iterator(directory.path())) {
      std::error_code missing;
      const fs::path tokens = entry.path() / "0.tokens";
      if (fs::file_size(tokens, missing) > 20000 && !missing &&
          fs::exists(entry.path() / "journal.json")) {
        return true;
      }
    }
    return false;
  };
  int status = 0;
  while (!work_exists() && ::waitpid(child, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the victim ended before it was killed";
  EXPECT_TRUE(output_bytes(directory / "p").empty());

  const auto tokenizer = std::make_shared<CountingTokenizer>();
  const auto result = preprocess(kill_spec(directory.path().string()), fakes(tokenizer));
  EXPECT_LT(tokenizer->count, kRows);
  EXPECT_EQ(result.report.rows_read, kRows);
  EXPECT_EQ(output_bytes(directory / "p"), output_bytes(directory / "clean/p"));
}

}  // namespace
}  // namespace danlu::data
