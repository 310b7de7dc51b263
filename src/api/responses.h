// api/responses.h: answers in OpenAI's words, whole and in pieces.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace danlu::api {

/// "data: {…}\n\n": one event of a stream.
std::string event_of(const Json& json);
inline constexpr std::string_view kLastEvent = "data: [DONE]\n\n";

/// `prefix` and 32 digits that nobody guesses.
std::string new_id(std::string_view prefix);

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0;
  int64_t cached_tokens = 0;     ///< of the prompt
  int64_t reasoning_tokens = 0;  ///< of the completion

  Usage& operator+=(const Usage& other);
};
Json usage_json(const Usage& usage);

/// A token as logprobs show it.
struct ShownToken {
  std::string text;
  double logprob = 0;
  std::optional<std::string> bytes = {};  ///< where they are not those of `text`: half a character
};
/// Its text, or "bytes:\\xe4\\xbd" as OpenAI's completions name half a character.
std::string spelled(const ShownToken& token);
struct ShownLogprobs {
  ShownToken chosen;
  int64_t characters = 0;  ///< that it adds to the text
  std::vector<ShownToken> likeliest = {};
};
/// {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}
Json chat_logprobs_json(const std::vector<ShownLogprobs>& tokens);

/// A token of a completion and its log-probability. Without a value: the first token of a prompt,
/// which follows nothing.
struct PlacedLogprobs {
  std::string token;
  int64_t offset = 0;  ///< characters of the whole text before it
  std::optional<ShownLogprobs> logprobs = {};
};
/// {"text_offset", "token_logprobs", "tokens", "top_logprobs"}; num_likeliest: the request's
/// `logprobs`, 0 gives no top_logprobs.
Json completion_logprobs_json(const std::vector<PlacedLogprobs>& tokens, int64_t num_likeliest);

/// What all chunks and the whole of an answer have in common.
struct AnswerHead {
  std::string id, model;
  int64_t created_s = 0;
};
/// {"id", "object", "created", "model", "choices": []}
Json answer_json(const AnswerHead& head, const char* object);

struct ModelCard {
  std::string id, root;
  std::string parent = {};  ///< of an adapter: the base model's name
  int64_t created_s = 0, max_model_len = 0;
  bool sees = false;  ///< messages may have pictures
  bool completes = true, ranks = false, judges = false;
};
/// As vLLM's, with llama.cpp's "capabilities".
Json model_json(const ModelCard& card);

}  // namespace danlu::api
