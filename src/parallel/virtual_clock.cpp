#include "parallel/virtual_clock.h"

#include <algorithm>
#include <ctime>

namespace danlu::parallel {
namespace {

thread_local VirtualClock* clock_of_thread = nullptr;

}  // namespace

double thread_processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

VirtualClock::VirtualClock(const VirtualTime& time)
    : time_(time), counts_(std::make_shared<Counts>()) {
  go_on_from(0);
}

std::unique_ptr<VirtualClock> VirtualClock::beside() const {
  auto other = std::make_unique<VirtualClock>(time_);
  other->counts_ = counts_;
  other->is_own_ = false;
  return other;
}

VirtualClock* VirtualClock::of_thread() { return clock_of_thread; }

VirtualClock::InForce::InForce(VirtualClock* clock) : before_(clock_of_thread) {
  clock_of_thread = clock;
}
VirtualClock::InForce::~InForce() { clock_of_thread = before_; }

void VirtualClock::begin_job(double given) {
  go_on_from(std::max(now(), given));
  on_links_ = 0;
}

void VirtualClock::wait_for(const Moment& other) {
  const double waited = other.at - now();
  if (waited <= 0) return;
  count_waiting(waited, other.on_links);
  go_on_from(other.at);
}

void VirtualClock::wait_for(const RoundTimes& round) {
  const double on_links = round.end - round.begin;
  on_links_ += on_links;
  {
    const std::lock_guard lock(counts_->mutex);
    counts_->times.modelled += on_links;
  }
  wait_for(Moment{round.end, on_links});
}

void VirtualClock::count_waiting(double seconds, double on_links) {
  if (!is_own_) return;
  const std::lock_guard lock(counts_->mutex);
  const double exposed = std::min(seconds, on_links);
  counts_->times.exposed += exposed;
  counts_->times.late += seconds - exposed;
}

ExchangeTimes VirtualClock::exchanges() const {
  const std::lock_guard lock(counts_->mutex);
  return counts_->times;
}

RoundTimes time_round(const VirtualTime& time, const std::vector<int64_t>& ranks,
                      const std::vector<double>& came,
                      const std::vector<std::vector<double>>& bytes, size_t own) {
  const size_t members = ranks.size();
  std::vector<double> out = came, in = came;  // when each link is free
  RoundTimes result{came[own], came[own], came[own]};
  for (size_t distance = 1; distance < members; ++distance) {
    for (size_t from = 0; from < members; ++from) {
      const size_t to = (from + distance) % members;
      if (bytes[from][to] == 0) continue;
      const ModelledLink& link = time.between(ranks[from], ranks[to]);
      const double end = std::max(out[from], in[to]) + link.seconds(bytes[from][to]);
      out[from] = in[to] = end;
      if (from != own && to != own) continue;
      result.begin = std::max(result.begin, came[from == own ? to : from]);
      result.left = std::max(result.left, end);
      result.end = std::max(result.end, to == own ? end + link.latency_s : end);
    }
  }
  return result;
}

}  // namespace danlu::parallel
