#include "serve/chat_answer.h"

#include <utility>

namespace danlu::serve {
namespace {

using Kind = api::ToolCallEvent::Kind;

/// One entry for each call; fragments of one call that come together are one.
Json call_deltas(const std::vector<api::ToolCallEvent>& events) {
  Json deltas = Json::array();
  for (const api::ToolCallEvent& event : events) {
    if (event.kind == Kind::kBegin) {
      deltas.push_back({{"index", event.index},
                        {"id", event.id},
                        {"type", "function"},
                        {"function", {{"name", event.name}, {"arguments", ""}}}});
    } else if (event.kind == Kind::kArguments) {
      if (deltas.empty() || deltas.back()["index"] != event.index)
        deltas.push_back({{"index", event.index}, {"function", {{"arguments", ""}}}});
      Json& arguments = deltas.back()["function"]["arguments"];
      arguments = arguments.get<std::string>() + event.text;
    }
  }
  return deltas;
}

}  // namespace

ChatAnswer::ChatAnswer(AnswerPlan plan, ChatWords words)
    : Answer(std::move(plan)), words_(std::move(words)), messages_(choices().size()) {
  for (Message& message : messages_) message.content = words_.echo;
}

void ChatAnswer::begin_choice(Choice& choice) {
  if (!streams()) return;
  Json beside = Json::object();
  put_prompt_ids(choice, &beside);
  send({{"index", choice.index},
        {"delta", {{"role", "assistant"}, {"content", words_.echo}}},
        {"logprobs", nullptr},
        {"finish_reason", nullptr}},
       std::move(beside));
}

/// Whether the choice's tokens spell a thought that the client is not to see. Before the first
/// piece of content that is known.
bool ChatAnswer::hides_tokens(const Choice& choice) const {
  return !words_.shows_reasoning && choice.reader.reasoning_tokens() > 0;
}

/// Log-probabilities that have gathered, and ids where they were asked for.
void ChatAnswer::move_tokens(Choice& choice, Json* json) const {
  std::vector<api::ShownLogprobs> logprobs = std::exchange(choice.logprobs, {});
  const bool hides = hides_tokens(choice), is_empty = streams() && logprobs.empty();
  const bool has_any = plan().num_logprobs && !hides && !is_empty;
  (*json)["logprobs"] = has_any ? api::chat_logprobs_json(logprobs) : Json(nullptr);
  move_ids(choice, json);
  if (hides && plan().returns_ids) (*json)["token_ids"] = nullptr;
}

void ChatAnswer::take_piece(Choice& choice, const api::AnswerPiece& piece) {
  if (streams()) return send_piece(choice, piece);
  Message& message = messages_[choice.index];
  message.content += piece.content;
  message.reasoning += piece.reasoning;
  for (const api::ToolCallEvent& event : piece.calls) {
    if (event.kind == Kind::kBegin) message.calls.push_back({event.id, event.name, ""});
    if (event.kind == Kind::kArguments) message.calls[event.index].arguments += event.text;
  }
}

void ChatAnswer::send_piece(Choice& choice, const api::AnswerPiece& piece) {
  Json delta = Json::object();
  if (words_.shows_reasoning && !piece.reasoning.empty())
    delta["reasoning"] = delta["reasoning_content"] = piece.reasoning;
  if (!piece.content.empty()) delta["content"] = piece.content;
  if (Json calls = call_deltas(piece.calls); !calls.empty()) delta["tool_calls"] = std::move(calls);
  const bool is_last = !choice.finish_reason.empty();
  const auto chunk = [&](Json with, bool ends) {
    Json json = {{"index", choice.index}, {"delta", std::move(with)}};
    move_tokens(choice, &json);
    json["finish_reason"] = ends ? Json(choice.finish_reason) : Json(nullptr);
    if (ends) json["stop_reason"] = choice.stop_reason;
    send(std::move(json));
  };
  if (!delta.empty()) chunk(std::move(delta), /*ends=*/false);
  if (is_last) chunk(Json::object(), /*ends=*/true);
}

Json ChatAnswer::message_json(const Message& message) const {
  const bool has_content = !message.content.empty() || message.calls.empty();
  Json json = {{"role", "assistant"},
               {"content", has_content ? Json(message.content) : Json(nullptr)},
               {"refusal", nullptr}};
  if (words_.shows_reasoning && !message.reasoning.empty())
    json["reasoning"] = json["reasoning_content"] = message.reasoning;
  for (const api::ParsedCall& call : message.calls) {
    json["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return json;
}

Json ChatAnswer::whole() {
  Json json = api::answer_json(plan().head, "chat.completion");
  for (Choice& choice : choices()) {
    Json one = {{"index", choice.index}, {"message", message_json(messages_[choice.index])}};
    move_tokens(choice, &one);
    one["finish_reason"] = choice.finish_reason;
    one["stop_reason"] = choice.stop_reason;
    json["choices"].push_back(std::move(one));
  }
  if (plan().num_prompt_logprobs) json["prompt_logprobs"] = prompt_logprobs_json(choices().front());
  put_prompt_ids(choices().front(), &json);
  return json;
}

}  // namespace danlu::serve
