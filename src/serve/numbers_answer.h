// serve/numbers_answer.h: answers of numbers that a head gives: POST /v1/rerank, /v1/score,
// /classify, and chats with models that have no words.
#pragma once
#include <functional>
#include <vector>

#include "base/json.h"
#include "http/exchange.h"
#include "serve/engine_loop.h"

namespace danlu::serve {

/// What a head makes of a text's last hidden state.
using NumbersOf = std::function<std::vector<double>(const std::vector<float>& hidden)>;

/// The numbers of each text, in the order of `prompt_tokens`. Used on the engine's thread.
class NumbersAnswer : public Receiver {
 public:
  using MakeJson =
      std::function<Json(const std::vector<std::vector<double>>& numbers, int64_t prompt_tokens)>;
  NumbersAnswer(http::ExchangePtr exchange, NumbersOf numbers_of,
                std::vector<int64_t> prompt_tokens, MakeJson json);
  void on_accepted() override {}
  Heard on_output(size_t index, const infer::EngineOutput& output) override;
  void on_failed(const Error& why, Blame blame) override;

 private:
  http::ExchangePtr exchange_;
  NumbersOf numbers_of_;
  std::vector<int64_t> prompt_tokens_;
  MakeJson json_;
  std::vector<std::vector<double>> numbers_;
  size_t num_over_ = 0;
  bool is_over_ = false;
};

}  // namespace danlu::serve
