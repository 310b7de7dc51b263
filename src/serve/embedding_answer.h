// serve/embedding_answer.h: the answer of POST /v1/embeddings.
#pragma once
#include <vector>

#include "api/responses.h"
#include "http/exchange.h"
#include "serve/engine_loop.h"

namespace danlu::serve {

/// Vectors of length one, in the order of the inputs, of `size` numbers where it is above 0: their
/// first ones. Used on the engine's thread.
class EmbeddingAnswer : public Receiver {
 public:
  EmbeddingAnswer(http::ExchangePtr exchange, api::AnswerHead head, bool in_base64, size_t size,
                  std::vector<int64_t> prompt_tokens);
  void on_accepted() override {}
  Heard on_output(size_t index, const infer::EngineOutput& output) override;
  void on_failed(const Error& why, Blame blame) override;

 private:
  http::ExchangePtr exchange_;
  api::AnswerHead head_;
  bool in_base64_;
  size_t size_;
  std::vector<int64_t> prompt_tokens_;
  std::vector<std::vector<float>> vectors_;
  size_t num_over_ = 0;
  bool is_over_ = false;
};

}  // namespace danlu::serve
