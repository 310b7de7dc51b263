// text/jinja_encoder.h: ChatEncoder of a Jinja chat template, as Hugging Face's
// apply_chat_template.
#pragma once
#include <memory>
#include <string>

#include "text/conversation.h"

namespace danlu::text {

/// origin: shown in description() and error messages. arguments: further variables, or null.
/// Errors: TemplateError (a ModelError) if the template does not parse.
std::shared_ptr<const ChatEncoder> make_jinja_encoder(std::shared_ptr<const Tokenizer> tokenizer,
                                                      const std::string& source, std::string origin,
                                                      const Json& arguments);

}  // namespace danlu::text
