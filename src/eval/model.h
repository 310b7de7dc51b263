// eval/model.h: the model that is examined, as far as a benchmark needs it.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "eval/item.h"
#include "text/conversation.h"

namespace danlu::eval {

class Model {
 public:
  virtual ~Model() = default;

  /// Told of each answer as soon as it is there, in any order.
  using OnAnswer = std::function<void(size_t index, const Answer& answer)>;
  /// Answers all calls. Errors: as throw_interrupted; DataError of a call that cannot be asked
  /// (outside the vocabulary, nothing left of its context beside a too long continuation).
  virtual void answer(const std::vector<Call>& calls, const OnAnswer& on_answer) = 0;

  /// What the model's chat template makes of messages, up to where the answer begins.
  /// Errors: ModelError if it has none.
  virtual std::string chat_text(const std::vector<text::Message>& messages) const = 0;
  /// Whether chat_text begins with a BOS that encoding must not write again.
  virtual bool chat_text_has_bos() const = 0;

  /// Tokens that `text` has, without BOS.
  virtual int64_t count_tokens(const std::string& text) const = 0;
  /// What answers depend on: weights (files, sizes, times), adapter, tokenizer, dtype. Answers of a
  /// run that was broken off are used again only by a model of the same.
  virtual Json identity() const = 0;
};

}  // namespace danlu::eval
