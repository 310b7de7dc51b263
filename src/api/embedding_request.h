// api/embedding_request.h: POST /v1/embeddings: its body and its answer.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/completion_request.h"
#include "api/responses.h"

namespace danlu::api {

struct EmbeddingRequest {
  std::string model = {};           ///< "": the one that there is
  std::vector<Prompt> inputs = {};  ///< at least one
  bool in_base64 = false;           ///< vectors as base64 of f32, the least byte first
  std::optional<int64_t> dimensions = {};
  bool adds_special = true;                     ///< BOS and the like, around texts
  std::optional<int64_t> truncate_prompt = {};  ///< so many of its tokens; -1: what fits
  bool keeps_beginning = true;                  ///< of a text that is cut; else its end
  int64_t priority = 0;
  std::string request_id = {};
  std::map<std::string, std::string> unread = {};  ///< as GenerationWish::unread
};

/// Errors: Refusal.
EmbeddingRequest read_embedding_request(const Json& body, const RequestLimits& limits);

/// {"object": "list", "data": [{"object": "embedding", "index", "embedding"}], "model", "usage"}
Json embeddings_json(const AnswerHead& head, const std::vector<std::vector<float>>& vectors,
                     bool in_base64, int64_t prompt_tokens);

}  // namespace danlu::api
