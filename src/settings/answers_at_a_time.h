// settings/answers_at_a_time.h: how much a rank draws together, in training and in its
// plan.
#pragma once
#include <cstdint>

namespace danlu::settings {

/// A few rows more or less make no difference to a pass.
inline constexpr int64_t kAnswersAtATime = 64;
/// Tokens of a pass where answers go on: what is there of them is read in parts.
inline constexpr int64_t kTokensWhereAnswersGoOn = 4096;

}  // namespace danlu::settings
