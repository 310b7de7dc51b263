#include "infer/prompt_lookup.h"

#include <gmock/gmock.h>

namespace danlu::infer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Ids = std::vector<text::TokenId>;

TEST(PromptLookup, TheLongestEndCountsAndOfSeveralTheLatest) {
  const PromptLookup how = {.num_tokens = 3, .shortest = 2, .longest = 4};
  EXPECT_THAT(looked_up(Ids{1, 2, 7, 8, 9, 1, 2}, how, 3), ElementsAre(7, 8, 9));
  EXPECT_THAT(looked_up(Ids{1, 2, 7, 1, 2, 8, 1, 2}, how, 2), ElementsAre(8, 1));
  // Three that are the same before two that are later.
  EXPECT_THAT(looked_up(Ids{5, 1, 2, 7, 6, 1, 2, 8, 5, 1, 2}, how, 1), ElementsAre(7));
  // More than `longest` counts no more: the later place.
  EXPECT_THAT(looked_up(Ids{1, 2, 3, 4, 5, 7, 0, 2, 3, 4, 5, 8, 1, 2, 3, 4, 5}, how, 1),
              ElementsAre(8));
  // A text that repeats itself.
  EXPECT_THAT(looked_up(Ids{4, 4, 4, 4}, how, 3), ElementsAre(4));
}

TEST(PromptLookup, WhereNothingIsSaidTwiceNothingIsGuessed) {
  const PromptLookup how = {.num_tokens = 3, .shortest = 2, .longest = 4};
  EXPECT_THAT(looked_up(Ids{1, 2, 3, 4}, how, 3), IsEmpty());
  EXPECT_THAT(looked_up(Ids{3, 9, 3}, how, 3), IsEmpty()) << "one token is too short";
  EXPECT_THAT(looked_up(Ids{1, 2, 7, 1, 2}, how, 0), IsEmpty());
  EXPECT_THAT(looked_up(Ids{}, how, 3), IsEmpty());
  EXPECT_THAT(looked_up(Ids{1}, how, 3), IsEmpty());
}

}  // namespace
}  // namespace danlu::infer
