// api/tool_calls.h: finds the tool calls in an answer, while it is written.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tool_format.h"

namespace danlu::api {

struct ToolCallEvent {
  enum class Kind {
    kContent,    ///< text: of the answer, outside of calls
    kBegin,      ///< a call: index, id, name
    kArguments,  ///< text: a fragment of its arguments
    kEnd,        ///< of the call: its fragments together are a JSON object
    kBroken,     ///< of the call, in the midst: its fragments are the beginning of one at best
  };
  Kind kind;
  std::string text;
  size_t index = 0;  ///< of the call in the answer
  std::string id = {}, name = {};
};

struct ToolCallOptions {
  /// OpenAI's `tools`: GLM-4.5 does not write which arguments are strings.
  Json tools = Json::array();
  /// Calls are given out when they are complete. A broken one is content then; without this, only
  /// what follows the place where it broke, where its name was given out before.
  bool whole_calls = false;
  /// Makes the id of a call; empty: new_call_id.
  std::function<std::string()> make_id = {};
};

/// "chatcmpl-tool-" and 32 digits; Mistral's templates want nine letters and digits.
std::string new_call_id(text::ToolFormat format);

/// Text in, events out. Put together, they do not depend on how the text was cut. What cannot be a
/// call is content to the byte; white space before, between and after calls is dropped. Special
/// tokens must be part of the text. Not thread-safe.
class ToolCallParser {
 public:
  virtual ~ToolCallParser() = default;
  virtual std::vector<ToolCallEvent> push(std::string_view piece) = 0;
  /// Once nothing follows.
  virtual std::vector<ToolCallEvent> finish() = 0;
};

std::unique_ptr<ToolCallParser> make_tool_call_parser(text::ToolFormat format,
                                                      ToolCallOptions options = {});

struct ParsedCall {
  std::string id, name, arguments;
};

}  // namespace danlu::api
