#include "infer/engine.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <new>

#include "base/error.h"
#include "base/rng.h"
#include "infer/engine_answers.h"
#include "infer/step.h"

namespace danlu::infer {
namespace engine_test {

/// Prompts of all lengths, of which some begin alike; greedy and drawn.
std::vector<EngineRequest> mixed_requests(size_t count, uint64_t seed) {
  PythonRandom rng(seed);
  const std::vector<text::TokenId> common = random_engine_ids(rng, 100);
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < count; ++i) {
    std::vector<text::TokenId> prompt;
    if (i % 3 == 0) prompt.assign(common.begin(), common.begin() + 40 + 10 * (i % 5));
    const std::vector<text::TokenId> own = random_engine_ids(rng, 1 + rng.below(90));
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back(
        request(std::move(prompt), 1 + static_cast<int64_t>((i % 4 == 0 ? 150 : rng.below(40)))));
    requests.back().request.sampling.do_sample = i % 2 == 1;
    requests.back().request.sampling.seed = i;
    if (i % 4 != 0) requests.back().request.stop_ids = {5};
    requests.back().num_logprobs = 2;
  }
  return requests;
}

std::vector<Whole> answers_alone(const models::CausalLM& model,
                                 const std::vector<EngineRequest>& requests, bool deterministic) {
  std::vector<Whole> answers;
  for (const EngineRequest& asked : requests) {
    Engine engine(
        model,
        {.max_batched_tokens = 100000, .deterministic = deterministic, .prefix_caching = false});
    answers.push_back(answers_of(engine, {asked})[0]);
  }
  return answers;
}

TEST(Engine, AnswersDoNotDependOnWhatElseIsThere) {
  const auto model = tiny_engine_model();
  const std::vector<EngineRequest> requests = mixed_requests(64, 1);
  const std::vector<Whole> alone = answers_alone(*model, requests, false);
  Engine roomy(*model, {});
  expect_alike(answers_of(roomy, requests), alone);
  // Prompts in parts, pages for some of them only.
  Engine narrow(*model, {.max_sequences = 16, .max_batched_tokens = 24, .max_pages = 13});
  expect_alike(answers_of(narrow, requests), alone);
  EXPECT_GT(narrow.counts().preemptions, 0);
  EXPECT_GT(narrow.counts().prefix_hit, 0);
  EXPECT_EQ(narrow.counts().pages_used, 0);
}

TEST(Engine, DeterministicAnswersAreEqualToTheBit) {
  const auto model = tiny_engine_model();
  const std::vector<EngineRequest> requests = mixed_requests(64, 2);
  const std::vector<Whole> alone = answers_alone(*model, requests, true);
  Engine engine(*model, {.max_batched_tokens = 24, .max_pages = 24, .deterministic = true});
  const std::vector<Whole> together = answers_of(engine, requests);
  for (size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(together[i].ids, alone[i].ids);
    EXPECT_EQ(together[i].logprobs, alone[i].logprobs) << "request " << i;
  }
}

TEST(Engine, GuessesChangeNoAnswer) {
  const auto model = tiny_engine_model();
  std::vector<EngineRequest> requests = mixed_requests(64, 11);
  for (size_t i = 0; i < requests.size(); i += 5) {
    requests[i].request.rules.presence_penalty = 0.3;
    requests[i].request.rules.min_new_tokens = 20;
  }
  const std::vector<Whole> alone = answers_alone(*model, requests, false);
  const PromptLookup lookup = {.num_tokens = 4, .shortest = 1, .longest = 3};
  Engine roomy(*model, {.kept_pages = 1000, .lookup = lookup});
  expect_alike(answers_of(roomy, requests), alone);
  EXPECT_GT(roomy.counts().guessed_right, 50);
  EXPECT_LT(roomy.counts().guessed_right, roomy.counts().guessed);
  Engine narrow(*model,
                {.max_sequences = 4, .max_batched_tokens = 24, .max_pages = 20, .lookup = lookup});
  expect_alike(answers_of(narrow, requests), alone);
  EXPECT_GT(narrow.counts().guessed_right, 0);
  EXPECT_GT(narrow.counts().prefix_hit, 0);
  EXPECT_EQ(narrow.counts().pages_used, 0);
  // What was guessed wrongly is not found as the beginning of a later prompt.
  std::vector<EngineRequest> again;
  for (size_t i = 0; i < requests.size(); ++i) {
    EngineRequest longer = requests[i];
    std::vector<text::TokenId>& prompt = longer.request.prompt;
    prompt.insert(prompt.end(), alone[i].ids.begin(), alone[i].ids.end());
    prompt.push_back(7);
    again.push_back(std::move(longer));
  }
  expect_alike(answers_of(roomy, again), answers_alone(*model, again, false));
  EXPECT_GT(roomy.counts().prefix_hit, 3000);
}

TEST(Engine, ABeginningIsComputedOnce) {
  const auto model = tiny_engine_model();
  PythonRandom rng(4);
  const std::vector<text::TokenId> prompt = random_engine_ids(rng, 200);
  const std::vector<EngineRequest> same(5, [&] {
    EngineRequest asked = request(prompt, 8);
    asked.num_logprobs = 0;
    return asked;
  }());
  const std::vector<Whole> alone = answers_alone(*model, {same[0]}, false);
  // The parts of a prompt end within a page.
  Engine engine(*model, {.max_batched_tokens = 50, .max_pages = 40});
  std::vector<Whole> answers = answers_of(engine, same);
  EXPECT_EQ(answers[0].cached, 0);
  for (size_t i = 1; i < answers.size(); ++i)
    EXPECT_EQ(answers[i].cached, 192)
        << "all full pages, though they came while the first was read";
  expect_alike(answers, std::vector<Whole>(5, alone[0]));
  // All at once: the others wait for the first.
  Engine fresh(*model, {.max_batched_tokens = 5000, .max_pages = 80});
  for (const EngineRequest& asked : same) fresh.add(asked);
  while (fresh.has_work()) fresh.step();
  EXPECT_EQ(fresh.counts().prefix_hit, 4 * 192);
  // 160 of 192 tokens are shared, not all: the last token is always computed.
  std::vector<EngineRequest> shorter = {request({prompt.begin(), prompt.begin() + 192}, 1)};
  shorter[0].num_logprobs = 0;
  EXPECT_EQ(answers_of(engine, shorter)[0].cached, 160);
  shorter[0].salt = "another";
  EXPECT_EQ(answers_of(engine, shorter)[0].cached, 0);
}

TEST(Engine, ARequestThatGoesLeavesWhatWasComputedAlone) {
  const auto model = tiny_engine_model();
  PythonRandom rng(4);
  std::vector<EngineRequest> one = {request(random_engine_ids(rng, 200), 8)};
  one[0].num_logprobs = 0;
  Engine engine(*model, {.max_batched_tokens = 150, .max_pages = 40});
  const RequestHandle gone = engine.add(one[0]);
  engine.step();  // ends within the fifth page
  engine.cancel(gone);
  const std::vector<Whole> answers = answers_of(engine, one);
  EXPECT_EQ(answers[0].cached, 150);
  expect_alike(answers, answers_alone(*model, one, false));
}

/// A conversation: each text goes on where the one before ended, within a page.
TEST(Engine, ATextGoesOnWithinAPage) {
  const auto model = tiny_engine_model();
  for (const EngineSettings& settings :
       {EngineSettings{.max_pages = 40}, EngineSettings{.kept_pages = 12}, EngineSettings{}}) {
    const bool keeps = settings.max_pages + settings.kept_pages > 0;
    PythonRandom rng(17);
    Engine engine(*model, settings);
    std::vector<text::TokenId> prompt = random_engine_ids(rng, 10);
    int64_t known = 0;
    for (int turn = 0; turn < 12; ++turn) {
      std::vector<EngineRequest> one = {request(prompt, 9)};
      one[0].num_logprobs = 0;
      const std::vector<Whole> answers = answers_of(engine, one);
      EXPECT_EQ(answers[0].cached, keeps ? known : 0) << "turn " << turn;
      expect_alike(answers, answers_alone(*model, one, false));
      prompt.insert(prompt.end(), answers[0].ids.begin(), answers[0].ids.end());
      known = std::ssize(prompt) - 1;
      const std::vector<text::TokenId> more = random_engine_ids(rng, 1 + rng.below(30));
      prompt.insert(prompt.end(), more.begin(), more.end());
    }
    // Two go on with the same text: one takes the page that is not full, both have what is right.
    std::vector<EngineRequest> two(2, request(prompt, 9));
    two[1].request.prompt.back() = (prompt.back() + 1) % kEngineVocabulary;
    for (EngineRequest& asked : two) asked.num_logprobs = 0;
    const std::vector<Whole> answers = answers_of(engine, two);
    expect_alike(answers, answers_alone(*model, two, false));
    EXPECT_EQ(answers[0].cached, keeps ? known : 0);
    EXPECT_EQ(answers[1].cached % ops::kPageTokens, 0);
    EXPECT_EQ(engine.counts().pages_used, 0);
  }
}

TEST(Engine, ForksGoOnWithTheirTokens) {
  const auto model = tiny_engine_model();
  PythonRandom rng(23);
  const std::vector<text::TokenId> prompt = random_engine_ids(rng, 45);
  const auto expect_logits = [&](const EngineOutput& output, std::vector<text::TokenId> text) {
    SequenceCache cache(*model);
    const at::Tensor logits = next_logits(*model, cache, {{cache.add(), std::move(text)}});
    ASSERT_EQ(std::ssize(output.logits), kEngineVocabulary);
    for (int64_t v = 0; v < kEngineVocabulary; ++v)
      EXPECT_NEAR(output.logits[static_cast<size_t>(v)], logits.data_ptr<float>()[v], 1e-4);
  };
  Engine engine(*model, {.prefix_caching = false});
  EngineRequest asked = request(prompt, 9);
  asked.gives_logits = true;
  const RequestHandle first = engine.add(asked);
  EXPECT_THROW(engine.fork(first, 1), InternalError) << "it has given nothing yet";
  std::vector<EngineOutput> outputs = engine.step();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_FALSE(outputs[0].token || outputs[0].finished);
  expect_logits(outputs[0], prompt);
  std::map<RequestHandle, std::vector<text::TokenId>> texts;
  for (const text::TokenId next : {3, 8}) {
    texts[engine.fork(first, next)] = prompt;
    texts.rbegin()->second.push_back(next);
  }
  for (int step = 0; step < 3; ++step) {
    outputs = engine.step();
    ASSERT_EQ(outputs.size(), 2u);
    EXPECT_EQ(engine.counts().running, 2) << "what was forked from is over";
    std::map<RequestHandle, std::vector<text::TokenId>> next;
    for (const EngineOutput& output : outputs) {
      expect_logits(output, texts.at(output.handle));
      const text::TokenId token = 5 + step;
      auto& text = next[engine.fork(output.handle, token)];
      text = texts.at(output.handle);
      text.push_back(token);
    }
    texts = std::move(next);
  }
  engine.cancel_all();
  EXPECT_FALSE(engine.has_work());
  EXPECT_EQ(engine.counts().pages_used, 0);
}

TEST(Engine, WhatIsKeptMakesRoomForWhatIsAsked) {
  const auto model = tiny_engine_model();
  PythonRandom rng(6);
  Engine engine(*model, {.max_pages = 10});
  for (int i = 0; i < 30; ++i) {
    std::vector<EngineRequest> one = {request(random_engine_ids(rng, 250), 4)};
    one[0].num_logprobs = 0;
    EXPECT_EQ(answers_of(engine, one)[0].ids.size(), 4u);
  }
}

TEST(Engine, PagesAreCountedExactlyWhateverComesAndGoes) {
  const auto model = tiny_engine_model(128);
  PythonRandom rng(8);
  Engine engine(*model, {.max_sequences = 6,
                         .max_batched_tokens = 40,
                         .max_pages = 12,
                         .lookup = {.num_tokens = 3, .shortest = 1}});
  const std::vector<text::TokenId> common = random_engine_ids(rng, 64);
  std::map<RequestHandle, int64_t> asked_at;
  int64_t steps = 0;
  for (int action = 0; action < 10000; ++action) {
    const uint64_t what = rng.below(10);
    if (what < 2 && asked_at.size() < 40) {
      std::vector<text::TokenId> prompt(common.begin(),
                                        common.begin() + 32 * static_cast<int64_t>(rng.below(3)));
      const std::vector<text::TokenId> own = random_engine_ids(rng, 1 + rng.below(40));
      prompt.insert(prompt.end(), own.begin(), own.end());
      asked_at[engine.add(request(prompt, 1 + static_cast<int64_t>(rng.below(90))))] = steps;
    } else if (what == 2 && !asked_at.empty()) {
      const auto any =
          std::next(asked_at.begin(), static_cast<int64_t>(rng.below(asked_at.size())));
      engine.cancel(any->first);
      asked_at.erase(any);
    } else if (what > 6) {
      ++steps;
      for (const EngineOutput& output : engine.step()) {
        ASSERT_TRUE(asked_at.contains(output.handle)) << "of a request that is over";
        if (output.finished) asked_at.erase(output.handle);
      }
      for (const auto& [handle, since] : asked_at)
        ASSERT_LT(steps - since, 1000) << "request " << handle << " starves";
    }
    const EngineCounts counts = engine.counts();
    ASSERT_EQ(counts.running + counts.waiting, std::ssize(asked_at));
    ASSERT_LE(counts.pages_used, 12);
    ASSERT_LE(counts.running, 6);
    if (asked_at.empty()) {
      ASSERT_EQ(counts.pages_used, 0);
    }
  }
  for (const auto& [handle, since] : asked_at) engine.cancel(handle);
  EXPECT_EQ(engine.counts().pages_used, 0);
  EXPECT_FALSE(engine.has_work());
  EXPECT_GT(engine.counts().preemptions, 0);
  EXPECT_GT(engine.counts().guessed, 0);
}

TEST(Engine, TheMoreUrgentComesFirst) {
  const auto model = tiny_engine_model();
  Engine engine(*model, {.max_sequences = 1});
  EngineRequest late = request({1, 2}, 2), urgent = request({3, 4}, 2);
  late.priority = 1;
  const RequestHandle first = engine.add(late);
  const RequestHandle second = engine.add(urgent);
  const std::vector<EngineOutput> outputs = engine.step();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].handle, second);
  EXPECT_NE(first, second);
  EXPECT_EQ(engine.begun(), std::vector<RequestHandle>{second});
  engine.step();
  EXPECT_TRUE(engine.begun().empty());
  engine.step();
  EXPECT_EQ(engine.begun(), std::vector<RequestHandle>{first});
}

TEST(Engine, AnAnswerEndsWherePagesEnd) {
  const auto model = tiny_engine_model();
  Engine engine(*model, {.max_pages = 2});
  std::vector<EngineRequest> one = {request({1, 2, 3}, 500)};
  one[0].num_logprobs = 0;
  const Whole answer = answers_of(engine, one)[0];
  EXPECT_EQ(answer.ids.size(), 61u);
  EXPECT_EQ(answer.reason, FinishReason::kLength);
  EXPECT_THROW(engine.add(request(std::vector<text::TokenId>(64, 1), 1)), DataError);
}

/// log p of each next token, without a cache: [N, V].
at::Tensor whole_logprobs(const models::CausalLM& model, const std::vector<text::TokenId>& ids) {
  SequenceCache cache(model.config(), model.dtype(), model.device());
  const at::Tensor logits =
      next_logits(model, cache, {{cache.add(), ids, nullptr, LogitsAfter::kEach}});
  return at::log_softmax(logits.to(at::kDouble), -1);
}

TEST(Engine, LogprobsAreThoseOfTheModel) {
  const auto model = tiny_engine_model();
  PythonRandom rng(9);
  EngineRequest asked = request(random_engine_ids(rng, 150), 5);
  asked.num_logprobs = 3;
  asked.num_prompt_logprobs = 2;
  asked.request.rules.bias = {{4, 3.0F}};
  asked.request.sampling.temperature = 0.5;
  asked.request.sampling.do_sample = true;
  Engine engine(*model, {.max_batched_tokens = 50});
  engine.add(asked);
  std::vector<text::TokenId> seen = asked.request.prompt;
  std::vector<TokenLogprobs> of_prompt, of_answer;
  while (engine.has_work()) {
    for (const EngineOutput& output : engine.step()) {
      if (!output.prompt_logprobs.empty()) of_prompt = output.prompt_logprobs;
      of_answer.push_back(*output.logprobs);
      seen.push_back(*output.token);
    }
  }
  const at::Tensor truth = whole_logprobs(*model, seen);
  ASSERT_EQ(of_prompt.size(), 149u);
  ASSERT_EQ(of_answer.size(), 5u);
  for (size_t t = 0; t + 1 < seen.size(); ++t) {
    const bool in_prompt = t < of_prompt.size();
    const TokenLogprobs& found = in_prompt ? of_prompt[t] : of_answer[t - of_prompt.size()];
    const at::Tensor row = truth[static_cast<int64_t>(t)];
    EXPECT_EQ(found.chosen.id, seen[t + 1]);
    EXPECT_NEAR(found.chosen.logprob, row[seen[t + 1]].item<double>(), 2e-5);
    EXPECT_EQ(found.chosen.rank, 1 + (row > row[seen[t + 1]]).sum().item<int64_t>());
    EXPECT_EQ(found.likeliest[1].rank, 2);
    ASSERT_EQ(found.likeliest.size(), in_prompt ? 2u : 3u);
    EXPECT_EQ(found.likeliest[0].id, row.argmax().item<int64_t>());
    EXPECT_NEAR(found.likeliest[0].logprob, row.max().item<double>(), 2e-5);
    EXPECT_GE(found.likeliest[0].logprob, found.likeliest[1].logprob);
  }
}

TEST(Engine, APromptAloneIsScored) {
  const auto model = tiny_engine_model();
  EngineRequest asked = request({1, 2, 3, 4}, 0);
  asked.num_prompt_logprobs = 0;
  Engine engine(*model, {});
  engine.add(asked);
  const std::vector<EngineOutput> outputs = engine.step();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].prompt_logprobs.size(), 3u);
  EXPECT_FALSE(outputs[0].token);
  EXPECT_EQ(outputs[0].finished, FinishReason::kLength);
}

/// Lets a fixed answer through, then a stop id.
class Fixed : public text::TokenConstraint {
 public:
  Fixed(std::vector<text::TokenId> answer, text::TokenId stop)
      : answer_(std::move(answer)), stop_(stop) {}
  std::span<const uint64_t> allowed() override {
    const bool is_over = done_ >= answer_.size();
    word_ = is_over && stop_ < 0 ? 0 : uint64_t{1} << (is_over ? stop_ : answer_[done_]);
    return {&word_, 1};
  }
  void accept(text::TokenId id) override {
    EXPECT_EQ(id, answer_[done_]);
    ++done_;
  }
  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<Fixed>(*this); }

 private:
  std::vector<text::TokenId> answer_;
  text::TokenId stop_;
  size_t done_ = 0;
  uint64_t word_ = 0;
};

/// Lets two ids come at any time.
class OneOfTwo : public text::TokenConstraint {
 public:
  explicit OneOfTwo(bool is_form) : is_form_(is_form) {}
  std::span<const uint64_t> allowed() override { return {&word_, 1}; }
  void accept(text::TokenId) override {}
  bool is_form() const override { return is_form_; }
  std::unique_ptr<TokenConstraint> clone() const override {
    return std::make_unique<OneOfTwo>(*this);
  }

 private:
  bool is_form_;
  uint64_t word_ = uint64_t{1} << 40 | uint64_t{1} << 3;
};

TEST(Engine, LogprobsUnderAFormAreThoseWithinIt) {
  const auto model = tiny_engine_model();
  const at::Tensor row = whole_logprobs(*model, {1, 2, 3})[1];
  const double first = row[40].item<double>(), second = row[3].item<double>();
  for (const bool is_form : {true, false}) {
    EngineRequest asked = request({1, 2}, 1);
    asked.num_logprobs = 2;
    asked.request.rules.bias = {{3, 1000.0F}};
    asked.request.rules.constraint = std::make_shared<OneOfTwo>(is_form);
    Engine engine(*model, {});
    engine.add(asked);
    const TokenLogprobs found = *engine.step().at(0).logprobs;
    EXPECT_EQ(found.chosen.id, 3);
    const double all = is_form ? std::log(std::exp(first) + std::exp(second)) : 0;
    EXPECT_NEAR(found.chosen.logprob, second - all, 2e-5) << is_form;
    if (!is_form) continue;
    EXPECT_NEAR(std::exp(found.likeliest[0].logprob) + std::exp(found.likeliest[1].logprob), 1,
                1e-5);
  }
}

TEST(Engine, RulesDecideWhatMayCome) {
  const auto model = tiny_engine_model();
  const std::vector<text::TokenId> wanted = {40, 3, 60, 3};
  for (const text::TokenId stop : {7, -1}) {
    std::vector<EngineRequest> one = {request({1, 2}, 20)};
    one[0].num_logprobs = 0;
    one[0].request.rules.constraint = std::make_shared<Fixed>(wanted, stop);
    if (stop >= 0) one[0].request.stop_ids = {stop};
    one[0].request.rules.min_new_tokens = 10;  // the form is complete before
    Engine engine(*model, {});
    const Whole answer = answers_of(engine, one)[0];
    EXPECT_EQ(answer.ids, wanted);
    EXPECT_EQ(answer.reason, FinishReason::kStop);
  }
  std::vector<EngineRequest> biased = {request({1, 2}, 6)};
  biased[0].num_logprobs = 0;
  biased[0].request.rules.bias = {{11, 1000.0F}, {12, 990.0F}};
  biased[0].request.rules.frequency_penalty = 7;
  Engine engine(*model, {});
  // Each 11 costs it 7 of the 10 it is ahead, and of 12 likewise; logits lie within some units.
  const std::vector<text::TokenId> found = answers_of(engine, biased)[0].ids;
  EXPECT_GT(std::count(found.begin(), found.end(), 12), 0);
  EXPECT_EQ(std::count(found.begin(), found.end(), 11) + std::count(found.begin(), found.end(), 12),
            6);
  // A stop id that always wins does not before it may.
  std::vector<EngineRequest> stopped = {request({1, 2}, 20)};
  stopped[0].num_logprobs = 0;
  stopped[0].request.rules.bias = {{9, 1000.0F}};
  stopped[0].request.stop_ids = {9};
  stopped[0].request.rules.min_new_tokens = 4;
  const Whole answer = answers_of(engine, stopped)[0];
  EXPECT_EQ(answer.ids.size(), 4u);
  EXPECT_EQ(answer.reason, FinishReason::kStop);
  biased[0].request.rules.bias = {{kEngineVocabulary, 1.0F}};
  EXPECT_THROW(engine.add(biased[0]), DataError);
}

/// A form for which memory is too little.
class TooLarge final : public text::TokenConstraint {
 public:
  explicit TooLarge(bool accepts) : accepts_(accepts) {}
  std::span<const uint64_t> allowed() override {
    if (!accepts_) throw std::bad_alloc();
    return {&all_, 1};
  }
  void accept(text::TokenId) override { throw std::bad_alloc(); }
  std::unique_ptr<TokenConstraint> clone() const override {
    return std::make_unique<TooLarge>(*this);
  }

 private:
  bool accepts_;
  uint64_t all_ = ~uint64_t{0};
};

TEST(Engine, ARequestThatFailsHarmsNoOther) {
  const auto model = tiny_engine_model();
  std::vector<EngineRequest> bad(3, request({1, 2}, 5));
  bad[0].request.rules.bias = {{3, std::numeric_limits<float>::max()},
                               {4, std::numeric_limits<float>::max()}};
  bad[0].request.sampling = {.do_sample = true, .temperature = 1e-30};
  bad[1].request.rules.constraint = std::make_shared<TooLarge>(false);
  bad[2].request.rules.constraint = std::make_shared<TooLarge>(true);
  EngineRequest good = request({1, 2}, 5);
  Engine engine(*model, {});
  const RequestHandle healthy = engine.add(good);
  for (EngineRequest& one : bad) {
    one.num_logprobs = 0;
    engine.add(one);
  }
  size_t tokens = 0, failures = 0;
  while (engine.has_work()) {
    for (const EngineOutput& output : engine.step()) {
      if (output.handle == healthy) {
        ++tokens;
        continue;
      }
      ++failures;
      EXPECT_EQ(output.finished, FinishReason::kFailed);
      EXPECT_FALSE(output.token);
      EXPECT_THROW(std::rethrow_exception(output.error), std::exception);
    }
  }
  EXPECT_EQ(failures, 3u);
  EXPECT_EQ(tokens, 5u);
}

}  // namespace engine_test
}  // namespace danlu::infer
