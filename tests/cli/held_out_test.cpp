// Rows held out by --split_dataset_ratio: what val_dataset.jsonl holds, and asking it later.
#include <map>
#include <sstream>

#include "base/json.h"
#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class HeldOut : public BadInput {
 protected:
  static constexpr int kRows = 40, kHeldOut = 10;
  /// Rows that differ; trained for an epoch with a quarter held out.
  ProgramResult train_with_split(const std::vector<std::string>& more = {}) const {
    std::string rows;
    for (int i = 0; i < kRows; ++i) {
      rows += R"({"instruction": "q)" + std::to_string(i) + R"(", "output": "a)" +
              std::to_string(i) + "\"}\n";
    }
    std::vector<std::string> arguments = {"--split_dataset_ratio", "0.25", "--max_steps", "-1",
                                          "--num_train_epochs",    "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return train(write("rows.jsonl", rows), arguments);
  }
  std::vector<Json> held_out() const {
    std::istringstream lines(content_of((*this) / "run/val_dataset.jsonl"));
    std::vector<Json> rows;
    for (std::string line; std::getline(lines, line);) rows.push_back(Json::parse(line));
    return rows;
  }
  /// The number in "…q17…": which row a rendered sample is.
  static int row_of(const std::string& text) {
    const size_t at = text.find("\nq") + 2;
    return std::stoi(text.substr(at));
  }
};

TEST_F(HeldOut, TheFileIsTheComplementOfWhatWasTrainedOn) {
  const ProgramResult result = train_with_split();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("30 training samples, 10 held out"));
  std::map<int, int> seen;
  for (const Json& row : held_out()) {
    const std::string text = row.at("text").get<std::string>();
    ++seen[row_of(text)];
    EXPECT_EQ(row.at("input_ids").size(), row.at("labels").size());
    EXPECT_THAT(text, HasSubstr("\na" + std::to_string(row_of(text)) + "<|im_end|>"));
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kHeldOut));

  // The rest, trained on without a split, is what the first run trained on: the same losses.
  std::string rest;
  std::istringstream lines(content_of((*this) / "rows.jsonl"));
  int row = 0;
  for (std::string line; std::getline(lines, line); ++row) {
    if (!seen.contains(row)) rest += line + "\n";
  }
  EXPECT_EQ(row, kRows);
  const std::string split_log = content_of((*this) / "run/logging.jsonl");
  fs::rename((*this) / "run", (*this) / "split_run");
  ASSERT_EQ(train(write("rest.jsonl", rest),
                  {"--split_dataset_ratio", "0", "--max_steps", "-1", "--num_train_epochs", "1"})
                .exit_code,
            0);
  const auto losses = [](const std::string& log) {
    std::vector<double> values;
    std::istringstream in(log);
    for (std::string line; std::getline(in, line);) {
      const Json entry = Json::parse(line);
      if (entry.contains("loss")) values.push_back(entry.at("loss").get<double>());
    }
    return values;
  };
  EXPECT_EQ(losses(content_of((*this) / "run/logging.jsonl")), losses(split_log));
  EXPECT_FALSE(losses(split_log).empty());
  EXPECT_FALSE(fs::exists((*this) / "run/val_dataset.jsonl"));
}

// Rows that an ms-swift line repeats are none that it holds out.
TEST_F(HeldOut, NoRowIsOnBothSidesWhereTheyAreRepeated) {
  std::string rows;
  for (int i = 0; i < kRows; ++i)
    rows += Json{{"instruction", "q" + std::to_string(i)}, {"output", "a"}}.dump() + "\n";
  const ProgramResult result =
      train(write("rows.jsonl", rows).string() + "#100",
            {"--split_dataset_ratio", "0.25", "--max_steps", "1", "--version_dir", "false"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("90 training samples, 10 held out"));
  std::map<int, int> seen;
  for (const Json& row : held_out()) ++seen[row_of(row.at("text").get<std::string>())];
  EXPECT_EQ(seen.size(), static_cast<size_t>(kHeldOut));
}

TEST_F(HeldOut, PackingHoldsOutTheSameRows) {
  ASSERT_EQ(train_with_split().exit_code, 0);
  const std::string unpacked_rows = content_of((*this) / "run/val_dataset.jsonl");
  fs::remove_all((*this) / "run");
  ASSERT_EQ(train_with_split({"--packing", "true", "--max_length", "64"}).exit_code, 0);
  EXPECT_EQ(content_of((*this) / "run/val_dataset.jsonl"), unpacked_rows);
}

TEST_F(HeldOut, EvaluationsCountStepsWhereMegatronsDefaultsHold) {
  // Ten rows are held out, and a step has four.
  const auto evaluated = [&](const std::string& profile) {
    fs::remove_all((*this) / "run");
    const ProgramResult result = train_with_split(
        {"--profile", profile, "--eval_iters", "2", "--eval_batch_size", "1", "--batch_size", "1",
         "--global_batch_size", "4", "--max_steps", "1", "--version_dir", "false"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  for (const char* profile : {"mindspeed", "megatron-swift"})
    EXPECT_THAT(evaluated(profile), HasSubstr("  8 samples")) << profile;
  EXPECT_THAT(evaluated("danlu"), HasSubstr("  2 samples"));
}

TEST_F(HeldOut, RowsThatAValidationSetLosesAreNamed) {
  const fs::path held = write("held.jsonl",
                              "{\"instruction\": \"q\", \"output\": \"a\"}\n"
                              "{\"instruction\": \"r\", \"output\": \"b\"}\n"
                              "{\"instruction\": \"s\"}\n");
  const ProgramResult result =
      train(good("good.jsonl"), {"--val_dataset", held.string(), "--max_steps", "1", "--dry_run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("held out  3 read, 2 kept, 1 dropped; dropped: 1 "));
  EXPECT_THAT(result.err, HasSubstr("held.jsonl:3"));
}

TEST_F(HeldOut, InferAsksTheRowsThatWereHeldOut) {
  ASSERT_EQ(train_with_split().exit_code, 0);
  const ProgramResult asked = run({"infer", "--ckpt_dir", "run/last", "--load_dataset_config",
                                   "true", "--max_new_tokens", "1", "--output", "answers.jsonl"});
  ASSERT_EQ(asked.exit_code, 0) << asked.err;
  std::istringstream lines(content_of((*this) / "answers.jsonl"));
  const std::vector<Json> rows = held_out();
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_LT(count, rows.size());
    const int row = row_of(rows[count].at("text").get<std::string>());
    const Json answer = Json::parse(line);
    EXPECT_THAT(answer.at("query").get<std::string>(), HasSubstr("\nq" + std::to_string(row)));
    EXPECT_EQ(answer.at("labels"), "a" + std::to_string(row));
  }
  EXPECT_EQ(count, static_cast<size_t>(kHeldOut));
}

}  // namespace
}  // namespace danlu::test
