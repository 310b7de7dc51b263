// npu/table.h: the table of kernels of NPUs (ops/backend.h), each a few of CANN's operators.
#pragma once
#include "ops/backend.h"

namespace danlu::npu {

const ops::Backend& table();

// Its entries, as ops/backend.h says them.
at::Tensor product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O,
                   at::ScalarType result);
at::Tensor input_grad(const at::Tensor& d_y_NO, const at::Tensor& weight_OI, at::ScalarType result);
at::Tensor weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, at::ScalarType result);
void add_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, const at::Tensor& sum_OI,
                     bool is_fresh);
void add_product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& y_NO);

ops::NormResult rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps);
ops::NormGrads rms_norm_backward(const at::Tensor& x, const at::Tensor& weight_D,
                                 const at::Tensor& rstd, const at::Tensor& dy, bool x_grad,
                                 bool weight_grad);
ops::LayerNormResult layer_norm(const at::Tensor& x_ND, const at::Tensor& weight_D,
                                const at::Tensor& bias_D, double eps);
ops::LayerNormGrads layer_norm_backward(const at::Tensor& x_ND, const at::Tensor& weight_D,
                                        const at::Tensor& bias_D, const ops::LayerNormResult& kept,
                                        const at::Tensor& dy_ND, const ops::LayerNormWants& wants);
at::Tensor rotary(const at::Tensor& x_NQD, const ops::RotaryTable& table, bool inverse);
ops::RotaryTable rotary_table(const at::Tensor& positions_N, const at::Tensor& inv_freq,
                              double attention_factor);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
ops::SwigluGrads swiglu_backward(const at::Tensor& gate, const at::Tensor& up,
                                 const at::Tensor& dy);

at::Tensor activation(const at::Tensor& x, ops::Activation kind);
at::Tensor activation_backward(const at::Tensor& dy, const at::Tensor& x, ops::Activation kind);
at::Tensor gated_activation(const at::Tensor& gate, const at::Tensor& up, ops::Activation kind);
ops::SwigluGrads gated_activation_backward(const at::Tensor& gate, const at::Tensor& up,
                                           const at::Tensor& dy, ops::Activation kind);
at::Tensor capped(const at::Tensor& x, double cap);
at::Tensor through_cap(const at::Tensor& d_y, const at::Tensor& y, double cap);

ops::PartialAttention attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                const at::Tensor& v_MKD, const ops::Spans& spans,
                                const ops::AttentionOptions& options, at::ScalarType result);
ops::AttentionGrads attention_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                       const at::Tensor& v_MKD, const ops::Spans& spans,
                                       const ops::AttentionOptions& options,
                                       const at::Tensor& out_grad_NQD, const at::Tensor& lse_QN,
                                       const at::Tensor& delta_QN);
at::Tensor attention_delta(const at::Tensor& out_grad_NQD, const at::Tensor& out_NQD);
void merge(const ops::PartialAttention& into, const ops::PartialAttention& more);

at::Tensor attention_over_pages(const at::Tensor& q_NQD, const ops::Pages& pages,
                                const ops::CachedSequences& sequences, int64_t layer,
                                const ops::AttentionOptions& options);

at::Tensor dropout(const at::Tensor& x_NI, double p, const at::Tensor& keys_N, uint64_t salt,
                   int64_t first_column);
void cross_entropy(const ops::CrossEntropyChunk& chunk);
at::Tensor likeliest(const at::Tensor& logits_RV);

at::Tensor largest_of_share(const at::Tensor& logits_Cv);
at::Tensor sums_of_share(const ops::SharedChunk& chunk, const at::Tensor& largest_C1);
at::Tensor place_of_largest(const at::Tensor& own_C1, const at::Tensor& largest_C1,
                            int64_t first_row);
void loss_of_share(const ops::SharedLoss& loss);
at::Tensor divergence_sums(const ops::TwoShares& shares);
at::Tensor divergence_grad(const ops::TwoShares& shares, const at::Tensor& own_sum_C1,
                           const at::Tensor& factor_C1);

at::Tensor grouped_product(const at::Tensor& x_RI, std::span<const at::Tensor> weights_OI,
                           std::span<const int64_t> counts);
at::Tensor grouped_input_grad(const at::Tensor& d_y_RO, std::span<const at::Tensor> weights_OI,
                              std::span<const int64_t> counts);
at::Tensor nf4_product(const at::Tensor& x_NI, const ops::Nf4Matrix& weight,
                       const at::Tensor& bias_O);
at::Tensor nf4_input_grad(const at::Tensor& d_y_NO, const ops::Nf4Matrix& weight);
at::Tensor nf4_rows(const ops::Nf4Matrix& weight, int64_t first, int64_t count,
                    at::ScalarType type);

std::vector<at::Tensor> block_products(const at::Tensor& x_NI,
                                       std::span<const ops::BlockFactor> factors);
at::Tensor block_rows(const ops::BlockWeight& weight, const at::Tensor& ids_N, at::ScalarType type);

ops::NormHeadResult norm_head(const at::Tensor& weight_VH);
at::Tensor norm_head_backward(const at::Tensor& weight_VH, const at::Tensor& length_V1,
                              const at::Tensor& d_y_VH);
at::Tensor adapted_row_squares(const at::Tensor& weight_OI, const at::Tensor& b_OR,
                               const at::Tensor& a_RI, double scale);
at::Tensor stretch_factor(const at::Tensor& magnitude_O, const at::Tensor& squares_O, bool change,
                          at::ScalarType type);
at::Tensor scale_columns(const at::Tensor& x_NO, const at::Tensor& factor_O);
at::Tensor stretch_grad(const at::Tensor& d_stretched_NO, const at::Tensor& y_NO,
                        const at::Tensor& squares_O);
at::Tensor sigmoid(const at::Tensor& x);
at::Tensor sigmoid_backward(const at::Tensor& grad, const at::Tensor& y);

void larger_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
void add_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
void add_to(const at::Tensor& sum, const at::Tensor& x);
at::Tensor add_bias(const at::Tensor& x_NO, const at::Tensor& bias_O);
at::Tensor scaled(const at::Tensor& x, double factor);
at::Tensor take_rows(const at::Tensor& x_NH, const at::Tensor& index_n);
void add_rows(const at::Tensor& sum_NH, const at::Tensor& index_n, const at::Tensor& rows_nH);
at::Tensor with_rows(const at::Tensor& x_NH, const at::Tensor& index_n, const at::Tensor& rows_nH);
at::Tensor scale_rows(const at::Tensor& x_NH, const at::Tensor& factor_N);
at::Tensor row_dots(const at::Tensor& a_NH, const at::Tensor& b_NH);
at::Tensor column_sums(const at::Tensor& x_NO);

void adamw_update(const ops::AdamWState& state, const std::vector<ops::Chunk>& chunks,
                  std::span<const ops::AdamWScalars> scalars);
void split_master(const at::Tensor& master, const at::Tensor& weight, const at::Tensor& low);
at::Tensor join_master(const at::Tensor& weight, const at::Tensor& low);
std::vector<double> sums_of_squares(const at::Tensor& values,
                                    const std::vector<ops::Chunk>& chunks);
bool all_finite(const at::Tensor& x);

}  // namespace danlu::npu
