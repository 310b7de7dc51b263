// Answers on a device whose every computation is in its table (ops/backend.h): the CPU's.
#include "support/pretend_device.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <optional>

#include "infer/generate.h"
#include "infer/likelihood.h"
#include "infer/step.h"
#include "models/weight_files.h"
#include "support/aten_table.h"
#include "support/pretend_kernels.h"

namespace danlu::infer {
namespace pretend_device_test {

using danlu::test::pretend_device;
using danlu::test::PretendKernels;

std::unique_ptr<models::CausalLM> model_on(const at::Device& device, at::ScalarType type) {
  const Json json = {{"model_type", "llama"},    {"vocab_size", 61},
                     {"hidden_size", 32},        {"intermediate_size", 40},
                     {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                     {"num_key_value_heads", 2}, {"max_position_embeddings", 128},
                     {"rms_norm_eps", 1e-5},     {"initializer_range", 0.5}};
  auto model = std::make_unique<models::CausalLM>(arch::family_of(json).parse(json),
                                                  parallel::Mesh::single(), type, device);
  models::initialize(*model, 7);
  return model;
}

std::vector<text::TokenId> prompt_of(int64_t length, int64_t seed) {
  std::vector<text::TokenId> ids;
  for (int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<text::TokenId>(3 + (seed * 17 + i * i * 5) % 58));
  return ids;
}

Request request(std::vector<text::TokenId> prompt, int64_t max_new_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.max_new_tokens = max_new_tokens;
  return r;
}

/// Three sequences, two at a time, of which one begins a second page; a conversation whose second
/// turn is shorter than a page's worth of new tokens and its third longer; beams, which fork.
std::vector<std::vector<text::TokenId>> answers_of(const models::CausalLM& model) {
  std::vector<std::vector<text::TokenId>> all;
  const std::vector<Request> requests{request(prompt_of(5, 1), 20), request(prompt_of(1, 2), 9),
                                      request(prompt_of(30, 3), 12)};
  for (const Answer& answer : generate(model, requests, 2)) all.push_back(answer.ids);
  Session session(model);
  std::vector<text::TokenId> turns = prompt_of(6, 4);
  for (const int64_t more : {0, 3, 14}) {
    const std::vector<text::TokenId> said = prompt_of(more, 5);
    turns.insert(turns.end(), said.begin(), said.end());
    all.push_back(session.answer(request(turns, 5), {}, nullptr).ids);
    turns.insert(turns.end(), all.back().begin(), all.back().end());
  }
  Request beams = request(prompt_of(7, 6), 6);
  beams.sampling.num_beams = 3;
  all.push_back(beam_search(model, beams, nullptr, {}).ids);
  return all;
}

TEST(PretendDevice, AnswersThroughItsTableAloneAsTheCpu) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto expected = answers_of(*model_on(at::kCPU, type));
    {
      const PretendKernels kernels;
      EXPECT_EQ(answers_of(*model_on(pretend_device(), type)), expected) << c10::toString(type);
    }
    EXPECT_EQ(danlu::test::pretend_bytes(), 0);
  }
}

TEST(PretendDevice, AnswersWithTheTableOfAtenAsTheCpu) {
  const auto expected = answers_of(*model_on(at::kCPU, at::kFloat));
  {
    const danlu::test::AtenTable table;
    EXPECT_EQ(answers_of(*model_on(pretend_device(), at::kFloat)), expected);
  }
  EXPECT_EQ(danlu::test::pretend_bytes(), 0);
}

/// Once for its logits; where the device finds the likeliest itself, once to know that they are
/// numbers, and once more for the token.
TEST(PretendDevice, IsWaitedForAsOftenForEachToken) {
  const auto waits_of = [](int64_t new_tokens) {
    const auto model = model_on(pretend_device(), at::kFloat);
    const int64_t before = danlu::test::pretend_waits();
    EXPECT_EQ(generate(*model, {request(prompt_of(5, 1), new_tokens)}, 1).at(0).ids.size(),
              static_cast<size_t>(new_tokens));
    return danlu::test::pretend_waits() - before;
  };
  for (const bool by_aten : {false, true}) {
    std::optional<danlu::test::AtenTable> aten;
    std::optional<PretendKernels> kernels;
    if (by_aten) {
      aten.emplace();
    } else {
      kernels.emplace();
    }
    EXPECT_EQ(waits_of(18) - waits_of(8), by_aten ? 20 : 10);
  }
}

/// A rank that draws nothing copies no logits to its host, and waits for none.
TEST(PretendDevice, IsNotWaitedForByWhoDrawsNothing) {
  const PretendKernels kernels;
  const auto model = model_on(pretend_device(), at::kFloat);
  SequenceCache cache(*model);
  const SequenceId sequence = cache.add();
  const std::vector<StepInput> inputs = {{sequence, prompt_of(5, 1)}};
  int64_t before = danlu::test::pretend_waits();
  take_part_in_step(*model, cache, inputs);
  EXPECT_EQ(danlu::test::pretend_waits() - before, 0);
  EXPECT_EQ(cache.length(sequence), 5);
  before = danlu::test::pretend_waits();
  step(*model, cache, inputs);
  EXPECT_EQ(danlu::test::pretend_waits() - before, 1);
}

TEST(PretendDevice, ScoresTextsThroughItsTableAloneAsTheCpu) {
  const auto scores_of = [](const models::CausalLM& model) {
    std::vector<ScoredText> texts(2);
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i].ids = prompt_of(12 + 25 * static_cast<int64_t>(i), 1);
      texts[i].num_context = 4;
    }
    std::vector<double> sums(texts.size());
    score_texts(model, texts, {}, [&](size_t i, const Likelihood& found) { sums[i] = found.sum; });
    return sums;
  };
  const auto expected = scores_of(*model_on(at::kCPU, at::kFloat));
  const PretendKernels kernels;
  EXPECT_EQ(scores_of(*model_on(pretend_device(), at::kFloat)), expected);
}

}  // namespace pretend_device_test
}  // namespace danlu::infer
