// data/batch.h: what a training step eats: token ids without padding, cut into segments.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ignore_label.h"
#include "base/row_range.h"
#include "data/media_loader.h"
#include "data/media_span.h"

namespace danlu::data {

/// A packed micro-batch. Tokens of all samples lie one after the other; no padding exists.
/// Attention never crosses a segment border.
struct Batch {
  std::vector<int64_t> ids;  ///< [N]
  std::vector<int64_t>
      targets;  ///< [N]; target of position i, already shifted; kIgnoreLabel = no loss
  /// [N]; restart at 0 in every segment, or where Sample::position_starts says.
  std::vector<int64_t> positions;
  /// [N]; a hash of the sample's number and the token's place in the sample: what random numbers
  /// are keyed by, so that they do not depend on the cut of a step into batches.
  std::vector<uint64_t> token_keys;
  std::vector<int32_t> segment_starts;  ///< [S+1]; 0 … N
  int64_t num_targets = 0;              ///< targets != kIgnoreLabel
  int64_t num_samples = 0;              ///< rows of the data set in this batch
  bool is_filling = false;              ///< it stands for no samples, and no router sees its tokens
  /// In a part of a batch (part_of), segment_starts still counts the tokens of the whole. `rows`
  /// says which of these are here, in their order. Empty: all; one empty range: none.
  std::vector<RowRange> rows;
  /// In a part of a batch: `ids` and `targets` of the whole, for what looks at tokens of others.
  std::vector<int64_t> all_ids, all_targets;
  /// Pictures and videos in order of appearance, `begin` counting the tokens of the batch: in a
  /// part of a batch all of the whole, counting the tokens of the whole.
  std::vector<MediaSpan> media;
  /// The pixels of `media`, on their way; null without media, or where nobody loads them.
  std::shared_ptr<PendingPixels> pixels;
  /// In a part of a batch: one more than the largest position of each whole segment.
  std::vector<int64_t> segment_lengths;
  /// [S], of whole segments also in a part of a batch: Sample::segment_values. Empty: none.
  std::vector<float> segment_values;
  /// [S × n], of whole segments also in a part of a batch: Sample::segment_labels. Empty: none.
  std::vector<float> segment_labels;
  /// [S], of whole segments also in a part of a batch: Sample::segment_logprobs. Empty: none.
  std::vector<double> segment_logprobs;
  /// Each [N]: Sample::token_columns.
  std::map<std::string, std::vector<float>> token_columns;
};

/// A tokenised sample before batching: labels are NOT shifted (labels[i] belongs to ids[i]).
/// `segments` holds the start of each sub-sample when the sample is itself packed ({0} otherwise).
struct Sample {
  std::vector<int32_t> ids{};
  std::vector<int32_t> labels{};
  std::vector<int32_t> segments{0};
  /// labels[i] is already the target of ids[i] (windows cut from a running text, where the last
  /// position has a target too, and targets cross segment borders).
  bool labels_are_targets = false;
  /// Where positions restart, if not at `segments`. Empty: at `segments`.
  std::vector<int32_t> position_starts{};
  std::vector<MediaSpan> media{};  ///< in order of appearance
  /// What an objective knows of each segment beside its tokens, such as whether an answer is liked.
  /// Empty: nothing.
  std::vector<float> segment_values{};
  /// What a classifier is to say of each segment: as many numbers for one as for another. Empty:
  /// nothing.
  std::vector<float> segment_labels{};
  /// The sum of the log-probabilities that a reference gives to each segment's targets. Empty:
  /// nobody has computed them.
  std::vector<double> segment_logprobs{};
  /// What an objective knows of each token, by names that it chooses: one number for each of `ids`.
  /// What belongs to a target stands where the target is predicted, one token before it.
  std::map<std::string, std::vector<float>> token_columns{};
};

/// The part of a whole batch that has these tokens. The part with the first token counts the
/// samples of the batch; the others count none. REQUIRES: ranges ascend and lie inside the batch.
Batch part_of(const Batch& batch, const std::vector<RowRange>& rows);

/// For each token that is here, the number of its segment.
std::vector<int64_t> segment_of_tokens(const Batch& batch);

/// Concatenates samples into a batch: shifts labels inside each segment (the last position of a
/// segment has no target), restarts positions. Empty samples count but leave no segment.
/// `numbers`: of the samples in the run, for token_keys; empty: from 0 on.
/// Errors: InternalError if a sample's arrays do not fit together, or only some samples have
/// segment_values or a column.
Batch make_batch(const std::vector<Sample>& samples, const std::vector<int64_t>& numbers = {});

}  // namespace danlu::data
