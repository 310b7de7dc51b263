// Where a device finds the likeliest tokens itself, their logits stay there.
#include <ATen/core/Tensor.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>

#include "base/error.h"
#include "infer/engine.h"
#include "infer/engine_answers.h"
#include "models/weight_files.h"
#include "ops/backend.h"
#include "support/cpu_table.h"

namespace danlu::infer {
namespace likeliest_test {

constexpr int64_t kVocabulary = 61;

std::unique_ptr<models::CausalLM> tiny_model() {
  const Json json = {{"model_type", "llama"},    {"vocab_size", kVocabulary},
                     {"hidden_size", 32},        {"intermediate_size", 40},
                     {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                     {"num_key_value_heads", 2}, {"max_position_embeddings", 256},
                     {"rms_norm_eps", 1e-5},     {"initializer_range", 0.3}};
  auto model = std::make_unique<models::CausalLM>(arch::family_of(json).parse(json),
                                                  parallel::Mesh::single(), at::kFloat, at::kCPU);
  models::initialize(*model, 7);
  return model;
}

std::atomic<int> rows_found;

ops::Backend that_finds() {
  ops::Backend table = ops::cpu::backend();
  table.likeliest = [](const at::Tensor& logits_RV) {
    rows_found += static_cast<int>(logits_RV.size(0));
    return at::argmax(logits_RV, 1);
  };
  return table;
}

std::vector<EngineRequest> greedy_requests() {
  std::vector<EngineRequest> requests;
  for (text::TokenId i = 0; i < 5; ++i) requests.push_back(request({3, i, 7}, 6));
  return requests;
}

TEST(Likeliest, GivesTheTokensOfLogitsOnTheHost) {
  const auto model = tiny_model();
  Engine plain(*model, {});
  const std::vector<Whole> expected = answers_of(plain, greedy_requests());
  const test::CpuTable finds(that_finds());
  rows_found = 0;
  Engine engine(*model, {});
  const std::vector<Whole> found = answers_of(engine, greedy_requests());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].ids, expected[i].ids) << i;
  EXPECT_EQ(rows_found, 5 * 6);
}

/// Vocabularies are padded, and ids behind the tokenizer's last are no answer.
TEST(Likeliest, IsAskedOfTheTokensThatMayComeAlone) {
  const auto model = tiny_model();
  for (const int64_t num_tokens : {kVocabulary, int64_t{20}, int64_t{7}}) {
    std::vector<EngineRequest> requests = greedy_requests();
    for (EngineRequest& one : requests) one.request.num_tokens = num_tokens;
    Engine plain(*model, {});
    const std::vector<Whole> expected = answers_of(plain, requests);
    const test::CpuTable finds(that_finds());
    rows_found = 0;
    Engine engine(*model, {});
    const std::vector<Whole> found = answers_of(engine, requests);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].ids, expected[i].ids) << i;
    EXPECT_EQ(rows_found, 5 * 6) << num_tokens;
    // Where they may answer with unlike parts of it each looks for itself.
    requests[1].request.num_tokens = 11;
    Engine mixed(*model, {});
    EXPECT_EQ(answers_of(mixed, requests)[0].ids, expected[0].ids);
  }
}

/// Each asks for more of the logits than the largest.
TEST(Likeliest, IsNotAskedWhereTheLogitsAreNeeded) {
  const auto model = tiny_model();
  const auto change = [](size_t i, EngineRequest& asked) {
    Request& request = asked.request;
    if (i == 0) request.sampling.do_sample = true;
    if (i == 1) request.sampling.repetition_penalty = 1.3;
    if (i == 2) request.rules.bias = {{4, 50.0f}};
    if (i == 3) request.rules.min_new_tokens = 3;
    if (i == 4) request.rules.presence_penalty = 2;
    if (i == 5) request.rules.frequency_penalty = 2;
    if (i == 6) asked.num_logprobs = 1;
    if (i == 7) asked.num_prompt_logprobs = 1;
  };
  for (size_t i = 0; i < 8; ++i) {
    std::vector<EngineRequest> requests{request({3, 1, 7}, 6)};
    change(i, requests[0]);
    Engine plain(*model, {});
    const std::vector<Whole> expected = answers_of(plain, requests);
    const test::CpuTable finds(that_finds());
    rows_found = 0;
    Engine engine(*model, {});
    EXPECT_EQ(answers_of(engine, requests)[0].ids, expected[0].ids) << i;
    EXPECT_EQ(rows_found, i == 7 ? 5 : 0) << i;  // the prompt alone is asked for in 7
  }
}

TEST(Likeliest, LogitsThatAreNoNumbersEndTheRequestAsEver) {
  const auto model = tiny_model();
  for (models::Parameter& parameter : model->parameters())
    if (parameter.spec.role == arch::Role::kFinalNorm)
      parameter.tensor.detach().fill_(std::numeric_limits<float>::quiet_NaN());
  const test::CpuTable finds(that_finds());
  rows_found = 0;
  Engine engine(*model, {});
  engine.add(request({3, 1, 7}, 6));
  EXPECT_EQ(engine.step().at(0).finished, FinishReason::kFailed);
  EXPECT_EQ(rows_found, 0);
}

}  // namespace likeliest_test
}  // namespace danlu::infer
