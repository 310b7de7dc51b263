#include "api/responses.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace danlu::api {
namespace {

Json bytes_json(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

/// JSON has no infinity.
double shown_logprob(double logprob) { return std::max(logprob, -9999.0); }

Json token_json(const ShownToken& token) {
  return {{"token", token.text},
          {"logprob", shown_logprob(token.logprob)},
          {"bytes", bytes_json(token.bytes.value_or(token.text))}};
}

}  // namespace

std::string spelled(const ShownToken& token) {
  if (!token.bytes) return token.text;
  std::string name = "bytes:";
  for (const char c : *token.bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

std::string event_of(const Json& json) { return "data: " + dump_text(json) + "\n\n"; }

std::string new_id(std::string_view prefix) {
  static thread_local std::random_device device;
  std::string id(prefix);
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

Usage& Usage::operator+=(const Usage& other) {
  prompt_tokens += other.prompt_tokens;
  completion_tokens += other.completion_tokens;
  cached_tokens += other.cached_tokens;
  reasoning_tokens += other.reasoning_tokens;
  return *this;
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

Json chat_logprobs_json(const std::vector<ShownLogprobs>& tokens) {
  Json content = Json::array();
  for (const ShownLogprobs& token : tokens) {
    Json entry = token_json(token.chosen);
    entry["top_logprobs"] = Json::array();
    for (const ShownToken& other : token.likeliest)
      entry["top_logprobs"].push_back(token_json(other));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs_json(const std::vector<PlacedLogprobs>& tokens, int64_t num_likeliest) {
  Json offsets = Json::array(), logprobs = Json::array(), texts = Json::array();
  Json likeliest = Json::array();
  for (const PlacedLogprobs& token : tokens) {
    texts.push_back(token.token);
    offsets.push_back(token.offset);
    if (!token.logprobs) {
      logprobs.push_back(nullptr);
      likeliest.push_back(nullptr);
      continue;
    }
    logprobs.push_back(shown_logprob(token.logprobs->chosen.logprob));
    Json table = Json::object();
    // Several tokens may read the same: the likeliest of them counts, the chosen one always does.
    for (const ShownToken& other : token.logprobs->likeliest) {
      const std::string name = spelled(other);
      if (!table.contains(name)) table[name] = shown_logprob(other.logprob);
    }
    table[spelled(token.logprobs->chosen)] = shown_logprob(token.logprobs->chosen.logprob);
    likeliest.push_back(std::move(table));
  }
  return {{"text_offset", std::move(offsets)},
          {"token_logprobs", std::move(logprobs)},
          {"tokens", std::move(texts)},
          {"top_logprobs", num_likeliest > 0 ? std::move(likeliest) : Json(nullptr)}};
}

Json answer_json(const AnswerHead& head, const char* object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created_s},
          {"model", head.model},
          {"choices", Json::array()}};
}

Json model_json(const ModelCard& card) {
  Json capabilities = Json::array();
  if (card.completes) capabilities.push_back("completion");
  if (card.ranks) capabilities.push_back("rerank");
  if (card.judges) capabilities.push_back("classify");
  if (card.sees) capabilities.push_back("multimodal");
  return {{"id", card.id},
          {"object", "model"},
          {"created", card.created_s},
          {"owned_by", "danlu"},
          {"root", card.root},
          {"parent", card.parent.empty() ? Json(nullptr) : Json(card.parent)},
          {"max_model_len", card.max_model_len > 0 ? Json(card.max_model_len) : Json(nullptr)},
          {"capabilities", std::move(capabilities)}};
}

}  // namespace danlu::api
