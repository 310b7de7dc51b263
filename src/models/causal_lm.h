// models/causal_lm.h: a decoder-only language model, or one pipeline stage of it, assembled from an
// arch::ModelConfig.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/pipeline.h"
#include "base/row_range.h"
#include "layers/adapter_runs.h"
#include "layers/embedding_noise.h"
#include "layers/pass_results.h"
#include "models/visuals.h"
#include "ops/attention.h"
#include "ops/cached_attention.h"
#include "ops/gated_delta.h"
#include "ops/head_divergence.h"
#include "ops/segments.h"
#include "ops/token_logprobs.h"
#include "parallel/mesh.h"
#include "parallel/parameter.h"
#include "settings/model_setup.h"
#include "settings/router_training.h"
#include "weights/lora/peft.h"

namespace danlu::models {

using parallel::Parameter;

/// Keys and values of earlier positions, one entry per sequence of a batch. `infer` implements it
/// (infer/kv_cache.h), because the model needs attention over the cache and not its memory.
class KvCache {
 public:
  virtual ~KvCache() = default;
  /// Appends k_NKD, v_NKD of `layer` for the current queries, and gives ops::attention of these
  /// over all keys and values of the batch's sequences [N, Q, D].
  virtual at::Tensor attend(int64_t layer, const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                            const at::Tensor& v_NKD, const ops::AttentionOptions& options) = 0;
  /// The same of latent attention, as ops::cached_latent_attention [N, Q, Dv].
  virtual at::Tensor attend_latent(int64_t layer, const ops::LatentQueries& queries,
                                   const ops::AttentionOptions& options) = 0;
  /// Gives `advance` the state of `layer`, of linear attention, of each of the batch's sequences
  /// before the current tokens, undefined where all begin, and keeps what it returns. Errors:
  /// InternalError from a cache that keeps keys and values alone.
  virtual void with_state(int64_t layer, const ops::AdvanceState& advance);
};

using layers::PassResults;

/// What a training pass asks of routers of experts.
struct RouterPass {
  settings::RouterTraining training;
  /// How much of the step's loss lies in each of the pass's segments; on a context axis in the
  /// tokens of this rank.
  std::vector<double> segment_weights;
  /// int64 [N] on the host: the keys of each token's noise, if training asks for any.
  at::Tensor keys_N = {};
};

/// What a training pass asks of layers that predict further ahead.
struct PredictionPass {
  /// int64 on the host: of each token of `segments`, also where the pass has only some of them, the
  /// token itself and its target, as head_loss's. What a layer is given and predicts are these,
  /// moved on by its depth within their segments.
  at::Tensor ids_A, targets_A;
  double factor = 0;   ///< of the sum of one layer's token losses, before backward
  bool counts = true;  ///< false: a pass of filling, of which no figure is kept
  bool normed = true;  ///< the first reads the model's hidden states after the final norm
};

struct ForwardInput {
  at::Tensor ids_N;  ///< int64 [N]
  /// int64 [N]. A model with rope.mrope_section takes [3, N] too: positions in time, rows, columns.
  at::Tensor positions_N;
  ops::Segments segments;
  KvCache* cache = nullptr;  ///< nullptr: the pass attends to its own keys alone
  /// int64 [N], a key for each token. The dropout masks of adapters are a function of the key, the
  /// module and the column, so that they do not depend on what else is in the pass. Undefined: no
  /// dropout.
  at::Tensor dropout_keys_N = {};
  layers::EmbeddingNoise noise = {};
  /// On a context axis (parallel/context.h) `segments` counts the tokens of all its ranks. `rows`
  /// says which of them this pass has; empty: all.
  std::vector<RowRange> rows = {};
  /// On a context axis: for each whole segment its largest position plus one, on which the rotary
  /// frequencies of some models depend.
  std::vector<int64_t> segment_lengths = {};
  /// How many of the N tokens are the batch's; the rest is filling after them. -1: all are.
  int64_t num_tokens = -1;
  /// For a model with a vision tower; nullptr: the pass has no pictures.
  std::shared_ptr<const Visuals> visuals = {};
  bool adapters = true;  ///< false: the pass leaves adapters out
  /// Adapters that lie beside the model (load_beside in models/adapters.h), of all N tokens in
  /// order; the pass has no gradient then. Empty: none but the model's own.
  layers::AdapterRuns adapter_runs = {};
  /// Collects what layers give beside hidden states; nullptr: it is dropped.
  PassResults* results = nullptr;
  /// The factor that the loss gets before backward, which terms that layers add to the loss need
  /// too; the same number as head_loss's grad_scale.
  double loss_scale = 1;
  std::optional<RouterPass> routers = {};         ///< empty: no terms beside the loss
  std::optional<PredictionPass> prediction = {};  ///< empty: these layers are left out
  /// Called with (0, embeddings), (i, output of layer i), (num_layers, after the final norm): HF's
  /// hidden_states.
  std::function<void(int64_t index, const at::Tensor& hidden_NH)> on_hidden = {};
};

/// A loss as a sum and the count to divide it by, so that nobody takes a mean of means.
struct LossSum {
  at::Tensor sum;  ///< f32 scalar with grad: summed token losses (+ z-loss where the config asks)
  int64_t num_targets = 0;
  at::Tensor num_correct;  ///< int64 scalar: argmax equals target (token accuracy)
  at::Tensor factor;       ///< grad_scale, which backward begins with (ops/cross_entropy.h)
};

/// How much goes through a pass.
struct PassSize {
  int64_t tokens = 0;
  int64_t patches = 0;  ///< of pictures
};

/// How many passes through layers there were so far. A backward pass counts when the gradient of
/// the layer's input is there; a first layer has none if nothing before it is trained, and never
/// counts.
struct LayerPasses {
  int64_t forward = 0, backward = 0;
};

class TrainingMemory;

/// The network of a stage and its passes. Its weights come with models/weight_files.h, adapters
/// with models/adapters.h.
class CausalLM {
 public:
  /// The whole model, with those pieces of its parameters that this rank of `mesh` holds. `mesh`
  /// outlives the model. Parameters get memory when they get values, or by TrainingMemory::keep().
  /// Errors: as config.validate() and arch::require_divides().
  CausalLM(const arch::ModelConfig& config, const parallel::Mesh& mesh, at::ScalarType dtype,
           const at::Device& device);
  /// One pipeline stage, whose passes take hidden states from the stage before and give them to the
  /// next.
  CausalLM(const arch::ModelConfig& config, const arch::Stage& stage, const parallel::Mesh& mesh,
           at::ScalarType dtype, const at::Device& device);
  ~CausalLM();
  CausalLM(const CausalLM&) = delete;
  CausalLM& operator=(const CausalLM&) = delete;

  const arch::ModelConfig& config() const;
  const arch::Stage& stage() const;
  const parallel::Mesh& mesh() const;
  at::ScalarType dtype() const;
  at::Device device() const;

  /// Base parameters of the stage under HF names, in model order; a tied table is there once.
  std::vector<Parameter> parameters() const;
  /// Adapter tensors under PEFT names (empty without adapters).
  std::vector<Parameter> adapter_parameters() const;
  /// The members of parameters() and adapter_parameters() that are trained.
  std::vector<Parameter> trainable_parameters() const;
  /// Freezes base parameters in whose HF names a regular expression (base/pattern.h) finds a match.
  /// A pattern that starts with '!' makes its matches trainable again. Later patterns win. Errors:
  /// UsageError for a pattern that matches nothing or is no regular expression.
  void freeze(const std::vector<std::string>& patterns);
  /// The configuration of its adapters (models/adapters.h); empty without adapters.
  const std::optional<weights::PeftConfig>& lora() const;
  /// Where its parameters and activations are in training.
  TrainingMemory& memory();
  const TrainingMemory& memory() const;
  /// How far the passes have come. Any thread may ask while another one computes.
  LayerPasses layer_passes() const;
  /// Final hidden states [N, hidden], on every rank.
  at::Tensor forward_hidden(const ForwardInput& input) const;
  /// Logits [N, vocab], f32, of each layer that predicts further ahead, given the token after each
  /// place, 0 after a segment's last. normed: as PredictionPass. REQUIRES: one rank, no training.
  std::vector<at::Tensor> predicted_logits(const ForwardInput& input, bool normed) const;
  /// What the first layer that predicts further ahead makes of hidden states [N, hidden] after the
  /// final norm, or of what it made itself before: [N, hidden]. input.ids_N: the token after each.
  /// REQUIRES: the network has such a layer; one rank, no training.
  at::Tensor forward_prediction(const ForwardInput& input, const at::Tensor& hidden_NH) const;
  /// Logits [n, vocab] of what it made, f32.
  at::Tensor prediction_logits(const at::Tensor& made_nH) const;
  /// Logits [n, vocab] of hidden states [n, hidden], f32. runs: as ForwardInput's, of these rows.
  at::Tensor logits(const at::Tensor& hidden_nH, const layers::AdapterRuns& runs = {}) const;
  /// The shape of what enters a place of the chain (arch/chain.h), and so of what one stage gives
  /// the next: [P, D] inside a vision tower, [M, H] of visual tokens after it, then [n, H].
  std::vector<int64_t> shape_before(int64_t place, const PassSize& size) const;
  /// What the vision tower makes of pictures: [M, H], visual tokens in the order of
  /// Visuals::visual_rows. REQUIRES: the stage has the whole tower.
  at::Tensor visual_tokens(const Visuals& visuals) const;
  /// The pass of one chunk of the stage, in training or evaluation. hidden_nH: what the chunk
  /// before gave; undefined for the first chunk of the model. The result goes to the next chunk,
  /// and that of the model's last chunk to head_loss or token_logprobs.
  /// Shapes  n is N, or under sequence parallelism this rank's number of rows (parallel/region.h).
  at::Tensor forward(const ForwardInput& input, const at::Tensor& hidden_nH = {},
                     int64_t chunk = 0) const;
  /// Cross-entropy of the head's logits, from what forward() gave on the last stage. targets_N:
  /// int64 [N], already shifted; -100 is no target. Logits and their gradients are made together,
  /// for a chunk of target tokens at a time, so all logits are never in memory. grad_scale: the
  /// factor that will be put on `sum` before backward (loss scale / global targets); the gradients
  /// that are made now need it (ops/cross_entropy.h).
  LossSum head_loss(const at::Tensor& hidden_nH, const ForwardInput& input,
                    const at::Tensor& targets_N, double grad_scale) const;
  /// The log-probability of ids_M[i] at token rows_M[i] of the pass (ops/token_logprobs.h), from
  /// what forward() gave on the last stage, or from forward_hidden(). rows_M, ids_M: int64 [M] on
  /// the host; rows ascend.
  ops::TokenLogprobs token_logprobs(const at::Tensor& hidden_nH, const ForwardInput& input,
                                    const at::Tensor& rows_M, const at::Tensor& ids_M,
                                    const ops::LogprobOptions& how = {}) const;
  /// How far the distributions at tokens rows_M of the pass are from another model's
  /// (ops/head_divergence.h), and the log-probabilities of ids_M there, from what forward() gave on
  /// the last stage. rows_M, ids_M: int64 [M] on the host; rows ascend, each once. REQUIRES: the
  /// device computes by ATen.
  ops::HeadDivergence divergence(const at::Tensor& hidden_nH, const ForwardInput& input,
                                 const at::Tensor& rows_M, const at::Tensor& ids_M,
                                 const ops::OtherLogits& other,
                                 const ops::DivergenceOptions& how) const;
  /// What the head of a reward model says of tokens rows_M (int64 [M] on the host) of the pass: f32
  /// (f64 of models in f64) [M, labels], from what forward() gave on the last stage. On a context
  /// axis rows are this rank's. REQUIRES: config().score.
  at::Tensor scores(const at::Tensor& hidden_nH, const ForwardInput& input,
                    const at::Tensor& rows_M) const;
  /// What forward() gave on the last stage at tokens rows_M (int64 [M] on the host) of the pass:
  /// the hidden states behind the final norm, f32 (f64 of models in f64) [M, H], on every rank of
  /// the tensor axis. On a context axis rows are this rank's. The vocabulary's head has no part in
  /// it.
  at::Tensor token_vectors(const at::Tensor& hidden_nH, const ForwardInput& input,
                           const at::Tensor& rows_M) const;
  /// The logits of ids_K at tokens rows_M of the pass, f32 (f64 of models in f64) [M, K], from what
  /// forward() gave on the last stage: of these ids alone, so that no other row of the head has a
  /// gradient. rows_M, ids_K: int64 on the host; on a context axis rows are this rank's. Errors:
  /// ModelError for a head with a bias. REQUIRES: no adapter is on the head.
  at::Tensor logits_of(const at::Tensor& hidden_nH, const ForwardInput& input,
                       const at::Tensor& rows_M, const at::Tensor& ids_K) const;
  /// forward() and then head_loss(). REQUIRES: the model is one stage.
  LossSum loss(const ForwardInput& input, const at::Tensor& targets_N,
               double grad_scale = 1.0) const;

  /// Only for the sources of `models`.
  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace danlu::models
