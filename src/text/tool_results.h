// text/tool_results.h: what tools returned, where a template prints it inside the model's own turn.
#pragma once
#include <vector>

#include "text/chat_spans.h"

namespace danlu::text {

/// `spans` without what messages of other roles than system, user and assistant put into them.
/// Templates such as Gemma's print calls, results and the answer as one turn of the model, and a
/// result is not the model's to learn. What marks a result (its tags) goes with it, as far as it
/// appears and disappears with the message.
///
/// Each such message is found by a probe in place of its content. Where the template refuses the
/// probe (it reads results as JSON), by what the text lacks without the message.
std::vector<ByteSpan> without_tool_results(const ChatRenderer& renderer,
                                           const std::vector<Message>& messages,
                                           const std::string& full, const SpecialIndex& special,
                                           std::vector<ByteSpan> spans);

}  // namespace danlu::text
