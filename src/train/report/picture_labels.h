// train/report/picture_labels.h: what stands in the pictures of a run, in English and Chinese.
#pragma once
#include <string>
#include <string_view>

namespace danlu::train {

struct PictureLabel {
  std::string_view english, chinese;
  std::string_view in(bool use_chinese) const { return use_chinese ? chinese : english; }
};

inline constexpr PictureLabel kStepLabel{"step", "步数"};
inline constexpr PictureLabel kEachRecordLabel{"each record", "每条记录"};
inline constexpr PictureLabel kMeanLabel{"exponential mean 0.9", "指数滑动平均 0.9"};
inline constexpr PictureLabel kEvaluationLabel{"evaluation", "验证集"};
inline constexpr PictureLabel kNothingLabel{"no finite value", "没有有限的数值"};

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
