#include "eval/rewards/code_reward.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "eval/sandbox/code_check.h"

namespace danlu::eval {
namespace {

constexpr const char* kFence = "```";

/// Nothing of a value that is neither text nor a list of texts, and of an empty one.
std::optional<std::string> tests_in(const Json& value) {
  if (value.is_string() && !value.get_ref<const std::string&>().empty()) return value;
  if (!value.is_array() || value.empty()) return std::nullopt;
  std::string text;
  for (const Json& part : value) {
    if (!part.is_string()) return std::nullopt;
    text += part.get<std::string>() + "\n";
  }
  return text;
}

/// Nothing of a row that is none of HumanEval's.
std::optional<std::string> of_humaneval(const Json& row, const std::string& program) {
  try {
    return humaneval_program(row, program);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

/// The answer's program with the row's tests behind it.
std::optional<std::string> tested_program(const Completion& completion, const std::string& column) {
  const Json& row = completion.row;
  if (!row.is_object()) return std::nullopt;
  const std::string program = program_in(completion.text);
  for (const std::string& name : column.empty()
                                     ? std::vector<std::string>{"tests", "test_list", "test"}
                                     : std::vector<std::string>{column}) {
    if (!row.contains(name) || row.at(name).is_null()) continue;
    if (name == "test" && row.contains("entry_point")) return of_humaneval(row, program);
    const auto tests = tests_in(row.at(name));
    if (!tests) return std::nullopt;
    return program + "\n" + *tests;
  }
  return std::nullopt;
}

class CodeReward : public Reward {
 public:
  explicit CodeReward(const RewardSettings& settings)
      : column_(settings.reference_column),
        patience_ms_(settings.program_timeout_ms),
        sandbox_(sandbox_settings(settings)) {}

  std::string name() const override { return "code"; }

  std::vector<Score> scores(std::span<const Completion> completions) const override {
    std::vector<Score> scores(completions.size());
    std::vector<std::string> programs;
    std::vector<size_t> of_answer;
    for (size_t i = 0; i < completions.size(); ++i) {
      auto program = tested_program(completions[i], column_);
      if (!program) continue;
      programs.push_back(std::move(*program));
      of_answer.push_back(i);
    }
    size_t late = 0, unknown = 0;
    try {
      unknown = judge_programs_within(
                    sandbox_, std::move(programs), default_thread_count(), patience_ms_,
                    [&](size_t i, const CodeVerdict& verdict) {
                      const bool passed = verdict.outcome == CodeVerdict::Outcome::kPassed;
                      late += verdict.outcome == CodeVerdict::Outcome::kTimedOut ? 1 : 0;
                      scores[of_answer[i]] = passed ? 1.0 : 0.0;
                    })
                    .size();
    } catch (const Error& error) {
      // A signal: who asked for scores sees it too.
      const bool is_signal = error.code() == ExitCode::kInterrupted ||
                             error.code() == ExitCode::kTerminated ||
                             error.code() == ExitCode::kHungUp;
      if (!is_signal) throw;
    }
    if (late > 0)
      log::warning("[reward] code: {} of {} programs timed out", late, of_answer.size());
    if (unknown > 0) {
      log::warning(
          "[reward] code: {} of {} programs were late beside others, and {:g} s did not suffice "
          "to run them alone: no score",
          unknown, of_answer.size(), static_cast<double>(patience_ms_) / 1000);
    }
    return scores;
  }

 private:
  static SandboxSettings sandbox_settings(const RewardSettings& settings) {
    SandboxSettings sandbox;
    sandbox.python = settings.python;
    return sandbox;
  }

  std::string column_;
  int64_t patience_ms_;
  CodeSandbox sandbox_;
};

}  // namespace

std::string program_in(const std::string& answer) {
  const size_t end = answer.rfind(kFence);
  if (end == std::string::npos || end == 0) return answer;
  const size_t fence = answer.rfind(kFence, end - 1);
  if (fence == std::string::npos) return answer;
  const size_t begin = answer.find('\n', fence);  // behind the language's name
  return begin == std::string::npos || begin >= end ? answer
                                                    : answer.substr(begin + 1, end - begin - 1);
}

std::unique_ptr<Reward> make_code_reward(const RewardSettings& settings) {
  return std::make_unique<CodeReward>(settings);
}

}  // namespace danlu::eval
