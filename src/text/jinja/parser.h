// text/jinja/parser.h: tokens to tree.
#pragma once
#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace danlu::text::jinja {

/// Expressions and blocks nested deeper are refused: evaluation recurses.
inline constexpr int kMaxExpressionDepth = 400;
inline constexpr int kMaxBlockDepth = 60;

/// Errors: TemplateError "name:line: what was expected".
Ast parse(std::string_view source, const std::string& name, Dialect dialect = Dialect::kChat);

}  // namespace danlu::text::jinja
