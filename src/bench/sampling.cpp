#include "bench/sampling.h"

#include "bench/statistics.h"

namespace danlu::bench {

std::vector<Sample> take_samples(const Work& work, const std::function<double()>& run,
                                 const std::function<Limits()>& gauge, const Sampling& sampling) {
  std::vector<Sample> samples;
  Limits before = gauge();
  for (int i = 0; i < sampling.samples; ++i) {
    Sample sample;
    for (int attempt = 0; attempt < sampling.attempts; ++attempt) {
      sample.before = before;
      sample.seconds = run();
      sample.after = before = gauge();
      sample.is_steady = moved(least_seconds(work, sample.before),
                               least_seconds(work, sample.after)) <= sampling.may_move;
      if (sample.is_steady) break;
    }
    samples.push_back(sample);
  }
  return samples;
}

double share_of_limit(const Work& work, const Sample& sample) {
  const double least = (least_seconds(work, sample.before) + least_seconds(work, sample.after)) / 2;
  return least / sample.seconds;
}

}  // namespace danlu::bench
