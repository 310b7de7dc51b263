// api/qwen_coder_calls.h: the calls of Qwen3-Coder, whose arguments stand between tags.
#pragma once
#include <memory>

#include "api/tool_calls.h"

namespace danlu::api {

/// <tool_call><function=NAME><parameter=KEY>…</parameter></function></tool_call>, where the outer
/// tag may be missing. A line break on each side of a value is not part of it. Values are strings
/// where the schema says so, JSON where they are JSON, True, False and None as in Python, else
/// strings.
std::unique_ptr<ToolCallParser> make_qwen_coder_reader(ToolCallOptions options);

}  // namespace danlu::api
