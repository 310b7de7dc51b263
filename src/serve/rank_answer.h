// serve/rank_answer.h: the answers of POST /v1/rerank and POST /v1/score.
#pragma once
#include <functional>
#include <vector>

#include "api/rank_request.h"
#include "http/exchange.h"
#include "serve/engine_loop.h"

namespace danlu::serve {

/// A pair's number from the model's last hidden state.
using ScoreOf = std::function<double(const std::vector<float>& hidden)>;

/// Numbers of pairs, in the order of `prompt_tokens`. Used on the engine's thread.
class RankAnswer : public Receiver {
 public:
  using MakeJson = std::function<Json(const std::vector<double>& scores, int64_t prompt_tokens)>;
  /// activates: numbers go through the sigmoid.
  RankAnswer(http::ExchangePtr exchange, ScoreOf score_of, bool activates,
             std::vector<int64_t> prompt_tokens, MakeJson json);
  void on_accepted() override {}
  Heard on_output(size_t index, const infer::EngineOutput& output) override;
  void on_failed(const Error& why, Blame blame) override;

 private:
  http::ExchangePtr exchange_;
  ScoreOf score_of_;
  bool activates_;
  std::vector<int64_t> prompt_tokens_;
  MakeJson json_;
  std::vector<double> scores_;
  size_t num_over_ = 0;
  bool is_over_ = false;
};

}  // namespace danlu::serve
