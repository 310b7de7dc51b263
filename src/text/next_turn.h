// text/next_turn.h: what stands between a model's answer, as it was drawn, and its next one.
#pragma once
#include <memory>
#include <vector>

#include "text/conversation.h"

namespace danlu::text {

/// Tokens that a template puts behind an answer's text. The answer itself is not tokenised again,
/// nor what was before it: these follow the ids that are there.
class NextTurn {
 public:
  struct Ids {
    /// The token that ends an answer, for one that has none.
    std::vector<TokenId> end;
    /// Behind that token, to where the next answer begins.
    std::vector<TokenId> messages;
  };

  /// Errors: ModelError if the template does not say where an answer ends, or takes no second
  /// question.
  explicit NextTurn(std::shared_ptr<const ChatEncoder> encoder);

  /// messages: not the assistant's, one at least. tool_calls: of the answer, as OpenAI writes them;
  /// empty: none. A template that keeps no thoughts of earlier answers writes the same here: they
  /// stay where they were drawn. Errors: DataError if the template cannot write the messages.
  Ids behind(const Json& tool_calls, const std::vector<Message>& messages) const;

 private:
  std::vector<TokenId> with_answer(const Message& answer,
                                   const std::vector<Message>& messages) const;
  Ids parted(const std::vector<TokenId>& ids) const;

  std::shared_ptr<const ChatEncoder> encoder_;
  std::vector<TokenId> stop_ids_, question_;
};

}  // namespace danlu::text
