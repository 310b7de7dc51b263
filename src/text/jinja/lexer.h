// text/jinja/lexer.h: template source to tokens, with Hugging Face's white-space settings
// (trim_blocks, lstrip_blocks, no trailing newline).
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

/// Errors: TemplateError (unclosed tag or string, unknown character).
std::vector<Token> lex(std::string_view source, const std::string& name);

}  // namespace danlu::text::jinja
