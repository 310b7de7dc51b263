// train/action_trace.h: when a stage did what its schedule says.
#pragma once
#include <vector>

#include "arch/pipeline.h"

namespace danlu::train {

/// Told by Passes of every action of a schedule, in order, by the thread that does it.
class ActionObserver {
 public:
  virtual ~ActionObserver() = default;
  virtual void begin(const arch::Action& action) = 0;
  virtual void end(const arch::Action& action) = 0;
};

/// An action from begin to end, in seconds of the thread's virtual clock
/// (parallel/virtual_clock.h), of the wall without one.
struct ActionSpan {
  arch::Action action;
  double begin = 0, end = 0;
  double seconds() const { return end - begin; }
};

/// Keeps the spans of one rank.
class ActionTrace : public ActionObserver {
 public:
  void begin(const arch::Action& action) override;
  void end(const arch::Action& action) override;
  const std::vector<ActionSpan>& spans() const { return spans_; }
  void clear() { spans_.clear(); }

 private:
  std::vector<ActionSpan> spans_;
};

/// What the spans of all ranks of a pipeline come to.
struct PipelineTimes {
  double seconds = 0;           ///< from the first begin to the last end of a pass
  std::vector<double> busy;     ///< seconds of each rank in passes
  std::vector<double> waiting;  ///< and in receiving
  /// Share of ranks × seconds without a pass.
  double bubble() const;
};
PipelineTimes times_of(const std::vector<std::vector<ActionSpan>>& ranks);

}  // namespace danlu::train
