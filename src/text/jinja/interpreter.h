// text/jinja/interpreter.h: runs a parsed template once. One interpreter per render; not
// thread-safe.
#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"

namespace danlu::text::jinja {

/// What a template may use up before it is stopped; far above what real templates need.
struct Limits {
  int64_t steps = 20'000'000;               ///< expressions and statements evaluated
  int64_t bytes = int64_t{1} << 30;         ///< text and list bytes made in total
  size_t output_bytes = size_t{256} << 20;  ///< of the result
  int depth = 900;                          ///< nested evaluation, macro calls included
};

class Interpreter {
 public:
  /// `now` is what strftime_now() reads.
  Interpreter(const Ast& ast, const Limits& limits, std::time_t now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void set_variable(Symbol symbol, Value value);
  /// Errors: EvalError, LimitError, RaisedError; line() is then where.
  void run();
  int line() const { return line_; }

  std::string output;
  /// Byte ranges of the output that came from {% generation %} blocks.
  std::vector<std::pair<size_t, size_t>> generations;

  // For filters, methods and globals.
  /// Counts `bytes` of text or list storage. To be called before they are made.
  /// Errors: LimitError when the limit is passed.
  void charge(size_t bytes);
  /// The same without counting: of storage that goes at once, or of a bound on a later charge.
  void require_room(size_t bytes) const;
  size_t bytes_left() const { return static_cast<size_t>(limits_.bytes); }
  void step();
  /// iterate(), charged.
  ValueList items_of(const Value& v);
  Value call(const Value& callee, const Arguments& arguments);
  /// Mutable objects could form cycles of references, so the interpreter keeps them and empties
  /// them at the end.
  template <typename T>
  T* adopt(std::unique_ptr<T> object) {
    object->references = 1;
    adopted_.push_back(object.get());
    return object.release();
  }
  std::time_t now() const { return now_; }

 private:
  struct Scope {
    std::vector<std::pair<Symbol, Value>> variables;
    Scope* parent = nullptr;  ///< null: the root
    bool captured = false;    ///< a macro was defined here and may look at it later
  };
  class ScopeGuard;
  class DepthGuard;
  class MacroObject;
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Statements (statements.cpp).
  Flow run_block(const Block& block);
  Flow run_statement(const Stmt& stmt);
  Flow run_if(const IfStmt& stmt);
  Flow run_for(const ForStmt& stmt);
  Flow run_set_block(const SetBlockStmt& stmt);
  Flow run_with(const WithStmt& stmt);
  Flow run_loop(const ForStmt& stmt, const ValueList& items);
  ValueList filtered(const ForStmt& stmt, ValueList items);
  void run_call_block(const CallBlockStmt& stmt);
  void run_generation(const GenerationStmt& stmt);
  std::string capture(const Block& block, Flow& flow);
  void print(const Value& value);
  void assign(const Target& target, Value value);
  Value call_macro(const MacroStmt& macro, Scope* closure, const Arguments& arguments);
  void bind_parameters(const MacroStmt& macro, const Arguments& arguments, Scope& scope);
  Value make_macro(const MacroStmt& macro);

  // Expressions (interpreter.cpp).
  Value evaluate(const Expr& expr);
  Value evaluate_name(const NameExpr& expr);
  Value evaluate_sequence(const SequenceExpr& expr);
  Value evaluate_dict(const DictExpr& expr);
  Value evaluate_slice(const SliceExpr& expr);
  Value evaluate_call(const CallExpr& expr);
  Value evaluate_filter(const FilterExpr& expr, const Value* block_text);
  Value evaluate_test(const TestExpr& expr);
  Value evaluate_negation(const UnaryExpr& expr);
  Value evaluate_logic(const BinaryExpr& expr);
  Value evaluate_compare(const CompareExpr& expr);
  Value evaluate_conditional(const ConditionalExpr& expr);

  /// Evaluated arguments and the view of them that functions take.
  struct EvaluatedArguments {
    ValueList positional;
    std::vector<std::pair<std::string_view, Value>> named;
    Arguments view() const { return {positional, named}; }
  };
  EvaluatedArguments evaluate_arguments(const CallArguments& arguments);
  const Value* find_variable(Symbol symbol) const;
  void define(Symbol symbol, Value value);
  Scope* new_scope();
  void drop_scope(Scope* scope);

  const Ast& ast_;
  Limits limits_;
  int line_ = 0;
  int depth_ = 0;
  int capture_depth_ = 0;
  std::time_t now_;
  std::vector<Value> root_;  ///< by symbol
  std::vector<char> root_set_;
  Scope* scope_ = nullptr;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_scopes_;
  std::vector<Object*> adopted_;
  std::string* out_ = &output;
};

}  // namespace danlu::text::jinja
