// npu/operators.h: the operators that the plug-in calls, with the arguments that CANN's headers and
// pages declare. What is written here is what is passed: nothing checks it against the library.
#pragma once
#include "npu/operator.h"

namespace danlu::npu::aclnn {

using T = const aclTensor*;
using S = const aclScalar*;
using I = const aclIntArray*;
using L = const aclTensorList*;
using B = const aclBoolArray*;

// Products. The last argument: how the unit for products may round; 0: not at all.
inline const Operator<T, T, T, int8_t> matmul{"Matmul", Repeats{1}};
inline const Operator<T, T, T, S, S, T, int8_t> addmm{"Addmm"};
inline const Operator<T, T, T, S, S, int8_t> inplace_addmm{"InplaceAddmm"};

// rows, weights, bias, four of quantised weights, scales of tokens, rows of each group, three of
// quantised activations, results as one, groups of rows, counts or ends, activation, results, two
// more results.
inline const Operator<L, L, L, L, L, L, L, L, T, L, L, L, int64_t, int64_t, int64_t, int64_t,
                      aclTensorList*, aclTensorList*, aclTensorList*>
    grouped_matmul{"GroupedMatmulV4"};

// Element by element.
inline const Operator<T, T> inplace_copy{"InplaceCopy"};
inline const Operator<T, S> inplace_fill{"InplaceFillScalar"};
inline const Operator<T, T, S, T> add{"Add"};
inline const Operator<T, T, S> inplace_add{"InplaceAdd"};
inline const Operator<T, S, S, T> adds{"Adds"};
inline const Operator<T, T, T> mul{"Mul", Repeats{1}};
inline const Operator<T, S, T> muls{"Muls"};
inline const Operator<T, S> inplace_muls{"InplaceMuls"};
inline const Operator<T, T, T> div{"Div", Repeats{1}};
inline const Operator<T, T, T> maximum{"Maximum", Repeats{1}};
inline const Operator<T, T> exp{"Exp", Repeats{1}};
inline const Operator<T, T> log{"Log", Repeats{1}};
inline const Operator<T, T> sqrt{"Sqrt", Repeats{1}};
inline const Operator<T, T> sin{"Sin", Repeats{1}};
inline const Operator<T, T> cos{"Cos", Repeats{1}};
inline const Operator<T, T> neg{"Neg", Repeats{1}};
inline const Operator<T, T> sigmoid{"Sigmoid", Repeats{1}};
inline const Operator<T, T> tanh{"Tanh", Repeats{1}};
inline const Operator<T, T> is_finite{"IsFinite"};
inline const Operator<T, S, T> ge_scalar{"GeScalar"};
inline const Operator<T, T, T, T> where{"SWhere"};

// Sums and the like; rows by number.
inline const Operator<T, I, bool, int, T> reduce_sum{"ReduceSum"};
inline const Operator<T, I, bool, T> amax{"Amax"};
inline const Operator<T, int64_t, bool, T, T> max_dim{"MaxDim"};
inline const Operator<T, I, bool, T> all{"All"};
inline const Operator<T, int64_t, T, T> gather{"Gather", Repeats{1}};
inline const Operator<T, int64_t, T, T> index_select{"IndexSelect", Repeats{1}};
inline const Operator<T, int64_t, T, T, S, T> index_add{"IndexAdd"};
inline const Operator<T, int64_t, T, T, T> scatter_add{"ScatterAdd"};
inline const Operator<T, int64_t, T, T> inplace_index_copy{"InplaceIndexCopy"};

// Layers.
inline const Operator<T, T, double, T, T> rms_norm{"RmsNorm", Repeats{2}};
inline const Operator<T, T, T, T, T, T> rms_norm_grad{"RmsNormGrad", Repeats{2}};
// rows, the dimensions that are normalised, weight, bias, epsilon, result, means, and one over the
// roots of variances.
inline const Operator<T, I, T, T, double, T, T, T> layer_norm{"LayerNorm"};
// gradient, rows, the dimensions, means, one over roots, weight, bias, which results are wanted,
// gradients of rows, weight and bias.
inline const Operator<T, T, I, T, T, T, T, B, T, T, T> layer_norm_backward{"LayerNormBackward"};
// 0: by erf, 1: by tanh; of the gradient "none" and "tanh".
inline const Operator<T, int64_t, T> gelu{"GeluV2", Repeats{1}};
inline const Operator<T, T, char*, T> gelu_backward{"GeluBackwardV2"};
inline const Operator<T, int64_t, T> swi_glu{"SwiGlu", Repeats{1}};
inline const Operator<T, T, int64_t, T> swi_glu_grad{"SwiGluGrad", Repeats{1}};
inline const Operator<T, T, T, int64_t, T> rotary{"RotaryPositionEmbedding", Repeats{1}};

// query, key, value, shift, drop mask, padding mask, mask, prefix, ends of queries, ends of keys,
// scale, keep, tokens before, tokens after, heads, layout, inner precision, sparse mode, largest,
// sums, softmax, result.
inline const Operator<T, T, T, T, T, T, T, I, I, I, double, double, int64_t, int64_t, int64_t,
                      char*, int64_t, int64_t, T, T, T, T>
    attention{"FlashAttentionVarLenScore"};
// query, key, value, gradient, shift, drop mask, padding mask, mask, largest, sums, softmax,
// result, prefix, ends of queries, ends of keys, scale, keep, tokens before, tokens after, heads,
// layout, inner precision, sparse mode, gradients of query, key, value and shift.
inline const Operator<T, T, T, T, T, T, T, T, T, T, T, T, I, I, I, double, double, int64_t, int64_t,
                      int64_t, char*, int64_t, int64_t, T, T, T, T>
    attention_grad{"FlashAttentionUnpaddingScoreGrad"};
// query, key, value, shift, mask, lengths of queries, lengths of keys, five of quantised results,
// two of quantised keys and values, blocks of each sequence, two of padding, four of quantised keys
// and values, shared keys and values, their length, heads, scale, tokens before, tokens after,
// layout, heads of keys, sparse mode, inner precision, tokens of a block, kind of quantised keys
// and values, whether sums are wanted, kinds of quantised keys and of values, result, sums.
inline const Operator<T, L, L, T, T, I, I, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, I,
                      int64_t, double, int64_t, int64_t, char*, int64_t, int64_t, int64_t, int64_t,
                      int64_t, bool, int64_t, int64_t, T, T>
    attention_of_blocks{"FusedInferAttentionScoreV2"};

}  // namespace danlu::npu::aclnn
