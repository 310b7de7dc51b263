#include "infer/logit_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace danlu::infer {
namespace logit_rules_test {

using testing::ElementsAre;

constexpr float kGone = -std::numeric_limits<float>::infinity();

/// Allows the ids of one word.
class Mask : public text::TokenConstraint {
 public:
  explicit Mask(uint64_t word) : word_(word) {}
  std::span<const uint64_t> allowed() override { return {&word_, 1}; }
  void accept(text::TokenId) override {}
  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<Mask>(*this); }

 private:
  uint64_t word_;
};

LogitRules rules_of(uint64_t allowed, int64_t min_new_tokens) {
  LogitRules rules;
  rules.min_new_tokens = min_new_tokens;
  rules.constraint = std::make_shared<Mask>(allowed);
  return rules;
}

TEST(LogitRules, AFormThatIsCompleteEndsAnAnswerThatIsTooShort) {
  std::vector<float> logits = {1, 2, 3, 4};
  const std::vector<text::TokenId> answer = {0}, stops = {3, 1, 3};
  EXPECT_TRUE(apply_rules(logits, rules_of(0b1010, 10), answer, stops));
  EXPECT_THAT(logits, ElementsAre(kGone, 2, kGone, 4));
  // Where the form goes on, the answer does.
  logits = {1, 2, 3, 4};
  EXPECT_TRUE(apply_rules(logits, rules_of(0b1011, 10), answer, stops));
  EXPECT_THAT(logits, ElementsAre(1, kGone, kGone, kGone));
  // It is long enough.
  logits = {1, 2, 3, 4};
  EXPECT_TRUE(apply_rules(logits, rules_of(0b1011, 1), answer, stops));
  EXPECT_THAT(logits, ElementsAre(1, 2, kGone, 4));
}

TEST(LogitRules, WhatTheModelNeverSaysMayNotCome) {
  std::vector<float> logits = {kGone, 2, 3};
  EXPECT_FALSE(apply_rules(logits, rules_of(0b1, 0), {}, {}));
  EXPECT_THAT(logits, ElementsAre(kGone, kGone, kGone));
}

}  // namespace logit_rules_test
}  // namespace danlu::infer
