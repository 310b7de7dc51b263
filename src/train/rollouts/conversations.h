// train/rollouts/conversations.h: answers that an environment answers, until it has no more to say.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eval/environments/environment.h"
#include "infer/generate.h"
#include "parallel/group.h"
#include "settings/reinforcement.h"
#include "text/next_turn.h"
#include "text/tokenizer.h"
#include "text/tool_format.h"
#include "train/rollouts/drawn_answers.h"

namespace danlu::train {

/// A prompt, with what is known of it beside its tokens.
struct TalkBegin {
  infer::Request request;     ///< of its first answer
  std::string id;             ///< unlike that of any other conversation of the run
  Json row = Json::object();  ///< columns; `messages` and `tools` among them are the prompt's
};

/// Answers to these requests, one each. turn: 1 of the first answers.
using DrawTurn = std::function<std::vector<DrawnAnswer>(
    int64_t turn, const std::vector<infer::Request>& requests)>;
/// What ask() gives, or gave before where somebody wrote it down. null: nobody waited for it.
using AskOnce = std::function<Json(int64_t turn, const std::function<Json()>& ask)>;

/// Each turn draws the answers of all conversations that go on together, and asks the environment
/// about all of them together. What was drawn stays as it was drawn: a turn's prompt is the last
/// one's, the ids of its answer, and the ids of what the environment says. Tokens of the model's
/// own are learnt, also those of earlier turns; the others are not.
class Conversations {
 public:
  struct Parts {
    std::shared_ptr<const eval::Environment> environment;
    std::shared_ptr<const text::ChatEncoder> encoder;
    std::shared_ptr<const text::Tokenizer> tokenizer;
    std::vector<text::TokenId> stop_ids;
    std::optional<text::ToolFormat> tool_format;  ///< in which the model writes calls
    int64_t positions = 0;                        ///< of the model; 0: any number
  };

  /// Errors: as text::NextTurn.
  Conversations(Parts parts, const settings::Reinforcement& told);

  /// One answer for each beginning: its ids are those of all turns behind the prompt. Behind a
  /// prompt there are told.longest_answer() tokens at most, and no more than the model has
  /// positions: a conversation that would be longer is cut, and so is one whose answer was. Errors:
  /// those of the environment and of draw().
  std::vector<DrawnAnswer> hold(const std::vector<TalkBegin>& begins, const DrawTurn& draw,
                                const AskOnce& ask) const;

 private:
  struct Held;
  int64_t room(const Held& held) const;
  infer::Request request_of(const Held& held, int64_t turn) const;
  void add_answer(DrawnAnswer drawn, int64_t turn, Held& held) const;
  Json message_of(const Held& held) const;
  eval::Talk talk_of(const Held& held) const;
  void go_on(const eval::Reply& reply, Held& held) const;
  void add_messages(const Json& messages, Held& held) const;
  void add_text(const eval::Reply& reply, Held& held) const;
  bool ends_by_token(const DrawnAnswer& answer) const;
  bool is_last(const Held& held) const;

  Parts parts_;
  text::NextTurn next_turn_;
  int64_t max_turns_, longest_, most_of_turn_;
};

/// ask() on the first rank of a group that holds one model together, told to the others. Collective
/// over the group; errors of the first rank are thrown on all.
Json asked_by_first(const parallel::Group& group, const std::function<Json()>& ask);

}  // namespace danlu::train
