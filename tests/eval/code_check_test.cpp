// HumanEval's problems: what is executed for a completion, and what comes of it.
#include "eval/sandbox/code_check.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <chrono>
#include <sstream>

#include "base/threads.h"
#include "eval/sandbox_support.h"
#include "support/shared_data.h"
#include "support/slow.h"
#include "support/throws.h"

namespace danlu::eval {
namespace {

using ::testing::HasSubstr;

std::vector<Json> humaneval_problems() {
  const std::string path = (test::unpacked("eval") / "humaneval/HumanEval.jsonl.gz").string();
  std::string text;
  gzFile file = ::gzopen(path.c_str(), "rb");
  char block[65536];
  for (int n; file && (n = ::gzread(file, block, sizeof block)) > 0;) text.append(block, n);
  if (file) ::gzclose(file);
  std::vector<Json> problems;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) problems.push_back(parse_json(line, path));
  return problems;
}

const Json kAddition = {{"prompt", "def add(a, b):\n    \"\"\"The sum.\"\"\"\n"},
                        {"test", "def check(candidate):\n    assert candidate(2, 3) == 5\n"},
                        {"entry_point", "add"}};

std::string addition(const std::string& body) {
  return kAddition.at("prompt").get<std::string>() + body;
}

TEST(CodeCheck, TheProgramIsSolutionTestAndTheCall) {
  EXPECT_EQ(humaneval_program(kAddition, addition("    return a + b")),
            "def add(a, b):\n    \"\"\"The sum.\"\"\"\n    return a + b\n"
            "def check(candidate):\n    assert candidate(2, 3) == 5\n\ncheck(add)");
}

TEST(CodeCheck, ARowThatIsNoProblemIsNamed) {
  for (const char* name : {"test", "entry_point"}) {
    Json doc = kAddition;
    doc.erase(name);
    EXPECT_THAT(test::error_of<DataError>([&] { humaneval_program(doc, ""); }), HasSubstr(name));
  }
  Json doc = kAddition;
  for (const char* entry : {"", "add)", "1st", "a b", "x;y"}) {
    doc["entry_point"] = entry;
    EXPECT_THAT(test::error_of<DataError>([&] { humaneval_program(doc, ""); }),
                HasSubstr("name of a function"));
  }
}

TEST(CodeCheck, CountsEachProblemsSamplesAndThoseThatPass) {
  DANLU_REQUIRES_SANDBOX();
  const std::vector<Json> problems = {kAddition, kAddition, kAddition};
  const std::vector<CodeSample> samples = {
      {2, addition("    return a + b")}, {0, addition("    return 5")},
      {2, addition("    return a - b")}, {0, addition("    return b + a")},
      {2, addition("    return")},       {0, addition("    return sum([a, b])")}};
  std::vector<size_t> told;
  const CodeCheck check =
      check_code(sandbox, problems, samples, 2, [&](size_t done) { told.push_back(done); });
  EXPECT_THAT(told, ::testing::ElementsAre(1, 2, 3, 4, 5, 6));
  ASSERT_EQ(check.verdicts.size(), 6u);
  EXPECT_EQ(check.verdicts[0].detail, "passed");
  EXPECT_EQ(check.verdicts[2].detail, "failed: AssertionError: ");
  EXPECT_EQ(check.counts[0].num_samples, 3);
  EXPECT_EQ(check.counts[0].num_passed, 3);
  EXPECT_EQ(check.counts[1].num_samples, 0);
  EXPECT_EQ(check.counts[2].num_samples, 3);
  EXPECT_EQ(check.counts[2].num_passed, 1);
}

/// What is still too late when it runs alone is told last, and once.
TEST(CodeCheck, ProgramsThatTimeOutAreExecutedOnceMoreAlone) {
  DANLU_REQUIRES_SANDBOX();
  const std::vector<CodeSample> samples = {{0, addition("    while True: pass")},
                                           {1, addition("    return a + b")},
                                           {0, addition("    return a + b")}};
  std::vector<size_t> told;
  const CodeCheck check = check_code(sandbox, {kAddition, kAddition}, samples, 3,
                                     [&](size_t done) { told.push_back(done); });
  EXPECT_THAT(told, ::testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(check.num_timed_out, 1u);
  EXPECT_EQ(check.verdicts[0].detail, "timed out");
  EXPECT_EQ(check.counts[0].num_samples, 2);
  EXPECT_EQ(check.counts[0].num_passed, 1);
  EXPECT_EQ(check.counts[1].num_passed, 1);
}

/// One that is late until a certain moment, as beside many others, and no more when it runs again.
TEST(CodeCheck, TheVerdictOfTheSecondExecutionCounts) {
  DANLU_REQUIRES_SANDBOX();
  const auto now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch());
  const std::string body = fmt::format(
      "    from time import time\n    while time() < {}: pass\n    return a + b", now.count() + 2);
  const std::string endless = fmt::format(
      "    from time import time\n    if time() < {}:\n        while True: pass\n    return a + b",
      now.count() + 2);
  const CodeCheck check =
      check_code(sandbox, {kAddition}, {{0, addition(body)}, {0, addition(endless)}}, 2);
  EXPECT_EQ(check.num_timed_out, 0u);
  EXPECT_EQ(check.counts[0].num_samples, 2);
  EXPECT_EQ(check.counts[0].num_passed, 2) << check.verdicts[0].detail << check.verdicts[1].detail;
}

/// Somebody waits: programs that took a processor until they were late are not executed again, nor
/// more of the others than there is time for.
TEST(CodeCheck, WhoIsPatientForSoLongWaitsNoLonger) {
  const auto judged = [](std::vector<std::string> programs, int64_t patience_ms,
                         std::vector<size_t>* left) {
    SandboxSettings settings;
    settings.timeout_ms = 2000;
    const CodeSandbox sandbox(settings);
    std::vector<int> told(programs.size(), -1);
    *left = judge_programs_within(sandbox, std::move(programs), 1, patience_ms,
                                  [&](size_t i, const CodeVerdict& verdict) {
                                    EXPECT_EQ(told[i], -1) << "once for each";
                                    told[i] = static_cast<int>(verdict.outcome);
                                  });
    return told;
  };
  DANLU_REQUIRES_SANDBOX();
  constexpr int kPassed = static_cast<int>(CodeVerdict::Outcome::kPassed),
                kTimedOut = static_cast<int>(CodeVerdict::Outcome::kTimedOut);
  const std::string sleeps = "import time\ntime.sleep(60)";
  // Late until a certain moment, as beside many others.
  const auto now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch());
  const std::string late_once =
      fmt::format("import time\nif time.time() < {}: time.sleep(60)", now.count() + 1);
  std::vector<size_t> left;
  EXPECT_THAT(judged({late_once, "a = 1", sleeps, sleeps}, 60'000, &left),
              ::testing::ElementsAre(kPassed, kPassed, kTimedOut, kTimedOut));
  EXPECT_THAT(left, ::testing::IsEmpty());
  EXPECT_THAT(judged({sleeps, "a = 1", sleeps, sleeps}, 500, &left),
              ::testing::ElementsAre(kTimedOut, kPassed, -1, -1))
      << "the first of them takes all the time there is";
  EXPECT_THAT(left, ::testing::ElementsAre(2, 3));
}

TEST(CodeCheck, WhoTookAProcessorUntilItWasLateWouldBeLateAlone) {
  DANLU_REQUIRES_SANDBOX();
  const CodeVerdict busy = sandbox.run("while True: pass"),
                    idle = sandbox.run("import time\ntime.sleep(60)");
  EXPECT_EQ(busy.outcome, CodeVerdict::Outcome::kTimedOut);
  EXPECT_EQ(idle.outcome, CodeVerdict::Outcome::kTimedOut);
  EXPECT_GT(busy.cpu_ms, idle.cpu_ms);
  EXPECT_LT(idle.cpu_ms, sandbox.settings().timeout_ms * 9 / 10);
  EXPECT_LE(busy.cpu_ms, sandbox.settings().timeout_ms * 11 / 10);
  EXPECT_EQ(sandbox.run("a = 1").cpu_ms, 0);
}

/// The data set's own solutions all pass. Bodies that do nothing and solutions of another problem
/// all fail, of every fourth problem in `make test`: python3 executing the same texts without a
/// sandbox says so too.
TEST(CodeCheck, HumanEvalsSolutionsPassAndOthersDoNot) {
  DANLU_REQUIRES_SHARED();
  DANLU_REQUIRES_SANDBOX();
  const std::vector<Json> problems = humaneval_problems();
  ASSERT_EQ(problems.size(), 164u);
  std::vector<CodeSample> samples;
  for (size_t i = 0; i < problems.size(); i += test::is_slow() ? 1 : 4) {
    const std::string prompt = problems[i].at("prompt");
    const auto solution_of = [&](size_t problem) {
      return prompt + problems[problem].at("canonical_solution").get<std::string>();
    };
    samples.push_back({i, solution_of(i)});
    samples.push_back({i, prompt + "    pass\n"});
    samples.push_back({i, solution_of((i + 1) % 164)});
  }
  const CodeCheck check = check_code(sandbox, problems, samples, default_thread_count());
  for (size_t i = 0; i < samples.size(); ++i) {
    const bool passed = check.verdicts[i].outcome == CodeVerdict::Outcome::kPassed;
    EXPECT_EQ(passed, i % 3 == 0) << problems[samples[i].problem].at("task_id") << " " << i % 3
                                  << ": " << check.verdicts[i].detail;
  }
}

}  // namespace
}  // namespace danlu::eval
