// eval/rewards/reward.h: how good an answer is that a model drew to a prompt: rules by name, and
// programs of the user.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"

namespace danlu::eval {

/// An answer that was drawn.
struct Completion {
  std::string prompt, text;  ///< text: without special tokens
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> ids;  ///< of the answer, as drawn
  bool is_ended = true;      ///< by a token that ends answers, or a word; false: cut at the limit
  /// The token that ends answers, where this one is to be judged with it and has it not: a word
  /// ended it, or the limit.
  std::optional<int32_t> missing_end = {};
  Json row = Json::object();  ///< the columns of the prompt's row
  /// Messages of a conversation with an environment, as OpenAI writes them, whose last answer this
  /// is; and what the environment gave.
  Json messages = nullptr;
  std::optional<double> of_environment = {};
};

/// Nothing: the answer cannot be judged, which is not the same as a bad one.
using Score = std::optional<double>;

/// Judges answers. Thread-safe.
class Reward {
 public:
  virtual ~Reward() = default;
  virtual std::string name() const = 0;
  /// One score for each of them.
  virtual std::vector<Score> scores(std::span<const Completion> completions) const = 0;
};

/// A larger score, or a smaller one than its negative, is none: its square, weighted, would be no
/// number of f32.
inline constexpr double kLargestScore = 1e12;

/// `reward`'s scores without those that are no numbers or beyond kLargestScore, which a warning
/// counts.
std::vector<Score> usable_scores(const Reward& reward, std::span<const Completion> completions);

/// What rules are told beside an answer.
struct RewardSettings {
  /// The column that holds the right answer; "": the first that is there of solution, answer,
  /// ground_truth, labels and response, or reward_model.ground_truth.
  std::string reference_column = {};
  /// What `cosine` gives to short and to long answers, of at most cosine_length tokens.
  double cosine_short_wrong = -0.5, cosine_long_wrong = 0, cosine_short_right = 1,
         cosine_long_right = 0.5;
  int64_t cosine_length = 512;
  int64_t repetition_words = 3;  ///< of `repetition`: how many words in a row are compared
  double repetition_penalty = -1;
  int64_t overlong_length = 512, overlong_buffer = 0;  ///< of `soft_overlong`: tokens
  int64_t program_timeout_ms = 60'000;                 ///< of programs, for all answers of a step
  bool allows_code = false;                            ///< `code` may run what a model wrote
  std::string python = "python3";                      ///< that runs it
};

/// `name`: one of reward_names(), or "program:" and a command line, whose words are separated by
/// spaces. The command gets one JSON object a line (prompt, completion, ids, ended, row) and is to
/// print one number a line, or null. What it does not print, prints otherwise or prints too late is
/// a score that is missing, and a warning names it. After SIGTERM and its like nobody waits for it.
/// Errors: UsageError with the nearest name; a limit that is not positive; a buffer of
/// soft_overlong that is none, or not below the limit; for "code" where it is
/// not allowed, and as make_code_reward's. scores() of a command
/// that could never be started throws one, too.
std::unique_ptr<Reward> make_reward(const std::string& name, const RewardSettings& settings);

/// The rules there are.
std::vector<std::string> reward_names();

/// The right answer that a row holds; empty if it holds none.
std::optional<std::string> reference_of(const Json& row, const std::string& column);

}  // namespace danlu::eval
