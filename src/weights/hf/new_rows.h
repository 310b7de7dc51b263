// weights/hf/new_rows.h: rows that a vocabulary gains: of the table of embeddings, and of a head of
// its own.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// How rows of new tokens begin: as the mean of the rows that were there, with normal noise.
enum class RowNoise {
  /// A variance of 1e-9 of each column's, as transformers' resize_token_embeddings has it (which
  /// draws from the whole covariance).
  kSlight,
  kOfWidth,  ///< with the deviation 1 / sqrt(width), as LLaMA-Factory has it
};

struct NewRows {
  int64_t vocab_size = 0;  ///< rows in the end; 0: none are new
  /// Ids of new tokens. Of those that lie among rows that were there, padding until now, kOfWidth
  /// draws each, kSlight those that are all zeros. None of them counts for the mean.
  std::vector<int64_t> tokens = {};
  RowNoise noise = RowNoise::kSlight;
  uint64_t seed = 0;
  bool empty() const { return vocab_size == 0 && tokens.empty(); }
};

/// `source` of the model that `config` describes, before it grew, with these rows in its table, in
/// its head and in every copy of both; a head's biases are means. A row is a function of the seed,
/// the tensor's name and its number alone; the means are read from the files once, when the first
/// new row is asked for. Errors: ModelError if `rows` has fewer than the table.
std::shared_ptr<const TensorSource> with_new_rows(std::shared_ptr<const TensorSource> source,
                                                  const arch::ModelConfig& config,
                                                  const NewRows& rows);

}  // namespace danlu::weights
