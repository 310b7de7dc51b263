// settings/answers_at_a_time.h: how many answers a rank draws together, in training and in its
// plan.
#pragma once
#include <cstdint>

namespace danlu::settings {

/// A few rows more or less make no difference to a pass.
inline constexpr int64_t kAnswersAtATime = 64;

}  // namespace danlu::settings
