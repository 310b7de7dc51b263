#include "train/liked_rows.h"

#include "base/error.h"
#include "base/log.h"

namespace danlu::train {
namespace {

struct Kinds {
  int64_t liked = 0, disliked = 0;
};

/// Counted until both are there.
Kinds kinds_of(const data::SampleSource& samples) {
  Kinds found;
  for (int64_t i = 0; i < samples.size() && (found.liked == 0 || found.disliked == 0); ++i) {
    const data::Sample sample = samples.get(i);
    // Every second segment is an answer that the row is compared with.
    for (size_t s = 0; s < sample.segment_values.size(); s += 2)
      ++(sample.segment_values[s] > 0 ? found.liked : found.disliked);
  }
  return found;
}

}  // namespace

void check_liked_rows(const TrainConfig& config, const data::SampleSource& samples) {
  const settings::UnpairedConfig& kto = config.objective.unpaired;
  const Kinds found = kinds_of(samples);
  const bool is_weighed =
      (found.liked > 0 && kto.liked_weight > 0) || (found.disliked > 0 && kto.disliked_weight > 0);
  if (!is_weighed) {
    throw UsageError(
        tr("[train] kto: {} liked rows weigh {} each and {} disliked ones {}: nothing is learnt",
           found.liked, kto.liked_weight, found.disliked, kto.disliked_weight),
        tr("{} and {} weigh them", config.flag("desirable_weight"),
           config.flag("undesirable_weight")));
  }
  if (found.liked > 0 && found.disliked > 0) return;
  if (found.liked > 0) {
    log::warning(
        "[train] kto: all {} rows are liked, none is disliked: the loss only makes answers "
        "likelier, and no margin is measured; danlu sft learns from such rows as well",
        found.liked);
  } else {
    log::warning(
        "[train] kto: all {} rows are disliked, none is liked: the loss only makes answers less "
        "likely, and no margin is measured; nothing says what is to be answered instead",
        found.disliked);
  }
}

}  // namespace danlu::train
