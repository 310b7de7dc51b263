#include "eval/rewards/program_reward.h"

#include <cmath>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "eval/sandbox/child_process.h"

namespace danlu::eval {
namespace {

constexpr size_t kMaxLineBytes = 4096;

std::string line_of(const Completion& completion) {
  const Json line{{"prompt", completion.prompt},
                  {"completion", completion.text},
                  {"ids", completion.ids},
                  {"ended", completion.is_ended},
                  {"row", completion.row}};
  return dump_text(line) + "\n";
}

/// A number or null; nothing for any other line.
std::optional<Score> score_in(const std::string& line) {
  try {
    const Json value = parse_json(line, "a reward");
    if (value.is_null()) return Score();
    if (!value.is_number() || !std::isfinite(value.get<double>())) return std::nullopt;
    return Score(value.get<double>());
  } catch (const DataError&) {
    return std::nullopt;
  }
}

class ProgramReward : public Reward {
 public:
  ProgramReward(std::vector<std::string> words, int64_t timeout_ms)
      : words_(std::move(words)), timeout_ms_(timeout_ms) {}

  std::string name() const override {
    const std::string& program = words_.front();
    return "program:" + program.substr(program.rfind('/') + 1);
  }

  std::vector<Score> scores(std::span<const Completion> completions) const override {
    std::string input;
    for (const Completion& completion : completions) input += line_of(completion);
    const ChildResult result =
        ask_child(words_, input, timeout_ms_, (completions.size() + 1) * kMaxLineBytes,
                  {.ends_input = true, .shares_errors = true});
    std::vector<Score> scores(completions.size());
    if (result.start_error != 0) {
      log::warning("[reward] {}: {}", words_.front(), std::strerror(result.start_error));
      return scores;
    }
    if (result.timed_out)
      log::warning("[reward] {} took longer than {} s", words_.front(), timeout_ms_ / 1000);
    const size_t missing = read(result.output, &scores);
    if (missing > 0) {
      log::warning("[reward] {}: {} of {} answers without a score (exit status {})", words_.front(),
                   missing, completions.size(), result.status);
    }
    return scores;
  }

 private:
  /// The number of lines that are missing or no scores.
  static size_t read(const std::string& output, std::vector<Score>* scores) {
    std::istringstream lines(output);
    std::string line;
    size_t given = 0;
    for (Score& score : *scores) {
      if (!std::getline(lines, line)) break;
      const auto found = score_in(line);
      if (!found) continue;
      score = *found;
      ++given;
    }
    return scores->size() - given;
  }

  std::vector<std::string> words_;
  int64_t timeout_ms_;
};

}  // namespace

std::unique_ptr<Reward> make_program_reward(const std::string& command, int64_t timeout_ms) {
  std::istringstream stream(command);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.empty()) throw UsageError(tr("[reward] program: names no command"));
  return std::make_unique<ProgramReward>(std::move(words), timeout_ms);
}

}  // namespace danlu::eval
