// text/trained_part.h: which part of a conversation a training learns, in ms-swift's words and one
// of LLaMA-Factory's meaning.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "text/conversation.h"

namespace danlu::text {

struct TrainedPart {
  /// kDefault: every answer, as the template and `Message::train` say; kLastRound: of these, the
  /// ones after the last message of the user, and those that the row says to learn; kLastAnswer:
  /// of these, the last message of all (what LLaMA-Factory's mask_history leaves); kAll: every
  /// token but those of answers that the row says not to learn.
  enum class Base { kDefault, kLastRound, kLastAnswer, kAll };
  Base base = Base::kDefault;
  bool empty_thoughts = true;  ///< false: an answer's "<think>\n\n</think>\n\n" is not learnt

  bool operator==(const TrainedPart&) const = default;
  /// "default", "last_round", "last_answer", "all", each perhaps with "+ignore_empty_think".
  std::string name() const;
};

/// What `words` say: one of those names, "ignore_empty_think", or ms-swift's older
/// "last_round_with_ignore_empty_think". Errors: UsageError that begins with `flag`: names of
/// ms-swift's that are not here, with what does their job; other words, with the nearest.
TrainedPart trained_part_from_name(const std::string& words, const std::string& flag);

/// `inner`, whose labels hold that part. Says once if answers have an empty thought that is learnt,
/// as the template writes it. null stays null.
std::shared_ptr<const ChatEncoder> with_trained_part(std::shared_ptr<const ChatEncoder> inner,
                                                     std::shared_ptr<const Tokenizer> tokenizer,
                                                     const TrainedPart& part);

}  // namespace danlu::text
