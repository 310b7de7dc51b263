// grammar/compiler.h: makes of a schema, a pattern or a list what an answer may be, token by token.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/token_constraint.h"
#include "text/tokenizer.h"
#include "text/tool_format.h"

namespace danlu::grammar {

/// A compiled constraint and the masks of its states, shared by all answers that follow it.
/// Thread-safe.
class Grammar;

/// Which calls an answer that consists of tool calls may hold.
struct ToolCallRules {
  text::ToolFormat format;
  Json tools;             ///< OpenAI's `tools`; without "parameters" a call has no arguments
  std::string name = {};  ///< only this function; "": any
  bool many = true;       ///< several calls, where the form has them
};

/// For one vocabulary. What was compiled is kept (the last 32) and given again. Thread-safe.
///
/// Between JSON's signs may stand nothing, a space, or a line break and up to 40 spaces or tabs; no
/// white space before a colon or comma, nor around the document. Numbers have at most 19 digits
/// before and 20 after the point and an exponent of two digits. docs/decisions/grammar.md says
/// more.
class Compiler {
 public:
  /// stop_ids end an answer, where it may end; they spell nothing. Errors: ModelError if the
  /// tokenizer does not tell which bytes its tokens spell; UsageError without stop ids.
  Compiler(std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<text::TokenId> stop_ids);
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  /// JSON that satisfies `schema`, members in the order in which it names them. Errors:
  /// GrammarError (UsageError) naming the place in the schema: a keyword or value that is not
  /// supported, a schema that nothing satisfies, one that is too large or too deep.
  std::shared_ptr<const Grammar> json_schema(const Json& schema) const;
  /// Any JSON object.
  std::shared_ptr<const Grammar> json_object() const;
  /// The whole answer matches `pattern` (grammar/regex.h). Errors: GrammarError with the place.
  std::shared_ptr<const Grammar> regex(const std::string& pattern) const;
  /// One of `choices`. Errors: GrammarError if there are none, or an empty one.
  std::shared_ptr<const Grammar> choice(std::span<const std::string> choices) const;
  /// Nothing but calls of tools, with arguments that satisfy their schemas. Errors: as json_schema;
  /// GrammarError for an unknown name, or a form whose calls cannot be constrained.
  std::shared_ptr<const Grammar> tool_calls(const ToolCallRules& rules) const;

  /// The beginning of an answer. The mask covers ids below the tokenizer's size and stop ids.
  std::unique_ptr<text::TokenConstraint> begin(std::shared_ptr<const Grammar> grammar) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace danlu::grammar
