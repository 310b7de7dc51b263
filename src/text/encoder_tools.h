// text/encoder_tools.h: how a model that a chat template speaks to writes its tool calls.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "text/conversation.h"
#include "text/tokenizer.h"
#include "text/tool_format.h"

namespace danlu::text {

/// What `encoder` tells the model to write; none where that is not known. name, templates_file: as
/// ChatEncoder::create took them. Errors: IoError where a *.jinja file cannot be read.
std::optional<ToolFormat> tool_format_of_encoder(const ChatEncoder& encoder,
                                                 const Tokenizer& tokenizer,
                                                 const std::string& name,
                                                 const std::filesystem::path& templates_file);

}  // namespace danlu::text
