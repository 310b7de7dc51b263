// The routes whose answers are numbers: vectors of texts, scores of pairs, labels.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "arch/label_numbers.h"
#include "serve/embedding_answer.h"
#include "serve/numbers_answer.h"
#include "serve/service.h"

namespace danlu::serve {
namespace {

std::vector<int64_t> prompt_lengths(const std::vector<infer::EngineRequest>& requests) {
  std::vector<int64_t> lengths;
  for (const infer::EngineRequest& request : requests)
    lengths.push_back(std::ssize(request.request.prompt));
  return lengths;
}

/// null: the model judges no texts, which whoever asks it hears.
const Judging* judging_of(const ServedModel& model) {
  const auto& judging = model.description().judging;
  return judging ? &*judging : nullptr;
}

}  // namespace

void Service::embed(const http::ExchangePtr& exchange) {
  const api::EmbeddingRequest wish =
      api::read_embedding_request(api::parse_body(exchange->request().body), settings_.limits);
  warn_of_unread(wish.unread);
  const size_t size = model_.vector_size(wish);
  std::vector<infer::EngineRequest> requests = model_.embedding_requests(wish);
  std::vector<int64_t> tokens = prompt_lengths(requests);
  submit(exchange, std::move(requests),
         std::make_shared<EmbeddingAnswer>(exchange,
                                           head_of(*exchange, wish.model, wish.request_id, "embd-"),
                                           wish.in_base64, size, std::move(tokens)));
}

void Service::rerank(const http::ExchangePtr& exchange) {
  const api::RankRequest wish =
      api::read_rerank_request(api::parse_body(exchange->request().body), settings_.limits);
  const api::AnswerHead head = head_of(*exchange, wish.model, wish.request_id, "rerank-");
  rank(exchange, wish, [head, wish](const std::vector<double>& scores, int64_t tokens) {
    return api::rerank_json(head, wish, scores, tokens);
  });
}

void Service::score(const http::ExchangePtr& exchange) {
  const api::RankRequest wish =
      api::read_score_request(api::parse_body(exchange->request().body), settings_.limits);
  const api::AnswerHead head = head_of(*exchange, wish.model, wish.request_id, "score-");
  rank(exchange, wish, [head](const std::vector<double>& scores, int64_t tokens) {
    return api::scores_json(head, scores, tokens);
  });
}

void Service::rank(
    const http::ExchangePtr& exchange, const api::RankRequest& wish,
    const std::function<Json(const std::vector<double>& scores, int64_t tokens)>& json) {
  warn_of_unread(wish.unread);
  std::vector<infer::EngineRequest> requests = model_.rank_requests(wish);
  const Ranking& ranking = *model_.description().ranking;
  const auto number_of =
      [score_of = ranking.score_of,
       activates = wish.activates.value_or(ranking.activates)](const std::vector<float>& hidden) {
        const double score = score_of(hidden);
        return std::vector<double>{activates ? 1 / (1 + std::exp(-score)) : score};
      };
  const auto of_first = [json](const std::vector<std::vector<double>>& numbers, int64_t tokens) {
    std::vector<double> scores;
    for (const std::vector<double>& one : numbers) scores.push_back(one.front());
    return json(scores, tokens);
  };
  std::vector<int64_t> tokens = prompt_lengths(requests);
  submit(exchange, std::move(requests),
         std::make_shared<NumbersAnswer>(exchange, number_of, std::move(tokens), of_first));
}

void Service::submit_judged(const http::ExchangePtr& exchange, const api::ClassifyRequest& wish,
                            NumbersAnswer::MakeJson json) {
  warn_of_unread(wish.unread);
  std::vector<infer::EngineRequest> requests = model_.judging_requests(wish);
  std::vector<int64_t> tokens = prompt_lengths(requests);
  submit(exchange, std::move(requests),
         std::make_shared<NumbersAnswer>(exchange, model_.description().judging->numbers_of,
                                         std::move(tokens), std::move(json)));
}

void Service::classify(const http::ExchangePtr& exchange) {
  const api::ClassifyRequest wish =
      api::read_classify_request(api::parse_body(exchange->request().body), settings_.limits);
  const api::AnswerHead head = head_of(*exchange, wish.model, wish.request_id, "classify-");
  submit_judged(exchange, wish,
                [head, activates = wish.activates, judging = judging_of(model_)](
                    const std::vector<std::vector<double>>& numbers, int64_t tokens) {
                  if (!activates || judging->problem == arch::LabelProblem::kNumbers)
                    return api::classified_json(head, numbers, judging->names, tokens);
                  std::vector<std::vector<double>> all;
                  for (const std::vector<double>& one : numbers)
                    all.push_back(arch::label_probabilities(one, judging->problem));
                  return api::classified_json(head, all, judging->names, tokens);
                });
}

void Service::judge(const http::ExchangePtr& exchange, const api::ChatRequest& wish) {
  if (wish.stream.is_on) {
    throw api::Refusal("'stream': what this model says of a text is one value, which comes at once",
                       "stream");
  }
  const auto refuse = [](bool is_asked, const char* field) {
    if (is_asked)
      throw api::Refusal(fmt::format("'{}': this model judges texts, and writes none", field),
                         field);
  };
  refuse(wish.num_choices > 1, "n");
  refuse(wish.num_logprobs.has_value(), "logprobs");
  refuse(!wish.conversation.tools.is_null(), "tools");
  api::ClassifyRequest asked;
  asked.model = wish.model;
  asked.inputs.emplace_back(wish.conversation);
  asked.truncate_prompt = wish.truncate_prompt;
  asked.keeps_beginning = wish.keeps_beginning;
  asked.priority = wish.priority;
  const api::AnswerHead head = head_of(*exchange, wish.model, wish.request_id, "chatcmpl-");
  submit_judged(exchange, asked,
                [head, judging = judging_of(model_)](
                    const std::vector<std::vector<double>>& numbers, int64_t tokens) {
                  return api::judged_chat_json(
                      head, arch::label_of(numbers.front(), judging->problem), tokens);
                });
}

}  // namespace danlu::serve
