#include "text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "text/jinja/filters.h"
#include "text/jinja/parser.h"
#include "text/jinja/tests.h"

namespace danlu::text::jinja {

struct ExpressionParser::NestingGuard {
  explicit NestingGuard(ExpressionParser& p) : parser(p) {
    if (++parser.nesting_ > kMaxExpressionDepth / 4)
      parser.fail("the expression is nested too deeply");
  }
  ~NestingGuard() { --parser.nesting_; }
  ExpressionParser& parser;
};

ExpressionParser::ExpressionParser(std::vector<Token> tokens, Ast& ast)
    : tokens_(std::move(tokens)), ast_(ast) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"})
    symbol_of(name);  // kLoopSymbol and on
}

void ExpressionParser::fail_at(int line, const std::string& what) const {
  throw TemplateError(fmt::format("{}:{}: {}", ast_.name, line, translated_filled(what)));
}

std::string ExpressionParser::describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kString:
      return "a string";
    default:
      return fmt::format("'{}'", token.text);
  }
}

bool ExpressionParser::skip_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  ++position_;
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  ++position_;
  return true;
}

void ExpressionParser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail(fmt::format("expected '{}', got {}", op, describe(current())));
}

std::string ExpressionParser::expect_name(std::string_view what) {
  if (current().kind != TokenKind::kName)
    fail(fmt::format("expected {}, got {}", what, describe(current())));
  return take().text;
}

Symbol ExpressionParser::symbol_of(const std::string& name) {
  const auto [it, added] = symbols_.emplace(name, static_cast<Symbol>(ast_.symbols.size()));
  if (added) ast_.symbols.push_back(name);
  return it->second;
}

Value ExpressionParser::constant_string(std::string text) {
  auto object = std::make_unique<StringObject>(std::move(text));
  object->references = Object::kShared;
  ast_.strings.push_back(std::move(object));
  return Value::of(Kind::kString, ast_.strings.back().get());
}

ExprPtr ExpressionParser::grown(ExprPtr expr, int deepest_child) {
  expr->depth = deepest_child + 1;
  if (expr->depth > kMaxExpressionDepth)
    fail_at(expr->line, "the expression is too long or nested too deeply");
  return expr;
}

ExprPtr ExpressionParser::binary(ExprKind kind, BinaryOp op, ExprPtr left, ExprPtr right) {
  auto expr = std::make_unique<BinaryExpr>(kind, left->line);
  expr->op = op;
  const int deepest = std::max(left->depth, right->depth);
  expr->left = std::move(left);
  expr->right = std::move(right);
  return grown(std::move(expr), deepest);
}

ExprPtr ExpressionParser::parse_tuple(bool with_condition, bool explicit_parentheses) {
  const int line = current().line;
  const auto at_end = [&] {
    return at_operator(")") || current().kind == TokenKind::kBlockEnd ||
           current().kind == TokenKind::kVariableEnd || at_name("in") || at_name("recursive");
  };
  auto tuple = std::make_unique<SequenceExpr>(ExprKind::kTuple, line);
  int deepest = 0;
  bool is_tuple = false;
  while (!at_end()) {
    tuple->items.push_back(parse_expression(with_condition));
    deepest = std::max(deepest, tuple->items.back()->depth);
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && tuple->items.size() == 1) return std::move(tuple->items.front());
  if (tuple->items.empty() && !explicit_parentheses) {
    fail(fmt::format("expected an expression, got {}", describe(current())));
  }
  return grown(std::move(tuple), deepest);
}

ExprPtr ExpressionParser::parse_expression(bool with_condition) {
  const NestingGuard guard(*this);
  ExprPtr expr = parse_or();
  while (with_condition && at_name("if")) {
    auto conditional = std::make_unique<ConditionalExpr>(take().line);
    conditional->condition = parse_or();
    conditional->then = std::move(expr);
    int deepest = std::max(conditional->condition->depth, conditional->then->depth);
    if (skip_name("else")) {
      conditional->otherwise = parse_expression();
      deepest = std::max(deepest, conditional->otherwise->depth);
    }
    expr = grown(std::move(conditional), deepest);
  }
  return expr;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (skip_name("or"))
    left = binary(ExprKind::kOr, BinaryOp::kAdd, std::move(left), parse_and());
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (skip_name("and"))
    left = binary(ExprKind::kAnd, BinaryOp::kAdd, std::move(left), parse_not());
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const NestingGuard guard(*this);
  auto expr = std::make_unique<UnaryExpr>(ExprKind::kNot, take().line);
  expr->operand = parse_not();
  const int depth = expr->operand->depth;
  return grown(std::move(expr), depth);
}

ExprPtr ExpressionParser::parse_compare() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEqual},        {"!=", CompareOp::kNotEqual}, {"<=", CompareOp::kLessEqual},
      {">=", CompareOp::kGreaterEqual}, {"<", CompareOp::kLess},      {">", CompareOp::kGreater}};
  ExprPtr first = parse_sum();
  std::unique_ptr<CompareExpr> compare;
  int deepest = first->depth;
  while (true) {
    const auto op = std::find_if(std::begin(kOps), std::end(kOps),
                                 [&](const auto& o) { return at_operator(o.first); });
    CompareOp kind;
    if (op != std::end(kOps)) {
      kind = op->second;
      ++position_;
    } else if (skip_name("in")) {
      kind = CompareOp::kIn;
    } else if (at_name("not") && is_name(next(), "in")) {
      kind = CompareOp::kNotIn;
      position_ += 2;
    } else {
      break;
    }
    if (!compare) compare = std::make_unique<CompareExpr>(first->line);
    compare->rest.emplace_back(kind, parse_sum());
    deepest = std::max(deepest, compare->rest.back().second->depth);
  }
  if (!compare) return first;
  compare->first = std::move(first);
  return grown(std::move(compare), deepest);
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (at_operator("+") || at_operator("-")) {
    const BinaryOp op = take().text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    left = binary(ExprKind::kBinary, op, std::move(left), parse_concat());
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  ExprPtr left = parse_product();
  while (skip_operator("~"))
    left = binary(ExprKind::kBinary, BinaryOp::kConcat, std::move(left), parse_product());
  return left;
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr left = parse_power();
  while (at_operator("*") || at_operator("/") || at_operator("//") || at_operator("%")) {
    const std::string text = take().text;
    const BinaryOp op = text == "*"   ? BinaryOp::kMultiply
                        : text == "/" ? BinaryOp::kDivide
                        : text == "%" ? BinaryOp::kModulo
                                      : BinaryOp::kFloorDivide;
    left = binary(ExprKind::kBinary, op, std::move(left), parse_power());
  }
  return left;
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary();
  while (skip_operator("**"))
    left = binary(ExprKind::kBinary, BinaryOp::kPower, std::move(left), parse_unary());
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  ExprPtr expr;
  if (at_operator("-") || at_operator("+")) {
    const NestingGuard guard(*this);
    const Token sign = take();
    auto unary = std::make_unique<UnaryExpr>(
        sign.text == "-" ? ExprKind::kNegate : ExprKind::kPositive, sign.line);
    unary->operand = parse_unary(false);
    const int depth = unary->operand->depth;
    expr = grown(std::move(unary), depth);
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::parse_primary() {
  const int line = current().line;
  switch (current().kind) {
    case TokenKind::kName:
      return parse_name_or_literal();
    case TokenKind::kString: {
      std::string text = take().text;
      while (current().kind == TokenKind::kString) text += take().text;
      return std::make_unique<ConstantExpr>(constant_string(std::move(text)), line);
    }
    case TokenKind::kInteger:
      return parse_integer();
    case TokenKind::kFloat:
      return std::make_unique<ConstantExpr>(Value::real(std::strtod(take().text.c_str(), nullptr)),
                                            line);
    default:
      break;
  }
  if (skip_operator("(")) {
    ExprPtr expr = parse_tuple(true, true);
    expect_operator(")");
    return expr;
  }
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  fail(fmt::format("expected an expression, got {}", describe(current())));
}

ExprPtr ExpressionParser::parse_name_or_literal() {
  const int line = current().line;
  std::string name = take().text;
  if (name == "true" || name == "True")
    return std::make_unique<ConstantExpr>(Value::boolean(true), line);
  if (name == "false" || name == "False")
    return std::make_unique<ConstantExpr>(Value::boolean(false), line);
  if (name == "none" || name == "None") return std::make_unique<ConstantExpr>(Value::none(), line);
  const Symbol symbol = symbol_of(name);
  ast_.uses_varargs |= symbol == kVarargsSymbol;
  ast_.uses_kwargs |= symbol == kKwargsSymbol;
  return std::make_unique<NameExpr>(symbol, constant_string(std::move(name)), line);
}

ExprPtr ExpressionParser::parse_integer() {
  const Token token = take();
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) > '9') {
    base = (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    fail_at(token.line, fmt::format("'{}' is not a 64-bit integer", token.text));
  }
  return std::make_unique<ConstantExpr>(Value::integer(value), token.line);
}

ExprPtr ExpressionParser::parse_list() {
  auto list = std::make_unique<SequenceExpr>(ExprKind::kList, take().line);
  int deepest = 0;
  while (!at_operator("]")) {
    list->items.push_back(parse_expression());
    deepest = std::max(deepest, list->items.back()->depth);
    if (!skip_operator(",")) break;
  }
  expect_operator("]");
  return grown(std::move(list), deepest);
}

ExprPtr ExpressionParser::parse_dict() {
  auto dict = std::make_unique<DictExpr>(take().line);
  int deepest = 0;
  while (!at_operator("}")) {
    ExprPtr key = parse_expression();
    expect_operator(":");
    ExprPtr value = parse_expression();
    deepest = std::max({deepest, key->depth, value->depth});
    dict->entries.emplace_back(std::move(key), std::move(value));
    if (!skip_operator(",")) break;
  }
  expect_operator("}");
  return grown(std::move(dict), deepest);
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr expr) {
  while (true) {
    const int line = current().line;
    const int depth = expr->depth;
    if (skip_operator(".")) {
      if (current().kind == TokenKind::kInteger) {
        expr =
            grown(std::make_unique<SubscriptExpr>(std::move(expr), parse_integer(), line), depth);
      } else {
        Value name = constant_string(expect_name("an attribute name"));
        expr =
            grown(std::make_unique<AttributeExpr>(std::move(expr), std::move(name), line), depth);
      }
    } else if (at_operator("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (at_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = take().line;
  int deepest = object->depth;
  const auto part = [&]() -> ExprPtr {
    if (at_operator(":") || at_operator("]")) return nullptr;
    ExprPtr expr = parse_expression();
    deepest = std::max(deepest, expr->depth);
    return expr;
  };
  if (at_operator("]")) fail("expected an index, got ']'");
  ExprPtr first = part();
  ExprPtr result;
  if (at_operator(":")) {
    auto slice = std::make_unique<SliceExpr>(std::move(object), line);
    slice->start = std::move(first);
    expect_operator(":");
    slice->stop = part();
    if (skip_operator(":")) slice->step = part();
    result = std::move(slice);
  } else {
    result = std::make_unique<SubscriptExpr>(std::move(object), std::move(first), line);
  }
  expect_operator("]");
  return grown(std::move(result), deepest);
}

CallArguments ExpressionParser::parse_arguments(int& depth) {
  CallArguments arguments;
  expect_operator("(");
  while (!at_operator(")")) {
    if (at_operator("*") || at_operator("**")) fail("* and ** in a call are not supported");
    if (current().kind == TokenKind::kName && is_operator(next(), "=")) {
      std::string name = take().text;
      ++position_;
      arguments.named.emplace_back(std::move(name), parse_expression());
      depth = std::max(depth, arguments.named.back().second->depth);
    } else {
      if (!arguments.named.empty()) fail("a positional argument follows a named one");
      arguments.positional.push_back(parse_expression());
      depth = std::max(depth, arguments.positional.back()->depth);
    }
    if (!skip_operator(",")) break;
  }
  expect_operator(")");
  return arguments;
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  const int line = current().line;
  int depth = callee->depth;
  auto call = std::make_unique<CallExpr>(std::move(callee), line);
  call->arguments = parse_arguments(depth);
  return grown(std::move(call), depth);
}

ExprPtr ExpressionParser::parse_filters_and_tests(ExprPtr expr) {
  while (true) {
    if (skip_operator("|")) {
      expr = parse_filter(std::move(expr));
    } else if (skip_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (at_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::parse_filter(ExprPtr input) {
  auto filter = std::make_unique<FilterExpr>(current().line);
  filter->name = expect_name("a filter name");
  while (skip_operator(".")) filter->name += "." + expect_name("a filter name");
  filter->function = find_filter(filter->name);
  int depth = input ? input->depth : 0;
  filter->input = std::move(input);
  if (at_operator("(")) filter->arguments = parse_arguments(depth);
  return grown(std::move(filter), depth);
}

ExprPtr ExpressionParser::parse_test(ExprPtr input) {
  auto test = std::make_unique<TestExpr>(current().line);
  test->negated = skip_name("not");
  test->name = expect_name("a test name");
  while (skip_operator(".")) test->name += "." + expect_name("a test name");
  test->function = find_test(test->name);
  int depth = input->depth;
  test->input = std::move(input);
  const TokenKind kind = current().kind;
  const bool starts_value = kind == TokenKind::kString || kind == TokenKind::kInteger ||
                            kind == TokenKind::kFloat || at_operator("[") || at_operator("{");
  const bool is_keyword = at_name("else") || at_name("or") || at_name("and") || at_name("if") ||
                          at_name("in") || at_name("not");
  if (at_operator("(")) {
    test->arguments = parse_arguments(depth);
  } else if (starts_value || (kind == TokenKind::kName && !is_keyword)) {
    if (at_name("is")) fail("tests cannot be chained with 'is'");
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
    depth = std::max(depth, test->arguments.positional.back()->depth);
  }
  return grown(std::move(test), depth);
}

}  // namespace danlu::text::jinja
