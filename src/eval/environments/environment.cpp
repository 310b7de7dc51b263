#include "eval/environments/environment.h"

#include <cmath>
#include <functional>
#include <map>

#include "base/error.h"
#include "eval/environments/program_environment.h"
#include "eval/environments/tips.h"
#include "eval/rewards/reward.h"

namespace danlu::eval {
namespace {

constexpr std::string_view kProgramWord = "program:";

/// The value under a key, which is to be of a kind; nullptr: there is none.
const Json* value_under(const Json& json, const char* key, bool (Json::*is_kind)() const noexcept,
                        const std::string& kind) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return nullptr;
  if (((*found).*is_kind)()) return &*found;
  throw DataError(tr("\"{}\" is {}, not {}", key, dump_text(*found).substr(0, 80), kind));
}

Json messages_in(const Json& list) {
  for (const Json& message : list) {
    const bool is_object = message.is_object();
    const auto role = is_object ? json_get<std::string>(message, "role") : std::nullopt;
    if (!role || !message.contains("content") || !message.at("content").is_string())
      throw DataError(tr("a message has \"role\" and \"content\", both texts: {}",
                         dump_text(message).substr(0, 80)));
    if (*role == "assistant")
      throw DataError(tr("a message of the assistant: the model writes these"));
  }
  return list;
}

}  // namespace

Json reply_json(const Reply& reply) {
  Json json = Json::object();
  if (reply.is_done) json["done"] = true;
  if (!reply.messages.empty()) json["messages"] = reply.messages;
  if (reply.goes_on) json["continue"] = *reply.goes_on;
  if (reply.kept_bytes) json["kept_bytes"] = *reply.kept_bytes;
  if (reply.reward) json["reward"] = *reply.reward;
  if (!reply.info.is_null()) json["info"] = reply.info;
  if (!reply.state.is_null()) json["state"] = reply.state;
  return json;
}

Reply reply_from(const Json& json) {
  if (!json.is_object()) throw DataError(tr("no JSON object"));
  Reply reply;
  if (const Json* done = value_under(json, "done", &Json::is_boolean, tr("true or false")))
    reply.is_done = done->get<bool>();
  if (const Json* list = value_under(json, "messages", &Json::is_array, tr("a list")))
    reply.messages = messages_in(*list);
  if (const Json* text = value_under(json, "continue", &Json::is_string, tr("a text")))
    reply.goes_on = text->get<std::string>();
  if (const Json* bytes = value_under(json, "kept_bytes", &Json::is_number_unsigned, tr("a number")))
    reply.kept_bytes = bytes->get<size_t>();
  if (const Json* reward = value_under(json, "reward", &Json::is_number, tr("a number"))) {
    reply.reward = reward->get<double>();
    if (!(std::abs(*reply.reward) <= kLargestScore))
      throw DataError(tr("\"reward\" is beyond {:g}", kLargestScore));
  }
  if (const Json* info = value_under(json, "info", &Json::is_object, tr("an object")))
    reply.info = *info;
  if (json.contains("state")) reply.state = json.at("state");
  const int ways =
      (reply.is_done ? 1 : 0) + (reply.messages.empty() ? 0 : 1) + (reply.goes_on ? 1 : 0);
  if (ways != 1)
    throw DataError(tr("one of \"done\": true, \"messages\" with one at least, and \"continue\""));
  return reply;
}

bool is_program_environment(const std::string& name) { return name.starts_with(kProgramWord); }

std::unique_ptr<Environment> make_environment(const std::string& name,
                                              const EnvironmentSettings& settings) {
  if (settings.timeout_ms <= 0)
    throw UsageError(
        tr("[environment] {} {}: must be positive", "timeout_ms", settings.timeout_ms));
  if (is_program_environment(name))
    return make_program_environment(name.substr(kProgramWord.size()), settings.timeout_ms);
  if (name == "math_tip_trick") return make_doubt(settings.reference_column);
  if (name == "thinking_tips_scheduler") return make_tip(settings.reference_column);
  throw UsageError(
      tr("[environment] {}: program:COMMAND, math_tip_trick or thinking_tips_scheduler", name),
      tr("no Python is ever run in here; a scheduler of your own is a program that is told of "
         "conversations and says how they go on, in any language: docs/reinforcement.md"));
}

}  // namespace danlu::eval
