#include "serve/embedding_answer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "api/embedding_request.h"
#include "api/refusal.h"
#include "serve/answer.h"

namespace danlu::serve {
namespace {

/// At length one; zeros stay so.
std::vector<float> normalised(std::vector<float> values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  if (squares == 0) return values;
  const double factor = 1 / std::sqrt(squares);
  for (float& value : values) value = static_cast<float>(value * factor);
  return values;
}

}  // namespace

EmbeddingAnswer::EmbeddingAnswer(http::ExchangePtr exchange, api::AnswerHead head, bool in_base64,
                                 size_t size, std::vector<int64_t> prompt_tokens)
    : exchange_(std::move(exchange)),
      head_(std::move(head)),
      in_base64_(in_base64),
      size_(size),
      prompt_tokens_(std::move(prompt_tokens)),
      vectors_(prompt_tokens_.size()) {}

Heard EmbeddingAnswer::on_output(size_t index, const infer::EngineOutput& output) {
  if (is_over_) return Heard::kAll;
  if (output.finished == infer::FinishReason::kFailed) {
    const Error why = error_of(output);
    on_failed(why, blame_for(why));
    return Heard::kAll;
  }
  std::vector<float> numbers = output.embedding;
  if (size_ > 0) numbers.resize(std::min(size_, numbers.size()));
  vectors_[index] = normalised(std::move(numbers));
  if (++num_over_ < vectors_.size()) return Heard::kMore;
  is_over_ = true;
  // Thousands of vectors are megabytes of text, for which no stream is to wait.
  exchange_->respond_with([head = head_, vectors = std::move(vectors_), in_base64 = in_base64_,
                           tokens = prompt_tokens_] {
    const int64_t all = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
    return response_of(200, api::embeddings_json(head, vectors, in_base64, all));
  });
  return Heard::kAll;
}

void EmbeddingAnswer::on_failed(const Error& why, Blame blame) {
  if (std::exchange(is_over_, true)) return;
  const int status = status_of(blame);
  exchange_->respond(response_of(status, api::error_json(status, why.what())));
}

}  // namespace danlu::serve
