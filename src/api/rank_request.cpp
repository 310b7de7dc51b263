#include "api/rank_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "api/generation.h"

namespace danlu::api {
namespace {

constexpr size_t kMostPairs = 2048;  // as texts that become vectors

[[noreturn]] void refuse_text(const std::string& name, const Json& found) {
  throw Refusal(fmt::format("'{}' must be a text, {{\"text\": …}}, or a list of such, got {}", name,
                            kind_of(found)),
                name);
}

std::string text_in(const std::string& name, const Json& json) {
  const Json* text = &json;
  if (json.is_object()) {
    const auto found = json.find("text");
    if (found == json.end()) refuse_text(name, json);
    text = &*found;
  }
  if (!text->is_string()) refuse_text(name, *text);
  return text->get<std::string>();
}

/// Empty: the field is not there.
std::vector<std::string> texts_of(Fields& fields, const std::string& name) {
  const Json* const json = fields.find(name);
  if (!json) return {};
  if (!json->is_array()) return {text_in(name, *json)};
  if (json->empty()) throw Refusal(fmt::format("'{}' is empty", name), name);
  if (json->size() > kMostPairs) {
    throw Refusal(
        fmt::format("'{}' may have up to {} texts, got {}", name, kMostPairs, json->size()), name);
  }
  std::vector<std::string> texts;
  for (const Json& one : *json) texts.push_back(text_in(name, one));
  return texts;
}

std::vector<std::string> required_texts(Fields& fields, const std::string& name,
                                        const std::string& also) {
  std::vector<std::string> texts = texts_of(fields, name);
  if (texts.empty() && !also.empty()) texts = texts_of(fields, also);
  if (texts.empty()) throw Refusal(fmt::format("'{}' is missing", name), name);
  return texts;
}

RankRequest read_common(Fields& fields, const RequestLimits& limits) {
  RankRequest request;
  request.model = fields.text("model").value_or("");
  request.instruction = fields.text("instruction").value_or("");
  request.activates = fields.boolean("use_activation");
  if (const auto older = fields.boolean("activation"); older && !request.activates)
    request.activates = older;
  request.truncate_prompt = fields.whole("truncate_prompt_tokens", -1);
  if (!read_keeps_beginning(fields, /*fallback=*/true))
    throw Refusal("'truncation_side': a document loses its end", "truncation_side");
  request.priority = read_priority(fields, limits);
  request.request_id = read_request_id(fields);
  fields.pass({"user"});
  fields.refuse("mm_processor_kwargs", "texts alone are ranked");
  return request;
}

Json usage_of(int64_t prompt_tokens) {
  return {{"prompt_tokens", prompt_tokens}, {"total_tokens", prompt_tokens}};
}

}  // namespace

RankRequest read_rerank_request(const Json& body, const RequestLimits& limits) {
  Fields fields(body);
  RankRequest request = read_common(fields, limits);
  const Json* const query = fields.find("query");
  if (!query) throw Refusal("'query' is missing", "query");
  request.documents = required_texts(fields, "documents", "");
  request.queries.assign(request.documents.size(), text_in("query", *query));
  request.top_n = fields.whole("top_n", 0).value_or(0);
  request.returns_documents = fields.boolean_or("return_documents", true);
  fields.refuse("max_tokens_per_doc", "'truncate_prompt_tokens' says how long a pair may be");
  fields.refuse("max_chunks_per_doc", "a document is read as a whole");
  fields.refuse("rank_fields", "a document is its 'text'");
  request.unread = fields.unread();
  return request;
}

RankRequest read_score_request(const Json& body, const RequestLimits& limits) {
  Fields fields(body);
  RankRequest request = read_common(fields, limits);
  request.queries = required_texts(fields, "text_1", "queries");
  request.documents = required_texts(fields, "text_2", "documents");
  const size_t pairs = request.documents.size();
  if (request.queries.size() == 1) request.queries.resize(pairs, request.queries.front());
  if (request.queries.size() != pairs) {
    throw Refusal(fmt::format("'text_1' must be one text or as many as 'text_2' has, which are {}, "
                              "got {}",
                              pairs, request.queries.size()),
                  "text_1");
  }
  request.unread = fields.unread();
  return request;
}

Json rerank_json(const AnswerHead& head, const RankRequest& request,
                 const std::vector<double>& scores, int64_t prompt_tokens) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (request.top_n > 0) order.resize(std::min(order.size(), static_cast<size_t>(request.top_n)));
  Json results = Json::array();
  for (const size_t index : order) {
    Json one = {{"index", index}, {"relevance_score", scores[index]}};
    if (request.returns_documents) one["document"] = {{"text", request.documents[index]}};
    results.push_back(std::move(one));
  }
  return {{"id", head.id},
          {"model", head.model},
          {"results", std::move(results)},
          {"usage", usage_of(prompt_tokens)}};
}

Json scores_json(const AnswerHead& head, const std::vector<double>& scores, int64_t prompt_tokens) {
  Json data = Json::array();
  for (size_t i = 0; i < scores.size(); ++i)
    data.push_back({{"index", i}, {"object", "score"}, {"score", scores[i]}});
  return {{"id", head.id},       {"object", "list"},        {"created", head.created_s},
          {"model", head.model}, {"data", std::move(data)}, {"usage", usage_of(prompt_tokens)}};
}

}  // namespace danlu::api
