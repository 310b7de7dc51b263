// ops/backend.h: the table of kernels of one kind of device. To support another kind, fill one of
// these: layers, models, optim, train and infer compute on a device's tensors through it alone
// (tests/house/device_questions_test.cpp lists the exceptions).
//
// Entries take and give tensors of the device, know nothing of autograd (the ops do, once for all
// devices) and do not check shapes (the ops have). Tensors that an entry changes are named so; the
// others it leaves alone. Any strides unless said otherwise; results are contiguous. Memory, views
// and copies, those that convert among them, are not here: a device registers them with ATen.
//
// Several threads call entries at once: the one that trains, autograd's, one that sums over ranks
// meanwhile, and one that writes a checkpoint. An entry that has a workspace, a handle or a
// stream chooses it for its thread.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <span>
#include <vector>

#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/block_weight.h"
#include "ops/cached_attention.h"
#include "ops/gated_delta.h"
#include "ops/linear.h"
#include "ops/nf4.h"
#include "ops/optimizer.h"
#include "ops/rotary.h"

namespace danlu::ops {

/// What entries are asked for, where it makes a difference which types they take.
enum class Work {
  kProducts,  ///< of linear layers
  kRows,      ///< norms, rotary embedding, SwiGLU, attention, cross entropy
  kDropout,
};

/// Parts of models for which a device's library may lack operators.
enum class Part {
  kOffsetNorms,  ///< RMSNorm by 1 + weight
  kLayerNorms,
  kGelu,  ///< in any of its forms
  kSoftcaps,
  kChunks,           ///< Llama-4's attention
  kPictures,         ///< a vision tower
  kLinearAttention,  ///< by the gated delta rule
};

struct NormResult {
  at::Tensor y, rstd;  ///< rstd: f32, one for each row
};
struct NormGrads {
  at::Tensor x;         ///< x's dtype, or undefined
  at::Tensor weight_D;  ///< f32, or undefined
};
struct SwigluGrads {
  at::Tensor gate, up;
};

struct LayerNormResult {
  at::Tensor y_ND, mean_N1, rstd_N1;  ///< the last two f32 (f64 of f64)
};
struct LayerNormGrads {
  at::Tensor x_ND;              ///< x's dtype, or undefined
  at::Tensor weight_D, bias_D;  ///< f32 (f64 of f64), or undefined
};
struct LayerNormWants {
  bool x = true, weight = true, bias = true;
};

struct NormHeadResult {
  at::Tensor y_VH, length_V1;  ///< length: f32 (f64 of f64), at least 1e-12
};

struct CrossEntropyChunk {
  at::Tensor logits_CV;  ///< contiguous; where `make_grad`, becomes grad_scale times its gradient
  at::Tensor targets_C;  ///< int64, each inside [0, V)
  at::Tensor sum;        ///< f32 scalar; grows by the chunk's loss (ops/cross_entropy.h)
  at::Tensor correct;    ///< int64 scalar; grows by the targets that have the largest logit
  double z_weight = 0, grad_scale = 1;
  bool make_grad = false;
};

/// Where a rank holds the columns [first_row, first_row + v) of a chunk of logits.
struct SharedChunk {
  at::Tensor logits_Cv;  ///< f32 (f64 of f64), changed; v may be 0
  at::Tensor targets_C;  ///< int64, of the whole vocabulary
  int64_t first_row = 0;
};
struct SharedLoss {
  SharedChunk chunk;        ///< as sums_of_share left it; where `make_grad`, becomes its gradient
  at::Tensor own_C1;        ///< of largest_of_share
  at::Tensor largest_C1;    ///< over all ranks
  at::Tensor sums_C2;       ///< over all ranks
  at::Tensor first_C1;      ///< largest place_of_largest; only if z_weight > 0 and make_grad
  at::Tensor sum, correct;  ///< as CrossEntropyChunk's
  double z_weight = 0, grad_scale = 1;
  bool make_grad = false;
};

/// Two distributions P and Q over columns that ranks may share: what of their logits is here, and
/// the largest of each row and the sum of exp(logit - largest) over all ranks. f32 (f64 of f64).
struct TwoShares {
  at::Tensor own_Cv, other_Cv;  ///< of P and Q; contiguous; v may be 0
  at::Tensor own_largest_C1, own_total_C1, other_largest_C1, other_total_C1;
  double beta = 0.5;  ///< of DivergenceOptions (ops/head_divergence.h)
};

/// As ops::gated_delta takes them, or their gradients.
struct DeltaInputs {
  at::Tensor q_NGK, k_NGK, v_NHV, decay_NH, step_NH;
};

struct Backend {
  /// Whether these devices cannot do `part`: who needs it is refused before anything is computed
  /// (models/device_parts.h). Null: they can do all.
  bool (*lacks)(Part part) = nullptr;

  /// Whether ATen's operators compute on these devices. Otherwise only what is in the table does,
  /// and a few numbers of a pass are worked with on the host (device_of_numbers in
  /// ops/pointwise.h).
  bool has_aten = true;

  /// Whether the entries for `work` take tensors of `type`. Null: none is ever taken.
  bool (*takes)(Work work, at::ScalarType type) = nullptr;

  // ---- Work that autograd records. Empty: the composite of ATen's operators, with its backward.
  // Forward and backward of one op are both set or both empty.

  /// x_NI weight_OI^T + bias_O (undefined: none; of the weight's dtype), rounded once to `result`.
  /// x and the weight f32 or of 16 bits; sums are f32 at least, here and below.
  at::Tensor (*product)(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                        const at::Tensor& bias_O, at::ScalarType result) = nullptr;
  /// d_y_NO weight_OI.
  at::Tensor (*input_grad)(const at::Tensor& d_y_NO, const at::Tensor& weight_OI,
                           at::ScalarType result) = nullptr;
  /// d_y_NO^T x_NI.
  at::Tensor (*weight_grad)(const at::Tensor& d_y_NO, const at::Tensor& x_NI,
                            at::ScalarType result) = nullptr;
  /// sum_OI (f32, changed; its rows may lie apart) += d_y_NO^T x_NI, rounded nowhere between; a
  /// fresh sum, whose numbers mean nothing, becomes that.
  void (*add_weight_grad)(const at::Tensor& d_y_NO, const at::Tensor& x_NI,
                          const at::Tensor& sum_OI, bool is_fresh) = nullptr;
  /// y_NO (f32, changed) += x_NI weight_OI^T.
  void (*add_product)(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                      const at::Tensor& y_NO) = nullptr;

  /// ops/grouped_linear.h: product() and input_grad() of each group of rows with its weight, in
  /// the type of the rows. Empty: one group after the other.
  at::Tensor (*grouped_product)(const at::Tensor& x_RI, std::span<const at::Tensor> weights_OI,
                                std::span<const int64_t> counts) = nullptr;
  at::Tensor (*grouped_input_grad)(const at::Tensor& d_y_RO, std::span<const at::Tensor> weights_OI,
                                   std::span<const int64_t> counts) = nullptr;

  /// ops/nf4.h: product() and input_grad() with a weight in NF4, in x's type; and rows of one.
  at::Tensor (*nf4_product)(const at::Tensor& x_NI, const Nf4Matrix& weight,
                            const at::Tensor& bias_O) = nullptr;
  at::Tensor (*nf4_input_grad)(const at::Tensor& d_y_NO, const Nf4Matrix& weight) = nullptr;
  at::Tensor (*nf4_rows)(const Nf4Matrix& weight, int64_t first, int64_t count,
                         at::ScalarType type) = nullptr;

  /// ops/quantized_linear.h. Unlike the entries around them these two have no gradient, and if they
  /// are empty the device has no weights in blocks. block_products: product() of x (contiguous)
  /// with each factor, in x's type. block_rows: rows `ids_N` [N] (int64, contiguous) of a weight.
  /// Weights, x and ids are on the device.
  std::vector<at::Tensor> (*block_products)(const at::Tensor& x_NI,
                                            std::span<const BlockFactor> factors) = nullptr;
  at::Tensor (*block_rows)(const BlockWeight& weight, const at::Tensor& ids_N,
                           at::ScalarType type) = nullptr;

  /// ops/rms_norm.h. x contiguous [..., D], weight_D contiguous and of x's dtype.
  NormResult (*rms_norm)(const at::Tensor& x, const at::Tensor& weight_D, double eps) = nullptr;
  /// dy of x's dtype, of any strides. The gradients that are not wanted are left out.
  NormGrads (*rms_norm_backward)(const at::Tensor& x, const at::Tensor& weight_D,
                                 const at::Tensor& rstd, const at::Tensor& dy, bool x_grad,
                                 bool weight_grad) = nullptr;

  /// ops/rotary.h; inverse: turns back, which is the backward. The table is contiguous.
  at::Tensor (*rotary)(const at::Tensor& x_NQD, const RotaryTable& table, bool inverse) = nullptr;

  /// ops/swiglu.h, of contiguous tensors of one dtype; dy of any strides.
  at::Tensor (*swiglu)(const at::Tensor& gate, const at::Tensor& up) = nullptr;
  SwigluGrads (*swiglu_backward)(const at::Tensor& gate, const at::Tensor& up,
                                 const at::Tensor& dy) = nullptr;

  /// ops/attention.h over `spans`, the output in `result`, the log of sums in f32.
  PartialAttention (*attention)(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                const at::Tensor& v_MKD, const Spans& spans,
                                const AttentionOptions& options, at::ScalarType result) = nullptr;
  /// out_grad of any floating dtype, lse and delta f32. Gradients are f32.
  AttentionGrads (*attention_backward)(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                       const at::Tensor& v_MKD, const Spans& spans,
                                       const AttentionOptions& options,
                                       const at::Tensor& out_grad_NQD, const at::Tensor& lse_QN,
                                       const at::Tensor& delta_QN) = nullptr;
  /// The same of all keys that queries see, where the result is at hand; lse as attention() gave
  /// it. Gradients are f32 or of q's dtype. Empty: attention_backward.
  AttentionGrads (*whole_attention_backward)(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                             const at::Tensor& v_MKD, const Spans& spans,
                                             const AttentionOptions& options,
                                             const at::Tensor& out_grad_NQD,
                                             const at::Tensor& out_NQD,
                                             const at::Tensor& lse_QN) = nullptr;
  /// With fewer new tokens a segment than this, and keys before them, ops::attention() uses the
  /// composite, because copying the keys would cost more than the kernel saves, and cached
  /// attention reads pages where they are. 0: never.
  int64_t fewest_queries = 0;
  /// Whether the entries for attention, also over pages, take a cap on scores. Otherwise the
  /// composite's pieces do it.
  bool caps_scores = false;

  /// ops/dropout.h. Forward and backward are the same.
  at::Tensor (*dropout)(const at::Tensor& x_NI, double p, const at::Tensor& keys_N, uint64_t salt,
                        int64_t first_column) = nullptr;

  // ---- Work without autograd. If one of these is empty the op takes a way that copies more.

  void (*cross_entropy)(const CrossEntropyChunk& chunk) = nullptr;
  /// ops/cached_attention.h, reading pages where they are. Pages without values have a latent's
  /// rows, which are keys and values both. Empty: keys and values are gathered.
  at::Tensor (*attention_over_pages)(const at::Tensor& q_NQD, const Pages& pages,
                                     const CachedSequences& sequences, int64_t layer,
                                     const AttentionOptions& options) = nullptr;
  /// Whether attention_over_pages copies pages of this dtype that lie in several slabs, and reads
  /// them where they are only in one. Empty: it does not mind.
  bool (*wants_one_slab)(at::ScalarType type) = nullptr;
  /// Does what the op of the same name there does, in the pages themselves. Empty: a copy for each
  /// page and layer.
  void (*store_in_pages)(const at::Tensor& k_NKD, const at::Tensor& v_NKD, const Pages& pages,
                         const CachedSequences& sequences, int64_t layer) = nullptr;

  // ---- Work without autograd that is merely faster in one piece.

  /// product() of each factor with one input, in the input's type. Empty: one after the other.
  std::vector<at::Tensor> (*products)(const at::Tensor& x_NI,
                                      std::span<const LinearFactor> factors) = nullptr;
  /// a + b, contiguous, of one shape and dtype. Empty: add_into's, or ATen's.
  at::Tensor (*add)(const at::Tensor& a, const at::Tensor& b) = nullptr;

  /// The place of each row's largest logit, int64 [R]; of several, any. Logits [R, V] are finite,
  /// of any floating dtype. Empty: whoever draws a token gets the logits on the host.
  at::Tensor (*likeliest)(const at::Tensor& logits_RV) = nullptr;

  // ---- Work without autograd. completed_backend() fills empty entries with composite_backend()'s.

  /// ops/rotary.h.
  RotaryTable (*rotary_table)(const at::Tensor& positions_N, const at::Tensor& inv_freq,
                              double attention_factor) = nullptr;
  // Cross entropy if every rank has a part of the vocabulary. Ranks exchange the result of each of
  // the first three entries.
  /// The largest logit of each row, [C, 1]; -inf where v is 0.
  at::Tensor (*largest_of_share)(const at::Tensor& logits_Cv) = nullptr;
  /// Replaces every logit by exp(logit - largest). Returns [C, 2]: the sum of each row of these,
  /// and the target's original logit, or 0 if another rank has the target.
  at::Tensor (*sums_of_share)(const SharedChunk& chunk, const at::Tensor& largest_C1) = nullptr;
  /// [C, 1]: -first_row if this rank has the row's largest logit, else -inf; the maximum over ranks
  /// names the first rank that has it.
  at::Tensor (*place_of_largest)(const at::Tensor& own_C1, const at::Tensor& largest_C1,
                                 int64_t first_row) = nullptr;
  void (*loss_of_share)(const SharedLoss& loss) = nullptr;
  /// ops/head_divergence.h by one chunk of rows. R is P where beta is 0, Q where it is 1, else M.
  /// divergence_sums: [C, 2], over these columns the sums of Q (log Q - log R) and of
  /// P (log P - log R); one that beta leaves out is 0. divergence_grad: factor_C1 times the
  /// gradient of the divergence by own_Cv; own_sum_C1: the second sum over all ranks.
  at::Tensor (*divergence_sums)(const TwoShares& shares) = nullptr;
  at::Tensor (*divergence_grad)(const TwoShares& shares, const at::Tensor& own_sum_C1,
                                const at::Tensor& factor_C1) = nullptr;
  /// Makes `into` the attention over the keys of both parts (ops/attention.h), in its own tensors.
  void (*merge)(const PartialAttention& into, const PartialAttention& more) = nullptr;

  /// out = the larger of a and b, all of one dtype and shape; `out` may be one of them.
  void (*larger_into)(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) = nullptr;
  /// ops/pointwise.h, which calls add_into and scaled for tensors without gradient. Where add_into
  /// is set, autograd adds nothing itself. All of one floating dtype, and of one shape but for
  /// add_bias, the rows' indices (int64) and column_sums [O], which is f32 (f64 of f64).
  void (*add_into)(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) = nullptr;
  void (*add_to)(const at::Tensor& sum, const at::Tensor& x) = nullptr;
  at::Tensor (*add_bias)(const at::Tensor& x_NO, const at::Tensor& bias_O) = nullptr;
  at::Tensor (*scaled)(const at::Tensor& x, double factor) = nullptr;
  at::Tensor (*take_rows)(const at::Tensor& x_NH, const at::Tensor& index_n) = nullptr;
  void (*add_rows)(const at::Tensor& sum_NH, const at::Tensor& index_n,
                   const at::Tensor& rows_nH) = nullptr;
  /// Each row of x_NH times its factor (ops/pointwise.h); and the sum of a row of a times that of
  /// b, f32 [N] (f64 of f64).
  at::Tensor (*scale_rows)(const at::Tensor& x_NH, const at::Tensor& factor_N) = nullptr;
  at::Tensor (*row_dots)(const at::Tensor& a_NH, const at::Tensor& b_NH) = nullptr;
  at::Tensor (*column_sums)(const at::Tensor& x_NO) = nullptr;
  /// Sum over Dv of out_grad · out, as attention_backward takes it: f32 [Q, N] (f64 of f64).
  at::Tensor (*attention_delta)(const at::Tensor& out_grad_NQD,
                                const at::Tensor& out_NQD) = nullptr;
  /// ops/norm_head.h. The gradient is of the length's dtype.
  NormHeadResult (*norm_head)(const at::Tensor& weight_VH) = nullptr;
  at::Tensor (*norm_head_backward)(const at::Tensor& weight_VH, const at::Tensor& length_V1,
                                   const at::Tensor& d_y_VH) = nullptr;
  /// ops/dora.h. adapted_row_squares: the op of that name. stretch_factor: the factor [O] that
  /// stretched() puts on columns, in `type`. scale_columns: x_NO times a factor for each column.
  /// stretch_grad: the gradient of the magnitude, in the squares' dtype.
  at::Tensor (*adapted_row_squares)(const at::Tensor& weight_OI, const at::Tensor& b_OR,
                                    const at::Tensor& a_RI, double scale) = nullptr;
  at::Tensor (*stretch_factor)(const at::Tensor& magnitude_O, const at::Tensor& squares_O,
                               bool change, at::ScalarType type) = nullptr;
  at::Tensor (*scale_columns)(const at::Tensor& x_NO, const at::Tensor& factor_O) = nullptr;
  at::Tensor (*stretch_grad)(const at::Tensor& d_stretched_NO, const at::Tensor& y_NO,
                             const at::Tensor& squares_O) = nullptr;
  /// ops/activation.h; the gradient by the result.
  at::Tensor (*sigmoid)(const at::Tensor& x) = nullptr;
  at::Tensor (*sigmoid_backward)(const at::Tensor& grad, const at::Tensor& y) = nullptr;
  /// The other activations there; gradients are of x's type.
  at::Tensor (*activation)(const at::Tensor& x, Activation kind) = nullptr;
  at::Tensor (*activation_backward)(const at::Tensor& dy, const at::Tensor& x,
                                    Activation kind) = nullptr;
  at::Tensor (*gated_activation)(const at::Tensor& gate, const at::Tensor& up,
                                 Activation kind) = nullptr;
  SwigluGrads (*gated_activation_backward)(const at::Tensor& gate, const at::Tensor& up,
                                           const at::Tensor& dy, Activation kind) = nullptr;
  /// ops/layer_norm.h; `kept`: what the forward gave. Gradients that are not wanted are left out.
  LayerNormResult (*layer_norm)(const at::Tensor& x_ND, const at::Tensor& weight_D,
                                const at::Tensor& bias_D, double eps) = nullptr;
  LayerNormGrads (*layer_norm_backward)(const at::Tensor& x_ND, const at::Tensor& weight_D,
                                        const at::Tensor& bias_D, const LayerNormResult& kept,
                                        const at::Tensor& dy_ND,
                                        const LayerNormWants& wants) = nullptr;
  /// capped() of ops/cross_entropy.h with a cap, and the gradient of x by y: of at least f32.
  at::Tensor (*capped)(const at::Tensor& x, double cap) = nullptr;
  at::Tensor (*through_cap)(const at::Tensor& d_y, const at::Tensor& y, double cap) = nullptr;
  /// with_rows() of ops/pointwise.h; undefined rows: zeros.
  at::Tensor (*with_rows)(const at::Tensor& x_NH, const at::Tensor& index_n,
                          const at::Tensor& rows_nH) = nullptr;
  /// ops/optimizer.h.
  void (*adamw_update)(const AdamWState& state, const std::vector<Chunk>& chunks,
                       std::span<const AdamWScalars> scalars) = nullptr;
  void (*split_master)(const at::Tensor& master, const at::Tensor& weight,
                       const at::Tensor& low) = nullptr;
  at::Tensor (*join_master)(const at::Tensor& weight, const at::Tensor& low) = nullptr;
  std::vector<double> (*sums_of_squares)(const at::Tensor& values,
                                         const std::vector<Chunk>& chunks) = nullptr;
  bool (*all_finite)(const at::Tensor& x) = nullptr;

  // ---- Linear attention, of which autograd records the backward. Empty: the composite.

  /// As ops::gated_delta, with the memory after it. memory_SHKV: undefined, or not changed.
  DeltaResult (*gated_delta)(const DeltaInputs& inputs, const std::vector<int64_t>& starts,
                             const at::Tensor& memory_SHKV) = nullptr;
  /// The gradients, each of its input's type, of a forward without a memory before it.
  DeltaInputs (*gated_delta_backward)(const DeltaInputs& inputs, const std::vector<int64_t>& starts,
                                      const at::Tensor& out_grad_NHV) = nullptr;
};

/// The table of a kind of device as it was given; an empty one where none was. The CPU's and that
/// of NVIDIA GPUs are there from the beginning.
const Backend& backend_of(c10::DeviceType type);
/// The same with the composite's entries where work without autograd is empty.
const Backend& completed_backend(c10::DeviceType type);
/// Call it while nothing runs on such devices. Errors: ModelError if only some of the entries that
/// belong together are set, or if such entries are set and `takes` is not.
void set_backend(c10::DeviceType type, const Backend& table);

/// Work without autograd in ATen's operators, as Backend has it below that line; the rest is empty.
const Backend& composite_backend();

/// The table that does `work` on x: its device's, if that takes x's type and kernels() is kFused;
/// else null, and the composite does it.
const Backend* fused_for(Work work, const at::Tensor& x);

namespace cpu {
/// The table of the kernels in *_cpu.cpp.
const Backend& backend();
}  // namespace cpu

namespace cuda {
/// The table of NVIDIA GPUs: ATen's operators (ops/aten), in their places libraries and kernels of
/// ops/cuda, where the program was built with them.
const Backend& backend();
}  // namespace cuda

}  // namespace danlu::ops
