// text/message_json.h: messages as OpenAI writes them.
#pragma once
#include "base/json.h"
#include "text/conversation.h"

namespace danlu::text {

/// {"role", "content"} and the message's further keys, as parse_conversation() reads them.
Json message_json(const Message& message);
/// A list of them.
Json messages_json(const Conversation& conversation);

}  // namespace danlu::text
