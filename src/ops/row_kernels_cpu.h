// ops/row_kernels_cpu.h: vectorised inner loops over plain arrays, for one thread each. The
// instruction set is chosen when the program runs. Internal to ops.
//
// Arrays of Element type are f32, bf16 or, where rounds_f16(), f16; arithmetic is f32 and each
// stored value is rounded once unless said otherwise. Sums have an order that depends on the vector
// width only, those of dot_rows on the number of rows too.
#pragma once
#include <cstddef>
#include <cstdint>

namespace danlu::ops::cpu {

enum class Element { kF32, kBF16, kF16 };
inline size_t size_of(Element element) { return element == Element::kF32 ? 4 : 2; }  ///< bytes

/// The instruction set in use ("AVX3_ZEN4", "NEON", …).
const char* vector_target();
/// Whether it converts f32 to f16 (AVX2, NEON); elsewhere Highway's emulation truncates.
bool rounds_f16();

struct NormShape {
  Element element;
  size_t rows, width;
  double eps;
};
/// y = round(x * rstd) * weight; rstd [rows] is an output.
void rms_norm_forward(const NormShape& shape, const void* x, const void* weight, void* y,
                      float* rstd);
/// dx [rows, width]; adds this block's weight gradient to d_weight f32 [width]. Either may be null.
void rms_norm_backward(const NormShape& shape, const void* x, const void* weight, const float* rstd,
                       const void* dy, void* dx, float* d_weight);

/// One token: `heads` rows of 2*half; turns by the angles of cos/sin [half], or back if `inverse`.
void rotate(Element element, size_t heads, size_t half, bool inverse, const void* x,
            const float* cos, const float* sin, void* y);

/// y = a + b.
void add_elements(Element element, size_t count, const void* a, const void* b, void* y);

/// y = round(silu(gate)) * up, and its gradients.
void swiglu_forward(Element element, size_t count, const void* gate, const void* up, void* y);
void swiglu_backward(Element element, size_t count, const void* gate, const void* up,
                     const void* dy, void* d_gate, void* d_up);

struct RowLoss {
  float loss;    ///< logsumexp - logit of the target + z_weight * largest^2
  bool correct;  ///< the target's logit is the largest
};
/// Cross entropy of one row of logits. make_grad: turns the row into grad_scale * its gradient.
RowLoss cross_entropy_row(Element element, void* logits, size_t width, int64_t target,
                          float z_weight, float grad_scale, bool make_grad);

/// What a query has made of the keys so far: the largest score, and the sum of exp(score -
/// largest).
struct SoftmaxState {
  float largest, sum;
};
/// Takes `count` more scores s = scale * score + slope * (key - query), `query` counting from the
/// first of them: weights [count] of Element `element` become exp(s - largest). Returns the factor
/// that brings what was summed before to the new largest. REQUIRES: count > 0.
float softmax_more(Element element, const float* scores, size_t count, float scale, float slope,
                   float query, SoftmaxState* state, void* weights);
/// weights = exp(s - lse) and d_scores = scale * weights * (d_weights - delta), of Element
/// `element` both; s as above.
struct SoftmaxBackward {
  size_t count;
  float scale, slope, query, lse, delta;
};
void softmax_backward(Element element, const SoftmaxBackward& row, const float* scores,
                      const float* d_weights, void* weights, void* d_scores);
/// row *= factor.
void scale_row(float* row, size_t count, float factor);

/// sums [r, width] += sum over t of weights[r, t] rows[t, width], for a few sums; all f32, rows and
/// sums right after each other.
struct WeightedRows {
  size_t num_sums, num_rows, width;
  const float* weights;
  size_t weights_row;
  const float* rows;
  float* sums;
};
void add_weighted_rows(const WeightedRows& shape);

/// y[r, o] = sum over i of x[r, i] w[o, i] in f32, for x_rows rows of x and w_rows of w, each row
/// `width` long and the next one right after it; rows of y are y_row apart. Rows of w are read
/// once from memory: for a few rows of x.
struct Dots {
  Element element;  ///< of w
  size_t x_rows, w_rows, width;
  const float* x;
  const void* w;
  float* y;
  size_t y_row;
};
void dot_rows(const Dots& dots);

/// to f32 and back, `rows` rows of `width` with the given distances in elements.
void widen(Element element, size_t rows, size_t width, const void* from, size_t from_stride,
           float* to, size_t to_stride);
void narrow(Element element, size_t rows, size_t width, const float* from, size_t from_stride,
            void* to, size_t to_stride);

}  // namespace danlu::ops::cpu
