// text/jinja/lexer.h: template source to tokens.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace danlu::text::jinja {

/// A template that cannot be parsed, or breaks a rule while it runs: "name:line: what".
class TemplateError : public ModelError {
 public:
  using ModelError::ModelError;
};

enum class TokenKind : uint8_t {
  kData,           ///< text to print as it is
  kVariableBegin,  ///< {{
  kVariableEnd,
  kBlockBegin,  ///< {%
  kBlockEnd,
  kName,
  kString,  ///< text holds the value, escapes resolved
  kInteger,
  kFloat,
  kOperator,  ///< text holds it: + == [ …
  kEnd
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;
};

/// Whose settings of Jinja2 hold.
enum class Dialect : uint8_t {
  kChat,   ///< Hugging Face's chat templates: trim_blocks, lstrip_blocks, no trailing newline
  kStrict  ///< prompts: white space stays as it is written; what is undefined is an error
};

/// Errors: TemplateError (unclosed tag or string, unknown character).
std::vector<Token> lex(std::string_view source, const std::string& name,
                       Dialect dialect = Dialect::kChat);

}  // namespace danlu::text::jinja
