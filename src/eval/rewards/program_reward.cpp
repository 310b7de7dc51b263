#include "eval/rewards/program_reward.h"

#include <sys/wait.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <set>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "eval/sandbox/child_process.h"

namespace danlu::eval {
namespace {

constexpr size_t kMaxLineBytes = 4096;

/// Several programs of these are told apart by the scripts that they read.
const std::set<std::string> kInterpreters = {"bash",    "node", "perl", "python",
                                             "python3", "ruby", "sh"};

std::string base_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string line_of(const Completion& completion) {
  Json line{{"prompt", completion.prompt},
            {"completion", completion.text},
            {"ids", completion.ids},
            {"ended", completion.is_ended},
            {"row", completion.row}};
  if (!completion.messages.is_null()) line["messages"] = completion.messages;
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

/// How a program ended, by what waitpid says.
std::string ending(int status) {
  return WIFSIGNALED(status) ? tr("ended by signal {}", WTERMSIG(status))
                             : tr("exit code {}", WEXITSTATUS(status));
}

class ProgramReward : public Reward {
 public:
  ProgramReward(std::vector<std::string> words, int64_t timeout_ms)
      : words_(std::move(words)), timeout_ms_(timeout_ms) {}

  std::string name() const override {
    const std::string program = base_of(words_.front());
    const bool reads_script =
        kInterpreters.contains(program) && words_.size() > 1 && !words_[1].starts_with('-');
    return "program:" + (reads_script ? base_of(words_[1]) : program);
  }

  std::vector<Score> scores(std::span<const Completion> completions) const override {
    std::string input;
    for (const Completion& completion : completions) input += line_of(completion);
    const ChildResult result =
        ask_child(words_, input, timeout_ms_, (completions.size() + 1) * kMaxLineBytes,
                  {.ends_input = true, .shares_errors = true, .gives_up = [] {
                     return pending_interrupt() != 0;
                   }});
    std::vector<Score> scores(completions.size());
    if (result.start_error == 0 && result.end == ChildEnd::kGivenUp) return scores;
    if (result.start_error != 0) {
      say_not_started(result.start_error);
      return scores;
    }
    has_started_ = true;
    if (result.end == ChildEnd::kTooLate) {
      log::warning("[reward] {} took longer than {:g} s", words_.front(),
                   static_cast<double>(timeout_ms_) / 1000);
    } else if (result.end == ChildEnd::kTooMuch) {
      log::warning("[reward] {} printed more than {} bytes for {} answers, and was ended",
                   words_.front(), result.output.size(), completions.size());
    }
    const std::vector<std::string> lines = lines_of(result.output);
    const std::string foreign = first_foreign(lines);
    if (lines.size() > completions.size()) {
      log::warning(
          "[reward] {} printed {} lines for {} answers: none is taken, since nobody knows which "
          "line is whose{}",
          words_.front(), lines.size(), completions.size(), foreign);
      return scores;
    }
    const size_t missing = read(lines, &scores);
    if (missing > 0) {
      log::warning("[reward] {}: {} of {} answers without a score ({}){}", words_.front(), missing,
                   completions.size(), ending(result.status), foreign);
    }
    return scores;
  }

 private:
  /// One that never was there is a word that was mistyped; another may be back for the next
  /// answers.
  void say_not_started(int error) const {
    const std::string& program = words_.front();
    if (has_started_) return log::warning("[reward] {}: {}", program, std::strerror(error));
    throw UsageError(tr("[reward] {} cannot be started: {}", program, std::strerror(error)),
                     tr("name a program of PATH, or its whole path"));
  }

  /// Without empty ones behind the last.
  static std::vector<std::string> lines_of(const std::string& output) {
    std::istringstream stream(output);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    while (!lines.empty() && lines.back().find_first_not_of(" \t\r") == std::string::npos)
      lines.pop_back();
    return lines;
  }

  /// Says which line is the first that is no score; empty: none is.
  static std::string first_foreign(const std::vector<std::string>& lines) {
    constexpr size_t kShown = 80;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (score_in(lines[i])) continue;
      return "; " + tr("line {} is no number: {}", i + 1, dump_text(lines[i].substr(0, kShown)));
    }
    return "";
  }

  /// The number of lines that are missing or no scores.
  static size_t read(const std::vector<std::string>& lines, std::vector<Score>* scores) {
    size_t given = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto found = score_in(lines[i]);
      if (!found) continue;
      (*scores)[i] = *found;
      ++given;
    }
    return scores->size() - given;
  }

  std::vector<std::string> words_;
  int64_t timeout_ms_;
  mutable std::atomic<bool> has_started_ = false;
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
