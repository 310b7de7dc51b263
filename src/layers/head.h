// layers/head.h: token embedding and output head, whose rows the tensor axis cuts.
#pragma once
#include "layers/embedding_noise.h"
#include "layers/linear.h"
#include "ops/cross_entropy.h"
#include "ops/head_divergence.h"
#include "ops/token_logprobs.h"

namespace danlu::layers {

struct Embedding {
  Parameter weight;  ///< [v, H]: this rank's rows of the vocabulary
  parallel::Region region{parallel::Group::alone(), false};
  double scale = 1.0;  ///< of the result
  bool noise_is_last = false;

  void visit(Visitor& visitor) { visitor.parameter(weight); }
  /// Shapes  ids_N [N]; result [N, H], or this rank's rows of it (parallel/region.h). noise: goes
  /// on the table's rows before the factor, or with noise_is_last behind it.
  at::Tensor forward(const at::Tensor& ids_N, const EmbeddingNoise& noise = {}) const;

 private:
  at::Tensor rows(const at::Tensor& ids_N) const;
  at::Tensor noisy(const at::Tensor& rows_NH, const EmbeddingNoise& noise) const;
};

/// What of a pass the head needs.
struct HeadPass {
  at::Tensor dropout_keys_N = {};  ///< as Pass
  bool adapters = true;
  AdapterRuns adapter_runs = {};
};

struct Head {
  Linear linear;            ///< [v, H]; a tied head shares the embedding's tensor
  bool normalised = false;  ///< rows are used at length one
  parallel::Region region{parallel::Group::alone(), false};
  double scale = 1.0;    ///< of the hidden states
  double softcap = 0.0;  ///< of the logits (ops/cross_entropy.h)

  void visit(Visitor& visitor) { linear.visit(visitor); }
  /// Logits [n, V] of the whole vocabulary; hidden_nH is not cut by rows.
  at::Tensor logits(const at::Tensor& hidden_nH, const HeadPass& pass = {}) const;
  /// This rank's columns of them [n, v].
  at::Tensor own_logits(const at::Tensor& hidden_nH, const HeadPass& pass = {}) const;
  /// The first row of the vocabulary that this rank has.
  int64_t first_column() const;
  /// Cross entropy (ops/cross_entropy.h) of hidden states as the last layer gives them.
  ops::CrossEntropy loss(const at::Tensor& hidden_NH, const at::Tensor& targets_N,
                         ops::HeadOptions options, const HeadPass& pass) const;
  /// Log-probabilities (ops/token_logprobs.h) of ids at some rows of such hidden states; rows_M,
  /// ids_M int64 [M] on the host.
  ops::TokenLogprobs token_logprobs(const at::Tensor& hidden_NH, const at::Tensor& rows_M,
                                    const at::Tensor& ids_M, const ops::LogprobOptions& how,
                                    const HeadPass& pass) const;
  /// Rows ids_K (int64 on the host) of the matrix that makes logits of hidden states, [K, H] on
  /// every rank of the tensor axis. Errors: ModelError for a head with a bias, InternalError for
  /// one with adapters.
  at::Tensor rows_of(const at::Tensor& ids_K) const;
  /// Logits [M, K] of ids_K at rows_M (int64 on the host) of hidden states as the last layer gives
  /// them, as numbers_of_rows() gives its own. Errors: as rows_of.
  at::Tensor logits_of(const at::Tensor& hidden_nH, const at::Tensor& rows_M,
                       const at::Tensor& ids_K) const;
  /// How far the distributions at rows_M are from another model's (ops/head_divergence.h), and the
  /// log-probabilities of ids_M there.
  ops::HeadDivergence divergence(const at::Tensor& hidden_NH, const at::Tensor& rows_M,
                                 const at::Tensor& ids_M, const ops::OtherLogits& other,
                                 const ops::DivergenceOptions& how, const HeadPass& pass) const;

 private:
  at::Tensor effective_weight() const;
  /// Logits of this rank's rows of the vocabulary, without the bias.
  at::Tensor own_products(const at::Tensor& hidden_nH, const HeadPass& pass) const;
  at::Tensor scaled(const at::Tensor& hidden_NH) const;
  ops::HeadOptions completed(ops::HeadOptions options) const;
};

}  // namespace danlu::layers
