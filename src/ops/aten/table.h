// ops/aten/table.h: entries in ATen's operators for devices that ATen computes on by kernels, as
// NVIDIA GPUs: where these take less memory, fewer passes or fewer waits than the composite, or
// keep a promise that it does not there. Entries and their contracts: ops/backend.h.
//
// Left to the composite: cross entropy, AdamW, halves of masters and dropout, which ATen does in no
// fewer passes than it; sums, rows and factors, which are one operator each.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/backend.h"

namespace danlu::ops::aten {

const Backend& backend();

/// Numbers that are widened to f32 at a time, where a type is not multiplied into f32.
inline constexpr int64_t kWideNumbers = int64_t{16} << 20;

at::Tensor product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O,
                   at::ScalarType result);
at::Tensor input_grad(const at::Tensor& d_y_NO, const at::Tensor& weight_OI, at::ScalarType result);
at::Tensor weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, at::ScalarType result);
void add_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, const at::Tensor& sum_OI,
                     bool is_fresh);
void add_product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& y_NO);
at::Tensor grouped_product(const at::Tensor& x_RI, std::span<const at::Tensor> weights_OI,
                           std::span<const int64_t> counts);
at::Tensor grouped_input_grad(const at::Tensor& d_y_RO, std::span<const at::Tensor> weights_OI,
                              std::span<const int64_t> counts);

/// The products read bands of rows by nf4_rows and multiply them by the device's own table.
at::Tensor nf4_product(const at::Tensor& x_NI, const Nf4Matrix& weight, const at::Tensor& bias_O);
at::Tensor nf4_input_grad(const at::Tensor& d_y_NO, const Nf4Matrix& weight);
at::Tensor nf4_rows(const Nf4Matrix& weight, int64_t first, int64_t count, at::ScalarType type);

/// A few bands are dense at a time, which go through the products of the device's own table. Rows
/// of x are not quantised, as the CPU's are. Ids outside of the vocabulary are the device's error.
std::vector<at::Tensor> block_products(const at::Tensor& x_NI,
                                       std::span<const BlockFactor> factors);
/// One of them, whose bands from `band` on `dense` gives as [bands · 16 or fewer, I] in a type.
using DenseBands = at::Tensor (*)(const BlockWeight& weight, int64_t band, int64_t bands,
                                  at::ScalarType type);
at::Tensor block_product(const at::Tensor& x_NI, const BlockFactor& factor, DenseBands dense);
at::Tensor block_rows(const BlockWeight& weight, const at::Tensor& ids_N, at::ScalarType type);

NormResult rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps);
NormGrads rms_norm_backward(const at::Tensor& x, const at::Tensor& weight_D, const at::Tensor& rstd,
                            const at::Tensor& dy, bool x_grad, bool weight_grad);
at::Tensor rotary(const at::Tensor& x_NQD, const RotaryTable& table, bool inverse);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
SwigluGrads swiglu_backward(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& dy);

/// A block of queries at a time, in f32 throughout: scores of a block take at most kWideNumbers,
/// and keys that no query of it sees cost nothing.
PartialAttention attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                           const at::Tensor& v_MKD, const Spans& spans,
                           const AttentionOptions& options, at::ScalarType result);
AttentionGrads attention_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                  const at::Tensor& v_MKD, const Spans& spans,
                                  const AttentionOptions& options, const at::Tensor& out_grad_NQD,
                                  const at::Tensor& lse_QN, const at::Tensor& delta_QN);

at::Tensor attention_over_pages(const at::Tensor& q_NQD, const Pages& pages,
                                const CachedSequences& sequences, int64_t layer,
                                const AttentionOptions& options);
void store_in_pages(const at::Tensor& k_NKD, const at::Tensor& v_NKD, const Pages& pages,
                    const CachedSequences& sequences, int64_t layer);

/// In the order of the rows on every device, where index_add_ adds in any.
void add_rows(const at::Tensor& sum_NH, const at::Tensor& index_n, const at::Tensor& rows_nH);
at::Tensor likeliest(const at::Tensor& logits_RV);
/// The host waits once.
std::vector<double> sums_of_squares(const at::Tensor& values, const std::vector<Chunk>& chunks);
bool all_finite(const at::Tensor& x);

}  // namespace danlu::ops::aten
