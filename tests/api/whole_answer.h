// tests/api/whole_answer.h: what a parser of tool calls finds in an answer that is given at once.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/tool_calls.h"

namespace danlu::api {

struct ParsedAnswer {
  std::string content;
  std::vector<ParsedCall> calls;
};

inline ParsedAnswer parse_tool_calls(std::string_view text, text::ToolFormat format,
                                     ToolCallOptions options = {}) {
  options.whole_calls = true;
  const auto parser = make_tool_call_parser(format, std::move(options));
  ParsedAnswer answer;
  const auto take = [&](const std::vector<ToolCallEvent>& events) {
    for (const ToolCallEvent& event : events) {
      if (event.kind == ToolCallEvent::Kind::kContent) answer.content += event.text;
      if (event.kind == ToolCallEvent::Kind::kBegin)
        answer.calls.push_back({event.id, event.name, ""});
      if (event.kind == ToolCallEvent::Kind::kArguments)
        answer.calls[event.index].arguments += event.text;
    }
  };
  take(parser->push(text));
  take(parser->finish());
  return answer;
}

}  // namespace danlu::api
