#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/interpreter_scopes.h"

namespace danlu::text::jinja {

Interpreter::Flow Interpreter::run_block(const Block& block) {
  for (const StmtPtr& stmt : block) {
    const Flow flow = run_statement(*stmt);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_statement(const Stmt& stmt) {
  const DepthGuard guard(*this);
  step();
  line_ = stmt.line;
  Flow flow = Flow::kNext;
  switch (stmt.kind) {
    case StmtKind::kText:
      charge(static_cast<const TextStmt&>(stmt).text.size());
      *out_ += static_cast<const TextStmt&>(stmt).text;
      break;
    case StmtKind::kOutput:
      print(evaluate(*static_cast<const OutputStmt&>(stmt).value));
      break;
    case StmtKind::kIf:
      return run_if(static_cast<const IfStmt&>(stmt));
    case StmtKind::kFor:
      return run_for(static_cast<const ForStmt&>(stmt));
    case StmtKind::kSet: {
      const auto& set = static_cast<const SetStmt&>(stmt);
      assign(set.target, evaluate(*set.value));
      break;
    }
    case StmtKind::kSetBlock:
      return run_set_block(static_cast<const SetBlockStmt&>(stmt));
    case StmtKind::kMacro: {
      const auto& macro = static_cast<const MacroStmt&>(stmt);
      define(macro.symbol, make_macro(macro));
      break;
    }
    case StmtKind::kCallBlock:
      run_call_block(static_cast<const CallBlockStmt&>(stmt));
      break;
    case StmtKind::kFilterBlock: {
      const auto& block = static_cast<const FilterBlockStmt&>(stmt);
      const Value text = Value::string(capture(block.body, flow));
      print(evaluate_filter(static_cast<const FilterExpr&>(*block.filter), &text));
      break;
    }
    case StmtKind::kWith:
      return run_with(static_cast<const WithStmt&>(stmt));
    case StmtKind::kGeneration:
      run_generation(static_cast<const GenerationStmt&>(stmt));
      break;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return flow;
}

Interpreter::Flow Interpreter::run_set_block(const SetBlockStmt& stmt) {
  Flow flow = Flow::kNext;
  Value text = Value::string(capture(stmt.body, flow));
  if (stmt.filter) text = evaluate_filter(static_cast<const FilterExpr&>(*stmt.filter), &text);
  assign(stmt.target, std::move(text));
  return flow;
}

Interpreter::Flow Interpreter::run_with(const WithStmt& stmt) {
  ValueList values;  // all evaluated outside the new scope
  for (const auto& binding : stmt.bindings) values.push_back(evaluate(*binding.second));
  const ScopeGuard scope(*this);
  for (size_t i = 0; i < values.size(); ++i) assign(stmt.bindings[i].first, std::move(values[i]));
  return run_block(stmt.body);
}

void Interpreter::print(const Value& value) {
  if (ast_.is_strict && value.is_undefined()) throw EvalError(value.undefined_message());
  const size_t before = out_->size();
  append_text(value, *out_);
  charge(out_->size() - before);
  if (out_->size() > limits_.output_bytes) throw LimitError("the template prints too much");
}

Interpreter::Flow Interpreter::run_if(const IfStmt& stmt) {
  for (const auto& [condition, body] : stmt.branches) {
    if (truthy(evaluate(*condition))) return run_block(body);
  }
  return run_block(stmt.otherwise);
}

std::string Interpreter::capture(const Block& block, Flow& flow) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  ++capture_depth_;
  const ScopeGuard scope(*this);
  try {
    flow = run_block(block);
  } catch (...) {
    out_ = outer;
    --capture_depth_;
    throw;
  }
  out_ = outer;
  --capture_depth_;
  return text;
}

void Interpreter::run_generation(const GenerationStmt& stmt) {
  const ScopeGuard scope(*this);
  const size_t begin = out_->size();
  run_block(stmt.body);
  // Inside a capture the text has no place in the output yet; such blocks mark nothing.
  if (capture_depth_ == 0) generations.emplace_back(begin, out_->size());
}

void Interpreter::assign(const Target& target, Value value) {
  if (target.kind == Target::Kind::kName) {
    define(target.symbol, std::move(value));
  } else if (target.kind == Target::Kind::kAttribute) {
    const Value* holder = find_variable(target.symbol);
    if (!holder || holder->kind() != Kind::kNamespace) {
      throw EvalError(
          fmt::format("cannot assign to '{}.{}': only namespaces have attributes that can be set",
                      ast_.symbols[target.symbol], target.attribute));
    }
    static_cast<NamespaceObject*>(holder->object())->set(target.attribute, std::move(value));
  } else {
    const ValueList items = items_of(value);
    if (items.size() != target.parts.size()) {
      throw EvalError(
          fmt::format("cannot unpack {} values into {} names", items.size(), target.parts.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
  }
}

ValueList Interpreter::filtered(const ForStmt& stmt, ValueList items) {
  ValueList kept;
  const ScopeGuard scope(*this);
  for (Value& item : items) {
    scope_->variables.clear();
    assign(stmt.target, item);
    if (truthy(evaluate(*stmt.filter))) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::run_for(const ForStmt& stmt) {
  const Value iterable = evaluate(*stmt.iterable);
  if (stmt.filter) return run_loop(stmt, filtered(stmt, items_of(iterable)));
  if (iterable.is_sequence())
    return run_loop(stmt, iterable.items());  // `iterable` keeps them alive
  const ValueList items = items_of(iterable);
  return run_loop(stmt, items);
}

Interpreter::Flow Interpreter::run_loop(const ForStmt& stmt, const ValueList& items) {
  if (items.empty()) return run_block(stmt.otherwise);
  charge(1024);  // loop objects live until the render ends
  auto* loop = adopt(std::make_unique<LoopObject>());
  loop->items = &items;
  const Value loop_value = Value::of(Kind::kLoop, loop);
  struct Ending {
    ~Ending() { loop->items = nullptr; }
    LoopObject* loop;
  } const ending{loop};
  const ScopeGuard scope(*this);
  for (size_t i = 0; i < items.size(); ++i) {
    step();
    loop->index0 = i;
    scope_->variables.clear();
    scope_->variables.emplace_back(kLoopSymbol, loop_value);
    assign(stmt.target, items[i]);
    if (run_block(stmt.body) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Value Interpreter::make_macro(const MacroStmt& macro) {
  for (Scope* scope = scope_; scope && !scope->captured; scope = scope->parent)
    scope->captured = true;
  return Value::of(Kind::kCallable, adopt(std::make_unique<MacroObject>(macro, scope_)));
}

void Interpreter::run_call_block(const CallBlockStmt& stmt) {
  const auto& call_expr = static_cast<const CallExpr&>(*stmt.call);
  const Value callee = evaluate(*call_expr.callee);
  EvaluatedArguments arguments = evaluate_arguments(call_expr.arguments);
  arguments.named.emplace_back("caller", make_macro(*stmt.caller));
  print(call(callee, arguments.view()));
}

void Interpreter::bind_parameters(const MacroStmt& macro, const Arguments& arguments,
                                  Scope& scope) {
  const auto fail = [&](const std::string& what) {
    throw EvalError(fmt::format("macro '{}' {}", macro.name, what));
  };
  ValueList extra;
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < macro.parameters.size()) {
      scope.variables.emplace_back(macro.parameters[i].first, arguments.positional[i]);
    } else {
      extra.push_back(arguments.positional[i]);
    }
  }
  if (!extra.empty() && !ast_.uses_varargs) {
    fail(fmt::format("takes not more than {} argument(s)", macro.parameters.size()));
  }
  DictEntries extra_named;
  const size_t bound = scope.variables.size();
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find_if(macro.parameters.begin(), macro.parameters.end(),
                                    [&, n = name](const auto& p) { return p.second == n; });
    if (found != macro.parameters.end()) {
      if (static_cast<size_t>(found - macro.parameters.begin()) < bound)
        fail(fmt::format("got '{}' twice", name));
      scope.variables.emplace_back(found->first, value);
    } else if (name == "caller") {
      scope.variables.emplace_back(kCallerSymbol, value);
    } else if (ast_.uses_kwargs) {
      extra_named.emplace_back(Value::string(std::string(name)), value);
    } else {
      fail(fmt::format("takes no argument '{}'", name));
    }
  }
  if (ast_.uses_varargs)
    scope.variables.emplace_back(kVarargsSymbol, Value::tuple(std::move(extra)));
  if (ast_.uses_kwargs)
    scope.variables.emplace_back(kKwargsSymbol, Value::dict(std::move(extra_named)));
}

Value Interpreter::call_macro(const MacroStmt& macro, Scope* closure, const Arguments& arguments) {
  const DepthGuard guard(*this);
  ScopeGuard scope(*this, closure);
  bind_parameters(macro, arguments, scope.scope());
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Symbol symbol = macro.parameters[i].first;
    const auto& variables = scope.scope().variables;
    if (std::any_of(variables.begin(), variables.end(),
                    [&](const auto& v) { return v.first == symbol; }))
      continue;
    Value value = macro.defaults[i] ? evaluate(*macro.defaults[i])
                                    : Value::undefined(Value::string(macro.parameters[i].second));
    define(symbol, std::move(value));
  }
  Flow flow = Flow::kNext;
  return Value::string(capture(macro.body, flow));
}

}  // namespace danlu::text::jinja
