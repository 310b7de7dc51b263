// Forms of answers that take long to follow: who waits for them, and who does not. Work is counted.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"
#include "infer/engine_answers.h"
#include "infer/tested_device.h"
#include "models/weight_files.h"

namespace danlu::infer {
namespace form_work_test {

constexpr int64_t kVocabulary = 61;

std::unique_ptr<models::CausalLM> small_model() {
  const Json json = {{"model_type", "llama"},    {"vocab_size", kVocabulary},
                     {"hidden_size", 32},        {"intermediate_size", 40},
                     {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                     {"num_key_value_heads", 2}, {"max_position_embeddings", 512},
                     {"rms_norm_eps", 1e-5},     {"initializer_range", 0.3}};
  auto model = std::make_unique<models::CausalLM>(
      arch::family_of(json).parse(json), parallel::Mesh::single(), at::kFloat, tested_device());
  models::initialize(*model, 7);
  return model;
}

std::atomic<int64_t> work_of_all = 0;

/// Even ids alone, of which each takes so much work to find, in steps of a size.
class SlowForm : public text::TokenConstraint {
 public:
  explicit SlowForm(int64_t cost, int64_t fails_after = -1, int64_t step = 1)
      : cost_(cost), left_(cost), step_(step), fails_after_(fails_after) {}

  bool prepare(int64_t& work) override {
    if (num_tokens_ == fails_after_) throw UsageError("this form fits in too many ways");
    const int64_t steps = (std::min(work, left_) + step_ - 1) / step_;
    const int64_t spent = std::min(steps * step_, left_);
    work_of_all += spent;
    work -= spent;
    left_ -= spent;
    return left_ == 0;
  }
  std::span<const uint64_t> allowed() override {
    int64_t all = INT64_MAX;
    prepare(all);
    return even_;
  }
  void accept(text::TokenId) override {
    left_ = cost_;
    ++num_tokens_;
  }
  std::unique_ptr<text::TokenConstraint> clone() const override {
    return std::make_unique<SlowForm>(*this);
  }

 private:
  const std::vector<uint64_t> even_ = {0x5555555555555555};
  int64_t cost_, left_, step_, fails_after_, num_tokens_ = 0;
};

EngineRequest asked(text::TokenId first, int64_t tokens, int64_t cost = 0, int64_t fails = -1,
                    int64_t step = 1) {
  EngineRequest one = request({first, 3, 4}, tokens);
  if (cost > 0) one.request.rules.constraint = std::make_shared<SlowForm>(cost, fails, step);
  return one;
}

std::vector<Whole> each_alone(const models::CausalLM& model, std::vector<EngineRequest> requests) {
  std::vector<Whole> answers;
  for (EngineRequest& one : requests) {
    if (one.request.rules.constraint) one.request.rules.constraint = std::make_shared<SlowForm>(1);
    Engine engine(model, {});
    answers.push_back(answers_of(engine, {one})[0]);
  }
  return answers;
}

TEST(FormWork, OthersGoOnWhileAFormIsWorkedOut) {
  const auto model = small_model();
  Engine engine(*model, {.max_sequences = 8, .form_work = 100});
  const std::vector<EngineRequest> requests = {asked(1, 40), asked(2, 40), asked(5, 4, 1000),
                                               asked(6, 40)};
  std::map<RequestHandle, Whole> answers;
  std::vector<RequestHandle> handles;
  for (const EngineRequest& one : requests) handles.push_back(engine.add(one));
  int steps = 0;
  for (; engine.has_work(); ++steps) {
    const int64_t before = work_of_all;
    for (const EngineOutput& output : engine.step()) {
      if (output.token) answers[output.handle].ids.push_back(*output.token);
      answers[output.handle].reason = output.finished;
    }
    ASSERT_LE(work_of_all - before, 100) << "step " << steps;
    for (const size_t plain : {0, 1, 3})
      EXPECT_EQ(std::ssize(answers[handles[plain]].ids), std::min(steps + 1, 40));
    // The form costs ten steps a token.
    EXPECT_EQ(std::ssize(answers[handles[2]].ids), (steps + 1) / 10);
  }
  EXPECT_EQ(steps, 40);
  const std::vector<Whole> alone = each_alone(*model, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[handles[i]].ids, alone[i].ids) << i;
    EXPECT_EQ(answers[handles[i]].reason, FinishReason::kLength);
  }
  EXPECT_EQ(engine.counts().pages_used, 0);
}

TEST(FormWork, WhoAsksForLittleIsServedFirst) {
  const auto model = small_model();
  Engine engine(*model, {.max_sequences = 16, .form_work = 20'000});
  for (int i = 0; i < 12; ++i) engine.add(asked(1, 10, 1'000'000));
  const RequestHandle cheap = engine.add(asked(2, 20, 50));
  for (int step = 0; step < 20; ++step) {
    int tokens = 0;
    for (const EngineOutput& output : engine.step()) tokens += output.handle == cheap;
    EXPECT_EQ(tokens, 1) << "step " << step;
  }
  engine.cancel_all();
}

TEST(FormWork, LargeStepsAreCountedWhole) {
  const auto model = small_model();
  constexpr int64_t kStep = 50'000, kWork = 3000;
  Engine engine(*model, {.max_sequences = 64, .form_work = kWork});
  for (int i = 0; i < 48; ++i) engine.add(asked(1, 10, 1'000'000, -1, kStep));
  for (int step = 0; step < 20; ++step) {
    const int64_t before = work_of_all;
    engine.step();
    // One step of each thread beyond it, and one of who waited longest.
    ASSERT_LE(work_of_all - before, kWork + (at::get_num_threads() + 1) * kStep) << step;
  }
  engine.cancel_all();
}

TEST(FormWork, WhoAsksForMuchIsServedBesideManyWhoAskAtEachToken) {
  const auto model = small_model();
  Engine engine(*model, {.max_sequences = 64, .form_work = 4000});
  for (int i = 0; i < 40; ++i) engine.add(asked(1, 500, 900));
  const RequestHandle dear = engine.add(asked(2, 1, 10'000));
  int steps = 0;
  for (bool is_done = false; !is_done && steps < 400; ++steps) {
    for (const EngineOutput& output : engine.step()) is_done |= output.handle == dear;
  }
  EXPECT_LT(steps, 400);
  engine.cancel_all();
}

TEST(FormWork, AFormThatCannotBeFollowedFailsAlone) {
  const auto model = small_model();
  for (const int64_t work : {0, 100}) {
    Engine engine(*model, {.form_work = work});
    const RequestHandle good = engine.add(asked(1, 10)), bad = engine.add(asked(2, 10, 50, 3));
    int good_tokens = 0, bad_tokens = 0, failures = 0;
    while (engine.has_work()) {
      for (const EngineOutput& output : engine.step()) {
        (output.handle == good ? good_tokens : bad_tokens) += output.token.has_value();
        if (output.finished != FinishReason::kFailed) continue;
        ++failures;
        EXPECT_EQ(output.handle, bad);
        EXPECT_THROW(std::rethrow_exception(output.error), UsageError);
      }
    }
    EXPECT_EQ(good_tokens, 10);
    EXPECT_EQ(bad_tokens, 3);
    EXPECT_EQ(failures, 1);
  }
}

/// Pages that are short, prompts in parts, and forms that are not ready: all answers stay what they
/// are alone.
TEST(FormWork, FormsThatAreLateChangeNoAnswer) {
  const auto model = small_model();
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 24; ++i) {
    requests.push_back(asked(i, 5 + i, i % 2 == 0 ? 1 + 37 * i : 0));
    for (int k = 0; k < 7 * i; ++k) requests.back().request.prompt.push_back((i + k) % kVocabulary);
  }
  const std::vector<Whole> alone = each_alone(*model, requests);
  Engine engine(*model,
                {.max_sequences = 6, .max_batched_tokens = 24, .max_pages = 16, .form_work = 60});
  expect_alike(answers_of(engine, requests), alone);
  EXPECT_EQ(engine.counts().pages_used, 0);
}

}  // namespace form_work_test
}  // namespace danlu::infer
