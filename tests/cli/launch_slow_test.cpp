// What takes long, and is no failure: real steps and real tokenising of minutes, with DANLU_SLOW
// only.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <regex>

#include "base/json.h"
#include "cli/launch.h"
#include "cli/logged_steps.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchSlow : public Launch {
 protected:
  void SetUp() override {
    DANLU_SLOW_TEST();
    Launch::SetUp();
  }
  /// Rows of about `words` words each, no two alike.
  void write_rows(const std::string& name, int64_t rows, int64_t words) const {
    std::ofstream file((*this) / name);
    for (int64_t row = 0; row < rows; ++row) {
      file << R"({"instruction": "fox )" << row << R"(?", "output": ")";
      for (int64_t word = 0; word < words; ++word)
        file << "dog" << (row * 31 + word * 7) % 97 << ' ';
      file << "\"}\n";
    }
  }
  static void expect_nobody_blamed(const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const char* blame : {"is gone", "did not end within", "failed first"})
      EXPECT_THAT(result.err, Not(HasSubstr(blame)));
  }
};

/// Ten times what the watch takes for silence, with more ranks than cores.
TEST_F(LaunchSlow, AStepOfAMinuteWithEightRanksIsNoSilence) {
  constexpr int64_t kRanks = 8;
  constexpr double kLongSeconds = 60;
  Json config = Json::parse(content_of(good("model") / "config.json"));
  config.update({{"hidden_size", 384},
                 {"intermediate_size", 1024},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 6},
                 {"num_key_value_heads", 6},
                 {"max_position_embeddings", 256}});
  write("config.json", config.dump());
  const ProgramResult made = run_words(
      {"init", "--config", "config.json", "--tokenizer", good("tokenizer"), "--output", "larger"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto seconds_of_step = [&](int64_t accumulation, int64_t steps, ProgramResult& result) {
    const std::string run = "run" + std::to_string(accumulation);
    write_rows("rows.jsonl", kRanks * accumulation * steps, 200);
    result = run_words({"sft",
                        "--model",
                        (*this) / "larger",
                        "--dataset",
                        (*this) / "rows.jsonl",
                        "--output_dir",
                        (*this) / run,
                        "--no-version-dir",
                        "--dtype",
                        "fp32",
                        "--tuner",
                        "full",
                        "--logging_steps",
                        "1",
                        "--val_ratio",
                        "0",
                        "--max_length",
                        "256",
                        "--truncation",
                        "right",
                        "--batch_size",
                        "1",
                        "--no-packing",
                        "--accum",
                        std::to_string(accumulation),
                        "--max_steps",
                        std::to_string(steps),
                        "--nproc",
                        std::to_string(kRanks)});
    const auto logged = steps_of((*this) / run);
    return logged.empty() ? 0.0 : logged.back().at("train_speed(s/it)").get<double>();
  };
  ProgramResult result;
  int64_t accumulation = 2;
  double seconds = seconds_of_step(accumulation, 2, result);
  // What was short may say little of what is long: the next one is chosen by it, until one is.
  while (result.exit_code == 0 && seconds > 0 && seconds < kLongSeconds) {
    const double longer = 1.3 * kLongSeconds / seconds * static_cast<double>(accumulation);
    accumulation = std::max(accumulation + 1, static_cast<int64_t>(std::ceil(longer)));
    seconds = seconds_of_step(accumulation, 1, result);
    expect_nobody_blamed(result);
  }
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GE(seconds, kLongSeconds);
}

TEST_F(LaunchSlow, ATokenisingLongerThanTheSilenceIsWaitedFor) {
  constexpr double kLongSeconds = 20;
  const std::regex time("tokenise [^\n]* ([0-9]+\\.[0-9]+)s(?=\n)");
  int64_t rows = 40'000;
  double seconds = 0;
  ProgramResult result;
  while (seconds < kLongSeconds) {
    fs::remove_all((*this) / "run");
    write_rows("rows.jsonl", rows, 12);
    result = run_words({"sft",
                        "--model",
                        good("model"),
                        "--dataset",
                        (*this) / "rows.jsonl",
                        "--output_dir",
                        (*this) / "run",
                        "--no-version-dir",
                        "--dtype",
                        "fp32",
                        "--workers",
                        "1",
                        "--val_ratio",
                        "0",
                        "--max_length",
                        "64",
                        "--truncation",
                        "right",
                        "--max_steps",
                        "1",
                        "--batch_size",
                        "1",
                        "--global_batch_size",
                        "3",
                        "--nproc",
                        "3"});
    expect_nobody_blamed(result);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    double last = 0;
    for (std::sregex_iterator at(result.err.begin(), result.err.end(), time), end; at != end; ++at)
      last = std::stod((*at)[1]);
    ASSERT_GT(last, 0) << result.err;
    seconds = last;
    rows = static_cast<int64_t>(static_cast<double>(rows) * 1.3 * kLongSeconds / last) + 1;
  }
  EXPECT_GE(seconds, kLongSeconds);
}

}  // namespace
}  // namespace danlu::test
