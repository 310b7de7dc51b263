// Steps of rows, to whose prompts a policy in some steps answers itself.
#include "train/rollouts/distillation_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "base/error.h"
#include "train/objectives/distillation.h"
#include "train/rollout_parts.h"
#include "train/rollouts/row_prompt.h"

namespace danlu::train {
namespace mesh_test {
namespace {

constexpr int64_t kRows = 10;

/// Row i: i + 3 tokens of prompt, then an answer of two.
std::shared_ptr<const data::SampleSource> answered_rows() {
  std::vector<data::Sample> rows;
  for (int32_t i = 0; i < kRows; ++i) {
    data::Sample row;
    for (int32_t t = 0; t < 3 + i; ++t) row.ids.push_back(10 * i + t % 10);
    row.labels.assign(row.ids.size(), -100);
    for (const int32_t id : {80, 81}) {
      row.ids.push_back(id);
      row.labels.push_back(id);
    }
    rows.push_back(row);
  }
  return std::make_shared<data::VectorSource>(rows);
}

/// An answer to a prompt is its first token as often as the request's stream mod 3 plus 1 says, and
/// then the end, 2.
Drawing repeating() {
  return {[](const std::vector<infer::Request>& requests) {
            std::vector<infer::Answer> answers;
            for (const infer::Request& request : requests) {
              infer::Answer answer;
              answer.ids.assign(request.stream % 3 + 1, request.prompt.at(0));
              answer.stopped_by = 2;
              answer.reason = infer::FinishReason::kStop;
              answers.push_back(answer);
            }
            return answers;
          },
          [](const std::function<void()>& use) { use(); }};
}

DistillationSettings settings_with(double lmbda, int64_t dp_rank = 0, int64_t dp_size = 1) {
  DistillationSettings settings;
  settings.lmbda = lmbda;
  settings.batches = {.micro_batch_size = 1,
                      .accumulation_steps = 4 / dp_size,
                      .dp_rank = dp_rank,
                      .dp_size = dp_size,
                      .prefetch_steps = 0};
  settings.told.max_new_tokens = 8;
  settings.seed = 42;
  return settings;
}

DistillationStream stream_with(const DistillationSettings& settings, int64_t consumed = 0,
                               const Mesh& mesh = Mesh::single()) {
  return {{answered_rows(), [](int64_t i) { return i % kRows; }, repeating(),
           std::make_shared<const DrawingRanks>(mesh)},
          settings,
          consumed};
}

std::vector<std::vector<int64_t>> ids_of(const data::StepBatches& step) {
  std::vector<std::vector<int64_t>> ids;
  for (const data::Batch& batch : step.micro_batches) ids.push_back(batch.ids);
  return ids;
}

TEST(DistillationStream, AnswersStandBehindThePromptsOfTheRows) {
  DistillationStream stream = stream_with(settings_with(1));
  const data::StepBatches step = stream.next();
  ASSERT_EQ(step.micro_batches.size(), 4u);
  const data::Batch& third = step.micro_batches[2];
  EXPECT_THAT(third.ids, testing::ElementsAre(20, 21, 22, 23, 24, 20, 20, 20, 2));
  EXPECT_THAT(third.targets, testing::ElementsAre(-100, -100, -100, -100, 20, 20, 20, 2, -100));
  EXPECT_EQ(third.token_columns.count(kDrawnColumn), 1u);
  EXPECT_EQ(step.num_targets, 2 + 3 + 4 + 2);
  EXPECT_EQ(stream.figures().at("on_policy"), 1);
  EXPECT_NEAR(stream.figures().at("completions/mean_length"), 11.0 / 4, 1e-12);
  EXPECT_EQ(stream.figures().at("completions/clipped_ratio"), 0);
  EXPECT_EQ(stream.consumed(), 4);
}

/// Tokens 1, 2, …, of which those at `learnt` are.
data::Sample row_with(int32_t count, const std::vector<size_t>& learnt) {
  data::Sample row;
  for (int32_t id = 1; id <= count; ++id) row.ids.push_back(id);
  row.labels.assign(row.ids.size(), -100);
  for (const size_t at : learnt) row.labels[at] = row.ids[at];
  return row;
}

// As ms-swift, which takes the last answer away.
TEST(RowPrompt, IsWhatStandsBeforeTheLastAnswer) {
  using testing::ElementsAre;
  EXPECT_THAT(prompt_of(row_with(8, {2, 3, 6, 7})), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(prompt_of(row_with(8, {2, 3, 5, 6})), ElementsAre(1, 2, 3, 4, 5)) << "a line break";
  EXPECT_THAT(prompt_of(row_with(3, {})), ElementsAre(1, 2, 3));
  EXPECT_THAT(prompt_of(row_with(3, {0, 1, 2})), ElementsAre());
  // The targets of tokens 2, 3 and 4 stand at the tokens before.
  data::Sample window = row_with(4, {});
  window.labels = {-100, 3, 4, -100};
  window.labels_are_targets = true;
  EXPECT_THAT(prompt_of(window), ElementsAre(1, 2));
  EXPECT_EQ(longest_prompt(*answered_rows()), 3 + kRows - 1);
}

TEST(DistillationStream, ARowWithoutAPromptIsNamed) {
  const auto rows = std::make_shared<data::VectorSource>(
      std::vector<data::Sample>{row_with(4, {2, 3}), row_with(4, {0, 1, 2, 3})});
  DistillationStream stream{{rows, [](int64_t i) { return i % 2; }, repeating(),
                             std::make_shared<const DrawingRanks>(Mesh::single())},
                            settings_with(1),
                            0};
  try {
    stream.next();
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("sample 1: all of it is learnt"));
  }
}

TEST(DistillationStream, StepsThatDoNotDrawAreTheRows) {
  DistillationStream stream = stream_with(settings_with(0));
  for (int i = 0; i < 4; ++i) {
    const data::StepBatches step = stream.next();
    EXPECT_EQ(stream.figures().at("on_policy"), 0);
    for (const data::Batch& batch : step.micro_batches) {
      EXPECT_THAT(batch.ids, testing::Contains(80));
      EXPECT_EQ(batch.token_columns.count(kDrawnColumn), 0u);
    }
  }
}

// random.Random(42 + step).random() of CPython for steps 0 to 7.
TEST(DistillationStream, DrawsWhereMsSwiftWould) {
  const double of_python[] = {0.6394267984578837, 0.038551839337380045, 0.40853587925449375,
                              0.2718754143840908, 0.8882680764524881,   0.35184625582788265,
                              0.5481578284163297, 0.06688397634275167};
  DistillationStream stream = stream_with(settings_with(0.5));
  for (const double number : of_python) {
    stream.next();
    EXPECT_EQ(stream.figures().at("on_policy"), number <= 0.5 ? 1 : 0);
  }
}

// An epoch of ten has steps of 4, 4 and 2.
TEST(DistillationStream, GoesOnWhereItWasLeft) {
  DistillationStream whole = stream_with(settings_with(0.5));
  std::vector<data::StepBatches> steps;
  for (int i = 0; i < 7; ++i) steps.push_back(whole.next());
  EXPECT_EQ(steps[2].end - steps[2].begin, 2);
  for (size_t first = 1; first < steps.size(); ++first) {
    DistillationStream rest = stream_with(settings_with(0.5), steps[first].begin);
    for (size_t i = first; i < steps.size(); ++i)
      EXPECT_EQ(ids_of(rest.next()), ids_of(steps[i])) << first << " " << i;
  }
}

TEST(DistillationStream, AStepThatIsPutBackComesAgain) {
  DistillationStream stream = stream_with(settings_with(1));
  stream.next();
  const data::StepBatches second = stream.next();
  stream.put_back(second);
  EXPECT_EQ(stream.consumed(), second.begin);
  EXPECT_EQ(ids_of(stream.next()), ids_of(second));
  EXPECT_EQ(stream.consumed(), second.next);
}

TEST(DistillationStream, RanksDrawTheAnswersOfOneRank) {
  DistillationStream alone = stream_with(settings_with(1));
  std::map<int64_t, std::vector<std::vector<int64_t>>> wanted, got;
  for (int64_t step = 0; step < 3; ++step) wanted[step] = ids_of(alone.next());
  std::mutex mutex;
  on_ranks({.data = 2}, [&](const Mesh& mesh) {
    DistillationStream stream = stream_with(settings_with(1, mesh.rank(), 2), 0, mesh);
    for (int64_t step = 0; step < 3; ++step) {
      const auto ids = ids_of(stream.next());
      const std::lock_guard lock(mutex);
      // Micro-batch m of rank r is sample 2 m + r.
      auto& all = got[step];
      all.resize(wanted[step].size());
      for (size_t m = 0; m < ids.size(); ++m)
        all[2 * m + static_cast<size_t>(mesh.rank())] = ids[m];
    }
  });
  EXPECT_EQ(got, wanted);
}

TEST(DistillationStream, NoRoomForAnyAnswerIsAnError) {
  DistillationStream stream{{answered_rows(),
                             [](int64_t i) { return i % kRows; },
                             {[](const std::vector<infer::Request>& requests) {
                                return std::vector<infer::Answer>(requests.size());
                              },
                              [](const std::function<void()>& use) { use(); }},
                             std::make_shared<const DrawingRanks>(Mesh::single())},
                            settings_with(1),
                            0};
  EXPECT_THROW(stream.next(), DataError);
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
