// `danlu bench`: the form of what it prints, its flags, and the comparison end to end. No time and
// no speed is asserted: those of a machine that others use are any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/bad_input.h"
#include "support/slow.h"
#include "support/temporary_directory.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

json json_of_bench(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"bench", "--quick", "--json", "--threads", "1"};
  words.insert(words.end(), more.begin(), more.end());
  const ProgramResult result = run_danlu(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, /*allow_exceptions=*/false);
}

TEST(BenchCommand, QuickMeasuresEveryPartAsAShareOfItsLimit) {
  const json report = json_of_bench({});
  EXPECT_EQ(report["format"], "danlu-bench-1");
  EXPECT_EQ(report["threads"], 1);
  EXPECT_EQ(report["quick"], true);
  for (const char* key : {"processor_key", "cpu_class", "version", "date", "compiler", "libtorch"})
    EXPECT_FALSE(report[key].get<std::string>().empty()) << key;
  for (const char* key : {"f32_flops", "read_bytes", "copy_bytes", "update_bytes"})
    EXPECT_GT(report["limits"][key].get<double>(), 1e6) << key;
  std::set<std::string> names;
  for (const json& row : report["rows"]) {
    names.insert(row["name"].get<std::string>() + "." + row["dtype"].get<std::string>());
    EXPECT_GT(row["share"].get<double>(), 0) << row;
    EXPECT_LT(row["share"].get<double>(), 500) << "work counted in another unit: " << row;
    EXPECT_FALSE(row["samples"].empty()) << row;
    EXPECT_TRUE(row["bound"] == "compute" || row["bound"] == "memory") << row;
  }
  for (const char* dtype : {"fp32", "bf16"})
    for (const char* name :
         {"linear_256x704.forward", "linear_256x704.input_grad", "linear_256x704.weight_grad",
          "attention_1x256.backward", "rms_norm.forward", "swiglu.backward", "rotary.forward",
          "embedding.backward", "head_cross_entropy", "adamw", "step", "decode",
          "decode_16_sequences", "prefill"})
      EXPECT_TRUE(names.count(std::string(name) + "." + dtype)) << name << "." << dtype;
}

TEST(BenchCommand, LimitsAloneAreATableInBothLanguages) {
  ProgramSettings chinese;
  chinese.environment = {{"DANLU_LANG", "zh"}};
  const std::vector<std::string> words = {"bench", "--only", "limits", "--threads", "1"};
  EXPECT_THAT(run_danlu(words).out, HasSubstr("memory, read"));
  EXPECT_THAT(run_danlu(words, chinese).out, HasSubstr("内存 读取"));
}

TEST(BenchCommand, WhatIsRecordedIsComparedAndAChangedRecordIsFoundAndNamed) {
  DANLU_SLOW_TEST();
  const TemporaryDirectory directory;
  const fs::path& folder = directory.path();
  const std::vector<std::string> words = {"--only", "decode", "--dtype", "fp32"};
  auto record = words;
  record.insert(record.end(), {"--record", folder.string()});
  json_of_bench(record);
  ASSERT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  const fs::path file = fs::directory_iterator(folder)->path();
  EXPECT_THAT(file.filename().string(), HasSubstr("_1threads.json"));
  // As if it had once taken a hundredth of the time: no machine gives that back.
  std::stringstream text;
  text << std::ifstream(file).rdbuf();

  json changed = json::parse(text.str());
  for (json& row : changed["rows"]) {
    const double factor = row["name"] == "prefill" ? 0.01 : 100;  // the others may only be faster
    for (json& sample : row["samples"])
      sample["seconds"] = sample["seconds"].get<double>() * factor;
  }
  std::ofstream(file) << changed.dump();
  std::vector<std::string> check = {"bench", "--quick", "--threads",
                                    "1",     "--check", folder.string()};
  check.insert(check.end(), words.begin(), words.end());
  const ProgramResult result = run_danlu(check);
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("prefill.fp32"));
  EXPECT_THAT(result.out, HasSubstr("1 failed"));

  // What fails does not become the record that it would be compared with.
  check.insert(check.end(), {"--record", folder.string()});
  const ProgramResult both_asked = run_danlu(check);
  EXPECT_EQ(both_asked.exit_code, 5) << both_asked.out << both_asked.err;
  EXPECT_THAT(both_asked.err, HasSubstr("nothing is recorded"));
  EXPECT_EQ(json::parse(std::ifstream(file)), changed);

  // Another part is added to the record, which is not replaced by it, nor by another size.
  json_of_bench({"--only", "decode", "--dtype", "bf16", "--record", folder.string()});
  const json both = json::parse(std::ifstream(file));
  EXPECT_EQ(both["rows"].size(), 2 * changed["rows"].size());
  expect_error(run_danlu({"bench", "--threads", "1", "--record", folder.string()}), 3,
               {"recorded with --quick, measured without", "add --quick"});
  expect_error(run_danlu({"bench", "--quick", "--threads", "1", "--only", "step", "--check",
                          folder.string()}),
               3, {"none of the rows"});
  EXPECT_EQ(json::parse(std::ifstream(file)), both);

  // A file in the folder's place, and a record that was cut off.
  expect_error(run_danlu({"bench", "--quick", "--threads", "1", "--record", file.string()}), 2,
               {"[--record] must be a folder", file.string()});
  fs::resize_file(file, 1000);
  expect_error(run_danlu({"bench", "--quick", "--threads", "1", "--record", folder.string()}), 3,
               {file.string(), "remove it, or record into another folder"});
  EXPECT_EQ(fs::file_size(file), 1000u);
}

TEST(BenchCommand, RefusesWhatItCannotMeasure) {
  expect_error(run_danlu({"bench", "--threads", "0"}), 2, {"--threads", "0"});
  expect_error(run_danlu({"bench", "--threads", "4000"}), 2, {"--threads", "4000"});
  expect_error(run_danlu({"bench", "--dtype", "int8"}), 2, {"int8", "bf16"});
  expect_error(run_danlu({"bench", "--only", "steps"}), 2, {"'steps'", "decode"});
  expect_error(run_danlu({"bench", "--limit", "1"}), 2, {"--limit"});
  expect_error(run_danlu({"bench", "--limit", "1.5", "--only", "steps"}), 2,
               {"notice: --limit has no effect without --check", "'steps'"});
  expect_error(run_danlu({"bench", "--dtype", ""}), 2, {"--dtype"});
  expect_error(run_danlu({"bench", "--only", "", "--limit", "1.5", "--dtype", "fp32"}), 2,
               {"[--only] names no part"});
  expect_error(run_danlu({"bench", "--record", ""}), 2, {"--record"});
  expect_error(run_danlu({"bench", "--only", "limits", "--record", "."}), 2, {"--record"});
  expect_error(run_danlu({"bench", "--quick", "--record", "/proc/bench"}), 8, {"/proc/bench"});
  ProgramSettings slow;
  slow.environment = {{"DANLU_BENCH_SLOW", "no_such_op"}};
  expect_error(run_danlu({"bench", "--quick", "--only", "decode"}, slow), 2, {"no_such_op"});
  expect_error(run_danlu({"bench", "--quick", "--record", "folder"}, slow), 2,
               {"--record", "DANLU_BENCH_SLOW"});
}

TEST(BenchCommand, ARecordThatIsNotThereOrNoneIsNamed) {
  const TemporaryDirectory directory;
  expect_error(run_danlu({"bench", "--check", directory.path().string()}), 8,
               {"bench_", "--record"});
  const fs::path file = directory.path() / "other.json";
  std::ofstream(file) << "{\"format\": \"something\"}";
  expect_error(run_danlu({"bench", "--check", file.string()}), 3, {"other.json", "danlu-bench-1"});
}

}  // namespace
}  // namespace danlu::test
