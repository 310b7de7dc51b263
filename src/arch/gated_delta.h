// arch/gated_delta.h: models of which most layers have linear attention by the gated delta rule
// (arXiv:2412.06464) in place of attention over keys: Qwen3-Next and Qwen3.5.
#pragma once
#include <cstdint>
#include <optional>

#include "arch/model_config.h"
#include "arch/parameter_list.h"

namespace danlu::arch {

/// The linear attention of a layer. A key head serves value_heads / key_heads value heads in a row.
struct GatedDelta {
  int64_t key_heads = 0, value_heads = 0;
  int64_t key_dim = 0, value_dim = 0;  ///< of one head
  int64_t kernel = 0;                  ///< tokens that the convolution sees, its own the last
  /// Files have queries, keys, values and gates of all key heads in one matrix, and the inputs of
  /// decay and step in another (Qwen3-Next); false: the gate, and each of both, has its own.
  bool joins_inputs = false;

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  /// What the convolution goes over: queries, keys, values.
  int64_t channels() const { return 2 * keys() + values(); }
};

/// That of a layer; nothing: the layer has attention over keys. REQUIRES: layer >= 0.
std::optional<GatedDelta> gated_delta_of(const ModelConfig& config, int64_t layer);
/// Whether some layer has it. Such a model keeps a state for each sequence beside keys and values.
bool has_gated_delta(const ModelConfig& config);
/// Layers with attention over keys.
int64_t count_key_layers(const ModelConfig& config);
/// The number of `layer` among them. REQUIRES: it is one of them.
int64_t place_of_key_layer(const ModelConfig& config, int64_t layer);

/// Whether what attention over keys gives is multiplied by a sigmoid: then the query's matrix has,
/// for each head, the rows of its query and as many of its gate.
bool gates_attention(const ModelConfig& config);

/// Errors: UsageError where several ranks hold parts of a sequence, which linear attention would
/// need in turn.
void require_whole_sequences(const ModelConfig& config, int64_t context_ranks);

/// Bytes that a model with linear attention keeps of a sequence beside keys and values.
int64_t state_bytes(const ModelConfig& config, int64_t element_bytes);

/// The names of a layer's own parameters in files, after "model.layers.<index>.".
struct GatedDeltaNames {
  static constexpr const char *kJoinedInputs = "linear_attn.in_proj_qkvz",
                              *kJoinedSteps = "linear_attn.in_proj_ba",
                              *kInputs = "linear_attn.in_proj_qkv",
                              *kGate = "linear_attn.in_proj_z", *kStep = "linear_attn.in_proj_b",
                              *kDecay = "linear_attn.in_proj_a",
                              *kConvolution = "linear_attn.conv1d",
                              *kDecayBias = "linear_attn.dt_bias",
                              *kDecayRate = "linear_attn.A_log", *kNorm = "linear_attn.norm",
                              *kOut = "linear_attn.out_proj";
};
/// Appends the parameters of a layer's linear attention.
void add_gated_delta(const ModelConfig& config, const GatedDelta& delta, ParameterList& list);

}  // namespace danlu::arch
