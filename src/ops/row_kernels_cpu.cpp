#include "ops/row_kernels_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/cpu_class.h"
#include "ops/prefetch_cpu.h"
#include "ops/vector_targets.h"

// This file is compiled once per instruction set by Highway (github.com/google/highway).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/row_kernels_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// After foreach_target.h, which must come first.
#include "ops/vectors_inl.h"

HWY_BEFORE_NAMESPACE();
namespace danlu::ops::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// --- norms ------------------------------------------------------------------------------------

template <typename T>
void norm_forward(const NormShape& shape, const T* x, const T* weight, T* y, float* rstd) {
  for (size_t row = 0; row < shape.rows; ++row, x += shape.width, y += shape.width) {
    Vector squares = set(0);
    for (size_t i = 0; i < shape.width; i += lanes()) {
      const Vector value = load(x + i, shape.width - i);
      squares = hn::MulAdd(value, value, squares);
    }
    const float mean = sum_of(squares) / static_cast<float>(shape.width);
    rstd[row] = 1.0f / std::sqrt(mean + static_cast<float>(shape.eps));
    const Vector factor = set(rstd[row]);
    for (size_t i = 0; i < shape.width; i += lanes()) {
      const size_t left = shape.width - i;
      const Vector quotient = rounded<T>(hn::Mul(load(x + i, left), factor));
      store(hn::Mul(quotient, load(weight + i, left)), y + i, left);
    }
  }
}

template <typename T>
void norm_backward(const NormShape& shape, const T* x, const T* weight, const float* rstd,
                   const T* dy, T* dx, float* d_weight) {
  for (size_t row = 0; row < shape.rows; ++row, x += shape.width, dy += shape.width) {
    const Vector factor = set(rstd[row]);
    Vector products = set(0);
    for (size_t i = 0; i < shape.width; i += lanes()) {
      const size_t left = shape.width - i;
      const Vector quotient = hn::Mul(load(x + i, left), factor), grad = load(dy + i, left);
      products = hn::MulAdd(hn::Mul(grad, load(weight + i, left)), quotient, products);
      if (d_weight)
        store(hn::MulAdd(grad, rounded<T>(quotient), load(d_weight + i, left)), d_weight + i, left);
    }
    if (!dx) continue;
    const Vector mean = set(sum_of(products) / static_cast<float>(shape.width));
    for (size_t i = 0; i < shape.width; i += lanes()) {
      const size_t left = shape.width - i;
      const Vector quotient = hn::Mul(load(x + i, left), factor);
      const Vector d_quotient = hn::Mul(load(dy + i, left), load(weight + i, left));
      store(hn::Mul(factor, hn::NegMulAdd(quotient, mean, d_quotient)), dx + i, left);
    }
    dx += shape.width;
  }
}

// --- rotary and swiglu ------------------------------------------------------------------------

template <typename T>
void rotate_heads(size_t heads, size_t half, bool inverse, const T* x, const float* cos,
                  const float* sin, T* y) {
  for (size_t head = 0; head < heads; ++head, x += 2 * half, y += 2 * half) {
    for (size_t i = 0; i < half; i += lanes()) {
      const size_t left = half - i;
      const Vector a = load(x + i, left), b = load(x + half + i, left), c = load(cos + i, left);
      const Vector turn = load(sin + i, left), s = inverse ? hn::Neg(turn) : turn;
      store(hn::NegMulAdd(b, s, hn::Mul(a, c)), y + i, left);
      store(hn::MulAdd(a, s, hn::Mul(b, c)), y + half + i, left);
    }
  }
}

template <typename T>
void sum_of_two(size_t count, const T* a, const T* b, T* y) {
  for (size_t i = 0; i < count; i += lanes()) {
    const size_t left = count - i;
    store(hn::Add(load(a + i, left), load(b + i, left)), y + i, left);
  }
}

template <typename T>
void gate_forward(size_t count, const T* gate, const T* up, T* y) {
  for (size_t i = 0; i < count; i += lanes()) {
    const size_t left = count - i;
    const Vector g = load(gate + i, left);
    store(hn::Mul(rounded<T>(hn::Mul(g, sigmoid(g))), load(up + i, left)), y + i, left);
  }
}

template <typename T>
void gate_backward(size_t count, const T* gate, const T* up, const T* dy, T* d_gate, T* d_up) {
  for (size_t i = 0; i < count; i += lanes()) {
    const size_t left = count - i;
    const Vector g = load(gate + i, left), grad = load(dy + i, left), s = sigmoid(g);
    const Vector silu = rounded<T>(hn::Mul(g, s));
    store(hn::Mul(grad, silu), d_up + i, left);
    // silu' = s (1 + g (1 - s))
    const Vector slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(set(1.0f), s), set(1.0f)));
    store(hn::Mul(hn::Mul(grad, load(up + i, left)), slope), d_gate + i, left);
  }
}

// --- cross entropy ----------------------------------------------------------------------------

HWY_INLINE float to_f32(float value) { return value; }
HWY_INLINE float to_f32(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}
HWY_INLINE float to_f32(F16 value) { return hn::GetLane(load_part(&value, 1)); }

/// Last vectors are taken at the end of the row, so that no lane is made up: needs width >= lanes.
template <typename T>
float largest_of(const T* row, size_t width) {
  float largest = -HUGE_VALF;
  size_t i = 0;
  if (width >= lanes()) {
    Vector best = load_whole(row);
    for (; i + lanes() <= width; i += lanes()) best = hn::Max(best, load_whole(row + i));
    largest = hn::GetLane(hn::MaxOfLanes(Tag(), best));
  }
  for (; i < width; ++i) largest = std::max(largest, to_f32(row[i]));
  return largest;
}

template <typename T>
void set_logit(T* at, float value) {
  store_part(set(value), at, 1);
}

template <typename T>
RowLoss loss_of_row(T* row, size_t width, size_t target, float z_weight, float grad_scale,
                    bool make_grad) {
  const float largest = largest_of(row, width), target_logit = to_f32(row[target]);
  const Vector top = set(largest);
  Vector sums = set(0);
  size_t i = 0;
  for (; i + lanes() <= width; i += lanes())
    sums = hn::Add(sums, exp_of(hn::Sub(load_whole(row + i), top)));
  float total = sum_of(sums);
  for (; i < width; ++i) total += std::exp(to_f32(row[i]) - largest);
  const float z = z_weight > 0 ? z_weight * largest * largest : 0.0f;
  const RowLoss result{std::log(total) + largest - target_logit + z, target_logit >= largest};
  if (!make_grad) return result;
  const float factor = grad_scale / total;
  size_t at_largest = 0;
  if (z_weight > 0)
    while (to_f32(row[at_largest]) < largest) ++at_largest;
  for (i = 0; i < width; i += lanes()) {
    const size_t left = width - i;
    store(hn::Mul(exp_of(hn::Sub(load(row + i, left), top)), set(factor)), row + i, left);
  }
  float at_target = std::exp(target_logit - largest) / total - 1.0f;
  const float pull = 2 * z_weight * largest;
  if (z_weight > 0 && at_largest == target) {
    at_target += pull;
  } else if (z_weight > 0) {
    set_logit(row + at_largest, (1.0f / total + pull) * grad_scale);
  }
  set_logit(row + target, at_target * grad_scale);
  return result;
}

// --- attention --------------------------------------------------------------------------------

/// scale * score + slope * (key - query) of the vector that starts at key i.
HWY_INLINE Vector biased(Vector score, size_t i, float scale, float slope, float query) {
  const Vector key = hn::Add(hn::Iota(Tag(), 0.0f), set(static_cast<float>(i) - query));
  return hn::MulAdd(score, set(scale), hn::Mul(set(slope), key));
}

/// Lanes from `left` on are -inf.
HWY_INLINE Vector seen(Vector score, size_t left) {
  return left >= lanes() ? score : hn::IfThenElse(hn::FirstN(Tag(), left), score, set(-HUGE_VALF));
}

template <typename T>
float softmax_more_of(const float* scores, size_t count, float scale, float slope, float query,
                      SoftmaxState* state, T* weights) {
  Vector best = set(-HUGE_VALF);
  for (size_t i = 0; i < count; i += lanes()) {
    const size_t left = count - i;
    best = hn::Max(best, seen(biased(load(scores + i, left), i, scale, slope, query), left));
  }
  const float largest = std::max(hn::GetLane(hn::MaxOfLanes(Tag(), best)), state->largest);
  const Vector top = set(largest);
  Vector sums = set(0);
  for (size_t i = 0; i < count; i += lanes()) {
    const size_t left = count - i;
    const Vector score = seen(biased(load(scores + i, left), i, scale, slope, query), left);
    const Vector weight = exp_of(hn::Sub(score, top));
    sums = hn::Add(sums, weight);
    store(weight, weights + i, left);
  }
  const float factor = std::exp(state->largest - largest);
  *state = {largest, state->sum * factor + sum_of(sums)};
  return factor;
}

template <typename T>
void softmax_backward_of(const SoftmaxBackward& row, const float* scores, const float* d_weights,
                         T* weights, T* d_scores) {
  for (size_t i = 0; i < row.count; i += lanes()) {
    const size_t left = row.count - i;
    const Vector score = biased(load(scores + i, left), i, row.scale, row.slope, row.query);
    const Vector weight = exp_of(hn::Sub(score, set(row.lse)));
    const Vector change = hn::Sub(load(d_weights + i, left), set(row.delta));
    store(weight, weights + i, left);
    store(hn::Mul(hn::Mul(weight, set(row.scale)), change), d_scores + i, left);
  }
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void sums_of_four(const Vector* sums, float* to) {
  for (size_t n = 0; n < 4; ++n) to[n] = sum_of(sums[n]);
}
#else
/// The lanes of four vectors summed at once, as a transposition of the four.
HWY_INLINE void sums_of_four(const Vector* sums, float* to) {
  using Pairs = hn::Repartition<double, Tag>;
  const auto folded = [](Vector a, Vector b) {
    return hn::BitCast(Pairs(),
                       hn::Add(hn::InterleaveLower(Tag(), a, b), hn::InterleaveUpper(Tag(), a, b)));
  };
  const auto first = folded(sums[0], sums[1]), second = folded(sums[2], sums[3]);
  const Vector blocks = hn::Add(hn::BitCast(Tag(), hn::InterleaveLower(Pairs(), first, second)),
                                hn::BitCast(Tag(), hn::InterleaveUpper(Pairs(), first, second)));
  HWY_ALIGN float all[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(blocks, Tag(), all);
  using Four = hn::Full128<float>;
  auto total = hn::Load(Four(), all);
  for (size_t i = 4; i < lanes(); i += 4) total = hn::Add(total, hn::Load(Four(), all + i));
  hn::StoreU(total, Four(), to);
}
#endif

/// Some numbers of rows: `width` of each; those of x are x_row apart, results y_row.
struct DotsPart {
  size_t width, x_row, y_row;
  bool add;
  size_t bytes_ahead;  ///< where what comes next from memory lies
};

/// kInputs rows of x against one of w, whose elements are widened once for all of them, in kSums
/// sums each: more than the latency of an addition.
template <size_t kInputs, size_t kSums, bool kAsks, typename T>
HWY_INLINE void dots(const DotsPart& part, const float* x, const T* w, float* y) {
  const size_t width = part.width, x_row = part.x_row;
  Vector sums[kInputs][kSums];
  for (auto& of_input : sums)
    for (Vector& sum : of_input) sum = set(0);
  size_t i = 0;
  for (; i + kSums * lanes() <= width; i += kSums * lanes()) {
    HWY_UNROLL(4)
    for (size_t s = 0; s < kSums; ++s) {
      const size_t at = i + s * lanes();
      const Vector row = load_whole(w + at);
      if (s * lanes() * sizeof(T) % 64 == 0) ask_ahead<kAsks>(w + at, part.bytes_ahead);
      HWY_UNROLL(4)
      for (size_t n = 0; n < kInputs; ++n)
        sums[n][s] = hn::MulAdd(row, load_whole(x + n * x_row + at), sums[n][s]);
    }
  }
  for (; i < width; i += lanes()) {
    const Vector row = load(w + i, width - i);
    for (size_t n = 0; n < kInputs; ++n)
      sums[n][0] = hn::MulAdd(row, load(x + n * x_row + i, width - i), sums[n][0]);
  }
  Vector whole[kInputs];
  for (size_t n = 0; n < kInputs; ++n) {
    whole[n] = sums[n][0];
    for (size_t s = 1; s < kSums; ++s) whole[n] = hn::Add(whole[n], sums[n][s]);
  }
  float results[kInputs];
  if constexpr (kInputs == 4) {
    sums_of_four(whole, results);
  } else {
    for (size_t n = 0; n < kInputs; ++n) results[n] = sum_of(whole[n]);
  }
  for (size_t n = 0; n < kInputs; ++n) {
    float& to = y[n * part.y_row];
    to = part.add ? to + results[n] : results[n];
  }
}

/// One row of w after the other: several at once would be as many streams through memory, each too
/// short to be fetched ahead (half the bandwidth, measured).
template <size_t kInputs, size_t kSums, bool kAsks, typename T>
void dots_of_rows(const Dots& d, const DotsPart& part, const float* x, const T* w, float* y) {
  for (size_t row = 0; row < d.w_rows; ++row)
    dots<kInputs, kSums, kAsks>(part, x, w + row * d.width, y + row);
}

/// Rows of w that wait in a cache for the next rows of x.
constexpr size_t kDotRows = 16;

/// Takes as much of many rows of x at a time as stays in the first cache beside what comes from w.
template <bool kAsks, typename T>
void dots_of_block(const Dots& d) {
  constexpr size_t kChunk = 1024;
  const bool is_whole = d.x_rows < 4;
  const size_t chunk = is_whole ? std::max<size_t>(1, d.width) : kChunk;
  for (size_t at = 0; at < d.width || at == 0; at += chunk) {
    const DotsPart part{std::min(chunk, d.width - at), d.width, d.y_row, at > 0,
                        is_whole ? kBytesAhead : kDotRows * d.width * sizeof(T)};
    const float* x = d.x + at;
    const T* const w = static_cast<const T*>(d.w) + at;
    float* y = d.y;
    size_t left = d.x_rows;
    const auto done = [&](size_t count) {
      x += count * d.width;
      y += count * d.y_row;
      left -= count;
    };
    if (left >= 4) {
      dots_of_rows<4, 2, kAsks>(d, part, x, w, y);
      done(4);
    } else if (left >= 2) {
      dots_of_rows<2, 4, kAsks>(d, part, x, w, y);
      done(2);
    } else {
      dots_of_rows<1, 4, kAsks>(d, part, x, w, y);
      done(1);
    }
    // What the first rows of x have asked for need not be asked for again.
    for (; left >= 4; done(4)) dots_of_rows<4, 2, false>(d, part, x, w, y);
    for (; left >= 2; done(2)) dots_of_rows<2, 4, false>(d, part, x, w, y);
    for (; left >= 1; done(1)) dots_of_rows<1, 4, false>(d, part, x, w, y);
  }
}

template <bool kAsks, typename T>
void all_dots(const Dots& d) {
  if (d.x_rows == 0) return;
  for (size_t row = 0; row < d.w_rows; row += kDotRows) {
    dots_of_block<kAsks, T>({d.element, d.x_rows, std::min(kDotRows, d.w_rows - row), d.width, d.x,
                             static_cast<const T*>(d.w) + row * d.width, d.y + row, d.y_row});
  }
}

template <typename From, typename To>
void copy_rows(size_t rows, size_t width, const From* from, size_t from_stride, To* to,
               size_t to_stride) {
  for (size_t row = 0; row < rows; ++row, from += from_stride, to += to_stride) {
    for (size_t i = 0; i < width; i += lanes()) store(load(from + i, width - i), to + i, width - i);
  }
}

/// kVectors vectors of every sum from column `at` on; `left` columns are left.
template <size_t kVectors>
HWY_INLINE void add_weighted_columns(const WeightedRows& s, size_t at, size_t left) {
  for (size_t r = 0; r < s.num_sums; ++r) {
    float* const to = s.sums + r * s.width + at;
    const auto left_of = [&](size_t v) { return kVectors > 1 ? lanes() : left - v * lanes(); };
    Vector sums[kVectors];
    for (size_t v = 0; v < kVectors; ++v) sums[v] = load(to + v * lanes(), left_of(v));
    for (size_t t = 0; t < s.num_rows; ++t) {
      const float* row = s.rows + t * s.width + at;
      const Vector weight = set(s.weights[r * s.weights_row + t]);
      for (size_t v = 0; v < kVectors; ++v)
        sums[v] = hn::MulAdd(weight, load(row + v * lanes(), left_of(v)), sums[v]);
    }
    for (size_t v = 0; v < kVectors; ++v) store(sums[v], to + v * lanes(), left_of(v));
  }
}

void add_weighted(const WeightedRows& s) {
  size_t at = 0;
  for (; at + 4 * lanes() <= s.width; at += 4 * lanes())
    add_weighted_columns<4>(s, at, s.width - at);
  for (; at < s.width; at += lanes()) add_weighted_columns<1>(s, at, s.width - at);
}

// --- element types as arguments ---------------------------------------------------------------

/// Calls body with a value of the element's storage type.
template <typename Body>
HWY_INLINE auto with_type(Element element, const Body& body) {
  if (element == Element::kF32) return body(float());
  return element == Element::kBF16 ? body(Bf16()) : body(F16());
}

void NormForward(const NormShape& shape, const void* x, const void* weight, void* y, float* rstd) {
  with_type(shape.element, [&]<typename T>(T) {
    norm_forward(shape, static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<T*>(y),
                 rstd);
  });
}
void NormBackward(const NormShape& shape, const void* x, const void* weight, const float* rstd,
                  const void* dy, void* dx, float* d_weight) {
  with_type(shape.element, [&]<typename T>(T) {
    norm_backward(shape, static_cast<const T*>(x), static_cast<const T*>(weight), rstd,
                  static_cast<const T*>(dy), static_cast<T*>(dx), d_weight);
  });
}
void Rotate(Element element, size_t heads, size_t half, bool inverse, const void* x,
            const float* cos, const float* sin, void* y) {
  with_type(element, [&]<typename T>(T) {
    rotate_heads(heads, half, inverse, static_cast<const T*>(x), cos, sin, static_cast<T*>(y));
  });
}
void AddElements(Element element, size_t count, const void* a, const void* b, void* y) {
  with_type(element, [&]<typename T>(T) {
    sum_of_two(count, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y));
  });
}
void GateForward(Element element, size_t count, const void* gate, const void* up, void* y) {
  with_type(element, [&]<typename T>(T) {
    gate_forward(count, static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(y));
  });
}
void GateBackward(Element element, size_t count, const void* gate, const void* up, const void* dy,
                  void* d_gate, void* d_up) {
  with_type(element, [&]<typename T>(T) {
    gate_backward(count, static_cast<const T*>(gate), static_cast<const T*>(up),
                  static_cast<const T*>(dy), static_cast<T*>(d_gate), static_cast<T*>(d_up));
  });
}
RowLoss LossOfRow(Element element, void* logits, size_t width, int64_t target, float z_weight,
                  float grad_scale, bool make_grad) {
  return with_type(element, [&]<typename T>(T) {
    return loss_of_row(static_cast<T*>(logits), width, static_cast<size_t>(target), z_weight,
                       grad_scale, make_grad);
  });
}
float SoftmaxMore(Element element, const float* scores, size_t count, float scale, float slope,
                  float query, SoftmaxState* state, void* weights) {
  float factor = 1;
  with_type(element, [&]<typename T>(T) {
    factor = softmax_more_of(scores, count, scale, slope, query, state, static_cast<T*>(weights));
  });
  return factor;
}
void SoftmaxBackwardRow(Element element, const SoftmaxBackward& row, const float* scores,
                        const float* d_weights, void* weights, void* d_scores) {
  with_type(element, [&]<typename T>(T) {
    softmax_backward_of(row, scores, d_weights, static_cast<T*>(weights),
                        static_cast<T*>(d_scores));
  });
}
void ScaleRow(float* row, size_t count, float factor) {
  for (size_t i = 0; i < count; i += lanes())
    store(hn::Mul(load(row + i, count - i), set(factor)), row + i, count - i);
}
void AddWeightedRows(const WeightedRows& shape) { add_weighted(shape); }
void DotRows(const Dots& dots) {
  with_type(dots.element, [&]<typename T>(T) {
    asks_for_memory() ? all_dots<true, T>(dots) : all_dots<false, T>(dots);
  });
}
void Widen(Element element, size_t rows, size_t width, const void* from, size_t from_stride,
           float* to, size_t to_stride) {
  with_type(element, [&]<typename T>(T) {
    copy_rows(rows, width, static_cast<const T*>(from), from_stride, to, to_stride);
  });
}
void Narrow(Element element, size_t rows, size_t width, const float* from, size_t from_stride,
            void* to, size_t to_stride) {
  with_type(element, [&]<typename T>(T) {
    copy_rows(rows, width, from, from_stride, static_cast<T*>(to), to_stride);
  });
}
const char* VectorTarget() { return hwy::TargetName(HWY_TARGET); }
/// Better targets have lower numbers.
bool RoundsF16() { return HWY_TARGET <= (HWY_ARCH_X86 ? HWY_AVX2 : HWY_NEON); }

}  // namespace danlu::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace danlu::ops::cpu {

/// Targets above the class in use are closed before the first of them is chosen. In Highway's mask
/// better targets have lower bits.
bool constrain_targets() {
#if HWY_ARCH_X86  // of the others each has one class for these kernels, as have tiles
  if (cpu_class() < std::min(detected_cpu_class(), CpuClass::kAvx512Bf16)) {
    const int64_t best = cpu_class() == CpuClass::kPlain  ? HWY_SSE4
                         : cpu_class() == CpuClass::kAvx2 ? HWY_AVX2
                                                          : HWY_AVX3_DL;
    hwy::DisableTargets(best - 1);
  }
#endif
  return true;
}
const bool& constrained() {
  static const bool done = constrain_targets();
  return done;
}
#define DANLU_DISPATCH(function) (static_cast<void>(constrained()), HWY_DYNAMIC_DISPATCH(function))

HWY_EXPORT(NormForward);
HWY_EXPORT(NormBackward);
HWY_EXPORT(Rotate);
HWY_EXPORT(AddElements);
HWY_EXPORT(GateForward);
HWY_EXPORT(GateBackward);
HWY_EXPORT(LossOfRow);
HWY_EXPORT(SoftmaxMore);
HWY_EXPORT(SoftmaxBackwardRow);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(AddWeightedRows);
HWY_EXPORT(DotRows);
HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);
HWY_EXPORT(VectorTarget);
HWY_EXPORT(RoundsF16);

const char* vector_target() { return DANLU_DISPATCH(VectorTarget)(); }
bool rounds_f16() { return DANLU_DISPATCH(RoundsF16)(); }
void rms_norm_forward(const NormShape& shape, const void* x, const void* weight, void* y,
                      float* rstd) {
  DANLU_DISPATCH(NormForward)(shape, x, weight, y, rstd);
}
void rms_norm_backward(const NormShape& shape, const void* x, const void* weight, const float* rstd,
                       const void* dy, void* dx, float* d_weight) {
  DANLU_DISPATCH(NormBackward)(shape, x, weight, rstd, dy, dx, d_weight);
}
void rotate(Element element, size_t heads, size_t half, bool inverse, const void* x,
            const float* cos, const float* sin, void* y) {
  DANLU_DISPATCH(Rotate)(element, heads, half, inverse, x, cos, sin, y);
}
void add_elements(Element element, size_t count, const void* a, const void* b, void* y) {
  DANLU_DISPATCH(AddElements)(element, count, a, b, y);
}
void swiglu_forward(Element element, size_t count, const void* gate, const void* up, void* y) {
  DANLU_DISPATCH(GateForward)(element, count, gate, up, y);
}
void swiglu_backward(Element element, size_t count, const void* gate, const void* up,
                     const void* dy, void* d_gate, void* d_up) {
  DANLU_DISPATCH(GateBackward)(element, count, gate, up, dy, d_gate, d_up);
}
RowLoss cross_entropy_row(Element element, void* logits, size_t width, int64_t target,
                          float z_weight, float grad_scale, bool make_grad) {
  return DANLU_DISPATCH(LossOfRow)(element, logits, width, target, z_weight, grad_scale, make_grad);
}
float softmax_more(Element element, const float* scores, size_t count, float scale, float slope,
                   float query, SoftmaxState* state, void* weights) {
  return DANLU_DISPATCH(SoftmaxMore)(element, scores, count, scale, slope, query, state, weights);
}
void softmax_backward(Element element, const SoftmaxBackward& row, const float* scores,
                      const float* d_weights, void* weights, void* d_scores) {
  DANLU_DISPATCH(SoftmaxBackwardRow)(element, row, scores, d_weights, weights, d_scores);
}
void scale_row(float* row, size_t count, float factor) {
  DANLU_DISPATCH(ScaleRow)(row, count, factor);
}
void add_weighted_rows(const WeightedRows& shape) { DANLU_DISPATCH(AddWeightedRows)(shape); }
void dot_rows(const Dots& dots) { DANLU_DISPATCH(DotRows)(dots); }
void widen(Element element, size_t rows, size_t width, const void* from, size_t from_stride,
           float* to, size_t to_stride) {
  DANLU_DISPATCH(Widen)(element, rows, width, from, from_stride, to, to_stride);
}
void narrow(Element element, size_t rows, size_t width, const float* from, size_t from_stride,
            void* to, size_t to_stride) {
  DANLU_DISPATCH(Narrow)(element, rows, width, from, from_stride, to, to_stride);
}

}  // namespace danlu::ops::cpu
#endif
