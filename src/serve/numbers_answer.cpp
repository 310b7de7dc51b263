#include "serve/numbers_answer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "api/refusal.h"
#include "base/error.h"
#include "serve/answer.h"

namespace danlu::serve {

NumbersAnswer::NumbersAnswer(http::ExchangePtr exchange, NumbersOf numbers_of,
                             std::vector<int64_t> prompt_tokens, MakeJson json)
    : exchange_(std::move(exchange)),
      numbers_of_(std::move(numbers_of)),
      prompt_tokens_(std::move(prompt_tokens)),
      json_(std::move(json)),
      numbers_(prompt_tokens_.size()) {}

Heard NumbersAnswer::on_output(size_t index, const infer::EngineOutput& output) {
  if (is_over_) return Heard::kAll;
  if (output.finished == infer::FinishReason::kFailed) {
    const Error why = error_of(output);
    on_failed(why, blame_for(why));
    return Heard::kAll;
  }
  numbers_[index] = numbers_of_(output.embedding);
  if (!std::all_of(numbers_[index].begin(), numbers_[index].end(),
                   [](double number) { return std::isfinite(number); })) {
    on_failed(NumericError("the model's score is no number"), Blame::kServer);
    return Heard::kAll;
  }
  if (++num_over_ < numbers_.size()) return Heard::kMore;
  is_over_ = true;
  exchange_->respond_with(
      [json = std::move(json_), numbers = std::move(numbers_), tokens = std::move(prompt_tokens_)] {
        return response_of(
            200, json(numbers, std::accumulate(tokens.begin(), tokens.end(), int64_t{0})));
      });
  return Heard::kAll;
}

void NumbersAnswer::on_failed(const Error& why, Blame blame) {
  if (std::exchange(is_over_, true)) return;
  const int status = status_of(blame);
  exchange_->respond(response_of(status, api::error_json(status, why.what())));
}

}  // namespace danlu::serve
