// Guesses by the layer that predicts further ahead: what they are, and that answers stay the same.
#include "infer/predicted_drafts.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "infer/engine_answers.h"
#include "infer/followers.h"
#include "infer/step.h"
#include "infer/tested_device.h"
#include "models/weight_files.h"
#include "parallel/comm/local.h"
#include "support/tiny_model.h"

namespace danlu::infer {
namespace predicted_drafts_test {

constexpr int64_t kVocabulary = 61;

std::unique_ptr<models::CausalLM> model_of(const std::string& family,
                                           const parallel::Mesh& mesh = parallel::Mesh::single()) {
  Json json = test::tiny_config(family);
  json.update({{"vocab_size", kVocabulary},
               {"num_nextn_predict_layers", 1},
               {"max_position_embeddings", 512},
               {"initializer_range", 0.3}});
  if (family == "deepseek_v3") {
    json.update({{"n_routed_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 24},
                 {"n_shared_experts", 1},
                 {"first_k_dense_replace", 1},
                 {"n_group", 2},
                 {"topk_group", 1}});
  }
  arch::ModelConfig config = arch::parse_model_config(json, "test");
  config.predicts_ahead = true;
  auto model = std::make_unique<models::CausalLM>(config, mesh, at::kFloat, tested_device());
  models::initialize(*model, 7);
  return model;
}

std::vector<text::TokenId> drawn_ids(PythonRandom& rng, size_t count) {
  std::vector<text::TokenId> ids(count);
  for (text::TokenId& id : ids) id = static_cast<text::TokenId>(rng.below(kVocabulary));
  return ids;
}

/// The token that the layer holds likeliest after the last, by one pass of all tokens of a text.
text::TokenId next_by_one_pass(const models::CausalLM& model,
                               const std::vector<text::TokenId>& text) {
  const at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(text.size());
  models::ForwardInput input;
  input.ids_N =
      at::tensor(std::vector<int64_t>(text.begin(), text.end()), at::TensorOptions(at::kLong));
  input.positions_N = at::arange(count);
  input.segments = {{0, count}, {0, count}};
  const at::Tensor logits_NV = model.predicted_logits(input, /*normed=*/true).front();
  return static_cast<text::TokenId>(logits_NV[count - 2].argmax().item<int64_t>());
}

class Drafts : public testing::TestWithParam<const char*> {};

/// Texts that come in parts of any size, side by side, are guessed at as in one pass.
TEST_P(Drafts, AreWhatTheLayerGivesInOnePass) {
  const auto model = model_of(GetParam());
  SequenceCache cache(*model);
  PythonRandom rng(3);
  std::vector<std::vector<text::TokenId>> texts;
  std::vector<SequenceId> sequences;
  for (const size_t length : {40, 17, 33}) {
    texts.push_back(drawn_ids(rng, length));
    sequences.push_back(cache.add());
  }
  const std::vector<std::vector<int64_t>> parts = {{1, 15, 1, 20}, {3, 2, 9}, {16, 16}};
  for (size_t round = 0; round < 4; ++round) {
    std::vector<StepInput> inputs;
    std::vector<PredictionInput> asked;
    std::vector<size_t> of;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (round >= parts[i].size()) continue;
      const int64_t first = cache.length(sequences[i]), count = parts[i][round];
      const auto from = texts[i].begin() + first;
      inputs.push_back({sequences[i], {from, from + count}});
      asked.push_back({.sequence = sequences[i],
                       .first = first,
                       .first_row = 0,
                       .next = {from + 1, from + 1 + count},
                       .most = 2});
      of.push_back(i);
    }
    const StepResult result = step(*model, cache, inputs);
    int64_t row = 0;
    for (PredictionInput& input : asked) {
      input.first_row = row;
      row += std::ssize(input.next);
    }
    const auto drafts = predicted_drafts(*model, cache, result.hidden_NH, asked);
    for (size_t n = 0; n < asked.size(); ++n) {
      const int64_t seen = cache.length(sequences[of[n]]);
      ASSERT_EQ(drafts[n].size(), 2u);
      const auto begin = texts[of[n]].begin();
      EXPECT_EQ(drafts[n][0], next_by_one_pass(*model, {begin, begin + seen + 1}))
          << "text " << of[n] << ", part " << round;
      // What a guess needed is given back.
      EXPECT_EQ(std::ssize(cache.pages_of(sequences[of[n]])),
                (seen + ops::kPageTokens - 1) / ops::kPageTokens);
    }
  }
}

std::vector<EngineRequest> drawn_requests(size_t count, uint64_t seed) {
  PythonRandom rng(seed);
  const std::vector<text::TokenId> common = drawn_ids(rng, 100);
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < count; ++i) {
    std::vector<text::TokenId> prompt;
    if (i % 3 == 0) prompt.assign(common.begin(), common.begin() + 40 + 10 * (i % 5));
    const std::vector<text::TokenId> own = drawn_ids(rng, 1 + rng.below(60));
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back(request(std::move(prompt), 1 + static_cast<int64_t>(rng.below(60))));
    requests.back().request.sampling.do_sample = i % 4 == 1;
    requests.back().request.sampling.seed = i;
    if (i % 4 != 0) requests.back().request.stop_ids = {5};
    requests.back().num_logprobs = 2;
  }
  return requests;
}

std::vector<Whole> unguessed_answers(const models::CausalLM& model,
                                     const std::vector<EngineRequest>& requests) {
  std::vector<Whole> answers;
  for (const EngineRequest& one : requests) {
    Engine engine(model, {.prefix_caching = false});
    answers.push_back(answers_of(engine, {one}).front());
  }
  return answers;
}

TEST_P(Drafts, ChangeNoAnswer) {
  const auto model = model_of(GetParam());
  const std::vector<EngineRequest> requests = drawn_requests(40, 11);
  const std::vector<Whole> alone = unguessed_answers(*model, requests);
  for (const int64_t tokens : {1, 3}) {
    Engine roomy(*model, {.predicted_tokens = tokens});
    expect_alike(answers_of(roomy, requests), alone);
    EXPECT_GT(roomy.counts().guessed_right, 0);
    EXPECT_LT(roomy.counts().guessed_right, roomy.counts().guessed);
    Engine narrow(*model, {.max_sequences = 4,
                           .max_batched_tokens = 24,
                           .max_pages = 20,
                           .predicted_tokens = tokens});
    expect_alike(answers_of(narrow, requests), alone);
    EXPECT_GT(narrow.counts().guessed, 0);
    EXPECT_GT(narrow.counts().prefix_hit, 0);
    EXPECT_EQ(narrow.counts().pages_used, 0);
  }
}

/// Ranks that hold parts of model and layer follow the first one's engine.
TEST_P(Drafts, OfAModelInPartsChangeNoAnswer) {
  const auto whole = model_of(GetParam());
  const std::vector<EngineRequest> requests = drawn_requests(24, 13);
  const std::vector<Whole> alone = unguessed_answers(*whole, requests);
  for (const int64_t tokens : {1, 3}) {
    const EngineSettings settings{
        .max_sequences = 4, .max_batched_tokens = 24, .max_pages = 20, .predicted_tokens = tokens};
    Engine undivided(*whole, settings);
    answers_of(undivided, requests);
    parallel::run_local_ranks(2, [&](parallel::World& world) {
      const parallel::Mesh mesh(world, {.tensor = 2});
      const auto part = model_of(GetParam(), mesh);
      if (world.rank() > 0) return follow(*part, mesh.all(), world);
      Followers followers(mesh.all(), world);
      Engine led(*part, settings, &followers);
      expect_alike(answers_of(led, requests), alone);
      EXPECT_EQ(led.counts().guessed, undivided.counts().guessed);
      EXPECT_EQ(led.counts().guessed_right, undivided.counts().guessed_right);
      EXPECT_GT(led.counts().guessed_right, 0);
      EXPECT_GT(led.counts().preemptions + led.counts().prefix_hit, 0);
      EXPECT_EQ(led.counts().pages_used, 0);
      followers.end();
    });
  }
}

/// Layers that add nothing: the next token is a function of the last, which the layer that predicts
/// further ahead knows as well.
void forget_all_but_the_last_token(models::CausalLM& model) {
  const at::NoGradGuard no_grad;
  const int64_t hidden = model.config().hidden_size;
  for (const models::Parameter& parameter : model.parameters()) {
    at::Tensor weight = parameter.tensor.detach();
    if (parameter.name().ends_with("o_proj.weight") ||
        parameter.name().ends_with("down_proj.weight"))
      weight.zero_();
    if (!parameter.name().ends_with("eh_proj.weight")) continue;
    weight.zero_();
    weight.narrow(1, 0, hidden).copy_(at::eye(hidden));
  }
}

TEST_P(Drafts, AreAllRightWhereTheLayerKnowsAllThatTheModelKnows) {
  const auto model = model_of(GetParam());
  forget_all_but_the_last_token(*model);
  PythonRandom rng(5);
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < 6; ++i) {
    requests.push_back(request(drawn_ids(rng, 3 + 7 * i), 60));
    requests.back().num_logprobs = 0;
  }
  Engine engine(*model, {.predicted_tokens = 3});
  const std::vector<Whole> answers = answers_of(engine, requests);
  EXPECT_EQ(engine.counts().guessed_right, engine.counts().guessed);
  // One more request a step, whose prompt gives a token and each pass behind it four.
  EXPECT_LE(engine.counts().steps, 5 + 1 + (59 + 3) / 4);
  expect_alike(answers, unguessed_answers(*model, requests));
}

/// Its next token is chosen by whoever asked, and guesses follow what the engine drew.
TEST_P(Drafts, AreNotMadeForWhoGivesItsLogits) {
  const auto model = model_of(GetParam());
  Engine engine(*model, {.predicted_tokens = 2});
  EngineRequest asked = request({1, 2, 3}, 5);
  asked.gives_logits = true;
  EXPECT_THROW(engine.add(asked), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Families, Drafts, testing::Values("glm4_moe", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace predicted_drafts_test
}  // namespace danlu::infer
