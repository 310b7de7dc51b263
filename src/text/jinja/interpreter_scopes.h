// text/jinja/interpreter_scopes.h: guards and the macro object shared by the interpreter's two
// sources.
#pragma once
#include "text/jinja/interpreter.h"

namespace danlu::text::jinja {

class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(Interpreter& interpreter) : depth_(interpreter.depth_) {
    if (++depth_ > interpreter.limits_.depth) {
      --depth_;
      throw LimitError("evaluation is nested too deeply (a macro that calls itself without end?)");
    }
  }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

/// A scope that is current until the guard goes; its parent is the one before it, or `parent`.
class Interpreter::ScopeGuard {
 public:
  explicit ScopeGuard(Interpreter& interpreter) : ScopeGuard(interpreter, interpreter.scope_) {}
  ScopeGuard(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), previous_(interpreter.scope_), scope_(interpreter.new_scope()) {
    scope_->parent = parent;
    interpreter.scope_ = scope_;
  }
  ~ScopeGuard() {
    interpreter_.scope_ = previous_;
    interpreter_.drop_scope(scope_);
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
  Scope& scope() { return *scope_; }

 private:
  Interpreter& interpreter_;
  Scope* previous_;
  Scope* scope_;
};

class Interpreter::MacroObject final : public CallableObject {
 public:
  MacroObject(const MacroStmt& macro, Scope* closure) : macro_(macro), closure_(closure) {}
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return interpreter.call_macro(macro_, closure_, arguments);
  }
  std::string name() const override { return macro_.name; }

 private:
  const MacroStmt& macro_;
  Scope* closure_;
};

}  // namespace danlu::text::jinja
