// text/tool_writing.h: the forms in which named templates describe tools and write calls of them.
// Sources: LLaMA-Factory ff6d4d12 (data/tool_utils.py), MindSpeed-LLM c77308a1 (tasks/preprocess/
// formatter.py) for "default".
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/template_tools.h"

namespace danlu::text {

/// One form. `tools`: a list of objects with names, not empty. Errors of both: DataError for what
/// the form has no words for.
struct ToolWriting {
  std::string_view name;
  std::string (*tools)(const Json& tools);
  std::string (*calls)(const std::vector<ToolCall>& calls);
};

/// nullptr if there is none of that name.
const ToolWriting* find_tool_writing(std::string_view name);
std::vector<std::string_view> tool_writing_names();

}  // namespace danlu::text
