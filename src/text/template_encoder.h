// text/template_encoder.h: ChatEncoder of a named template, with the rules of MindSpeed-LLM or of
// LLaMA-Factory.
#pragma once
#include <memory>
#include <string>

#include "text/conversation.h"
#include "text/template_file.h"

namespace danlu::text {

/// origin: shown in description(). Errors: ModelError if a token of the template is not in the
/// vocabulary; UsageError for template arguments other than enable_thinking.
std::shared_ptr<const ChatEncoder> make_template_encoder(std::shared_ptr<const Tokenizer> tokenizer,
                                                         NamedTemplate named, std::string origin,
                                                         const Json& template_arguments);

/// Stanford Alpaca's PROMPT_DICT: one turn, source and target tokenised as one text.
std::shared_ptr<const ChatEncoder> make_stanford_alpaca_encoder(
    std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace danlu::text
