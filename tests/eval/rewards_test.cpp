// Rewards against what other projects' own functions gave (../shared/golden/rl/rewards), and
// programs of the user.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "eval/rewards/code_reward.h"
#include "eval/rewards/reward.h"
#include "eval/rewards/rules.h"
#include "eval/sandbox/child_process.h"
#include "eval/sandbox_support.h"
#include "eval/scoring/answers_agree.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"

namespace danlu::eval {
namespace {

const Json& golden() {
  static const Json all =
      Json::parse(read_file(test::shared_dir() / "golden/rl/rewards/rewards.json"));
  return all;
}

TEST(AnswersAgree, AsTheLibraryThatParsesBothSays) {
  DANLU_REQUIRES_SHARED();
  // Where a percentage is its number, as three of the five projects have it.
  const std::map<std::string, bool> otherwise = {{"50\\% | 50", true}, {"50 | 50\\%", true}};
  for (const Json& pair : golden().at("equivalence")) {
    const std::string reference = pair.at("reference"), answer = pair.at("prediction");
    const auto known = otherwise.find(reference + " | " + answer);
    const bool expected =
        known != otherwise.end() ? known->second : pair.at("math_verify").get<bool>();
    EXPECT_EQ(answers_agree(reference, answer), expected) << reference << " | " << answer;
    EXPECT_EQ(answers_agree(answer, reference), expected) << answer << " | " << reference;
  }
}

TEST(AnswersAgree, WhatOtherVerifiersGetWrong) {
  EXPECT_TRUE(answers_agree("10^6", "1000000")) << "a power, and no exclusive or";
  EXPECT_TRUE(answers_agree("\\frac{1}{2}", "1/2"));
  EXPECT_TRUE(answers_agree("a^2+2ab", "2ba+a^2")) << "variables are no units";
  EXPECT_FALSE(answers_agree("a^2+2ab", "2ab"));
  EXPECT_FALSE(answers_agree("[0,1)", "[0,1]"));
  EXPECT_TRUE(answers_agree("\\$18", "18"));
  EXPECT_FALSE(answers_agree("12345678901234567890", "12345678901234567891"));
  EXPECT_FALSE(answers_agree("0.3333", "1/3"));
  EXPECT_FALSE(answers_agree("10\\text{ cm}", "10\\text{ m}"));
  EXPECT_TRUE(answers_agree("5", "x = 5"));
  EXPECT_TRUE(answers_agree("y=2x+1", "2x-y+1=0"));
  EXPECT_FALSE(answers_agree("y=2x+1", "2x+y+1=0"));
  EXPECT_TRUE(answers_agree("x^2+1=0", "2x^2+2=0"));
  EXPECT_FALSE(answers_agree("x<3", "x>3"));
  EXPECT_TRUE(answers_agree("(-\\infty,-1)\\cup(1,\\infty)", "(1, \\infty) \\cup (-\\infty, -1)"));
  EXPECT_TRUE(answers_agree("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
                            "\\begin{bmatrix} 1 & 4/2 \\\\ 3 & 4 \\end{bmatrix}"));
  EXPECT_TRUE(answers_agree("1, 2", "2, 1"));
  EXPECT_FALSE(answers_agree("1, 2, 2", "2, 1, 1"));
  EXPECT_TRUE(answers_agree("\\sin^2 x + \\cos^2 x", "1"));
  EXPECT_TRUE(answers_agree("\\log_2 8", "3"));
  EXPECT_TRUE(answers_agree("\\binom{5}{2}", "10"));
  EXPECT_TRUE(answers_agree("\\sqrt[3]{27}", "3"));
  EXPECT_TRUE(answers_agree("|{-3}|", "3"));
  EXPECT_TRUE(answers_agree("3.50", "3.5"));
  for (const char* other : {"2 3", "2\\ 3", "2~3"})
    EXPECT_FALSE(answers_agree("23", other)) << other;
  EXPECT_FALSE(answers_agree("12/3", "1 2/3")) << "a whole number before a fraction";
  EXPECT_TRUE(answers_agree("10000", "10\\,000"));
  EXPECT_TRUE(answers_agree("1234567", "1 234 567"));
  EXPECT_FALSE(answers_agree("yes", "no"));
  EXPECT_TRUE(answers_agree("Yes", "\\text{yes}."));
}

TEST(AnswersAgree, AnyTextIsAnAnswer) {
  std::mt19937 random(7);
  const std::string alphabet = "0123456789xyi()[]{}\\,.+-*/^!$%&=<>| fracsqtle_\n";
  for (int i = 0; i < 20000; ++i) {
    std::string a, b;
    for (size_t n = random() % 24; n > 0; --n) a += alphabet[random() % alphabet.size()];
    for (size_t n = random() % 24; n > 0; --n) b += alphabet[random() % alphabet.size()];
    EXPECT_TRUE(answers_agree(a, a)) << a;
    EXPECT_EQ(answers_agree(a, b), answers_agree(b, a)) << a << " | " << b;
  }
  EXPECT_FALSE(answers_agree(std::string(100'000, '('), "1"));
  EXPECT_FALSE(answers_agree(std::string(1'000, '(') + "1", "1"));
  EXPECT_FALSE(answers_agree("9^9^9^9^9", "1"));
  EXPECT_FALSE(answers_agree("99999!", "1"));
}

/// Whether rules may say otherwise than the projects' functions: where an answer is found
/// otherwise, or `equality`, the project's, says otherwise of the two answers than answers_agree.
bool may_differ(const Json& row, const std::string& equality) {
  const std::string reference = row.at("ground_truth"), response = row.at("response");
  for (const char* odd : {"\\boxed {", "\\fbox", "<|im_end|>", "Almost there", "At first"}) {
    if (response.find(odd) != response.npos) return true;
  }
  // Math-Verify finds any number, but no Chinese, and reads no words and percentages outside of
  // TeX; what stands before thoughts is no answer here.
  for (const char* odd : {"late thoughts", "50\\%", "答案是", "Monday", "I think it is",
                          "Therefore we", "dollars", "100."}) {
    if (equality == "math_verify" && response.find(odd) != response.npos) return true;
  }
  for (const Json& pair : golden().at("equivalence")) {
    const std::string answer = pair.at("prediction");
    if (pair.at("reference") != reference || response.find(answer) == response.npos) continue;
    const bool said = equality == "text"             ? answer == reference
                      : equality == "dapo_normalize" ? pair.at(equality) == reference
                                                     : pair.at(equality) == Json(true);
    // MindSpeed-RL's own normal forms turn words into numbers, and 1/2 into a form feed.
    if (equality == "qwen_math_equal_raw" && (answer == "six" || answer == "1/2")) return true;
    if (said != answers_agree(reference, answer)) return true;
  }
  return false;
}

void expect_as_golden(const char* project, const char* name, const char* equality,
                      double (*rule)(const std::string&, const std::string&)) {
  SCOPED_TRACE(name);
  size_t compared = 0;
  for (const Json& row : golden().at("responses")) {
    const Json& verdict = row.at(project).at(name);
    if (verdict.is_null() || may_differ(row, equality)) continue;
    EXPECT_EQ(rule(row.at("ground_truth"), row.at("response")), verdict.get<double>())
        << row.at("ground_truth") << " | " << row.at("response");
    ++compared;
  }
  EXPECT_GT(compared, 25u);
}

void expect_format(const char* project, const char* name, double (*rule)(const std::string&)) {
  SCOPED_TRACE(name);
  for (const Json& row : golden().at("responses"))
    EXPECT_EQ(rule(row.at("response")), row.at(project).at(name).get<double>())
        << row.at("response");
}

TEST(Rewards, FormatsAreThoseOfTheProjects) {
  DANLU_REQUIRES_SHARED();
  expect_format("swift", "format", format_rule);
  expect_format("swift", "react_format", react_format_rule);
  expect_format("mindspeed_rl", "format", loose_format_rule);
  expect_format("mindspeed_rl", "strict_format", strict_format_rule);
  expect_format("mindspeed_rl", "step", steps_rule);
  expect_format("trl", "think_format", think_format_rule);
}

TEST(Rewards, Golden) {
  DANLU_REQUIRES_SHARED();
  expect_as_golden("verl", "gsm8k_score", "text", gsm8k_rule);
  expect_as_golden("mindspeed_rl", "acc", "qwen_math_equal_raw", boxed_rule);
  expect_as_golden("mindspeed_rl", "base_acc", "mathruler_grade", tagged_boxed_rule);
  expect_as_golden("mindspeed_rl", "math_17k_acc", "mathruler_grade", last_boxed_rule);
  expect_as_golden("mindspeed_rl", "acc_for_dapo", "dapo_normalize", answer_line_rule);
  expect_as_golden("verl", "math_verify_score", "math_verify", accuracy_rule);
}

TEST(Rewards, ShapesOfLengthAreThoseOfTheProjects) {
  DANLU_REQUIRES_SHARED();
  RewardSettings swift, trl;
  swift.cosine_length = trl.cosine_length = swift.overlong_length = 64;
  swift.overlong_buffer = 24;
  trl.cosine_short_wrong = -1;
  trl.cosine_long_wrong = -0.5;
  for (const Json& row : golden().at("lengths")) {
    const int64_t length = row.at("length");
    EXPECT_NEAR(overlong_rule(length, swift), row.at("soft_overlong_swift").get<double>(), 1e-12);
    EXPECT_NEAR(cosine_rule(true, length, trl), row.at("cosine_trl_correct").get<double>(), 1e-12);
    EXPECT_NEAR(cosine_rule(false, length, trl), row.at("cosine_trl_wrong").get<double>(), 1e-12);
    if (length > 64) continue;  // there swift's comes back up
    EXPECT_NEAR(cosine_rule(true, length, swift), row.at("cosine_swift_correct").get<double>(),
                1e-12);
    EXPECT_NEAR(cosine_rule(false, length, swift), row.at("cosine_swift_wrong").get<double>(),
                1e-12);
  }
  for (const Json& row : golden().at("repetition")) {
    EXPECT_NEAR(repetition_rule(row.at("text"), swift), row.at("repetition_swift").get<double>(),
                1e-12);
  }
}

Completion completion(const std::string& text, Json row = Json::object()) {
  Completion result;
  result.prompt = "2+3?";
  result.text = text;
  result.ids = {1, 2, 3};
  result.row = std::move(row);
  return result;
}

TEST(Rewards, AReferenceMayBeAWholeSolution) {
  for (const char* reference : {"4", "$4$", "\\boxed{4}", "$\\boxed{4}$",
                                "So the answer is $\\boxed{4}$.", "We add 1 and 3. #### 4",
                                "<answer>4</answer>", "<think>3 or 4?</think> <answer> 4 </answer>",
                                "The answer is 4.", "1 and 3 make $4$ of them."}) {
    for (const char* text : {"\\boxed{4}", "<think>5?</think><answer>4</answer>", "#### 4"})
      EXPECT_EQ(accuracy_rule(reference, text), 1) << reference << " / " << text;
    EXPECT_EQ(accuracy_rule(reference, "\\boxed{3}"), 0) << reference;
    EXPECT_EQ(boxed_rule(reference, "\\boxed{4}"), 1) << reference;
    EXPECT_EQ(last_boxed_rule(reference, "\\boxed{5}"), 0) << reference;
  }
  EXPECT_EQ(accuracy_rule("$x=1$ or $x=2$", "\\boxed{2}"), 0) << "one of two parts";
}

TEST(Rewards, ARowWithoutAnAnswerHasNoScore) {
  const auto accuracy = make_reward("accuracy", {});
  const std::vector<Completion> all = {
      completion("\\boxed{5}", Json::object({{"solution", "5"}})),
      completion("\\boxed{5}", Json::object({{"other", "5"}})),
      completion("\\boxed{6}", Json::object({{"answer", 5}})),
      completion("It is 5.", Json::object({{"ground_truth", nullptr}}))};
  EXPECT_THAT(accuracy->scores(all), testing::ElementsAre(1.0, std::nullopt, 0.0, std::nullopt));
  RewardSettings named;
  named.reference_column = "other";
  EXPECT_EQ(make_reward("accuracy", named)->scores(all)[1], 1.0);
  for (const std::string& name : reward_names()) {
    if (name == "code") continue;  // has a test of its own
    RewardSettings settings;
    settings.overlong_buffer = 4;
    EXPECT_EQ(make_reward(name, settings)->scores(all).size(), all.size()) << name;
  }
}

TEST(CodeReward, ProgramsPassTheTestsOfTheirRows) {
  DANLU_REQUIRES_SANDBOX();
  EXPECT_EQ(program_in("So:\n```python\na = 1\n```\nor\n```\na = 2\n```\n"), "a = 2\n");
  EXPECT_EQ(program_in("a = 3"), "a = 3");
  EXPECT_EQ(program_in("```a"), "```a");
  EXPECT_THROW(make_reward("code", {}), UsageError);
  RewardSettings settings;
  settings.allows_code = true;
  const std::string right = "```python\ndef add(a, b):\n    return a + b\n```",
                    wrong = "def add(a, b):\n    return a - b";
  const Json asserts{{"tests", "assert add(1, 2) == 3"}},
      list{{"test_list", {"assert add(1, 2) == 3", "assert add(0, 0) == 0"}}},
      humaneval{{"test", "def check(f):\n    assert f(1, 2) == 3"}, {"entry_point", "add"}},
      ends{{"tests", "import sys\nsys.exit(0)"}};
  std::vector<Completion> all;
  const auto add = [&](const std::string& text, const Json& row) {
    all.push_back(completion(text));
    all.back().row = row;
  };
  for (const Json& row : {asserts, list, humaneval}) {
    add(right, row);
    add(wrong, row);
  }
  add(right, ends);
  add(right, Json::object());
  add(right, {{"test", "def check(f): pass"}, {"entry_point", "1 + 1"}});
  add(right, {{"tests", 3}});
  // A table's column that this row has not.
  add(wrong, {{"tests", nullptr}, {"test_list", {"assert add(1, 2) == 3"}}});
  add(right, {{"tests", nullptr}});
  const Score none;
  EXPECT_THAT(make_reward("code", settings)->scores(all),
              testing::ElementsAre(1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, none, none, none, 0.0, none));
}

TEST(CodeReward, WhatThereWasNoTimeToRunAloneIsUnscored) {
  DANLU_REQUIRES_SANDBOX();
  RewardSettings settings;
  settings.allows_code = true;
  settings.program_timeout_ms = 500;
  std::vector<Completion> all;
  for (const char* text : {"import time\ntime.sleep(60)", "import time\ntime.sleep(60)", "a = 1"}) {
    all.push_back(completion(text));
    all.back().row = {{"tests", "assert True"}};
  }
  const auto scores = make_reward("code", settings)->scores(all);
  EXPECT_EQ(scores[2], Score(1.0));
  EXPECT_EQ(std::count(scores.begin(), scores.end(), Score()), 1)
      << "one was run alone, for the other there was no time: not zero";
}

TEST(Rewards, NamesAndLimitsAreChecked) {
  try {
    make_reward("acuracy", {});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.hint(), "did you mean accuracy?");
  }
  EXPECT_THROW(make_reward("program:", {}), UsageError);
  RewardSettings settings;
  settings.cosine_length = 0;
  EXPECT_THROW(make_reward("cosine", settings), UsageError);
}

TEST(Rewards, ABufferThatSaysNothingIsAnError) {
  RewardSettings settings;
  settings.overlong_length = 64;
  for (const int64_t buffer : {0, 64, 65}) {
    settings.overlong_buffer = buffer;
    EXPECT_THROW(make_reward("soft_overlong", settings), UsageError) << buffer;
    EXPECT_NO_THROW(make_reward("format", settings)) << "of others it is none";
  }
  for (const int64_t buffer : {1, 63}) {
    settings.overlong_buffer = buffer;
    EXPECT_NO_THROW(make_reward("soft_overlong", settings)) << buffer;
  }
}

std::vector<Score> asked(const std::string& script, size_t count, int64_t timeout_ms = 20'000) {
  const test::TemporaryDirectory folder;
  write_file_atomic(folder / "judge.sh", script);
  RewardSettings settings;
  settings.program_timeout_ms = timeout_ms;
  const auto reward = make_reward("program:sh " + (folder / "judge.sh").string(), settings);
  EXPECT_EQ(reward->name(), "program:judge.sh");
  return reward->scores(std::vector<Completion>(count, completion("a \"quoted\"\nline")));
}

TEST(ProgramReward, PrintsANumberForEachLine) {
  EXPECT_THAT(asked("while read -r line; do echo 0.5; done", 3),
              testing::ElementsAre(0.5, 0.5, 0.5));
  // It reads what was drawn.
  EXPECT_THAT(asked("grep -c '\"completion\":\"a \\\\\"quoted\\\\\"\\\\nline\"'", 1),
              testing::ElementsAre(1.0));
}

TEST(ProgramReward, WhatItDoesNotPrintIsNoScore) {
  const Score none;
  EXPECT_THAT(asked("read -r line; echo 1; echo null", 3), testing::ElementsAre(1.0, none, none));
  EXPECT_THAT(asked("echo one; echo nan; echo 2", 3), testing::ElementsAre(none, none, 2.0));
  EXPECT_THAT(asked("exit 3", 1), testing::ElementsAre(none));
  EXPECT_THAT(asked("echo trouble >&2; echo 4", 1), testing::ElementsAre(4.0));
}

TEST(ProgramReward, TheFirstLineThatIsNoScoreIsShown) {
  testing::internal::CaptureStderr();
  asked("echo 1; echo 'loading model'; echo nan", 3);
  asked("echo Loading; echo 1; echo 2", 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::HasSubstr("2 of 3 answers without a score (exit code 0); "
                                                "line 2 is no number: \"loading model\""),
                             testing::HasSubstr("line 1 is no number: \"Loading\"")));
}

TEST(ProgramReward, OfMoreLinesThanAnswersNoneIsTaken) {
  const Score none;
  EXPECT_THAT(asked("echo Loading; echo 1; echo 2", 2), testing::ElementsAre(none, none));
  // Without an end: 3 lines have room for 4096 bytes each, and one more.
  EXPECT_THAT(asked("echo 1; yes 2", 3), testing::ElementsAre(none, none, none));
  EXPECT_THAT(asked("echo 1; echo 2; echo; echo", 2), testing::ElementsAre(1.0, 2.0));
}

TEST(ProgramReward, OneThatCannotBeStartedEndsTheRunUnlessItCouldBefore) {
  EXPECT_THROW(make_reward("program:/nowhere/judge", {})->scores(std::vector<Completion>(1)),
               UsageError);
  const test::TemporaryDirectory folder;
  const std::filesystem::path file = folder / "judge";
  write_file_atomic(file, "#!/bin/sh\necho 1\n");
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  const auto reward = make_reward("program:" + file.string(), {});
  EXPECT_THAT(reward->scores(std::vector<Completion>(1)), testing::ElementsAre(1.0));
  std::filesystem::remove(file);
  EXPECT_THAT(reward->scores(std::vector<Completion>(1)), testing::ElementsAre(std::nullopt));
}

TEST(ProgramReward, AHangingOneIsKilledWithItsChildren) {
  EXPECT_THAT(asked("echo 1; sleep 600 & sleep 600", 2, 300),
              testing::ElementsAre(1.0, std::nullopt));
  // This one says no more, and lives.
  EXPECT_THAT(asked("echo 1; exec sleep 600 <&- >&- 2>&-", 2, 300),
              testing::ElementsAre(1.0, std::nullopt));
}

TEST(AskChild, SaysHowItEnded) {
  const auto end_of = [](const std::string& script, int64_t timeout_ms) {
    return ask_child({"sh", "-c", script}, "", timeout_ms, 1000).end;
  };
  EXPECT_EQ(end_of("echo yes", 60'000), ChildEnd::kDone);
  EXPECT_EQ(end_of("sleep 600", 200), ChildEnd::kTooLate);
  EXPECT_EQ(end_of("exec sleep 600 <&- >&- 2>&-", 200), ChildEnd::kTooLate);
  EXPECT_EQ(end_of("yes", 60'000), ChildEnd::kTooMuch);
  EXPECT_EQ(ask_child({"sh", "-c", "yes"}, "", 60'000, 1000).output.size(), 1000u);
}

}  // namespace
}  // namespace danlu::eval
