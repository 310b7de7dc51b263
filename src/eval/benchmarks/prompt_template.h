// eval/benchmarks/prompt_template.h: a text of a task file that is filled in with a row.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/jinja/template.h"

namespace danlu::eval {

/// A Jinja template as evaluation harnesses use them, or the name of a field, which stands for what
/// the row holds there. Immutable.
class PromptTemplate {
 public:
  /// `name` begins messages: "mmlu: doc_to_text". Errors: UsageError if it does not parse.
  PromptTemplate(std::string source, std::string name);

  /// The row put into the template, as text. Errors: DataError "<place>: …" of a field that is not
  /// there, or of a wrong type.
  std::string text(const Json& row, const std::string& place) const;
  /// `{{ expression }}` and a field keep their type, other templates give a text.
  Json value(const Json& row, const std::string& place) const;
  bool is_empty() const { return source_.empty(); }

 private:
  std::string rendered(const text::jinja::Template& made, const Json& row,
                       const std::string& place) const;
  std::string source_, name_;
  std::unique_ptr<const text::jinja::Template> text_;   ///< null: a field's name, or plain text
  std::unique_ptr<const text::jinja::Template> typed_;  ///< prints JSON; null: not one expression
};

/// What Python's str makes of a value.
std::string python_text(const Json& value);

/// "question, choices": a row's fields, for messages.
std::string field_names(const Json& row);

}  // namespace danlu::eval
