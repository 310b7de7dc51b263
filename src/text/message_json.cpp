#include "text/message_json.h"

namespace danlu::text {

Json message_json(const Message& message) {
  Json json{{"role", message.role}, {"content", message.content}};
  for (const auto& [key, value] : message.extra.items()) {
    // An Alpaca row's, which `content` has joined.
    const bool is_joined = message.role == "user" && (key == "instruction" || key == "input");
    if (!is_joined) json[key] = value;
  }
  return json;
}

Json messages_json(const Conversation& conversation) {
  Json list = Json::array();
  for (const Message& message : conversation.messages) list.push_back(message_json(message));
  return list;
}

}  // namespace danlu::text
