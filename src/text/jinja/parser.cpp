#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <initializer_list>

#include "text/jinja/expression_parser.h"

namespace danlu::text::jinja {

namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  void run() {
    ast_.body = parse_block({});
    if (current().kind != TokenKind::kEnd) fail(fmt::format("unexpected {}", describe(current())));
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  /// Statements up to a tag that begins with one of `ends` (left as the current token, at its
  /// name), or to the end of the template if `ends` is empty.
  Block parse_block(Names ends) {
    if (++block_depth_ > kMaxBlockDepth) fail("blocks are nested too deeply");
    Block block;
    const int opened_at = position_ > 0 ? tokens_[position_ - 1].line : 1;
    while (current().kind != TokenKind::kEnd) {
      const int line = current().line;
      if (current().kind == TokenKind::kData) {
        block.push_back(std::make_unique<TextStmt>(take().text, line));
      } else if (current().kind == TokenKind::kVariableBegin) {
        ++position_;
        block.push_back(std::make_unique<OutputStmt>(parse_tuple(true), line));
        if (current().kind != TokenKind::kVariableEnd)
          fail(fmt::format("expected '}}}}', got {}", describe(current())));
        ++position_;
      } else {
        ++position_;  // block begin
        for (const std::string_view end : ends) {
          if (at_name(end)) {
            --block_depth_;
            return block;
          }
        }
        block.push_back(parse_statement());
        end_tag();
      }
    }
    if (ends.size() > 0) {
      fail_at(opened_at,
              fmt::format("the block is never closed: expected {{% {} %}}", *(ends.end() - 1)));
    }
    --block_depth_;
    return block;
  }

  void end_tag() {
    if (current().kind != TokenKind::kBlockEnd)
      fail(fmt::format("expected '%}}', got {}", describe(current())));
    ++position_;
  }

  /// A block body and its closing tag's name; the tag end is left to the caller's end_tag().
  Block body_until(std::string_view end) {
    end_tag();
    Block body = parse_block({end});
    ++position_;
    return body;
  }

  StmtPtr parse_statement() {
    const int line = current().line;
    const std::string name = expect_name("a tag name");
    if (name == "if") return parse_if(line);
    if (name == "for") return parse_for(line);
    if (name == "set") return parse_set(line);
    if (name == "macro") return parse_macro(line);
    if (name == "call") return parse_call_block(line);
    if (name == "filter") return parse_filter_block(line);
    if (name == "with") return parse_with(line);
    if (name == "generation") return parse_generation(line);
    if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) fail_at(line, fmt::format("'{}' outside a for block", name));
      return std::make_unique<FlowStmt>(name == "break" ? StmtKind::kBreak : StmtKind::kContinue,
                                        line);
    }
    for (const std::string_view known :
         {"include", "import", "from", "extends", "block", "do", "autoescape", "trans"}) {
      if (name == known)
        fail_at(line, fmt::format("'{}' is not available in chat templates", name));
    }
    fail_at(line, fmt::format("unknown tag '{}'", name));
  }

  StmtPtr parse_if(int line) {
    auto stmt = std::make_unique<IfStmt>(line);
    while (true) {
      ExprPtr condition = parse_tuple(false);
      end_tag();
      stmt->branches.emplace_back(std::move(condition), parse_block({"elif", "else", "endif"}));
      if (skip_name("elif")) continue;
      if (skip_name("else")) {
        end_tag();
        stmt->otherwise = parse_block({"endif"});
      }
      ++position_;  // endif
      return stmt;
    }
  }

  StmtPtr parse_for(int line) {
    auto stmt = std::make_unique<ForStmt>(line);
    stmt->target = parse_target(false);
    if (!skip_name("in")) fail(fmt::format("expected 'in', got {}", describe(current())));
    stmt->iterable = parse_tuple(false);
    if (skip_name("if")) stmt->filter = parse_expression();
    if (at_name("recursive"))
      fail("recursive loops are not supported; use a macro that calls itself");
    end_tag();
    ++loop_depth_;
    stmt->body = parse_block({"else", "endfor"});
    --loop_depth_;
    if (skip_name("else")) {
      end_tag();
      stmt->otherwise = parse_block({"endfor"});
    }
    ++position_;  // endfor
    return stmt;
  }

  /// name, name.attribute (with_attribute), (a, b) or a, b.
  Target parse_target(bool with_attribute) {
    Target first = parse_one_target(with_attribute);
    if (!at_operator(",")) return first;
    Target tuple;
    tuple.kind = Target::Kind::kTuple;
    tuple.parts.push_back(std::move(first));
    while (skip_operator(",") && (current().kind == TokenKind::kName || at_operator("("))) {
      if (at_name("in")) break;
      tuple.parts.push_back(parse_one_target(with_attribute));
    }
    return tuple;
  }

  Target parse_one_target(bool with_attribute) {
    if (skip_operator("(")) {
      if (++target_depth_ > kMaxBlockDepth) fail("assignment targets are nested too deeply");
      Target inner = parse_target(with_attribute);
      --target_depth_;
      expect_operator(")");
      return inner;
    }
    Target target;
    const std::string name = expect_name("a variable name");
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) fail(fmt::format("cannot assign to '{}'", name));
    }
    target.symbol = symbol_of(name);
    if (with_attribute && skip_operator(".")) {
      target.kind = Target::Kind::kAttribute;
      target.attribute = expect_name("an attribute name");
    }
    return target;
  }

  StmtPtr parse_set(int line) {
    Target target = parse_target(true);
    if (skip_operator("=")) {
      auto stmt = std::make_unique<SetStmt>(line);
      stmt->target = std::move(target);
      stmt->value = parse_tuple(true);
      return stmt;
    }
    auto stmt = std::make_unique<SetBlockStmt>(line);
    stmt->target = std::move(target);
    while (skip_operator("|")) stmt->filter = parse_filter(std::move(stmt->filter));
    stmt->body = body_until("endset");
    return stmt;
  }

  void parse_signature(MacroStmt& macro) {
    expect_operator("(");
    while (!at_operator(")")) {
      const std::string name = expect_name("a parameter name");
      macro.parameters.emplace_back(symbol_of(name), name);
      macro.defaults.push_back(skip_operator("=") ? parse_expression() : nullptr);
      if (!macro.defaults.back() && macro.defaults.size() > 1 &&
          macro.defaults[macro.defaults.size() - 2]) {
        fail("a parameter without default follows one with a default");
      }
      if (!skip_operator(",")) break;
    }
    expect_operator(")");
  }

  void parse_macro_body(MacroStmt& macro, std::string_view end) {
    const int outer_loops = std::exchange(loop_depth_, 0);
    macro.body = body_until(end);
    loop_depth_ = outer_loops;
  }

  StmtPtr parse_macro(int line) {
    auto macro = std::make_unique<MacroStmt>(line);
    macro->name = expect_name("a macro name");
    macro->symbol = symbol_of(macro->name);
    parse_signature(*macro);
    parse_macro_body(*macro, "endmacro");
    return macro;
  }

  StmtPtr parse_call_block(int line) {
    auto stmt = std::make_unique<CallBlockStmt>(line);
    auto caller = std::make_unique<MacroStmt>(line);
    caller->name = "caller";
    if (at_operator("(")) parse_signature(*caller);
    stmt->call = parse_expression();
    if (stmt->call->kind != ExprKind::kCall)
      fail_at(line, "{% call %} needs a call, such as {% call name() %}");
    parse_macro_body(*caller, "endcall");
    stmt->caller = caller.get();
    stmt->caller_owner = std::move(caller);
    return stmt;
  }

  StmtPtr parse_filter_block(int line) {
    auto stmt = std::make_unique<FilterBlockStmt>(line);
    stmt->filter = parse_filter(nullptr);
    while (skip_operator("|")) stmt->filter = parse_filter(std::move(stmt->filter));
    stmt->body = body_until("endfilter");
    return stmt;
  }

  StmtPtr parse_with(int line) {
    auto stmt = std::make_unique<WithStmt>(line);
    while (current().kind != TokenKind::kBlockEnd) {
      Target target = parse_one_target(false);
      expect_operator("=");
      stmt->bindings.emplace_back(std::move(target), parse_expression());
      if (!skip_operator(",")) break;
    }
    stmt->body = body_until("endwith");
    return stmt;
  }

  StmtPtr parse_generation(int line) {
    auto stmt = std::make_unique<GenerationStmt>(line);
    ast_.has_generation = true;
    stmt->body = body_until("endgeneration");
    return stmt;
  }

  int block_depth_ = 0;
  int loop_depth_ = 0;
  int target_depth_ = 0;
};

}  // namespace

Ast parse(std::string_view source, const std::string& name, Dialect dialect) {
  Ast ast;
  ast.name = name;
  ast.is_strict = dialect == Dialect::kStrict;
  Parser(lex(source, name, dialect), ast).run();
  return ast;
}

}  // namespace danlu::text::jinja
