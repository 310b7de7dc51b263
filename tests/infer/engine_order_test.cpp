// Who is computed, who waits and who gives its pages back, against a plain list of requests in
// their order: what vLLM's tests of its scheduler assert (tests/serve/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <set>

#include "base/error.h"
#include "infer/engine_answers.h"
#include "ops/backend.h"
#include "support/cpu_table.h"

namespace danlu::infer {
namespace engine_order_test {

using Rank = std::pair<int64_t, RequestHandle>;  ///< the most urgent first
using Ranks = std::set<Rank>;

TEST(EngineOrder, WhatFitsBeginsInTheFirstStep) {
  const auto model = tiny_engine_model();
  PythonRandom rng(1);
  for (const bool is_kept : {false, true}) {
    Engine engine(*model, {.prefix_caching = is_kept});
    std::vector<RequestHandle> asked;
    int64_t tokens = 0;
    for (size_t i = 0; i < 10; ++i) {
      EngineRequest one = request(random_engine_ids(rng, 20 + 7 * i), 5);
      if (is_kept) one.num_prompt_logprobs = 2;
      tokens += std::ssize(one.request.prompt);
      asked.push_back(engine.add(std::move(one)));
      EXPECT_EQ(engine.counts().waiting, static_cast<int64_t>(i) + 1);
    }
    std::vector<RequestHandle> answered;
    for (const EngineOutput& output : engine.step()) {
      EXPECT_TRUE(output.token);
      answered.push_back(output.handle);
    }
    EXPECT_EQ(answered, asked) << "each prompt is computed whole, in the order of the requests";
    EXPECT_EQ(engine.begun(), asked);
    EXPECT_EQ(engine.counts().waiting, 0);
    EXPECT_EQ(engine.counts().prompt_tokens, tokens);
    for (size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(engine.counts().running, static_cast<int64_t>(asked.size() - i));
      engine.cancel(asked[i]);
      engine.cancel(asked[i]);  // it is over, and nothing happens
    }
    EXPECT_FALSE(engine.has_work());
    EXPECT_EQ(engine.counts().pages_used, 0);
  }
}

/// What runs and what waits, as the rules have it.
class Order {
 public:
  void add(Rank rank) {
    waiting_.insert(rank);
    fresh_.insert(rank);
  }
  void cancel(Rank rank) {
    waiting_.erase(rank);
    running_.erase(rank);
    fresh_.erase(rank);
  }
  size_t num_running() const { return running_.size(); }

  /// The last ones that run give their pages back and wait where they were.
  void preempt(int64_t count) {
    for (; count > 0; --count) {
      ASSERT_FALSE(running_.empty());
      waiting_.insert(running_.extract(std::prev(running_.end())));
    }
  }
  /// The first ones that wait run; gives those of them that never ran.
  std::vector<RequestHandle> admit(int64_t count) {
    std::vector<RequestHandle> begun;
    for (; count > 0 && !waiting_.empty(); --count) {
      const Rank rank = *waiting_.begin();
      running_.insert(waiting_.extract(waiting_.begin()));
      if (fresh_.erase(rank) > 0) begun.push_back(rank.second);
    }
    return begun;
  }
  bool runs(Rank rank) const { return running_.contains(rank); }
  const Ranks& running() const { return running_; }

 private:
  Ranks running_, waiting_, fresh_;
};

class Orders : public testing::TestWithParam<int> {};

TEST_P(Orders, ThatOfPriorityAndAgeDecides) {
  const auto model = tiny_engine_model();
  PythonRandom rng(static_cast<uint64_t>(GetParam()));
  Engine engine(
      *model,
      {.max_sequences = 6, .max_batched_tokens = 48, .max_pages = 12, .prefix_caching = false});
  Order order;
  std::map<RequestHandle, Rank> alive;
  int64_t preemptions = 0, resumed = 0;
  for (int step = 0; step < 1500; ++step) {
    while (alive.size() < 9 && rng.below(3) > 0) {
      EngineRequest one =
          request(random_engine_ids(rng, 1 + rng.below(rng.below(4) > 0 ? 40 : 200)),
                  1 + static_cast<int64_t>(rng.below(250)));
      one.priority = GetParam() % 2 == 0 ? 0 : static_cast<int64_t>(rng.below(3));
      const int64_t priority = one.priority;
      const RequestHandle handle = engine.add(std::move(one));
      alive[handle] = {priority, handle};
      order.add({priority, handle});
    }
    if (rng.below(40) == 0 && !alive.empty()) {
      const auto any = std::next(alive.begin(), static_cast<int64_t>(rng.below(alive.size())));
      engine.cancel(any->first);
      order.cancel(any->second);
      alive.erase(any);
    }
    const std::vector<EngineOutput> outputs = engine.step();
    const EngineCounts counts = engine.counts();
    const int64_t given_back = counts.preemptions - preemptions;
    preemptions = counts.preemptions;
    order.preempt(given_back);
    const auto ended = std::count_if(outputs.begin(), outputs.end(), [](const EngineOutput& one) {
      return one.finished.has_value();
    });
    const int64_t admitted = counts.running + ended - static_cast<int64_t>(order.num_running());
    ASSERT_GE(admitted, 0);
    if (given_back > 0) {
      ASSERT_EQ(admitted, 0) << "who waits is not let in where others had to make room";
    }
    const std::vector<RequestHandle> begun = order.admit(admitted);
    ASSERT_EQ(engine.begun(), begun) << "step " << step;
    resumed += admitted - std::ssize(begun);
    for (const EngineOutput& output : outputs) {
      const Rank rank = alive.at(output.handle);
      ASSERT_TRUE(order.runs(rank)) << output.handle << " is computed before its turn";
      if (!output.finished) continue;
      order.cancel(rank);
      alive.erase(output.handle);
    }
    ASSERT_EQ(static_cast<int64_t>(order.num_running()), counts.running);
    ASSERT_LE(counts.running, 6);
    ASSERT_LE(counts.pages_used, 12);
  }
  EXPECT_GT(preemptions, 5);
  EXPECT_GT(resumed, 5) << "none of those that gave their pages back came again";
}

INSTANTIATE_TEST_SUITE_P(Engine, Orders, testing::Range(0, 6));

/// A prompt that may not be divided is longer than any pass, and an answer is long under way.
TEST(EngineOrder, AWholePromptAndWhoComesBehindItWaitForNoAnswersEnd) {
  const auto model = tiny_engine_model();
  PythonRandom rng(8);
  Engine engine(*model, {.max_batched_tokens = 16, .deterministic = true});
  const RequestHandle long_one = engine.add(request(random_engine_ids(rng, 5), 400));
  for (int step = 0; step < 3; ++step) engine.step();
  std::set<RequestHandle> waiting = {engine.add(request(random_engine_ids(rng, 100), 3))};
  for (int i = 0; i < 10; ++i) waiting.insert(engine.add(request(random_engine_ids(rng, 8), 3)));
  for (int step = 0; step < 12; ++step) {
    bool gave = false;
    for (const EngineOutput& output : engine.step()) {
      waiting.erase(output.handle);
      gave |= output.handle == long_one;
    }
    EXPECT_TRUE(gave) << "the answer under way stands still in step " << step;
  }
  EXPECT_TRUE(waiting.empty()) << waiting.size() << " have no token yet";
}

/// Too long for the memory of one pass: it fails alone, and those under way notice nothing.
TEST(EngineOrder, WhatTakesMoreMemoryThanThereIsFailsAlone) {
  const auto model = tiny_engine_model();
  PythonRandom rng(9);
  const EngineRequest other = request(random_engine_ids(rng, 9), 30);
  const EngineSettings settings = {
      .max_batched_tokens = 16, .max_pages = 40, .deterministic = true};
  Engine plain(*model, settings);
  const std::vector<Whole> expected = answers_of(plain, {other});
  ops::Backend table = ops::cpu::backend();
  table.swiglu = [](const at::Tensor& gate, const at::Tensor& up) {
    if (gate.size(0) > 50) throw std::bad_alloc();
    return ops::cpu::backend().swiglu(gate, up);
  };
  const test::CpuTable short_of_memory(table);
  Engine engine(*model, settings);
  engine.add(other);
  engine.step();
  const RequestHandle large = engine.add(request(random_engine_ids(rng, 100), 5));
  bool has_failed = false;
  std::vector<text::TokenId> ids;
  while (engine.has_work()) {
    for (const EngineOutput& output : engine.step()) {
      if (output.handle != large) {
        ids.push_back(*output.token);
        continue;
      }
      EXPECT_EQ(output.finished, FinishReason::kFailed);
      EXPECT_THROW(std::rethrow_exception(output.error), DataError);
      has_failed = true;
    }
  }
  EXPECT_TRUE(has_failed);
  EXPECT_EQ(ids, std::vector<text::TokenId>(expected[0].ids.begin() + 1, expected[0].ids.end()));
  EXPECT_EQ(engine.counts().pages_used, 0);
}

/// vLLM's stop tests, over guesses: nothing behind the end is given, wherever it lies.
TEST(EngineOrder, AnEndAmongGuessesEndsTheAnswerThere) {
  const auto model = tiny_engine_model();
  PythonRandom rng(5);
  const std::vector<text::TokenId> prompt = random_engine_ids(rng, 40);
  EngineRequest plain = request(prompt, 40);
  plain.num_logprobs = 0;
  Engine one(*model, {});
  const std::vector<text::TokenId> whole = answers_of(one, {plain})[0].ids;
  // The prompt says it all, so that each pass guesses right.
  std::vector<text::TokenId> said = prompt;
  said.insert(said.end(), whole.begin(), whole.end());
  said.insert(said.end(), prompt.begin(), prompt.end());
  const PromptLookup lookup = {.num_tokens = 5, .shortest = 1, .longest = 3};
  for (size_t length = 1; length < 12; ++length) {
    EngineRequest asked = request(said, static_cast<int64_t>(length));
    asked.num_logprobs = 0;
    Engine alone(*model, {}), guessing(*model, {.lookup = lookup});
    const Whole expected = answers_of(alone, {asked})[0], found = answers_of(guessing, {asked})[0];
    EXPECT_EQ(found.ids, expected.ids);
    EXPECT_EQ(found.ids.size(), length);
    EXPECT_EQ(found.reason, FinishReason::kLength);
    asked.request.max_new_tokens = 40;
    asked.request.stop_ids = {expected.ids.back()};
    const Whole stopped = answers_of(guessing, {asked})[0];
    const auto end = std::find(expected.ids.begin(), expected.ids.end(), expected.ids.back());
    EXPECT_EQ(stopped.ids, std::vector<text::TokenId>(expected.ids.begin(), end));
    EXPECT_EQ(stopped.reason, FinishReason::kStop);
    asked.request.rules.min_new_tokens = 20;  // as ignore_eos for as long
    EXPECT_GE(answers_of(guessing, {asked})[0].ids.size(), 20u);
  }
}

}  // namespace engine_order_test
}  // namespace danlu::infer
