#include "plan/simulate.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/error.h"

namespace danlu::plan {
namespace {

using arch::Work;

class Pipeline {
 public:
  Pipeline(const std::vector<arch::Schedule>& schedules,
           const std::vector<std::vector<WorkTimes>>& times, const std::vector<StageLink>& links)
      : schedules_(schedules),
        times_(times),
        links_(links),
        next_(schedules.size()),
        now_(schedules.size()),
        in_flight_(schedules.size()),
        forward_free_(schedules.size()),
        back_free_(schedules.size()),
        spans_(schedules.size()) {
    result_.busy.resize(schedules.size());
    result_.peak_in_flight.resize(schedules.size());
  }

  Simulated run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < schedules_.size(); ++s) moved = advance(s) || moved;
    }
    for (size_t s = 0; s < schedules_.size(); ++s) {
      if (next_[s] < schedules_[s].size())
        throw UsageError(
            tr("[plan] the schedule stops: stage {} waits for what no stage sends", s));
      result_.spans.insert(result_.spans.end(), spans_[s].begin(), spans_[s].end());
      for (const Span& span : spans_[s]) result_.seconds = std::max(result_.seconds, span.end);
    }
    const double all = result_.seconds * static_cast<double>(schedules_.size());
    const double busy = std::accumulate(result_.busy.begin(), result_.busy.end(), 0.0);
    result_.bubble = all > 0 ? 1 - busy / all : 0;
    return std::move(result_);
  }

 private:
  /// Place in the order of layers of what a message is for, whether a gradient, micro-batch.
  using Message = std::tuple<int64_t, bool, int64_t>;

  int64_t place(size_t stage, int64_t chunk) const {
    return chunk * static_cast<int64_t>(schedules_.size()) + static_cast<int64_t>(stage);
  }

  bool advance(size_t s) {
    const size_t before = next_[s];
    while (next_[s] < schedules_[s].size() && act(s, schedules_[s][next_[s]])) ++next_[s];
    return next_[s] > before;
  }

  /// False: what it needs is not sent yet.
  bool act(size_t s, const arch::Action& action) {
    const int64_t chunk = action.chunk;
    switch (action.work) {
      case Work::kReceiveHidden:
      case Work::kReceiveGrad: {
        const auto found =
            arrival_.find({place(s, chunk), action.work == Work::kReceiveGrad, action.micro_batch});
        if (found == arrival_.end()) return false;
        now_[s] = std::max(now_[s], found->second);
        arrival_.erase(found);
        return true;
      }
      case Work::kSendHidden:
        send(s, links_[s], forward_free_[s], {place(s, chunk) + 1, false, action.micro_batch});
        return true;
      case Work::kSendGrad: {
        const size_t border = (s + links_.size() - 1) % links_.size();
        send(s, links_[border], back_free_[border],
             {place(s, chunk) - 1, true, action.micro_batch});
        return true;
      }
      default:
        compute(s, action, chunk);
        return true;
    }
  }

  void send(size_t s, const StageLink& link, double& free, const Message& message) {
    free = std::max(free, now_[s]) + link.seconds;
    arrival_[message] = free + link.latency;
  }

  void compute(size_t s, const arch::Action& action, int64_t chunk) {
    const WorkTimes& times = times_[s].at(static_cast<size_t>(chunk));
    double seconds = times.forward;
    if (action.work == Work::kBackward) seconds = times.backward_input + times.backward_weight;
    if (action.work == Work::kBackwardInput) seconds = times.backward_input;
    if (action.work == Work::kBackwardWeight) seconds = times.backward_weight;
    if (action.work == Work::kForward)
      result_.peak_in_flight[s] = std::max(result_.peak_in_flight[s], ++in_flight_[s]);
    if (action.work == Work::kBackward || action.work == Work::kBackwardWeight) --in_flight_[s];
    spans_[s].push_back({static_cast<int64_t>(s), chunk, action.micro_batch, action.work, now_[s],
                         now_[s] + seconds});
    now_[s] += seconds;
    result_.busy[s] += seconds;
  }

  const std::vector<arch::Schedule>& schedules_;
  const std::vector<std::vector<WorkTimes>>& times_;
  const std::vector<StageLink>& links_;
  std::vector<size_t> next_;
  std::vector<double> now_;
  std::vector<int64_t> in_flight_;
  std::vector<double> forward_free_, back_free_;  ///< when each link is
  std::map<Message, double> arrival_;
  std::vector<std::vector<Span>> spans_;
  Simulated result_;
};

}  // namespace

Simulated simulate(const std::vector<arch::Schedule>& schedules,
                   const std::vector<std::vector<WorkTimes>>& times,
                   const std::vector<StageLink>& links) {
  return Pipeline(schedules, times, links).run();
}

}  // namespace danlu::plan
