// board/metrics.h: the numbers of a run's logging.jsonl as curves over steps.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace danlu::board {

/// Points of one number, steps ascending; what is no finite number is NaN, a gap.
struct Curve {
  std::vector<int64_t> steps;
  std::vector<double> values;
};

/// What a logging.jsonl says, line by line. Knows Danlu's lines and ms-swift's, whose step stands
/// in "global_step/max_steps".
class Metrics {
 public:
  /// A line without a step, or that is no JSON object, says nothing. A record of training (one with
  /// a loss) of an earlier step than the last is of a run that was resumed there: what stood at
  /// that step and after it is forgotten. Else a step that comes again has its later values.
  void add(std::string_view line);
  void clear();

  const std::map<std::string, Curve>& curves() const { return curves_; }
  /// Another one: curves changed elsewhere than at their ends (at steps >= the last one seen).
  uint64_t generation() const { return generation_; }
  int64_t last_step() const { return last_step_; }
  int64_t max_steps() const { return max_steps_; }  ///< 0: unknown
  /// The last value of a curve.
  std::optional<double> last(const std::string& name) const;
  /// The smallest finite value of a curve.
  std::optional<double> least(const std::string& name) const;
  /// What the newest record of training says of the time that is left, as written; may be empty.
  const std::string& remaining() const { return remaining_; }

 private:
  void forget_from(int64_t step);
  void put(const std::string& name, int64_t step, double value);

  std::map<std::string, Curve> curves_;
  uint64_t generation_ = 1;
  int64_t last_step_ = 0, last_trained_ = 0, max_steps_ = 0;
  std::string remaining_;
};

/// A line as JSON, with Python's NaN and Infinity, which JSON lacks, as null; nothing if it is no
/// object.
std::optional<Json> parse_record(std::string_view line);

/// {"x": […], "y": […]} of the points from `from` up to `to`, both included, NaN as null. If there
/// are more than `most_points`, the smallest and the largest of each stretch are kept.
Json curve_json(const Curve& curve, int64_t from, int64_t to, size_t most_points);

}  // namespace danlu::board
