#include "data/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;

TEST(MakeBatch, ShiftsLabelsInsideASampleAndRestartsPositions) {
  const Batch batch =
      make_batch({{.ids = {1, 2, 3}, .labels = {-100, 2, 3}}, {.ids = {4, 5}, .labels = {4, 5}}});
  EXPECT_THAT(batch.ids, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(batch.targets, ElementsAre(2, 3, -100, 5, -100));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(batch.segment_starts, ElementsAre(0, 3, 5));
  EXPECT_EQ(batch.num_targets, 3);
  EXPECT_EQ(batch.num_samples, 2);
}

TEST(MakeBatch, NoTargetCrossesASegmentOfAPackedSample) {
  const Batch batch =
      make_batch({{.ids = {1, 2, 3, 4}, .labels = {1, 2, 3, 4}, .segments = {0, 1, 3}}});
  EXPECT_THAT(batch.targets, ElementsAre(-100, 3, -100, -100));
  EXPECT_THAT(batch.positions, ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(batch.segment_starts, ElementsAre(0, 1, 3, 4));
}

TEST(MakeBatch, PackedAndUnpackedSamplesMakeTheSameBatch) {
  const Batch packed =
      make_batch({{.ids = {1, 2, 3, 4, 5}, .labels = {-100, 2, -100, 4, 5}, .segments = {0, 2}}});
  const Batch unpacked = make_batch(
      {{.ids = {1, 2}, .labels = {-100, 2}}, {.ids = {3, 4, 5}, .labels = {-100, 4, 5}}});
  EXPECT_EQ(packed.ids, unpacked.ids);
  EXPECT_EQ(packed.targets, unpacked.targets);
  EXPECT_EQ(packed.positions, unpacked.positions);
  EXPECT_EQ(packed.segment_starts, unpacked.segment_starts);
}

TEST(MakeBatch, ReadyTargetsAreNotShifted) {
  const Batch batch = make_batch({{.ids = {1, 2}, .labels = {2, 3}, .labels_are_targets = true}});
  EXPECT_THAT(batch.targets, ElementsAre(2, 3));
  EXPECT_EQ(batch.num_targets, 2);
}

TEST(MakeBatch, EmptySamplesCountButLeaveNoSegment) {
  const Batch batch = make_batch({{}, {.ids = {1}, .labels = {1}}, {}});
  EXPECT_THAT(batch.segment_starts, ElementsAre(0, 1));
  EXPECT_EQ(batch.num_samples, 3);
  EXPECT_EQ(batch.num_targets, 0);
}

TEST(PartOfABatch, OneWithoutATokenIsNotTheWhole) {
  const Batch whole = make_batch({{.ids = {5, 6, 7}, .labels = {5, 6, 7}}});
  const Batch some = part_of(whole, {{1, 3}});
  EXPECT_THAT(some.ids, ElementsAre(6, 7));
  EXPECT_EQ(some.num_samples, 0);
  const Batch none = part_of(whole, {});
  EXPECT_TRUE(none.ids.empty());
  EXPECT_EQ(none.num_samples, 0);
  EXPECT_EQ(none.num_targets, 0);
  EXPECT_EQ(none.segment_starts, whole.segment_starts);
  EXPECT_FALSE(none.rows.empty());
  EXPECT_TRUE(whole.rows.empty());
}

TEST(Batch, ColumnsOfTokensComeAlong) {
  const Sample a = {
      .ids = {1, 2, 3}, .labels = {-100, 2, 3}, .token_columns = {{"old", {5, 6, 7}}}};
  const Sample b = {.ids = {4, 5}, .labels = {-100, 5}, .token_columns = {{"old", {8, 9}}}};
  const Batch batch = make_batch({a, {}, b});
  EXPECT_THAT(batch.token_columns.at("old"), ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(part_of(batch, {{0, 1}, {3, 5}}).token_columns.at("old"), ElementsAre(5, 8, 9));
  Sample other = b;
  other.token_columns = {{"reference", {8, 9}}};
  EXPECT_THROW(make_batch({a, other}), InternalError);
  other.token_columns.clear();
  EXPECT_THROW(make_batch({a, other}), InternalError);
  other.token_columns = {{"old", {8}}};
  EXPECT_THROW(make_batch({other}), InternalError);
}

TEST(Batch, ValuesOfSegmentsComeAlong) {
  const Sample pair = {.ids = {1, 2, 3, 4, 5},
                       .labels = {-100, 2, -100, 4, 5},
                       .segments = {0, 2},
                       .segment_values = {0.5F, 0}};
  const Sample one = {.ids = {6, 7}, .labels = {-100, 7}, .segment_values = {-1}};
  const Batch batch = make_batch({pair, {}, one});
  EXPECT_THAT(batch.segment_values, ElementsAre(0.5F, 0, -1));
  EXPECT_THAT(part_of(batch, {{2, 4}}).segment_values, ElementsAre(0.5F, 0, -1));
  Sample without = one;
  without.segment_values.clear();
  EXPECT_THROW(make_batch({pair, without}), InternalError);
  EXPECT_THROW(make_batch({without, pair}), InternalError);
  Sample too_few = pair;
  too_few.segment_values = {1};
  EXPECT_THROW(make_batch({too_few}), InternalError);
}

TEST(MakeBatch, RefusesArraysThatDoNotFit) {
  EXPECT_THROW(make_batch({{.ids = {1}, .labels = {1}}}, {1, 2}), InternalError);
  EXPECT_THROW(make_batch({{.ids = {1, 2}, .labels = {1}}}), InternalError);
  EXPECT_THROW(make_batch({{.ids = {1, 2}, .labels = {1, 2}, .segments = {1}}}), InternalError);
  EXPECT_THROW(make_batch({{.ids = {1, 2}, .labels = {1, 2}, .segments = {0, 2}}}), InternalError);
  EXPECT_THROW(make_batch({{.ids = {1, 2, 3}, .labels = {1, 2, 3}, .segments = {0, 2, 1}}}),
               InternalError);
}

}  // namespace
}  // namespace danlu::data
