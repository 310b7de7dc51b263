// serve/constraints.h: the form that a request asks for, as a constraint of tokens.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "api/chat_request.h"
#include "grammar/compiler.h"
#include "text/token_constraint.h"
#include "text/tool_format.h"

namespace danlu::serve {

/// For one model. Thread-safe.
class Constraints {
 public:
  /// stop_ids: of the model and its template.
  Constraints(std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<text::TokenId> stop_ids)
      : tokenizer_(std::move(tokenizer)), stop_ids_(std::move(stop_ids)) {}

  /// What ends an answer of a form.
  const std::vector<text::TokenId>& stop_ids() const { return stop_ids_; }

  /// Null where the form is free. Errors: Refusal naming the field.
  std::shared_ptr<text::TokenConstraint> of_form(const api::OutputForm& form) const;
  /// An answer of calls alone, for tool_choice required and named; else null. Errors: Refusal, also
  /// without a format.
  std::shared_ptr<text::TokenConstraint> of_calls(
      const api::ChatRequest& request, const std::optional<text::ToolFormat>& format) const;

 private:
  const grammar::Compiler& compiler() const;
  /// REQUIRES: the form is not free.
  std::shared_ptr<text::TokenConstraint> begun(const api::OutputForm& form) const;

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<text::TokenId> stop_ids_;
  mutable std::once_flag once_;
  mutable std::unique_ptr<const grammar::Compiler> compiler_;  ///< made when it is first needed
};

}  // namespace danlu::serve
