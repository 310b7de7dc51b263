// measure/decoding.h: greedy decoding with a model, a token at a time.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "arch/model_config.h"
#include "bench/work.h"
#include "models/causal_lm.h"

namespace danlu::measure {

/// Random weights of a fixed seed: what decoding takes does not depend on them.
std::unique_ptr<models::CausalLM> random_model(const arch::ModelConfig& config, at::ScalarType type,
                                               const at::Device& device = at::Device(at::kCPU));

class Decoding {
 public:
  /// So many sequences side by side, each of `context` made-up tokens, which are read here. `model`
  /// outlives it.
  Decoding(const models::CausalLM& model, int64_t sequences, int64_t context);
  ~Decoding();

  /// The next token of every sequence, the likeliest.
  void token();
  /// The same, and forgets what it read: the next one meets as many keys.
  void token_again();
  /// What each sequence began with.
  const std::vector<std::vector<int64_t>>& prompts() const;
  /// What was chosen of each so far.
  const std::vector<std::vector<int64_t>>& chosen() const;
  /// The work of one token() with this many sequences: every weight is multiplied once for each, of
  /// experts those that it takes; read is every weight once, without a table that the head is not
  /// tied to (some of its rows) and experts that the last token() gave no row, and the keys and
  /// values of `context` tokens once for each sequence.
  bench::Work work() const;
  /// How many experts the last token() read, over all layers.
  int64_t experts_read() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads so many made-up tokens into a sequence that is forgotten then: a prefill.
void prefill(const models::CausalLM& model, int64_t tokens);
bench::Work prefill_work(const models::CausalLM& model, int64_t tokens);

}  // namespace danlu::measure
