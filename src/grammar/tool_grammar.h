// grammar/tool_grammar.h: answers that are tool calls as ways through an automaton.
#pragma once
#include <functional>
#include <string>

#include "grammar/automaton.h"
#include "grammar/compiler.h"

namespace danlu::grammar {

/// Adds what a form has its own token for, or its text.
using AddMark = std::function<void(State from, State to, const std::string& mark)>;

/// Errors: GrammarError as Compiler::tool_calls.
void add_tool_calls(AutomatonBuilder& builder, State from, State to, const ToolCallRules& rules,
                    const AddMark& add_mark);

}  // namespace danlu::grammar
