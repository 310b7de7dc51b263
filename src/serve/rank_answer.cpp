#include "serve/rank_answer.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "api/refusal.h"
#include "serve/answer.h"

namespace danlu::serve {

RankAnswer::RankAnswer(http::ExchangePtr exchange, ScoreOf score_of, bool activates,
                       std::vector<int64_t> prompt_tokens, MakeJson json)
    : exchange_(std::move(exchange)),
      score_of_(std::move(score_of)),
      activates_(activates),
      prompt_tokens_(std::move(prompt_tokens)),
      json_(std::move(json)),
      scores_(prompt_tokens_.size()) {}

Heard RankAnswer::on_output(size_t index, const infer::EngineOutput& output) {
  if (is_over_) return Heard::kAll;
  if (output.finished == infer::FinishReason::kFailed) {
    const Error why = error_of(output);
    on_failed(why, blame_for(why));
    return Heard::kAll;
  }
  const double score = score_of_(output.embedding);
  scores_[index] = activates_ ? 1 / (1 + std::exp(-score)) : score;
  if (++num_over_ < scores_.size()) return Heard::kMore;
  is_over_ = true;
  exchange_->respond_with(
      [json = std::move(json_), scores = std::move(scores_), tokens = std::move(prompt_tokens_)] {
        return response_of(200,
                           json(scores, std::accumulate(tokens.begin(), tokens.end(), int64_t{0})));
      });
  return Heard::kAll;
}

void RankAnswer::on_failed(const Error& why, Blame blame) {
  if (std::exchange(is_over_, true)) return;
  const int status = status_of(blame);
  exchange_->respond(response_of(status, api::error_json(status, why.what())));
}

}  // namespace danlu::serve
