// api/classify_request.h: texts that a head sorts or judges: the body and the answers of POST
// /classify, in vLLM's words, and of POST /v1/chat/completions, in ms-swift's.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/completion_request.h"
#include "api/responses.h"

namespace danlu::api {

struct ClassifyRequest {
  std::string model = {};  ///< "": the one that there is
  /// At least one: texts and ids of `input`, or the conversation of `messages`.
  std::vector<std::variant<std::string, std::vector<text::TokenId>, text::Conversation>> inputs =
      {};
  bool activates = true;                        ///< numbers become probabilities
  std::optional<int64_t> truncate_prompt = {};  ///< its last so many tokens; -1: what fits
  int64_t priority = 0;
  std::string request_id = {};
  bool keeps_beginning = true;                     ///< of a text that is cut; else its end
  std::map<std::string, std::string> unread = {};  ///< as GenerationWish::unread
};

/// {"input": a text, ids or a list of such} or {"messages"}. Errors: Refusal.
ClassifyRequest read_classify_request(const Json& body, const RequestLimits& limits);

/// {"id", "object": "list", "data": [{"index", "label", "probs", "num_classes"}], "usage"}: the
/// label is the name of the largest number. names: one for each number.
Json classified_json(const AnswerHead& head, const std::vector<std::vector<double>>& numbers,
                     const std::vector<std::string>& names, int64_t prompt_tokens);

/// A chat's answer whose content is `label`: a class, a list of such, or a number.
Json judged_chat_json(const AnswerHead& head, const Json& label, int64_t prompt_tokens);

}  // namespace danlu::api
