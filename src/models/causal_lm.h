// models/causal_lm.h: a decoder-only language model assembled from an arch::ModelConfig.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/pipeline.h"
#include "base/row_range.h"
#include "ops/attention.h"
#include "ops/segments.h"
#include "parallel/mesh.h"
#include "parallel/parameter.h"
#include "parallel/store.h"
#include "settings/activation_offload.h"
#include "settings/model_setup.h"
#include "settings/recompute_layers.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/tensor_source.h"

namespace danlu::models {

using parallel::Parameter;
using settings::Recompute;

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

/// Bytes of activations that have left, and that have come back, so far.
struct MovedBytes {
  int64_t out = 0, back = 0;
};

/// Which matrices are held in blocks (ops/quantized_linear.h). Of a model on the CPU that is whole
/// and only answers: blocks are not trained, saved, merged or cut. Rows that are no multiple of a
/// type's block, and a head whose rows are used at length one, stay dense.
struct Quantisation {
  /// Matrices that a file holds in blocks stay as they are there; nullptr: they are read as dense.
  std::shared_ptr<const weights::BlockTensors> blocks = {};
  /// Dense ones become blocks of this type, Q8_0 or Q4_0; of a head and an embedding always Q8_0.
  std::optional<BlockType> make = {};
};

class CausalLM {
 public:
  /// Of what this rank of `mesh`, which outlives the model, holds of the parameters, in `dtype` on
  /// `device`. Their memory comes with load(), initialize() or keep(). Errors: as
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

  /// Fills every parameter from `source` (any floating dtype; cast): a rank reads what it holds.
  /// Non-finite values are an error. Errors: ModelError naming the missing, unknown or wrongly
  /// shaped tensor with both shapes.
  void load(const weights::TensorSource& source, const Quantisation& quantisation = {});
  /// What the parameters take: bytes of memory, and how many of it are in blocks.
  struct HeldBytes {
    int64_t all = 0, in_blocks = 0;
  };
  HeldBytes held_bytes() const;
  /// Normal(0, initializer_range) for matrices, ones for norms, zeros for biases, from `seed`
  /// (each tensor's stream depends on its name only).
  void initialize(uint64_t seed);

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
  void set_recompute(Recompute mode);
  /// Layers of each chunk of the stage as settings::recompute_groups divides them. Errors: as
  /// there.
  void set_recompute(const settings::RecomputeFlags& flags);
  /// What layers keep of a pass that trains is elsewhere meanwhile; to host memory on other devices
  /// than the CPU only. Gradients are the same. Errors: IoError.
  void set_activation_offload(const settings::ActivationOffload& flags);
  /// For training: moves parameters into units, of which the ranks of the data axis may each keep a
  /// share (parallel/store.h). Which are trained must be settled. holds_values: false before
  /// weights are loaded, so that loading takes a share and one unit. Adapters that
  /// are added later are moved by a further call.
  parallel::ParameterStore& keep(const parallel::Keeping& keeping, bool holds_values = true);
  /// Passes of nothing on a rank that has no micro-batch where others of the data axis have one.
  /// keeps: a backward_idly() follows. chunk: of the stage.
  void forward_idly(bool keeps, int64_t chunk) const;
  void backward_idly(int64_t chunk = 0) const;

  /// Adds adapters; base parameters become frozen. A random init from `seed`, B zero.
  /// Errors: UsageError if a target matches nothing (lists module names).
  void add_lora(const weights::PeftConfig& lora, uint64_t seed);
  const std::optional<weights::PeftConfig>& lora() const;
  /// Adds the adapters that lie at `path`, and loads them: an adapter_config.json and
  /// adapter_model file of PEFT, or a MindSpeed-LLM LoRA checkpoint of this model. `lora_alpha`:
  /// needed where a MindSpeed checkpoint does not record it.
  /// Errors: ModelError where they were not made for this model.
  void load_adapter(const std::filesystem::path& path, std::optional<double> lora_alpha = {});
  /// The same of adapters that are open already; `where` begins messages.
  void load_adapter(const weights::PeftConfig& config, const weights::TensorSource& source,
                    const std::string& where);
  /// Writes adapter_config.json and adapter_model.safetensors as PEFT does.
  /// Called as save().
  void save_adapter(const std::filesystem::path& directory,
                    const std::string& base_model_path) const;

  /// Waits until what others have updated of the weights is here.
  void settle() const;
  /// In training after settle(), in another thread beside passes too, until the next update. On
  /// every rank of the tensor axis and of the pipeline, and of the data axis where it shares
  /// parameters, of which the first writes (the others' paths are not used): writes model weights
  /// in `dtype` with config.json (sizes, torch_dtype updated); carries over tokenizer and other
  /// files from `carry_from` if not empty.
  void save(const std::filesystem::path& directory, DType dtype,
            const std::filesystem::path& carry_from) const;

  /// How far the passes have come; may be asked from any thread while another one computes.
  LayerPasses layer_passes() const;
  /// Waits for what is on its way out.
  MovedBytes moved_activations() const;

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
  /// Both, of a model of one stage.
  LossSum loss(const ForwardInput& input, const at::Tensor& targets_N,
               double grad_scale = 1.0) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The model of a source that was opened with all_tensors, in the dtype asked for, or the files'
/// when empty; of a pipeline's `stage` what that holds. Adapters that lie beside it are loaded too.
/// before_weights: called when the model is there and nothing is read yet.
std::unique_ptr<CausalLM> load_model(const weights::CheckpointSource& source,
                                     const parallel::Mesh& mesh,
                                     std::optional<at::ScalarType> dtype, const at::Device& device,
                                     const std::function<void(CausalLM&)>& before_weights = {},
                                     const std::optional<arch::Stage>& stage = {},
                                     const Quantisation& quantisation = {});
/// The same of a path that describes itself; `adapter` may be empty.
std::unique_ptr<CausalLM> load_model(const std::filesystem::path& path, const parallel::Mesh& mesh,
                                     std::optional<at::ScalarType> dtype, const at::Device& device,
                                     const std::filesystem::path& adapter = {});

}  // namespace danlu::models
