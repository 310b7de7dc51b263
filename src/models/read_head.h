// models/read_head.h: what a model's last hidden state is multiplied with, on the host, where a few
// of its numbers are enough.
#pragma once
#include <cstdint>
#include <vector>

#include "models/causal_lm.h"

namespace danlu::models {

struct ReadHead {
  std::vector<std::vector<float>> rows;  ///< of the hidden size each
  std::vector<float> bias;               ///< one for each row, or none
  double scale = 1;                      ///< of the products
  double softcap = 0;                    ///< c: the numbers are c tanh(x / c); 0: they are x
  /// The layer of an encoder whose output, through tanh, the rows read in place of the hidden
  /// state.
  std::vector<std::vector<float>> dense_rows = {};
  std::vector<float> dense_bias = {};
};

/// The rows of the head that a reward model or a classifier has; of others those of the
/// vocabulary's head that are of `ids`. Collective over the tensor axis. Errors: as
/// CausalLM::logits_of; ModelError where adapters change the head.
ReadHead read_head(const CausalLM& model, const std::vector<int32_t>& ids);

/// What they make of a hidden state after the final norm.
std::vector<double> numbers_of(const ReadHead& head, const std::vector<float>& hidden);

}  // namespace danlu::models
