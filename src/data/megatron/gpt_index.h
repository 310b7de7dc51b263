// data/megatron/gpt_index.h: the order in which Megatron's GPT pre-training sees tokens, bit for
// bit.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/megatron/splits.h"

namespace danlu::data {

struct GptIndexOptions {
  int64_t sequence_length = 0;         ///< S, tokens per sample
  std::optional<int64_t> num_samples;  ///< samples wanted; none: one epoch
  uint32_t seed = 1234;
  bool add_extra_token = true;    ///< samples carry S+1 tokens, the last one only a target
  bool drop_last_partial = true;  ///< false: a shorter last sample is kept (validation)
  /// A last epoch that contributes less than this share of its samples is shuffled on its own, so
  /// that its few samples do not mix with full epochs. Megatron: 0.80; Megatron-DeepSpeed
  /// (BigScience): 0.95.
  double separate_last_epoch_below = 0.80;
};

/// A sample i starts where row shuffle[i] of `samples` says and ends where the next row says.
struct GptIndices {
  std::vector<int32_t> documents;  ///< sequence numbers, epoch after epoch, shuffled
  std::vector<int64_t>
      samples;  ///< [M+1, 2]: position in `documents`, token offset in that sequence
  std::vector<int64_t> shuffle;  ///< [M]
  int64_t num_epochs = 1;
  bool separate_last_epoch = false;
  int64_t num_samples() const { return static_cast<int64_t>(samples.size()) / 2 - 1; }
};

/// Builds the three indices for the sequences `exposed` of a data set with these lengths.
/// Errors: DataError if the exposed sequences hold no token; UsageError for a bad sequence length.
/// Source: docs/formats/megatron_indexed.md "Sample order".
GptIndices build_gpt_indices(std::span<const int32_t> lengths, IdRange exposed,
                             const GptIndexOptions& options);

/// M, the samples that `total_tokens` make.
int64_t num_gpt_samples(int64_t total_tokens, const GptIndexOptions& options);

/// Row-major [M+1, 2] sample rows alone; `documents` may repeat sequences.
std::vector<int64_t> build_gpt_sample_rows(std::span<const int32_t> lengths,
                                           std::span<const int32_t> documents, int64_t total_tokens,
                                           const GptIndexOptions& options);

}  // namespace danlu::data
