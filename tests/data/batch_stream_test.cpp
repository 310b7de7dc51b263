#include "data/batch_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Sample i holds the token i, lengths[i] times.
std::shared_ptr<const VectorSource> source_of(const std::vector<int>& lengths) {
  std::vector<Sample> samples;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const std::vector<int32_t> ids(static_cast<size_t>(lengths[i]), static_cast<int32_t>(i));
    samples.push_back({.ids = ids, .labels = ids});
  }
  return std::make_shared<const VectorSource>(std::move(samples));
}

BatchStream::Order file_order(int64_t num_samples) {
  return [order = SampleOrder(num_samples, 0, false)](int64_t i) { return order.at(i); };
}

/// First token of each segment: the samples of each micro-batch.
std::vector<std::vector<int64_t>> samples_of(const StepBatches& step) {
  std::vector<std::vector<int64_t>> all;
  for (const Batch& batch : step.micro_batches) {
    all.emplace_back();
    for (size_t s = 0; s + 1 < batch.segment_starts.size(); ++s) {
      all.back().push_back(batch.ids[static_cast<size_t>(batch.segment_starts[s])]);
    }
  }
  return all;
}

using Lists = std::vector<std::vector<int64_t>>;

TEST(BatchStream, AStepHoldsAccumulatedMicroBatches) {
  BatchStream stream(source_of({2, 2, 2, 2, 2, 2, 2, 2}), file_order(8),
                     {.micro_batch_size = 2, .accumulation_steps = 2});
  EXPECT_EQ(stream.steps_per_epoch(), 2);
  const StepBatches step = stream.next();
  EXPECT_EQ(samples_of(step), (Lists{{0, 1}, {2, 3}}));
  EXPECT_EQ(step.num_tokens, 8);
  EXPECT_EQ(step.num_targets, 4);
  EXPECT_EQ(stream.consumed(), 4);
  EXPECT_DOUBLE_EQ(stream.epoch(), 0.5);
}

TEST(BatchStream, TheLastStepOfAnEpochFollowsThePolicy) {
  const auto source = source_of({1, 1, 1, 1, 1});
  const auto steps = [&](LastBatch policy) {
    BatchStream stream(source, file_order(5), {.micro_batch_size = 2, .last_batch = policy});
    Lists all;
    for (int i = 0; i < 4; ++i) all.push_back(samples_of(stream.next())[0]);
    return all;
  };
  EXPECT_EQ(steps(LastBatch::kPartial), (Lists{{0, 1}, {2, 3}, {4}, {0, 1}}));
  EXPECT_EQ(steps(LastBatch::kDrop), (Lists{{0, 1}, {2, 3}, {0, 1}, {2, 3}}));
  EXPECT_EQ(steps(LastBatch::kWrap), (Lists{{0, 1}, {2, 3}, {4, 0}, {1, 2}}));
}

TEST(BatchStream, StepsPerEpochCountsWhatThePolicyYields) {
  const auto source = source_of({1, 1, 1, 1, 1});
  const auto count = [&](LastBatch policy) {
    return BatchStream(source, file_order(5), {.micro_batch_size = 2, .last_batch = policy})
        .steps_per_epoch();
  };
  EXPECT_EQ(count(LastBatch::kPartial), 3);
  EXPECT_EQ(count(LastBatch::kDrop), 2);
  EXPECT_EQ(count(LastBatch::kWrap), 2);
}

TEST(BatchStream, WhatFillsNoMicroBatchIsDroppedAndWhatFillsNoStepIsNot) {
  // transformers: 11 samples in micro-batches of 2 on 2 ranks are 2 whole ones of each, with 3
  // accumulated one smaller step; the other 3 samples belong to no epoch.
  const auto source = source_of(std::vector<int>(11, 1));
  const auto rank = [&](int64_t own, int64_t consumed) {
    const BatchStreamOptions options{.micro_batch_size = 2,
                                     .accumulation_steps = 3,
                                     .dp_rank = own,
                                     .dp_size = 2,
                                     .last_batch = LastBatch::kDrop};
    return std::make_unique<BatchStream>(source, file_order(11), options, consumed);
  };
  for (const int64_t own : {0, 1}) {
    const auto stream = rank(own, 0);
    EXPECT_EQ(stream->steps_per_epoch(), 1);
    for (int epoch = 1; epoch <= 2; ++epoch) {
      EXPECT_EQ(samples_of(stream->next()),
                own == 0 ? (Lists{{0, 1}, {4, 5}}) : (Lists{{2, 3}, {6, 7}}));
      EXPECT_EQ(stream->epoch(), epoch) << "the epoch ends with its last step";
    }
  }
  EXPECT_EQ(rank(0, 10)->next().begin, 11) << "a stream with other micro-batches ended there";
  EXPECT_EQ(rank(0, 4)->next().next, 11);
}

TEST(BatchStream, SamplesThatNoStepHadAreNotCounted) {
  const auto source = source_of({1, 1, 1, 1, 1});
  const auto counts = [&](LastBatch policy) {
    BatchStream stream(source, file_order(5), {.micro_batch_size = 2, .last_batch = policy});
    std::vector<int64_t> all;
    for (int i = 0; i < 5; ++i) {
      stream.next();
      all.push_back(stream.num_trained());
    }
    return all;
  };
  EXPECT_EQ(counts(LastBatch::kDrop), (std::vector<int64_t>{2, 4, 6, 8, 10}));
  EXPECT_EQ(counts(LastBatch::kPartial), (std::vector<int64_t>{2, 4, 5, 7, 9}));
  EXPECT_EQ(counts(LastBatch::kWrap), (std::vector<int64_t>{2, 4, 6, 8, 10}));
}

TEST(BatchStream, AnAccumulationThatIsNotFullMakesAStep) {
  const auto source = source_of(std::vector<int>(10, 1));
  BatchStream stream(source, file_order(10),
                     {.accumulation_steps = 4, .last_batch = LastBatch::kDrop});
  EXPECT_EQ(stream.steps_per_epoch(), 3);
  std::vector<size_t> sizes;
  for (int i = 0; i < 3; ++i) sizes.push_back(stream.next().micro_batches.size());
  EXPECT_EQ(sizes, (std::vector<size_t>{4, 4, 2}));
  EXPECT_EQ(stream.epoch(), 1);
}

TEST(BatchStream, ContinuesExactlyFromTheNumberItSaved) {
  const int64_t count = 37;
  const auto source = source_of(std::vector<int>(count, 3));
  const SampleOrder order(count, 5, true);
  const auto at = [&](int64_t i) { return order.at(i); };
  const BatchStreamOptions options{.micro_batch_size = 2, .accumulation_steps = 3};
  BatchStream whole(source, at, options);
  for (int i = 0; i < 17; ++i) whole.next();
  BatchStream resumed(source, at, options, whole.consumed());
  for (int i = 0; i < 17; ++i) {
    const StepBatches a = whole.next(), b = resumed.next();
    EXPECT_EQ(a.begin, b.begin);
    EXPECT_EQ(samples_of(a), samples_of(b));
  }
}

TEST(BatchStream, TheSamplesOfAStepDoNotDependOnTheSplit) {
  const auto source = source_of(std::vector<int>(24, 2));
  const auto samples_with = [&](int64_t micro, int64_t accumulation, int64_t ranks) {
    std::multiset<int64_t> all;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      BatchStream stream(source, file_order(24),
                         {.micro_batch_size = micro,
                          .accumulation_steps = accumulation,
                          .dp_rank = rank,
                          .dp_size = ranks});
      stream.next();
      for (const auto& micro_batch : samples_of(stream.next()))
        all.insert(micro_batch.begin(), micro_batch.end());
    }
    return all;
  };
  const auto one = samples_with(8, 1, 1);
  EXPECT_EQ(one, (std::multiset<int64_t>{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(samples_with(1, 8, 1), one);
  EXPECT_EQ(samples_with(2, 2, 2), one);
  EXPECT_EQ(samples_with(2, 1, 4), one);
}

TEST(BatchStream, RanksTakeMegatronsSlices) {
  // Micro-step m of mbs = 2 on two ranks: rank r takes [4m + 2r, 4m + 2r + 2).
  BatchStream stream(source_of(std::vector<int>(8, 1)), file_order(8),
                     {.micro_batch_size = 2, .accumulation_steps = 2, .dp_rank = 1, .dp_size = 2});
  EXPECT_EQ(samples_of(stream.next()), (Lists{{2, 3}, {6, 7}}));
}

TEST(BatchStream, RanksThatAreBalancedHaveAsManySamplesAndTokensAlike) {
  // One with pictures for every three of text, in an order that gives rank 0 all of them.
  const auto source = source_of({90, 3, 80, 2, 70, 4, 60, 5, 50, 6, 40, 7, 9});
  const auto of_rank = [&](int64_t rank, bool balances, int64_t budget) {
    return BatchStream(source, file_order(13),
                       {.micro_batch_size = 1,
                        .accumulation_steps = 4,
                        .dp_rank = rank,
                        .dp_size = 2,
                        .max_tokens_per_micro_batch = budget,
                        .balances_ranks = balances})
        .step_at(0);
  };
  EXPECT_EQ(of_rank(0, false, 0).num_tokens, 300);
  EXPECT_EQ(of_rank(1, false, 0).num_tokens, 14);
  // 90 | 80, 70 | 60 to the one with less: 90 + 60 and 80 + 70; then 5, 4, 3 and 2 in turn.
  EXPECT_EQ(samples_of(of_rank(0, true, 0)), (Lists{{0}, {6}, {7}, {3}}));
  EXPECT_EQ(samples_of(of_rank(1, true, 0)), (Lists{{2}, {4}, {5}, {1}}));
  EXPECT_EQ(samples_of(of_rank(0, true, 100)), (Lists{{0}, {6, 7, 3}}));
  // The partial step at the end has 5 samples: one rank takes three, as it would without.
  const auto last = [&](int64_t rank) {
    return samples_of(
        BatchStream(
            source, file_order(13),
            {.accumulation_steps = 4, .dp_rank = rank, .dp_size = 2, .balances_ranks = true})
            .step_at(8));
  };
  EXPECT_EQ(last(0), (Lists{{8}, {11}, {9}}));
  EXPECT_EQ(last(1), (Lists{{10}, {12}}));
}

TEST(BatchStream, ATokenBudgetRegroupsButKeepsTheSamplesOfTheStep) {
  BatchStream stream(
      source_of({3, 3, 9, 1, 2, 2}), file_order(6),
      {.micro_batch_size = 3, .accumulation_steps = 2, .max_tokens_per_micro_batch = 6});
  // 3+3 fill the budget; 9 exceeds it and stands alone; 1+2+2 fit.
  EXPECT_EQ(samples_of(stream.next()), (Lists{{0, 1}, {2}, {3, 4, 5}}));
}

TEST(BatchStream, RefusesTokensBeyondTheVocabulary) {
  BatchStream stream(source_of({1, 1, 1}), file_order(3), {.vocab_size = 2});
  stream.next();
  stream.next();
  try {
    stream.next();
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("sample 2: token 2 at position 0 is not in the model's vocabulary of 2"));
  }
  EXPECT_EQ(stream.consumed(), 2);
}

TEST(BatchStream, RefusesDataThatFillNoStepWhenPartialStepsAreDropped) {
  EXPECT_THROW(BatchStream(source_of({1, 1}), file_order(2),
                           {.micro_batch_size = 3, .last_batch = LastBatch::kDrop}),
               DataError);
  EXPECT_THROW(BatchStream(source_of({1}), file_order(1), {.dp_rank = 1}), UsageError);
  EXPECT_THROW(BatchStream(source_of({1}), file_order(1), {.micro_batch_size = 0}), UsageError);
}

TEST(BatchStream, EndsCleanlyWhileTheThreadIsAhead) {
  for (int i = 0; i < 20; ++i) {
    BatchStream stream(source_of({1, 1, 1}), file_order(3), {.prefetch_steps = 3});
    if (i % 2) stream.next();
  }
}

TEST(BatchStream, PrefetchingDoesNotChangeWhatIsSeen) {
  const auto source = source_of(std::vector<int>(10, 2));
  BatchStream ahead(source, file_order(10), {.micro_batch_size = 3, .prefetch_steps = 4});
  BatchStream direct(source, file_order(10), {.micro_batch_size = 3, .prefetch_steps = 0});
  for (int i = 0; i < 12; ++i) EXPECT_EQ(samples_of(ahead.next()), samples_of(direct.next()));
}

}  // namespace
}  // namespace danlu::data
