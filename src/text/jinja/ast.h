// text/jinja/ast.h: the tree of a parsed template. Immutable after parsing; shared between threads.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/objects.h"
#include "text/jinja/value.h"

namespace danlu::text::jinja {

/// Index of a variable's name in Ast::symbols.
using Symbol = uint32_t;
/// Names with a meaning of their own come first.
inline constexpr Symbol kLoopSymbol = 0, kCallerSymbol = 1, kVarargsSymbol = 2, kKwargsSymbol = 3;

using FilterFunction = Value (*)(Interpreter&, const Value& input, const Arguments&);
using TestFunction = bool (*)(Interpreter&, const Value& input, const Arguments&);

enum class BinaryOp : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcat
};
enum class CompareOp : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

enum class ExprKind : uint8_t {
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,
  kAttribute,
  kSubscript,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNot,
  kNegate,
  kPositive,
  kBinary,
  kCompare,
  kAnd,
  kOr,
  kConditional
};

struct Expr {
  Expr(ExprKind k, int at_line) : kind(k), line(at_line) {}
  virtual ~Expr() = default;
  const ExprKind kind;
  const int line;
  int depth = 1;  ///< of the tree below, itself included
};
using ExprPtr = std::unique_ptr<Expr>;

struct ConstantExpr final : Expr {
  ConstantExpr(Value v, int l) : Expr(ExprKind::kConstant, l), value(std::move(v)) {}
  Value value;
};
struct NameExpr final : Expr {
  NameExpr(Symbol s, Value n, int l) : Expr(ExprKind::kName, l), symbol(s), name(std::move(n)) {}
  Symbol symbol;
  Value name;
};
struct SequenceExpr final : Expr {  // kList, kTuple
  using Expr::Expr;
  std::vector<ExprPtr> items;
};
struct DictExpr final : Expr {
  explicit DictExpr(int l) : Expr(ExprKind::kDict, l) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct AttributeExpr final : Expr {
  AttributeExpr(ExprPtr o, Value n, int l)
      : Expr(ExprKind::kAttribute, l), object(std::move(o)), name(std::move(n)) {}
  ExprPtr object;
  Value name;
};
struct SubscriptExpr final : Expr {
  SubscriptExpr(ExprPtr o, ExprPtr i, int l)
      : Expr(ExprKind::kSubscript, l), object(std::move(o)), index(std::move(i)) {}
  ExprPtr object, index;
};
struct SliceExpr final : Expr {
  SliceExpr(ExprPtr o, int l) : Expr(ExprKind::kSlice, l), object(std::move(o)) {}
  ExprPtr object, start, stop, step;  ///< the last three may be null
};
/// Arguments of a call, filter or test.
struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};
struct CallExpr final : Expr {
  CallExpr(ExprPtr c, int l) : Expr(ExprKind::kCall, l), callee(std::move(c)) {}
  ExprPtr callee;
  CallArguments arguments;
};
struct FilterExpr final : Expr {
  explicit FilterExpr(int l) : Expr(ExprKind::kFilter, l) {}
  ExprPtr input;  ///< null: the text of a filter block
  std::string name;
  FilterFunction function = nullptr;
  CallArguments arguments;
};
struct TestExpr final : Expr {
  explicit TestExpr(int l) : Expr(ExprKind::kTest, l) {}
  ExprPtr input;
  std::string name;
  TestFunction function = nullptr;
  CallArguments arguments;
  bool negated = false;
};
struct UnaryExpr final : Expr {  // kNot, kNegate, kPositive
  using Expr::Expr;
  ExprPtr operand;
};
struct BinaryExpr final : Expr {  // kBinary, kAnd, kOr
  using Expr::Expr;
  BinaryOp op = BinaryOp::kAdd;
  ExprPtr left, right;
};
struct CompareExpr final : Expr {
  explicit CompareExpr(int l) : Expr(ExprKind::kCompare, l) {}
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct ConditionalExpr final : Expr {
  explicit ConditionalExpr(int l) : Expr(ExprKind::kConditional, l) {}
  ExprPtr condition, then, otherwise;  ///< otherwise may be null: undefined
};

enum class StmtKind : uint8_t {
  kText,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kGeneration,
  kBreak,
  kContinue
};

struct Stmt {
  Stmt(StmtKind k, int at_line) : kind(k), line(at_line) {}
  virtual ~Stmt() = default;
  const StmtKind kind;
  const int line;
};
using StmtPtr = std::unique_ptr<Stmt>;
using Block = std::vector<StmtPtr>;

/// Where an assignment goes: a name, name.attribute (namespaces), or a tuple of targets.
struct Target {
  enum class Kind : uint8_t { kName, kAttribute, kTuple } kind = Kind::kName;
  Symbol symbol = 0;
  std::string attribute;
  std::vector<Target> parts;
};

struct TextStmt final : Stmt {
  TextStmt(std::string t, int l) : Stmt(StmtKind::kText, l), text(std::move(t)) {}
  std::string text;
};
struct OutputStmt final : Stmt {
  OutputStmt(ExprPtr e, int l) : Stmt(StmtKind::kOutput, l), value(std::move(e)) {}
  ExprPtr value;
};
struct IfStmt final : Stmt {
  explicit IfStmt(int l) : Stmt(StmtKind::kIf, l) {}
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block otherwise;
};
struct ForStmt final : Stmt {
  explicit ForStmt(int l) : Stmt(StmtKind::kFor, l) {}
  Target target;
  ExprPtr iterable, filter;  ///< filter may be null
  Block body, otherwise;
};
struct SetStmt final : Stmt {
  explicit SetStmt(int l) : Stmt(StmtKind::kSet, l) {}
  Target target;
  ExprPtr value;
};
struct SetBlockStmt final : Stmt {
  explicit SetBlockStmt(int l) : Stmt(StmtKind::kSetBlock, l) {}
  Target target;
  ExprPtr filter;  ///< a chain of FilterExpr, or null
  Block body;
};
struct MacroStmt final : Stmt {
  explicit MacroStmt(int l) : Stmt(StmtKind::kMacro, l) {}
  Symbol symbol = 0;
  std::string name;
  std::vector<std::pair<Symbol, std::string>> parameters;
  std::vector<ExprPtr> defaults;  ///< one per parameter, null without
  Block body;
};
struct CallBlockStmt final : Stmt {
  explicit CallBlockStmt(int l) : Stmt(StmtKind::kCallBlock, l) {}
  ExprPtr call;       ///< a CallExpr
  MacroStmt* caller;  ///< owned by caller_owner
  StmtPtr caller_owner;
};
struct FilterBlockStmt final : Stmt {
  explicit FilterBlockStmt(int l) : Stmt(StmtKind::kFilterBlock, l) {}
  ExprPtr filter;
  Block body;
};
struct WithStmt final : Stmt {
  explicit WithStmt(int l) : Stmt(StmtKind::kWith, l) {}
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Block body;
};
struct GenerationStmt final : Stmt {
  explicit GenerationStmt(int l) : Stmt(StmtKind::kGeneration, l) {}
  Block body;
};
struct FlowStmt final : Stmt {  // kBreak, kContinue
  using Stmt::Stmt;
};

/// A whole template. Constants are shared objects, kept alive here.
struct Ast {
  std::string name;
  std::vector<std::string> symbols;
  std::vector<std::unique_ptr<StringObject>> strings;
  Block body;
  bool has_generation = false;
  bool uses_varargs = false, uses_kwargs = false;
  bool is_strict = false;  ///< to print or filter what is undefined is an error
};

}  // namespace danlu::text::jinja
