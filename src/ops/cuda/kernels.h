// ops/cuda/kernels.h: kernels for NVIDIA GPUs, in plain pointers: what the files of this folder
// that nvcc compiles have in common with those that g++ does. Each is given to a stream and waited
// for by nobody. Sums are f32; results are rounded once, to the nearest, ties to even.
//
// Pointers are of the GPU's memory and aligned for their type; tensors are contiguous. Errors:
// std::runtime_error where a kernel cannot be started.
#pragma once
#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace danlu::ops::cuda {

using Stream = CUstream_st*;

enum class Type { kF32, kBF16, kF16 };

/// ops/rms_norm.h; rstd [rows].
void rms_norm(Type type, const void* x, const void* weight, float eps, int64_t rows, int64_t dim,
              void* y, float* rstd, Stream stream);
void rms_norm_input_grad(Type type, const void* x, const void* weight, const float* rstd,
                         const void* dy, int64_t rows, int64_t dim, void* dx, Stream stream);
/// Into how many sums, one below the other, the next adds the weight's gradient.
int64_t weight_grad_parts(int64_t rows);
/// sums [weight_grad_parts(rows), dim].
void rms_norm_weight_grad(Type type, const void* x, const float* rstd, const void* dy, int64_t rows,
                          int64_t dim, float* sums, Stream stream);

/// x [tokens, heads, 2 half] whose rows of 2 half lie `token_stride` and `head_stride` apart; cos
/// and sin [tokens, half].
struct RotaryShape {
  int64_t tokens, heads, half, token_stride, head_stride;
};
void rotary(Type type, const void* x, const float* cos, const float* sin, const RotaryShape& shape,
            bool inverse, void* y, Stream stream);

void swiglu(Type type, const void* gate, const void* up, int64_t count, void* y, Stream stream);
void swiglu_backward(Type type, const void* gate, const void* up, const void* dy, int64_t count,
                     void* d_gate, void* d_up, Stream stream);

/// ops/dropout.h.
void dropout(Type type, const void* x, const int64_t* keys, uint64_t salt, uint64_t threshold,
             float factor, int64_t rows, int64_t columns, int64_t first_column, void* y,
             Stream stream);

/// ops/backend.h's CrossEntropyChunk: the loss of each row and whether its target has the largest
/// logit, for the caller to sum.
struct CrossEntropyRows {
  int64_t rows, vocab;
  float z_weight, grad_scale;
  bool make_grad;
};
void cross_entropy(Type type, void* logits, const int64_t* targets, const CrossEntropyRows& rows,
                   float* losses, int64_t* correct, Stream stream);

/// ops/optimizer.h. Elements [begin, end) of flat tensors.
struct AdamW {
  float beta1, beta2, one_minus_beta1, one_minus_beta2, eps, step_size, inv_sqrt_bias2, keep,
      grad_scale;
};
struct AdamWTensors {
  float* master;  ///< null: weight and low hold it
  float *exp_avg, *exp_avg_sq;
  const float* grad;
  void* weight;  ///< null: there is none
  int16_t* low;  ///< null: there is a master
};
void adamw(Type weight_type, const AdamWTensors& tensors, const AdamW& scalars, int64_t begin,
           int64_t end, Stream stream);
void split_master(const float* master, uint16_t* weight, int16_t* low, int64_t count,
                  Stream stream);
void join_master(const uint16_t* weight, const int16_t* low, float* master, int64_t count,
                 Stream stream);

/// Pages of ops/pages.h, of one layer.
inline constexpr int64_t kMostSlabs = 64, kMostTokens = 256;
struct PageSlabs {
  void* at[kMostSlabs];  ///< where the layer's keys begin in the first page of each slab
  int64_t per_slab, page_elements;
  int32_t heads, key_dim, value_dim;  ///< value_dim 0: rows are keys and values both
};
/// New tokens, row by row: the sequence of each and its place there.
struct PageTokens {
  int32_t count;
  int32_t sequence[kMostTokens], place[kMostTokens];
};
/// tables [B, table_width], k [count, heads, key_dim], v [count, heads, value_dim].
void store_in_pages(Type type, const void* k, const void* v, const PageSlabs& pages,
                    const PageTokens& tokens, const int32_t* tables, int64_t table_width,
                    Stream stream);
struct PageQueries {
  int32_t heads;  ///< a multiple of the pages'
  float scale;
  int64_t window;
  const float* slopes;  ///< [heads], or null
};
/// Floats that attention_over_pages has to have as its workspace.
int64_t page_workspace(const PageSlabs& pages, const PageTokens& tokens,
                       const PageQueries& queries);
/// q [count, heads, key_dim]; out [count, heads, value_dim, or key_dim where that is 0].
void attention_over_pages(Type type, const void* q, const PageSlabs& pages,
                          const PageTokens& tokens, const PageQueries& queries,
                          const int32_t* tables, int64_t table_width, float* workspace, void* out,
                          Stream stream);

/// Rows of a matrix in NF4 (ops/nf4.h) that lie in one rectangle, of which the first begins with
/// number `first_number` of the whole.
struct Nf4Rows {
  const uint8_t* codes;
  int64_t first_code;  ///< of the first row, in numbers
  int64_t rows, columns, whole_columns, first_number;
  int64_t first_slot, slots_of_row;  ///< where the first row's first factor is; 0: as blocks count
  int64_t block;
  const float* factors;  ///< null: they are quantised
  const uint8_t* factor_codes;
  const float *groups, *offset;
  bool rounds_to_bf16, rounds_to_f16;  ///< the form's type, before the result's
};
struct Nf4Tables {
  float numbers[16], factors[256];
};
void nf4_rows(Type type, const Nf4Rows& rows, const Nf4Tables& tables, void* out, Stream stream);
/// How many rows a kernel multiplies with a quantised weight as it is.
inline constexpr int kMostFewRows = 8;
/// x [count, columns], whose rows begin where 4 numbers are aligned; bias [rows.rows] of x's type,
/// or null; rows of y lie y_stride apart. At most kMostFewRows of x, each of which has the bits
/// that it has alone. REQUIRES: whole rows of whole blocks of a power of two from 8 on, codes where
/// 4 bytes are aligned.
void nf4_product(Type type, const Nf4Rows& rows, const Nf4Tables& tables, const void* x,
                 int64_t count, const void* bias, void* y, int64_t y_stride, Stream stream);

/// Bands of a weight in blocks (ops/block_weight.h), from the first of them on.
enum class BlockKind { kQ8_0, kQ4_0, kQ4_K, kQ6_K };
struct BlockBands {
  BlockKind kind;
  const uint8_t *codes, *scales, *supers;  ///< supers null: the kind has none
  int64_t rows, columns;
};
/// x [rows, columns], whose rows begin where 4 numbers are aligned; bias [weight.rows] of x's type,
/// or null; y [rows, weight.rows]. At most kMostFewRows of x, each of which has the bits that it
/// has alone.
void block_product(Type type, const BlockBands& weight, const void* x, int64_t rows,
                   const void* bias, void* y, Stream stream);
/// out [rows, columns], as aligned.
void block_numbers(Type type, const BlockBands& weight, void* out, Stream stream);

}  // namespace danlu::ops::cuda
