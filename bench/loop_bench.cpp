// bench/loop_bench.cpp: what it costs to divide a loop among threads, over libgomp's.
//
//   loop_bench [--threads 0] [--rounds 5]
//
// An empty loop after so many microseconds in which the other threads had nothing to do. One JSON
// line for each: microseconds of device::parallel_for and of at::parallel_for, by turns, each the
// median of the rounds' means, and theirs over ours. Run it with GOMP_SPINCOUNT=1000: so `danlu`
// has libgomp's threads wait. --threads 0: all.
#include <fmt/format.h>

#include <vector>

#include "base/clock.h"
#include "bench/statistics.h"
#include "device/parallel.h"
#include "flags.h"

namespace {

void wait_busily(double seconds) {
  const double end = danlu::steady_now_s() + seconds;
  while (danlu::steady_now_s() < end) {
  }
}

template <typename Loop>
double microseconds_of(const Loop& loop, double idle_s, int64_t threads) {
  const int count = idle_s > 1e-4 ? 500 : 5000;
  double total = 0;
  for (int i = 0; i < count; ++i) {
    wait_busily(idle_s);
    const double begin = danlu::steady_now_s();
    loop(0, threads, 1, [](int64_t, int64_t) {});
    total += danlu::steady_now_s() - begin;
  }
  return total / count * 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t threads = 0, rounds = 5;
  danlu::bench::parse_flags(argc, argv,
                            {{"--threads", danlu::bench::WholeNumber{&threads, 0}},
                             {"--rounds", danlu::bench::WholeNumber{&rounds}}});
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
  threads = at::get_num_threads();
  const auto ours = [](auto... all) { danlu::device::parallel_for(all...); };
  const auto theirs = [](auto... all) { at::parallel_for(all...); };
  for (const double idle_s : {0.0, 20e-6, 100e-6, 500e-6, 2e-3}) {
    std::vector<double> own_us, their_us;
    for (int64_t round = 0; round < rounds; ++round) {
      own_us.push_back(microseconds_of(ours, idle_s, threads));
      their_us.push_back(microseconds_of(theirs, idle_s, threads));
    }
    const double own = danlu::bench::median(own_us), their = danlu::bench::median(their_us);
    fmt::print(
        "{{\"threads\": {}, \"idle_us\": {:.0f}, \"own_us\": {:.2f}, \"libgomp_us\": {:.2f}, "
        "\"libgomp_over_own\": {:.1f}}}\n",
        threads, idle_s * 1e6, own, their, their / own);
  }
  return 0;
}
