#include "text/encoder_tools.h"

#include "base/file.h"
#include "text/template_file.h"

namespace danlu::text {

std::optional<ToolFormat> tool_format_of_encoder(const ChatEncoder& encoder,
                                                 const Tokenizer& tokenizer,
                                                 const std::string& name,
                                                 const std::filesystem::path& templates_file) {
  if (name.ends_with(".jinja")) return tool_format_of_template(read_file(name));
  if (const auto known = find_template(encoder.description(), templates_file))
    return tool_format_of_named(known->tool_format);
  return tool_format_of_template(tokenizer.tool_template().empty() ? tokenizer.chat_template()
                                                                   : tokenizer.tool_template());
}

}  // namespace danlu::text
