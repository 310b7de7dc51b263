#include "train/action_trace.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/clock.h"
#include "parallel/virtual_clock.h"

namespace danlu::train {
namespace {

double now() {
  const parallel::VirtualClock* clock = parallel::VirtualClock::of_thread();
  return clock ? clock->now() : steady_now_s();
}

bool is_pass(arch::Work work) {
  return work == arch::Work::kForward || work == arch::Work::kBackward ||
         work == arch::Work::kBackwardInput || work == arch::Work::kBackwardWeight;
}

bool is_receive(arch::Work work) {
  return work == arch::Work::kReceiveHidden || work == arch::Work::kReceiveGrad;
}

}  // namespace

void ActionTrace::begin(const arch::Action& action) {
  const double begin = now();
  spans_.push_back({action, begin, begin});
}

void ActionTrace::end(const arch::Action&) { spans_.back().end = now(); }

double PipelineTimes::bubble() const {
  const double all = seconds * static_cast<double>(busy.size());
  return all > 0 ? 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / all : 0;
}

PipelineTimes times_of(const std::vector<std::vector<ActionSpan>>& ranks) {
  PipelineTimes times;
  double first = std::numeric_limits<double>::infinity(), last = -first;
  for (const std::vector<ActionSpan>& spans : ranks) {
    double busy = 0, waiting = 0;
    for (const ActionSpan& span : spans) {
      if (is_receive(span.action.work)) waiting += span.seconds();
      if (!is_pass(span.action.work)) continue;
      busy += span.seconds();
      first = std::min(first, span.begin);
      last = std::max(last, span.end);
    }
    times.busy.push_back(busy);
    times.waiting.push_back(waiting);
  }
  times.seconds = std::max(0.0, last - first);
  return times;
}

}  // namespace danlu::train
