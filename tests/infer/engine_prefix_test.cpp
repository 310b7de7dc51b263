// What is kept of prompts, for how long and for whom: what vLLM's tests of its prefix cache assert
// (tests/serve/README.md).
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <limits>

#include "infer/engine_answers.h"
#include "ops/pages.h"

namespace danlu::infer {
namespace engine_prefix_test {

constexpr int64_t kPage = ops::kPageTokens;
using Ids = std::vector<text::TokenId>;

/// Answers with one token.
EngineRequest short_request(Ids prompt) {
  EngineRequest asked = request(std::move(prompt), 1);
  asked.num_logprobs = 0;
  return asked;
}

int64_t cached_of(Engine& engine, const Ids& prompt) {
  return answers_of(engine, {short_request(prompt)})[0].cached;
}

/// Full pages and one token.
Ids pages_of_ids(PythonRandom& rng, int64_t pages) {
  return random_engine_ids(rng, static_cast<size_t>(pages * kPage + 1));
}

/// Two texts are kept, one of them is asked for again, and a third takes two of their pages.
TEST(EnginePrefix, WhatNobodyAskedForLongestGoesFirstAndItsEndBeforeItsBeginning) {
  const auto model = tiny_engine_model();
  PythonRandom rng(1);
  const Ids first = pages_of_ids(rng, 3), second = pages_of_ids(rng, 3),
            third = pages_of_ids(rng, 5);
  const auto kept_after = [&](const std::vector<Ids>& texts, const Ids& probe) {
    // Three full pages of each text, and one of its last token.
    Engine engine(*model, {.max_pages = 10});
    for (const Ids& text : texts) cached_of(engine, text);
    return cached_of(engine, probe);
  };
  EXPECT_EQ(kept_after({first, second}, first), 3 * kPage);
  EXPECT_EQ(kept_after({first, second}, second), 3 * kPage);
  // Six pages: the two that are free, and all four of the older text.
  EXPECT_EQ(kept_after({first, second, third}, first), 0);
  EXPECT_EQ(kept_after({first, second, third}, second), 3 * kPage);
  EXPECT_EQ(kept_after({first, second, first, third}, first), 3 * kPage);
  EXPECT_EQ(kept_after({first, second, first, third}, second), 0);
  // Four pages: the free ones, its part of a page, and of the full pages the last.
  const Ids shorter(third.begin(), third.begin() + 3 * kPage + 1);
  EXPECT_EQ(kept_after({first, second, shorter}, first), 2 * kPage);
  EXPECT_EQ(kept_after({first, second, shorter}, second), 3 * kPage);
}

/// Numbers go wrong once, as on a card that slips; the next one with that beginning computes it.
TEST(EnginePrefix, WhatFailedIsNotSharedWithOthers) {
  const auto model = tiny_engine_model();
  PythonRandom rng(9);
  const Ids prompt = pages_of_ids(rng, 2);
  Engine plain(*model, {});
  const std::vector<Whole> expected = answers_of(plain, {short_request(prompt)});
  for (const bool pools : {false, true}) {
    Engine engine(*model, {.max_pages = 20});
    EngineRequest asked = short_request(prompt);
    if (pools) asked.pooling = Pooling::kMean;
    std::vector<std::pair<at::Tensor, at::Tensor>> norms;
    for (models::Parameter& parameter : model->parameters()) {
      if (parameter.tensor.dim() != 1) continue;
      norms.emplace_back(parameter.tensor.detach(), parameter.tensor.detach().clone());
      norms.back().first.fill_(std::numeric_limits<float>::quiet_NaN());
    }
    engine.add(asked);
    EXPECT_EQ(engine.step().at(0).finished, FinishReason::kFailed);
    for (auto& [norm, before] : norms) norm.copy_(before);
    EXPECT_EQ(engine.counts().pages_used, 0);
    const std::vector<Whole> found = answers_of(engine, {short_request(prompt)});
    EXPECT_EQ(found[0].cached, 0);
    expect_alike(found, expected);
    EXPECT_EQ(cached_of(engine, prompt), 2 * kPage) << "what is sound is kept";
  }
}

/// The pages that a prompt begins with are held before any is taken for the rest.
TEST(EnginePrefix, WhatARequestFindsIsNotTakenForTheRestOfIt) {
  const auto model = tiny_engine_model();
  PythonRandom rng(2);
  const Ids begin = pages_of_ids(rng, 4);
  Engine engine(*model, {.max_pages = 8});
  cached_of(engine, begin);
  Ids whole = begin;
  const Ids more = random_engine_ids(rng, static_cast<size_t>(4 * kPage - 3));
  whole.insert(whole.end(), more.begin(), more.end());
  EngineRequest asked = short_request(whole);
  Engine alone(*model, {.prefix_caching = false});
  const std::vector<Whole> expected = answers_of(alone, {asked}),
                           found = answers_of(engine, {asked});
  EXPECT_GE(found[0].cached, 4 * kPage);
  expect_alike(found, expected);
}

TEST(EnginePrefix, SharedPagesAreCountedOnceAndGoWithTheLastWhoHasThem) {
  const auto model = tiny_engine_model();
  PythonRandom rng(3);
  const Ids prompt = pages_of_ids(rng, 3);
  Engine engine(*model, {.max_pages = 20});
  std::vector<RequestHandle> asked;
  for (int i = 0; i < 3; ++i) {
    asked.push_back(engine.add(request(prompt, 20)));
    engine.step();
    EXPECT_EQ(engine.counts().pages_used, 3 + i + 1) << "three are shared, one is its own";
  }
  for (int i = 2; i >= 0; --i) {
    engine.cancel(asked[static_cast<size_t>(i)]);
    EXPECT_EQ(engine.counts().pages_used, i == 0 ? 0 : 3 + i);
  }
}

TEST(EnginePrefix, WhatIsAskedOfEachTokenOfAPromptIsComputed) {
  const auto model = tiny_engine_model();
  PythonRandom rng(4);
  const Ids prompt = pages_of_ids(rng, 4);
  EngineRequest scored = request(prompt, 1);
  scored.num_prompt_logprobs = 0;
  const auto logprobs_of = [&](Engine& engine) {
    engine.add(scored);
    std::vector<TokenLogprobs> all;
    while (engine.has_work()) {
      for (const EngineOutput& output : engine.step()) {
        EXPECT_EQ(output.cached_tokens, 0);
        if (!output.prompt_logprobs.empty()) all = output.prompt_logprobs;
      }
    }
    return all;
  };
  Engine fresh(*model, {}), used(*model, {.max_pages = 30});
  cached_of(used, prompt);
  EXPECT_EQ(cached_of(used, prompt), 4 * kPage);
  const std::vector<TokenLogprobs> expected = logprobs_of(fresh), found = logprobs_of(used);
  ASSERT_EQ(found.size(), prompt.size() - 1);
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i].chosen.logprob, expected[i].chosen.logprob, 2e-5);
  EXPECT_EQ(cached_of(used, prompt), 4 * kPage) << "and it is still kept";
}

TEST(EnginePrefix, NothingIsKeptWhereNothingShallBe) {
  const auto model = tiny_engine_model();
  PythonRandom rng(5);
  const Ids prompt = pages_of_ids(rng, 4);
  Engine engine(*model, {.max_pages = 30, .prefix_caching = false});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cached_of(engine, prompt), 0);
  EXPECT_EQ(engine.counts().prefix_queried, 0);
  EXPECT_EQ(engine.counts().prefix_hit, 0);
}

/// Whoever begins anew after it gave its pages back is no second request.
TEST(EnginePrefix, APromptIsCountedOnceHoweverOftenItBegins) {
  const auto model = tiny_engine_model();
  PythonRandom rng(6);
  const Ids common = random_engine_ids(rng, 100);
  std::vector<EngineRequest> requests;
  int64_t tokens = 0;
  for (size_t i = 0; i < 30; ++i) {
    Ids prompt(common.begin(), common.begin() + 20 * static_cast<int64_t>(i % 5));
    const Ids own = random_engine_ids(rng, 1 + rng.below(60));
    prompt.insert(prompt.end(), own.begin(), own.end());
    tokens += std::ssize(prompt);
    requests.push_back(request(std::move(prompt), 100));
  }
  Engine engine(*model, {.max_sequences = 8, .max_batched_tokens = 30, .max_pages = 12});
  int64_t cached = 0;
  for (const Whole& answer : answers_of(engine, requests)) cached += answer.cached;
  EXPECT_GT(engine.counts().preemptions, 0);
  EXPECT_EQ(engine.counts().prompt_tokens, tokens);
  EXPECT_EQ(engine.counts().prefix_queried, tokens);
  EXPECT_EQ(engine.counts().prefix_hit, cached);
  EXPECT_EQ(engine.counts().new_tokens, 30 * 100);
}

}  // namespace engine_prefix_test
}  // namespace danlu::infer
