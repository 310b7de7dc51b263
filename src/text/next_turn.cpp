#include "text/next_turn.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace danlu::text {
namespace {

Message said_by(const char* role, const char* content) {
  Message message;
  message.role = role;
  message.content = content;
  return message;
}

/// How many tokens both begin with.
std::ptrdiff_t common_beginning(const std::vector<TokenId>& one,
                                const std::vector<TokenId>& other) {
  return std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first - one.begin();
}

}  // namespace

NextTurn::NextTurn(std::shared_ptr<const ChatEncoder> encoder)
    : encoder_(std::move(encoder)), stop_ids_(encoder_->stop_ids()) {
  const std::string why = tr("[environment] template {}: it does not say where an answer ends",
                             encoder_->description());
  const std::string hint = tr("--template names another");
  const Message answer = said_by("assistant", "a");
  std::vector<TokenId> one, other;
  try {
    Conversation asked;
    asked.messages.push_back(said_by("user", "a"));
    question_ = encoder_->encode_prompt(asked);
    one = with_answer(answer, {said_by("user", "a")});
    other = with_answer(answer, {said_by("user", "b")});
  } catch (const DataError& error) {
    throw ModelError(tr("[environment] template {}: it takes no second question: {}",
                        encoder_->description(), error.what()),
                     hint);
  }
  const auto found = std::find_first_of(one.begin() + common_beginning(question_, one), one.end(),
                                        stop_ids_.begin(), stop_ids_.end());
  if (found - one.begin() >= common_beginning(one, other)) throw ModelError(why, hint);
}

std::vector<TokenId> NextTurn::with_answer(const Message& answer,
                                           const std::vector<Message>& messages) const {
  Conversation conversation;
  conversation.messages = {said_by("user", "a"), answer};
  conversation.messages.insert(conversation.messages.end(), messages.begin(), messages.end());
  return encoder_->encode_prompt(conversation);
}

NextTurn::Ids NextTurn::behind(const Json& tool_calls, const std::vector<Message>& messages) const {
  const Message plain = said_by("assistant", "a");
  if (tool_calls.is_array() && !tool_calls.empty()) {
    Message answer = plain;
    answer.extra["tool_calls"] = tool_calls;
    try {
      return parted(with_answer(answer, messages));
    } catch (const DataError&) {
      // A template that knows no calls may know what tools say.
    }
  }
  return parted(with_answer(plain, messages));
}

NextTurn::Ids NextTurn::parted(const std::vector<TokenId>& ids) const {
  const auto answer = ids.begin() + common_beginning(question_, ids);
  auto end = std::find_first_of(answer, ids.end(), stop_ids_.begin(), stop_ids_.end());
  if (end == ids.end())
    throw DataError(
        tr("[environment] the template writes no end of an answer before these messages"));
  return {{end, end + 1}, {end + 1, ids.end()}};
}

}  // namespace danlu::text
