// eval/environments/environment.h: what answers a model's answers while they are drawn: programs of
// the user, and tips by rule.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"

namespace danlu::eval {

/// A conversation behind an answer of the model.
struct Talk {
  std::string id;        ///< the same in all of its turns
  int64_t turn = 1;      ///< answers so far
  bool is_last = false;  ///< no further answer is drawn, whatever is said
  bool is_ended = true;  ///< the answer, by itself; false: cut at the limit
  std::string prompt;    ///< as text, special tokens included
  std::string answer;    ///< the last one, as text without special tokens
  Json messages;         ///< as OpenAI writes them, the last one the answer
  Json row;              ///< the columns of the prompt's row
  Json state = nullptr;  ///< what was said about this conversation last
};

/// What an environment says of one.
struct Reply {
  bool is_done = false;
  Json messages = Json::array();  ///< that the model is to answer, as OpenAI writes them
  std::optional<std::string> goes_on =
      {};  ///< instead: text that the model's own message goes on with
  std::optional<size_t> kept_bytes = {};  ///< of `answer`, before goes_on; nothing: all of it
  std::optional<double> reward = {};      ///< added to what it gave before
  Json info = nullptr;                    ///< an object that is written down beside the answer
  Json state = nullptr;                   ///< given back at the next turn
};

/// The same as one JSON object, and back. Errors of the latter: DataError saying what is wrong.
Json reply_json(const Reply& reply);
Reply reply_from(const Json& json);

/// Thread-safe.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual std::string name() const = 0;
  /// One for each of them; none at all where a signal came and nobody waits. Errors: DataError
  /// where they are not usable.
  virtual std::vector<Reply> replies(std::span<const Talk> talks) const = 0;
};

/// What make_environment is told beside a name.
struct EnvironmentSettings {
  int64_t timeout_ms = 60'000;        ///< of a program, for all conversations of a turn
  std::string reference_column = {};  ///< of rows, as RewardSettings'
};

/// `name`: "program:" and a command line, whose words are separated by spaces; math_tip_trick or
/// thinking_tips_scheduler (environments/tips.h). A command gets one JSON object a line (id, turn,
/// last, finish_reason, prompt, answer, messages, row, state) and is to print one a line, in the
/// same order. Errors: UsageError for another name; a limit that is not positive. replies() of a
/// command that cannot be started throws one, too.
std::unique_ptr<Environment> make_environment(const std::string& name,
                                              const EnvironmentSettings& settings);

/// Whether it is a program, and so may give a reward.
bool is_program_environment(const std::string& name);

}  // namespace danlu::eval
