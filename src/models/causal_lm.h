// models/causal_lm.h: a decoder-only language model assembled from an arch::ModelConfig.
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
#include "layers/pass_results.h"
#include "ops/attention.h"
#include "ops/segments.h"
#include "ops/token_logprobs.h"
#include "parallel/mesh.h"
#include "parallel/parameter.h"
#include "settings/model_setup.h"
#include "weights/lora/peft.h"

namespace danlu::models {

using parallel::Parameter;

/// Keys and values of earlier positions, one entry per sequence of a batch.
/// Owned by infer; the model only asks it. See infer/kv_cache.h for the implementation.
class KvCache {
 public:
  virtual ~KvCache() = default;
  /// Appends k_NKD, v_NKD of `layer` for the current queries, and gives ops::attention of these
  /// over all keys and values of the batch's sequences [N, Q, D].
  virtual at::Tensor attend(int64_t layer, const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                            const at::Tensor& v_NKD, const ops::AttentionOptions& options) = 0;
};

/// (layers/pass_results.h)
using layers::PassResults;

struct ForwardInput {
  at::Tensor ids_N;  ///< int64 [N]
  /// int64 [N]; or [3, N], in time, rows and columns, of a model with rope.mrope_section.
  at::Tensor positions_N;
  ops::Segments segments;
  KvCache* cache = nullptr;  ///< nullptr: keys are the queries' own
  /// int64 [N]: dropout masks (of adapters) are a function of a token's key, the module and the
  /// column, so that they do not depend on what else is in the pass. Undefined: nothing is dropped.
  at::Tensor dropout_keys_N = {};
  /// Of a rank of a context axis (parallel/context.h): which of the tokens that `segments` counts
  /// the others are, and the length that each segment's positions come to. Empty: all.
  std::vector<RowRange> rows = {};
  std::vector<int64_t> segment_lengths = {};
  /// The first so many are the batch's, the others fill up; -1: all are.
  int64_t num_tokens = -1;
  bool adapters = true;  ///< false: the pass is the base model's
  /// Takes what layers give beside hidden states; nullptr: nobody does.
  PassResults* results = nullptr;
  double loss_scale = 1;  ///< as head_loss's grad_scale: the factor of terms that layers add to it
  /// Called with (0, embeddings), (i, output of layer i), (num_layers, after the final norm): HF's
  /// hidden_states.
  std::function<void(int64_t index, const at::Tensor& hidden_NH)> on_hidden = {};
};

/// Loss as sum and count: never a mean of means.
struct LossSum {
  at::Tensor sum;  ///< f32 scalar with grad: summed token losses (+ z-loss where the config asks)
  int64_t num_targets = 0;
  at::Tensor num_correct;  ///< int64 scalar: argmax equals target (token accuracy)
  at::Tensor factor;       ///< grad_scale, for a backward to begin with (ops/cross_entropy.h)
};

/// Passes through layers so far. A backward pass counts when the gradient of the layer's input is
/// there, so that of a first layer below which nothing is trained never does.
struct LayerPasses {
  int64_t forward = 0, backward = 0;
};

class TrainingMemory;

/// The network of a stage and its passes. Its weights come with models/weight_files.h, adapters
/// with models/adapters.h.
class CausalLM {
 public:
  /// Of what this rank of `mesh`, which outlives the model, holds of the parameters, in `dtype` on
  /// `device`. Their memory comes with their values, or with TrainingMemory::keep(). Errors: as
  /// config.validate(), arch::require_runnable() and arch::require_divides().
  CausalLM(const arch::ModelConfig& config, const parallel::Mesh& mesh, at::ScalarType dtype,
           const at::Device& device);
  /// The same of a stage alone, whose passes take hidden states from the stage before, and give
  /// them to the next.
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

  /// Base parameters of the stage under HF names, in model order; tied ones once.
  std::vector<Parameter> parameters() const;
  /// Adapter tensors under PEFT names (empty without adapters).
  std::vector<Parameter> adapter_parameters() const;
  /// parameters() and adapter_parameters() with trainable == true.
  std::vector<Parameter> trainable_parameters() const;
  /// Freezes base parameters whose HF name a regular expression (base/pattern.h, searched) matches;
  /// one that starts with '!' makes its matches trainable again. Later patterns win. Errors:
  /// UsageError for a pattern that matches nothing or is no regular expression.
  void freeze(const std::vector<std::string>& patterns);
  /// Of the adapters that it has (models/adapters.h).
  const std::optional<weights::PeftConfig>& lora() const;
  /// Where its parameters and activations are in training.
  TrainingMemory& memory() const;
  /// How far the passes have come; may be asked from any thread while another one computes.
  LayerPasses layer_passes() const;
  /// Final hidden states [N, hidden], on every rank.
  at::Tensor forward_hidden(const ForwardInput& input) const;
  /// Logits [n, vocab] of hidden states [n, hidden], f32.
  at::Tensor logits(const at::Tensor& hidden_nH) const;
  /// What a stage gives the next for a pass of so many tokens: [n, H].
  std::vector<int64_t> hidden_shape(int64_t tokens) const;
  /// The stage's part of a pass that trains or evaluates. hidden_nH: what the stage before gave,
  /// undefined on the first; the result is what the next stage takes, or head_loss. Shapes  rows
  /// [n, H] are all N, or this rank's share of them (parallel/region.h). Of a stage of several
  /// chunks, through one of them; `first` and `last` are then of all stages' chunks.
  at::Tensor forward(const ForwardInput& input, const at::Tensor& hidden_nH = {},
                     int64_t chunk = 0) const;
  /// Head and cross-entropy, over targets != -100 (int64 [N], already shifted), of what forward()
  /// gave on the last stage.
  /// Logits are made for target tokens only, a chunk at a time, and their gradients with them.
  /// grad_scale: the factor that will be put on `sum` before backward (loss scale / global
  /// targets), with which gradients are made (ops/cross_entropy.h).
  LossSum head_loss(const at::Tensor& hidden_nH, const ForwardInput& input,
                    const at::Tensor& targets_N, double grad_scale) const;
  /// Log-probabilities of ids at some of the pass's tokens (ops/token_logprobs.h), of what
  /// forward() gave on the last stage, or forward_hidden(). rows_M, ids_M int64 [M] on the host,
  /// rows ascending. chunk_rows: whose logits exist at one time, 0: about 64 MB.
  ops::TokenLogprobs token_logprobs(const at::Tensor& hidden_nH, const ForwardInput& input,
                                    const at::Tensor& rows_M, const at::Tensor& ids_M,
                                    int64_t chunk_rows = 0) const;
  /// forward() and head_loss() of a model that is one stage.
  LossSum loss(const ForwardInput& input, const at::Tensor& targets_N,
               double grad_scale = 1.0) const;

  /// For the sources of this room.
  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace danlu::models
