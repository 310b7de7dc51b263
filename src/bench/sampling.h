// bench/sampling.h: timing something on a machine that is not always as fast: what it could do is
// measured before and after every run, and a run in the midst of which that has moved is repeated.
#pragma once
#include <functional>
#include <vector>

#include "bench/work.h"

namespace danlu::bench {

struct Sample {
  double seconds = 0;
  Limits before, after;
  bool is_steady = true;  ///< what the work takes at least did not move from the one to the other
};

/// How something is timed.
struct Sampling {
  int samples = 5;
  int attempts = 4;        ///< at one sample, at most
  double may_move = 0.15;  ///< of least_seconds(), from before a run to after it
};

/// Runs until there are enough samples. After so many attempts at one the last is kept as unsteady.
/// run() gives seconds; gauge() the limits of this moment, once between two runs.
std::vector<Sample> take_samples(const Work& work, const std::function<double()>& run,
                                 const std::function<Limits()>& gauge, const Sampling& sampling);

/// What the work takes at least, at the mean of the limits before and after, over what it took.
double share_of_limit(const Work& work, const Sample& sample);

}  // namespace danlu::bench
