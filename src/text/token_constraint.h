// text/token_constraint.h: which tokens may come next in an answer that must follow a grammar.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "text/tokenizer.h"

namespace danlu::text {

/// Holds the state of one answer. Not thread-safe.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  /// Does up to `work` of what the next allowed() needs and takes off what it did; true: nothing is
  /// left to do. A unit is what is looked at in one place of an automaton, some 50 ns. A call may
  /// go one step of the automaton beyond what it is given: `work` is then below 0 by that. Errors:
  /// those of the form, as when it fits texts in too many ways.
  virtual bool prepare(int64_t& work) {
    static_cast<void>(work);
    return true;
  }
  /// A bit for each id, 64 to a word, the lowest first; 1: it may come next. Ids beyond the last
  /// word may not. A stop id may come where the answer may end. Holds until the next accept().
  /// Errors: prepare's.
  virtual std::span<const uint64_t> allowed() = 0;
  /// `id` is the answer's next. REQUIRES: it is allowed.
  virtual void accept(TokenId id) = 0;
  /// Whether it is a form that the answer has: log-probabilities are then those within it.
  virtual bool is_form() const { return true; }
  /// The same state, for another answer.
  virtual std::unique_ptr<TokenConstraint> clone() const = 0;
};

}  // namespace danlu::text
