// tests/infer/engine_answers.h: a model that is small, whole answers of its engine, and how they
// are compared.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "infer/engine.h"
#include "infer/tested_device.h"
#include "models/weight_files.h"

namespace danlu::infer {

constexpr int64_t kEngineVocabulary = 61;

inline std::unique_ptr<models::CausalLM> tiny_engine_model(int64_t window = 512) {
  const Json json = {{"model_type", "llama"},    {"vocab_size", kEngineVocabulary},
                     {"hidden_size", 32},        {"intermediate_size", 40},
                     {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                     {"num_key_value_heads", 2}, {"max_position_embeddings", window},
                     {"rms_norm_eps", 1e-5},     {"initializer_range", 0.3}};
  auto model = std::make_unique<models::CausalLM>(
      arch::family_of(json).parse(json), parallel::Mesh::single(), at::kFloat, tested_device());
  models::initialize(*model, 7);
  return model;
}

inline std::vector<text::TokenId> random_engine_ids(PythonRandom& rng, size_t count) {
  std::vector<text::TokenId> ids(count);
  for (text::TokenId& id : ids) id = static_cast<text::TokenId>(rng.below(kEngineVocabulary));
  return ids;
}

inline EngineRequest request(std::vector<text::TokenId> prompt, int64_t max_new_tokens) {
  EngineRequest asked;
  asked.request.prompt = std::move(prompt);
  asked.request.max_new_tokens = max_new_tokens;
  return asked;
}

struct Whole {
  std::vector<text::TokenId> ids;
  std::vector<float> logprobs;
  std::optional<FinishReason> reason;
  int64_t cached = 0;
  std::vector<float> embedding = {};
};

/// Adds one request a step, so that all ages are there together.
inline std::vector<Whole> answers_of(Engine& engine, const std::vector<EngineRequest>& requests) {
  std::vector<Whole> answers(requests.size());
  std::map<RequestHandle, size_t> index;
  size_t next = 0;
  while (engine.has_work() || next < requests.size()) {
    if (next < requests.size()) {
      const RequestHandle handle = engine.add(requests[next]);
      index[handle] = next++;
    }
    for (const EngineOutput& output : engine.step()) {
      Whole& answer = answers[index.at(output.handle)];
      EXPECT_FALSE(answer.reason) << "an output after the end";
      if (output.token) {
        answer.ids.push_back(*output.token);
        if (output.logprobs) answer.logprobs.push_back(output.logprobs->chosen.logprob);
      }
      answer.reason = output.finished;
      answer.cached = output.cached_tokens;
      answer.embedding = output.embedding;
    }
  }
  return answers;
}

inline void expect_alike(const std::vector<Whole>& answers, const std::vector<Whole>& alone) {
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_EQ(answers[i].ids, alone[i].ids) << "request " << i;
    EXPECT_EQ(answers[i].reason, alone[i].reason) << "request " << i;
    for (size_t t = 0; t < answers[i].logprobs.size(); ++t)
      EXPECT_NEAR(answers[i].logprobs[t], alone[i].logprobs[t], 2e-5) << "request " << i;
  }
}

}  // namespace danlu::infer
