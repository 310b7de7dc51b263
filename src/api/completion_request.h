// api/completion_request.h: the bodies of POST /v1/completions, /tokenize and /detokenize.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/chat_request.h"
#include "api/generation.h"

namespace danlu::api {

/// A text, or its ids.
using Prompt = std::variant<std::string, std::vector<text::TokenId>>;

struct CompletionRequest : GenerationWish {
  std::vector<Prompt> prompts = {};  ///< at least one
  bool echoes = false;               ///< the prompt stands before the answer
};

/// A string, a list of strings, a list of token ids or a list of such lists, at most `most` of
/// them. Errors: Refusal.
std::vector<Prompt> read_prompts(Fields& fields, const std::string& name, size_t most);

/// Errors: Refusal.
CompletionRequest read_completion_request(const Json& body, const RequestLimits& limits);

struct TokenizeRequest {
  std::string model = {};
  std::optional<std::string> text = {};  ///< else a conversation
  text::Conversation conversation = {};
  Json template_arguments = Json::object();
  PromptEnd end = PromptEnd::kNewAnswer;           ///< of a conversation
  bool adds_special = true;                        ///< to a text
  bool returns_texts = false;                      ///< of the tokens, beside their ids
  std::map<std::string, std::string> unread = {};  ///< as GenerationWish::unread
};
TokenizeRequest read_tokenize_request(const Json& body, const RequestLimits& limits);

struct DetokenizeRequest {
  std::string model = {};
  std::vector<text::TokenId> ids = {};
  std::map<std::string, std::string> unread = {};  ///< as GenerationWish::unread
};
DetokenizeRequest read_detokenize_request(const Json& body);

}  // namespace danlu::api
