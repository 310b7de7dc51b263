#include "text/jinja/interpreter.h"

#include <fmt/format.h>

#include "text/jinja/interpreter_scopes.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"

namespace danlu::text::jinja {

Interpreter::Interpreter(const Ast& ast, const Limits& limits, std::time_t now)
    : ast_(ast),
      limits_(limits),
      now_(now),
      root_(ast.symbols.size()),
      root_set_(ast.symbols.size()) {}

Interpreter::~Interpreter() {
  // Empty every mutable object while all of them are still held, then let go: no cycle and no long
  // chain survives.
  root_.clear();
  scopes_.clear();
  for (Object* object : adopted_) object->release_contents();
  for (Object* object : adopted_) {
    if (--object->references == 0) delete object;
  }
}

void Interpreter::set_variable(Symbol symbol, Value value) {
  root_[symbol] = std::move(value);
  root_set_[symbol] = 1;
}

void Interpreter::run() { run_block(ast_.body); }

void Interpreter::charge(size_t bytes) {
  require_room(bytes);
  limits_.bytes -= static_cast<int64_t>(bytes);
}

void Interpreter::require_room(size_t bytes) const {
  if (bytes > bytes_left()) {
    throw LimitError("the template makes too much text; its limit is reached");
  }
}

void Interpreter::step() {
  if (--limits_.steps < 0)
    throw LimitError("the template runs too long; its limit of steps is reached");
}

ValueList Interpreter::items_of(const Value& v) {
  size_t bytes = 0;
  if (v.is_sequence()) bytes = v.items().size() * sizeof(Value);
  if (v.is_dict()) bytes = v.entries().size() * sizeof(Value);
  if (v.is_string()) bytes = v.as_string().size() * kShortStringBytes;
  charge(bytes);
  return iterate(v);
}

Interpreter::Scope* Interpreter::new_scope() {
  if (!free_scopes_.empty()) {
    Scope* scope = free_scopes_.back();
    free_scopes_.pop_back();
    return scope;
  }
  scopes_.push_back(std::make_unique<Scope>());
  return scopes_.back().get();
}

void Interpreter::drop_scope(Scope* scope) {
  if (scope->captured) return;
  scope->variables.clear();
  free_scopes_.push_back(scope);
}

const Value* Interpreter::find_variable(Symbol symbol) const {
  for (const Scope* scope = scope_; scope; scope = scope->parent) {
    for (const auto& [name, value] : scope->variables) {
      if (name == symbol) return &value;
    }
  }
  return root_set_[symbol] ? &root_[symbol] : nullptr;
}

void Interpreter::define(Symbol symbol, Value value) {
  if (!scope_) {
    set_variable(symbol, std::move(value));
    return;
  }
  for (auto& [name, old] : scope_->variables) {
    if (name == symbol) {
      old = std::move(value);
      return;
    }
  }
  scope_->variables.emplace_back(symbol, std::move(value));
}

Value Interpreter::evaluate(const Expr& expr) {
  const DepthGuard guard(*this);
  step();
  switch (expr.kind) {
    case ExprKind::kConstant:
      return static_cast<const ConstantExpr&>(expr).value;
    case ExprKind::kName:
      return evaluate_name(static_cast<const NameExpr&>(expr));
    default:
      line_ = expr.line;
  }
  switch (expr.kind) {
    case ExprKind::kList:
    case ExprKind::kTuple:
      return evaluate_sequence(static_cast<const SequenceExpr&>(expr));
    case ExprKind::kDict:
      return evaluate_dict(static_cast<const DictExpr&>(expr));
    case ExprKind::kAttribute: {
      const auto& attribute = static_cast<const AttributeExpr&>(expr);
      return get_attribute(evaluate(*attribute.object), attribute.name);
    }
    case ExprKind::kSubscript: {
      const auto& subscript = static_cast<const SubscriptExpr&>(expr);
      const Value object = evaluate(*subscript.object);
      return get_item(object, evaluate(*subscript.index));
    }
    case ExprKind::kSlice:
      return evaluate_slice(static_cast<const SliceExpr&>(expr));
    case ExprKind::kCall:
      return evaluate_call(static_cast<const CallExpr&>(expr));
    case ExprKind::kFilter:
      return evaluate_filter(static_cast<const FilterExpr&>(expr), nullptr);
    case ExprKind::kTest:
      return evaluate_test(static_cast<const TestExpr&>(expr));
    case ExprKind::kNot:
      return Value::boolean(!truthy(evaluate(*static_cast<const UnaryExpr&>(expr).operand)));
    case ExprKind::kNegate:
    case ExprKind::kPositive:
      return evaluate_negation(static_cast<const UnaryExpr&>(expr));
    case ExprKind::kBinary: {
      const auto& binary = static_cast<const BinaryExpr&>(expr);
      Value left = evaluate(*binary.left);
      return binary_operation(*this, binary.op, std::move(left), evaluate(*binary.right));
    }
    case ExprKind::kCompare:
      return evaluate_compare(static_cast<const CompareExpr&>(expr));
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return evaluate_logic(static_cast<const BinaryExpr&>(expr));
    case ExprKind::kConditional:
      return evaluate_conditional(static_cast<const ConditionalExpr&>(expr));
    default:
      return {};
  }
}

Value Interpreter::evaluate_name(const NameExpr& expr) {
  if (const Value* value = find_variable(expr.symbol)) return *value;
  if (const Value* global = find_global(expr.name.as_string())) return *global;
  return Value::undefined(expr.name);
}

Value Interpreter::evaluate_sequence(const SequenceExpr& expr) {
  ValueList items;
  items.reserve(expr.items.size());
  charge(expr.items.size() * sizeof(Value));
  for (const ExprPtr& item : expr.items) items.push_back(evaluate(*item));
  return expr.kind == ExprKind::kList ? Value::list(std::move(items))
                                      : Value::tuple(std::move(items));
}

Value Interpreter::evaluate_dict(const DictExpr& expr) {
  DictEntries entries;
  entries.reserve(expr.entries.size());
  charge(expr.entries.size() * 2 * sizeof(Value));
  for (const auto& [key, value] : expr.entries) {
    Value k = evaluate(*key);
    if (k.kind() == Kind::kList || k.is_dict())
      throw EvalError(fmt::format("unhashable type: '{}'", type_name(k)));
    entries.emplace_back(std::move(k), evaluate(*value));
  }
  return Value::dict(std::move(entries));
}

Value Interpreter::evaluate_slice(const SliceExpr& expr) {
  const auto part = [&](const ExprPtr& e) { return e ? evaluate(*e) : Value::none(); };
  const Value object = evaluate(*expr.object);
  const Value start = part(expr.start), stop = part(expr.stop), by = part(expr.step);
  if (object.is_string()) require_room(object.as_string().size() * sizeof(size_t));
  Value result = get_slice(object, start, stop, by);
  charge(result.is_string() ? result.as_string().size() : result.items().size() * sizeof(Value));
  return result;
}

Interpreter::EvaluatedArguments Interpreter::evaluate_arguments(const CallArguments& arguments) {
  EvaluatedArguments result;
  result.positional.reserve(arguments.positional.size());
  for (const ExprPtr& expr : arguments.positional) result.positional.push_back(evaluate(*expr));
  result.named.reserve(arguments.named.size());
  for (const auto& [name, expr] : arguments.named) result.named.emplace_back(name, evaluate(*expr));
  return result;
}

Value Interpreter::evaluate_call(const CallExpr& expr) {
  Value callee;
  if (expr.callee->kind == ExprKind::kAttribute) {
    const auto& attribute = static_cast<const AttributeExpr&>(*expr.callee);
    const Value self = evaluate(*attribute.object);
    if (const MethodFunction method = find_method(self.kind(), attribute.name.as_string())) {
      const EvaluatedArguments arguments = evaluate_arguments(expr.arguments);
      line_ = expr.line;
      return method(*this, self, arguments.view());
    }
    callee = get_attribute(self, attribute.name);
  } else {
    callee = evaluate(*expr.callee);
  }
  const EvaluatedArguments arguments = evaluate_arguments(expr.arguments);
  line_ = expr.line;
  return call(callee, arguments.view());
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) throw EvalError(callee.undefined_message());
  if (callee.kind() != Kind::kCallable) {
    throw EvalError(fmt::format("'{}' object is not callable", type_name(callee)));
  }
  return static_cast<CallableObject*>(callee.object())->call(*this, arguments);
}

Value Interpreter::evaluate_filter(const FilterExpr& expr, const Value* block_text) {
  Value input;
  if (!expr.input) {
    input = *block_text;
  } else if (block_text) {  // a chain on a filter block: its innermost filter takes the text
    input = evaluate_filter(static_cast<const FilterExpr&>(*expr.input), block_text);
  } else {
    input = evaluate(*expr.input);
  }
  const EvaluatedArguments arguments = evaluate_arguments(expr.arguments);
  line_ = expr.line;
  if (!expr.function) throw EvalError(fmt::format("there is no filter '{}'", expr.name));
  if (ast_.is_strict && input.is_undefined() && expr.name != "default" && expr.name != "d")
    throw EvalError(input.undefined_message());
  return expr.function(*this, input, arguments.view());
}

Value Interpreter::evaluate_test(const TestExpr& expr) {
  const Value input = evaluate(*expr.input);
  const EvaluatedArguments arguments = evaluate_arguments(expr.arguments);
  line_ = expr.line;
  if (!expr.function) throw EvalError(fmt::format("there is no test '{}'", expr.name));
  return Value::boolean(expr.function(*this, input, arguments.view()) != expr.negated);
}

Value Interpreter::evaluate_negation(const UnaryExpr& expr) {
  const Value operand = evaluate(*expr.operand);
  if (operand.is_undefined()) throw EvalError(operand.undefined_message());
  if (!operand.is_number())
    throw EvalError(fmt::format("bad operand type for unary -: '{}'", type_name(operand)));
  const bool negate = expr.kind == ExprKind::kNegate;
  if (operand.kind() == Kind::kFloat)
    return Value::real(negate ? -operand.as_double() : operand.as_double());
  return negate ? binary_operation(*this, BinaryOp::kSubtract, Value::integer(0), operand)
                : Value::integer(operand.as_int());
}

Value Interpreter::evaluate_logic(const BinaryExpr& expr) {
  Value left = evaluate(*expr.left);
  const bool decided = truthy(left) == (expr.kind == ExprKind::kOr);
  return decided ? left : evaluate(*expr.right);
}

Value Interpreter::evaluate_compare(const CompareExpr& expr) {
  Value left = evaluate(*expr.first);
  for (const auto& [op, operand] : expr.rest) {
    Value right = evaluate(*operand);
    if (!compare(op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_conditional(const ConditionalExpr& expr) {
  if (truthy(evaluate(*expr.condition))) return evaluate(*expr.then);
  return expr.otherwise ? evaluate(*expr.otherwise) : Value();
}

}  // namespace danlu::text::jinja
