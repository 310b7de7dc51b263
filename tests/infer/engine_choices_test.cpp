// Choices of one prompt, which is read once for them, and groups of requests, which take turns.
#include <gtest/gtest.h>

#include <algorithm>

#include "infer/engine_answers.h"
#include "infer/turns.h"

namespace danlu::infer {
namespace engine_choices_test {

constexpr size_t kChoices = 5;

std::vector<EngineRequest> choices_of(std::vector<text::TokenId> prompt, int64_t max_new_tokens) {
  EngineRequest one = request(std::move(prompt), max_new_tokens);
  one.request.sampling.do_sample = true;
  one.request.sampling.seed = 11;
  one.num_logprobs = 1;
  one.group = 3;
  one.prompt_number = 1;
  std::vector<EngineRequest> all(kChoices, one);
  for (size_t i = 0; i < kChoices; ++i) all[i].request.stream = i;
  return all;
}

struct Together {
  std::vector<Whole> answers;
  int64_t steps = 0;
  size_t num_cached = 0;  ///< requests whose whole prompt was there
};

/// All are added before the first step. between: called after each with the handles.
template <typename Between>
Together answers_together(Engine& engine, const std::vector<EngineRequest>& requests,
                          const Between& between) {
  Together result;
  result.answers.resize(requests.size());
  std::vector<RequestHandle> handles;
  for (const EngineRequest& one : requests) handles.push_back(engine.add(one));
  while (engine.has_work()) {
    for (const EngineOutput& output : engine.step()) {
      const auto at = std::find(handles.begin(), handles.end(), output.handle) - handles.begin();
      Whole& answer = result.answers[static_cast<size_t>(at)];
      if (output.token) answer.ids.push_back(*output.token);
      if (output.logprobs) answer.logprobs.push_back(output.logprobs->chosen.logprob);
      answer.reason = output.finished;
      answer.cached = output.cached_tokens;
    }
    between(handles);
    if (++result.steps > 1000) throw std::runtime_error("it does not end");
  }
  const auto size = std::ssize(requests.front().request.prompt);
  for (const Whole& answer : result.answers) result.num_cached += answer.cached == size ? 1 : 0;
  EXPECT_EQ(engine.counts().pages_used, 0);
  return result;
}
Together answers_together(Engine& engine, const std::vector<EngineRequest>& requests) {
  return answers_together(engine, requests, [](const auto&) {});
}

std::vector<Whole> answers_alone(const models::CausalLM& model,
                                 std::vector<EngineRequest> requests) {
  std::vector<Whole> all;
  for (EngineRequest& one : requests) {
    Engine engine(model, {.prefix_caching = false});
    one.prompt_number = 0;
    all.push_back(answers_of(engine, {one})[0]);
  }
  return all;
}

TEST(EngineChoices, ReadTheirPromptOnce) {
  const auto model = tiny_engine_model();
  PythonRandom rng(3);
  for (const size_t length : {3, 64, 70}) {
    for (const int64_t max_new_tokens : {1, 40}) {
      const auto requests = choices_of(random_engine_ids(rng, length), max_new_tokens);
      const std::vector<Whole> expected = answers_alone(*model, requests);
      const auto tokens = static_cast<int64_t>(std::max(length, kChoices));
      for (const EngineSettings& settings :
           {EngineSettings{.max_batched_tokens = tokens, .prefix_caching = false},
            EngineSettings{.max_batched_tokens = tokens}, EngineSettings{.deterministic = true},
            EngineSettings{.max_batched_tokens = tokens, .max_pages = 40}}) {
        Engine engine(*model, settings);
        const Together got = answers_together(engine, requests);
        expect_alike(got.answers, expected);
        EXPECT_EQ(got.num_cached, kChoices - 1);
        EXPECT_EQ(got.steps, max_new_tokens) << "one pass reads, and gives all first tokens";
      }
    }
  }
}

TEST(EngineChoices, OfTheLikeliestTokenAndOfTheirPromptsLogprobs) {
  const auto model = tiny_engine_model();
  PythonRandom rng(4);
  auto requests = choices_of(random_engine_ids(rng, 40), 5);
  for (EngineRequest& one : requests) {
    one.request.sampling.do_sample = false;
    one.num_logprobs = {};
  }
  Engine greedy(*model, {});
  expect_alike(answers_together(greedy, requests).answers, answers_alone(*model, requests));
  for (EngineRequest& one : requests) one.num_prompt_logprobs = 2;
  Engine engine(*model, {});
  for (const EngineRequest& one : requests) engine.add(one);
  const std::vector<EngineOutput> outputs = engine.step();
  ASSERT_EQ(outputs.size(), kChoices);
  for (const EngineOutput& output : outputs) {
    ASSERT_EQ(output.prompt_logprobs.size(), 39u);
    EXPECT_EQ(output.prompt_logprobs[7].chosen.logprob,
              outputs[0].prompt_logprobs[7].chosen.logprob);
  }
}

/// Whoever finds no room when the prompt is read waits, and is answered all the same.
TEST(EngineChoices, WaitWhereThereIsNoRoomForAll) {
  const auto model = tiny_engine_model();
  PythonRandom rng(5);
  const auto requests = choices_of(random_engine_ids(rng, 70), 60);
  const std::vector<Whole> expected = answers_alone(*model, requests);
  for (const EngineSettings& settings :
       {EngineSettings{.max_sequences = 2}, EngineSettings{.max_pages = 8},
        EngineSettings{.max_pages = 6, .prefix_caching = false},
        EngineSettings{.max_pages = 11, .deterministic = true}}) {
    Engine engine(*model, settings);
    const Together got = answers_together(engine, requests);
    expect_alike(got.answers, expected);
    EXPECT_GE(got.num_cached, 1u);
  }
}

TEST(EngineChoices, GoOnWhereTheOneThatReadsIsTakenBack) {
  const auto model = tiny_engine_model();
  PythonRandom rng(6);
  const auto requests = choices_of(random_engine_ids(rng, 70), 6);
  std::vector<Whole> expected = answers_alone(*model, requests);
  Engine engine(*model, {.max_batched_tokens = 32, .prefix_caching = false});
  bool is_first = true;
  Together got = answers_together(engine, requests, [&](const auto& handles) {
    if (std::exchange(is_first, false)) engine.cancel(handles[0]);
  });
  EXPECT_TRUE(got.answers[0].ids.empty());
  got.answers.erase(got.answers.begin());
  expected.erase(expected.begin());
  expect_alike(got.answers, expected);
}

/// The requests in the order in which they begin, one at a time. come(n): what comes before the
/// n-th step.
template <typename Come>
std::vector<RequestHandle> order_of(Engine& engine, const Come& come) {
  std::vector<RequestHandle> begun;
  constexpr int64_t kComing = 41;
  for (int64_t n = 0; n < kComing || engine.has_work(); ++n) {
    come(n);
    engine.step();
    begun.insert(begun.end(), engine.begun().begin(), engine.begun().end());
  }
  return begun;
}

TEST(EngineTurns, ALargeGroupDoesNotKeepOthersWaiting) {
  const auto model = tiny_engine_model();
  Engine engine(*model, {.max_sequences = 1});
  std::vector<RequestHandle> large, small, alone;
  const auto add = [&](uint64_t group) {
    EngineRequest one = request({1, 2, 3}, 1);
    one.group = group;
    return engine.add(std::move(one));
  };
  const std::vector<RequestHandle> order = order_of(engine, [&](int64_t n) {
    if (n == 0)
      for (int i = 0; i < 20; ++i) large.push_back(add(1));
    if (n == 2)
      for (int i = 0; i < 3; ++i) small.push_back(add(2));
    if (n == 4) alone.push_back(add(0));
  });
  ASSERT_EQ(order.size(), 24u);
  const auto place = [&](RequestHandle handle) {
    return std::find(order.begin(), order.end(), handle) - order.begin();
  };
  EXPECT_LE(place(small[2]), 2 + 2 * 3 + 1) << "they alternate, and one comes between";
  EXPECT_LE(place(alone[0]), 4 + 3);
  for (const auto& group : {large, small}) {
    std::vector<RequestHandle> in_order;
    for (const RequestHandle handle : order)
      if (std::count(group.begin(), group.end(), handle) > 0) in_order.push_back(handle);
    EXPECT_EQ(in_order, group);
  }
}

TEST(EngineTurns, OthersThatKeepComingDoNotKeepAGroupWaiting) {
  const auto model = tiny_engine_model();
  Engine engine(*model, {.max_sequences = 1});
  std::vector<RequestHandle> group;
  const std::vector<RequestHandle> order = order_of(engine, [&](int64_t n) {
    EngineRequest one = request({1, 2, 3}, 1);
    if (n < 40) engine.add(one);
    if (n != 3) return;
    one.group = 9;
    for (int i = 0; i < 6; ++i) group.push_back(engine.add(one));
  });
  const auto last = std::find(order.begin(), order.end(), group.back()) - order.begin();
  EXPECT_LT(last, 40) << "while others came";
}

TEST(EngineTurns, GoOnWhereRequestsAreTakenBack) {
  Turns turns;
  for (int i = 0; i < 3; ++i) turns.enter(5);
  const int64_t alone = turns.enter(0);
  for (int i = 0; i < 3; ++i) turns.leave(5, /*has_begun=*/false);
  EXPECT_EQ(turns.enter(0), alone) << "nobody has had a turn";
  turns.leave(0, true);
  turns.leave(0, true);
  EXPECT_GT(turns.enter(0), alone);
  EXPECT_EQ(turns.enter(5), turns.enter(0)) << "it is a new one";
}

}  // namespace engine_choices_test
}  // namespace danlu::infer
