// layers/pass.h: what all layers of one forward pass share.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "layers/adapter_runs.h"
#include "ops/attention.h"
#include "ops/cached_attention.h"
#include "ops/gated_delta.h"
#include "ops/rotary.h"
#include "ops/segments.h"

namespace danlu::layers {

class PassResults;
struct Balance;

/// Immutable during the pass; recomputation in backward reads it again, so layers keep it alive.
struct Pass {
  ops::Segments segments;
  ops::Segments windows;    ///< of a vision tower, whose blocks see segments or windows
  ops::RotaryTable rotary;  ///< undefined tables: no rotary embedding
  /// The rotary table of layers with a window, where they have another (ModelConfig::window_rope).
  ops::RotaryTable window_rotary;
  /// f32 [N], the factors of queries in layers that see everything without rotary embedding
  /// (ModelConfig::query_growth); undefined: there are none.
  at::Tensor query_factors_N;
  /// Stores the new keys and values of a layer and gives attention over these and the earlier ones.
  /// Empty: the pass has no cache, and attention sees the pass's own keys alone.
  std::function<at::Tensor(int64_t layer, const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                           const at::Tensor& v_NKD, const ops::AttentionOptions& options)>
      attend;
  /// The same of latent attention, which keeps rows of its own.
  std::function<at::Tensor(int64_t layer, const ops::LatentQueries& queries,
                           const ops::AttentionOptions& options)>
      attend_latent;
  /// Gives `advance` what a layer of linear attention keeps of each of the pass's sequences, and
  /// keeps what it makes of that. Empty: the sequences begin, and nothing is kept.
  std::function<void(int64_t layer, const ops::AdvanceState& advance)> with_state;
  at::Tensor dropout_keys_N;  ///< dropout masks follow from them; undefined: no dropout
  bool adapters = true;       ///< false: layers leave their adapters out
  /// Which of this rank's rows use which adapter beside the model. A single run is for all rows of
  /// every layer, whatever its count. Empty: the layers use their own adapters.
  AdapterRuns adapter_runs;
  /// Collects what layers give beside hidden states (layers/pass_results.h). nullptr: it is
  /// dropped, as when a layer is recomputed. It need not outlive the forward.
  PassResults* results = nullptr;
  /// How many of this rank's rows between regions are tokens; the rows after them are filling.
  int64_t num_rows = 0;
  /// The same of its rows inside a region (parallel/region.h).
  int64_t num_tokens = 0;
  /// What routers of experts add to the loss (layers/balance.h); nullptr: nothing.
  std::shared_ptr<const Balance> balance;
  double loss_scale = 1;  ///< the factor that the loss gets before backward
};

}  // namespace danlu::layers
