// text/jinja/expression_parser.h: the expression half of the parser, with Jinja2's precedence:
// if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary, then filters, tests and calls.
#pragma once
#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace danlu::text::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Ast& ast);

 protected:
  // Expressions, loosest first.
  ExprPtr parse_tuple(bool with_condition, bool explicit_parentheses = false);
  ExprPtr parse_expression(bool with_condition = true);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters = true);
  ExprPtr parse_primary();
  ExprPtr parse_name_or_literal();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_filters_and_tests(ExprPtr expr);
  /// `input` may be null: the filters of a filter block.
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  CallArguments parse_arguments(int& depth);
  ExprPtr parse_integer();

  // Tokens.
  const Token& current() const { return tokens_[position_]; }
  const Token& next() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  Token take() { return std::move(tokens_[position_++]); }
  bool at_operator(std::string_view op) const { return is_operator(current(), op); }
  bool at_name(std::string_view name) const { return is_name(current(), name); }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  std::string expect_name(std::string_view what);
  static bool is_operator(const Token& token, std::string_view op) {
    return token.kind == TokenKind::kOperator && token.text == op;
  }
  static bool is_name(const Token& token, std::string_view name) {
    return token.kind == TokenKind::kName && token.text == name;
  }

  // Building.
  Symbol symbol_of(const std::string& name);
  Value constant_string(std::string text);
  /// Sets depth = 1 + the deepest child; errors if too deep.
  ExprPtr grown(ExprPtr expr, int deepest_child);
  ExprPtr binary(ExprKind kind, BinaryOp op, ExprPtr left, ExprPtr right);

  [[noreturn]] void fail(const std::string& what) const { fail_at(current().line, what); }
  [[noreturn]] void fail_at(int line, const std::string& what) const;
  static std::string describe(const Token& token);

  std::vector<Token> tokens_;
  size_t position_ = 0;
  Ast& ast_;

 private:
  struct NestingGuard;
  std::unordered_map<std::string, Symbol> symbols_;
  int nesting_ = 0;
};

}  // namespace danlu::text::jinja
