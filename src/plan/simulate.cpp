#include "plan/simulate.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace danlu::plan {
namespace {

using arch::Work;

class Pipeline {
 public:
  Pipeline(const std::vector<arch::Schedule>& schedules,
           const std::vector<std::vector<WorkTimes>>& times, const std::vector<StageLink>& links,
           const std::vector<DataExchanges>& exchanges)
      : schedules_(schedules),
        times_(times),
        links_(links),
        exchanges_(exchanges),
        next_(schedules.size()),
        now_(schedules.size()),
        in_flight_(schedules.size()),
        forward_free_(schedules.size()),
        back_free_(schedules.size()),
        spans_(schedules.size()) {
    result_.busy.resize(schedules.size());
    result_.peak_in_flight.resize(schedules.size());
    for (size_t s = 0; s < schedules.size(); ++s) {
      for (const arch::Action& action : schedules[s]) {
        micro_batches_ = std::max(micro_batches_, action.micro_batch + 1);
        chunks_ = std::max(chunks_, action.chunk + 1);
      }
    }
    const auto places = static_cast<size_t>(chunks_) * schedules.size();
    arrival_.assign(2 * places * static_cast<size_t>(micro_batches_), kNotSent);
    forwards_.assign(schedules.size(), std::vector<int64_t>(static_cast<size_t>(chunks_)));
    backwards_ = forwards_;
    summed_until_.resize(schedules.size());
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
      result_.with_sums = std::max(result_.with_sums, summed_until_[s]);
    }
    result_.with_sums = std::max(result_.with_sums, result_.seconds);
    const double all = result_.seconds * static_cast<double>(schedules_.size());
    const double busy = std::accumulate(result_.busy.begin(), result_.busy.end(), 0.0);
    result_.bubble = all > 0 ? 1 - busy / all : 0;
    return std::move(result_);
  }

 private:
  static constexpr double kNotSent = -1;

  /// When what a place in the order of layers is sent is there.
  double& arrival(int64_t place, bool is_gradient, int64_t micro_batch) {
    const int64_t of_place = 2 * place + (is_gradient ? 1 : 0);
    return arrival_.at(static_cast<size_t>(of_place * micro_batches_ + micro_batch));
  }

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
        const double there =
            arrival(place(s, chunk), action.work == Work::kReceiveGrad, action.micro_batch);
        if (there == kNotSent) return false;
        now_[s] = std::max(now_[s], there);
        return true;
      }
      case Work::kSendHidden:
        arrival(place(s, chunk) + 1, false, action.micro_batch) =
            sent(s, links_[s], forward_free_[s]);
        return true;
      case Work::kSendGrad: {
        const size_t border = (s + links_.size() - 1) % links_.size();
        arrival(place(s, chunk) - 1, true, action.micro_batch) =
            sent(s, links_[border], back_free_[border]);
        return true;
      }
      default:
        compute(s, action, chunk);
        return true;
    }
  }

  double sent(size_t s, const StageLink& link, double& free) const {
    free = std::max(free, now_[s]) + link.seconds;
    return free + link.latency;
  }

  /// The first forward of a chunk waits, unit by unit, for what the last update left elsewhere.
  double first_forward_end(size_t s, int64_t chunk, double seconds) const {
    const std::vector<Units>& gathered = exchanges_[s].gathered;
    double there = 0;
    for (int64_t before = 0; before < chunk; ++before)
      there += static_cast<double>(gathered[static_cast<size_t>(before)].count) *
               gathered[static_cast<size_t>(before)].seconds;
    const Units& units = gathered[static_cast<size_t>(chunk)];
    double end = now_[s];
    for (int64_t i = 0; i < units.count; ++i) {
      there += units.seconds;
      end = std::max(end, there) + seconds / static_cast<double>(units.count);
    }
    return units.count > 0 ? end : now_[s] + seconds;
  }

  void sum_gradients(size_t s, int64_t chunk, double start, double seconds) {
    const Units& units = exchanges_[s].summed[static_cast<size_t>(chunk)];
    for (int64_t i = 1; i <= units.count; ++i) {
      const double ready =
          start + seconds * static_cast<double>(i) / static_cast<double>(units.count);
      summed_until_[s] = std::max(summed_until_[s], ready) + units.seconds;
    }
  }

  void compute(size_t s, const arch::Action& action, int64_t chunk) {
    const WorkTimes& times = times_[s].at(static_cast<size_t>(chunk));
    double seconds = times.forward;  // of work; a span may wait for its weights too
    if (action.work == Work::kBackward) seconds = times.backward_input + times.backward_weight;
    if (action.work == Work::kBackwardInput) seconds = times.backward_input;
    if (action.work == Work::kBackwardWeight) seconds = times.backward_weight;
    const double work = seconds;
    const auto at = static_cast<size_t>(chunk);
    if (action.work == Work::kForward) {
      result_.peak_in_flight[s] = std::max(result_.peak_in_flight[s], ++in_flight_[s]);
      if (forwards_[s][at]++ == 0 && !exchanges_.empty() && !exchanges_[s].gathered.empty())
        seconds = first_forward_end(s, chunk, seconds) - now_[s];
    } else if (action.work != Work::kBackwardInput) {
      --in_flight_[s];
      if (++backwards_[s][at] == micro_batches_ && !exchanges_.empty() &&
          !exchanges_[s].summed.empty())
        sum_gradients(s, chunk, now_[s], seconds);
    }
    spans_[s].push_back({static_cast<int64_t>(s), chunk, action.micro_batch, action.work, now_[s],
                         now_[s] + seconds});
    now_[s] += seconds;
    result_.busy[s] += work;
  }

  const std::vector<arch::Schedule>& schedules_;
  const std::vector<std::vector<WorkTimes>>& times_;
  const std::vector<StageLink>& links_;
  const std::vector<DataExchanges>& exchanges_;
  std::vector<size_t> next_;
  std::vector<double> now_;
  std::vector<int64_t> in_flight_;
  std::vector<double> forward_free_, back_free_;  ///< when each link is
  int64_t micro_batches_ = 0, chunks_ = 0;
  std::vector<double> arrival_;
  std::vector<std::vector<int64_t>> forwards_, backwards_;  ///< done, by stage and chunk
  std::vector<double> summed_until_;
  std::vector<std::vector<Span>> spans_;
  Simulated result_;
};

}  // namespace

Simulated simulate(const std::vector<arch::Schedule>& schedules,
                   const std::vector<std::vector<WorkTimes>>& times,
                   const std::vector<StageLink>& links,
                   const std::vector<DataExchanges>& exchanges) {
  return Pipeline(schedules, times, links, exchanges).run();
}

}  // namespace danlu::plan
