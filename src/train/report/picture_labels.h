// train/report/picture_labels.h: what stands in the pictures of a run.
#pragma once
#include <string>
#include <string_view>

#include "base/message.h"

namespace danlu::train {

struct PictureLabel {
  std::string_view english;  ///< of the catalogue, but for the names of unknown keys
  std::string_view in(bool use_chinese) const {
    return use_chinese ? in_chinese(english) : english;
  }
};

inline constexpr PictureLabel kStepLabel{"step"};
inline constexpr PictureLabel kEachRecordLabel{"each record"};
inline constexpr PictureLabel kMeanLabel{"exponential mean 0.9"};
inline constexpr PictureLabel kEvaluationLabel{"evaluation"};
inline constexpr PictureLabel kNothingLabel{"no finite value"};

/// How a number of logging.jsonl is shown.
struct MetricLook {
  PictureLabel name;
  std::string_view unit = {};  ///< may be empty
  double factor = 1;           ///< from the number to what is shown, in `unit`
  bool noisy = false;          ///< gains from a mean; schedules and speeds are shown as they are
};

/// A key that is not known is its own name; then the result lives as long as `key`.
MetricLook metric_look(std::string_view key);

/// Every Chinese character that a label may hold.
std::string chinese_labels();

}  // namespace danlu::train
