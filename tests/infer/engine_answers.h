// tests/infer/engine_answers.h: whole answers of an engine, and how they are compared.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "infer/engine.h"

namespace danlu::infer {

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
