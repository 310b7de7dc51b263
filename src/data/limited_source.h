// data/limited_source.h: samples of files tokenised beforehand, held to the length that raw rows
// are held to.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "data/preprocess_encode.h"
#include "data/preprocess_report.h"
#include "data/sample_source.h"

namespace danlu::data {

struct LengthLimit {
  int64_t max_length = 0;  ///< tokens a segment may have; 0: any number
  Truncation truncation = Truncation::kDelete;
  bool strict = false;                          ///< a sample that would be dropped is an error
  double max_dropped_ratio = kMaxDroppedRatio;  ///< of the samples; more is an error
  /// Pairs are measured and cut by their segments, prompt and answer in shares; kTokens as a whole.
  SampleKind kind = SampleKind::kTokens;
};

/// Drops (kDelete, kSplit) or cuts the samples of `base` that are too long, and drops those that
/// then have no target; `base` itself if all of them fit. Padding does not count. Reads the samples
/// whose stored length is above the limit. Rows read, kept, dropped and cut, and the lengths, are
/// added to `report`, under the name `name`.
/// Errors: DataError if no sample is left, too many are dropped (see judge_dropped) or, with
/// strict, for the first one to be dropped.
std::shared_ptr<const SampleSource> limit_samples(std::shared_ptr<const SampleSource> base,
                                                  const LengthLimit& limit, const std::string& name,
                                                  PreprocessReport* report);

}  // namespace danlu::data
