// api/rank_request.h: how well documents go with a query: the bodies and answers of POST
// /v1/rerank, in Jina's and Cohere's words, and of POST /v1/score, in vLLM's.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/chat_request.h"
#include "api/fields.h"
#include "api/responses.h"

namespace danlu::api {

/// Pairs of a query and a document, each of which gets a number.
struct RankRequest {
  std::string model = {};                                 ///< "": the one that there is
  std::vector<std::string> queries = {}, documents = {};  ///< as many of both, at least one
  std::string instruction = {};  ///< what is judged; "": the template's own
  std::optional<bool> activates =
      {};  ///< numbers go through the sigmoid; empty: as the server has it
  /// A pair has at most so many tokens, and the end of its document is left out; -1: what fits.
  std::optional<int64_t> truncate_prompt = {};
  int64_t priority = 0;
  std::string request_id = {};
  std::map<std::string, std::string> unread = {};  ///< as GenerationWish::unread

  // Fields of /v1/rerank:
  int64_t top_n = 0;  ///< the best alone; 0: all
  bool returns_documents = true;
};

/// {"query", "documents": [text or {"text"}], "top_n", "return_documents"}. Errors: Refusal.
RankRequest read_rerank_request(const Json& body, const RequestLimits& limits);
/// {"text_1", "text_2"}: a text and others, or as many of both; "queries" and "documents" likewise.
/// Errors: Refusal.
RankRequest read_score_request(const Json& body, const RequestLimits& limits);

/// {"id", "model", "results": [{"index", "relevance_score", "document"}], "usage"}, the best first,
/// of equal ones the first.
Json rerank_json(const AnswerHead& head, const RankRequest& request,
                 const std::vector<double>& scores, int64_t prompt_tokens);
/// {"id", "object": "list", "data": [{"index", "object": "score", "score"}], "usage"}
Json scores_json(const AnswerHead& head, const std::vector<double>& scores, int64_t prompt_tokens);

}  // namespace danlu::api
