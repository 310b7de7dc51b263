#include "ops/delta_kernels_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/row_kernels_cpu.h"
#include "ops/vector_targets.h"

// This file is compiled once per instruction set by Highway (github.com/google/highway).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/delta_kernels_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// After foreach_target.h, which must come first.
#include "ops/vectors_inl.h"

HWY_BEFORE_NAMESPACE();
namespace danlu::ops::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kSavedTokens = 32;  ///< whose memories a backward has at once

/// A token's query and key of unit length, the query scaled.
struct UnitRows {
  explicit UnitRows(size_t key_dim) : q(key_dim), k(key_dim) {}

  static float inverse_length(const float* x, size_t count) {
    float sum = 0;
    for (size_t i = 0; i < count; ++i) sum += x[i] * x[i];
    return 1.0f / std::sqrt(sum + 1e-6f);
  }
  void read(const DeltaHead& head, size_t token) {
    const float *from_q = head.q + token * head.key_stride,
                *from_k = head.k + token * head.key_stride;
    q_factor = inverse_length(from_q, q.size());
    k_factor = inverse_length(from_k, k.size());
    scale = 1.0f / std::sqrt(static_cast<float>(q.size()));
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = from_q[i] * q_factor * scale;
      k[i] = from_k[i] * k_factor;
    }
  }
  /// Adds to `found` the gradient of a row that had `unit` made of it, of that of `unit` itself.
  static void add_grad(const float* unit, const float* d_unit, float factor, float scaled,
                       size_t count, float* found) {
    float along = 0;
    for (size_t i = 0; i < count; ++i) along += unit[i] * d_unit[i];
    // unit = scaled * factor * x; its direction takes no part.
    const float part = along / scaled;
    for (size_t i = 0; i < count; ++i) found[i] += factor * (scaled * d_unit[i] - unit[i] * part);
  }

  std::vector<float> q, k;
  float q_factor = 0, k_factor = 0, scale = 1;
};

/// memory = keep memory; missed = v - memory^T k; memory += k (step missed)^T; out = memory^T q,
/// unless it is null.
void advance_memory(float* memory, const UnitRows& unit, const float* v, float keep, float step,
                    size_t value_dim, float* missed, float* out) {
  const size_t key_dim = unit.k.size();
  const Vector keeps = set(keep), steps = set(step);
  for (size_t j = 0; j < value_dim; j += lanes()) {
    const size_t left = value_dim - j;
    Vector known = set(0);
    for (size_t i = 0; i < key_dim; ++i)
      known = hn::MulAdd(set(unit.k[i]), load(memory + i * value_dim + j, left), known);
    const Vector rest = hn::Sub(load(v + j, left), hn::Mul(keeps, known));
    store(rest, missed + j, left);
    const Vector delta = hn::Mul(steps, rest);
    Vector seen = set(0);
    for (size_t i = 0; i < key_dim; ++i) {
      float* const at = memory + i * value_dim + j;
      const Vector now = hn::MulAdd(set(unit.k[i]), delta, hn::Mul(keeps, load(at, left)));
      store(now, at, left);
      seen = hn::MulAdd(set(unit.q[i]), now, seen);
    }
    if (out) store(seen, out + j, left);
  }
}

void DeltaForward(const DeltaHead& head, float* out) {
  UnitRows unit(head.key_dim);
  std::vector<float> missed(head.value_dim);
  for (size_t t = 0; t < head.tokens; ++t) {
    unit.read(head, t);
    advance_memory(head.memory, unit, head.v + t * head.value_stride,
                   std::exp(head.decay[t * head.number_stride]), head.step[t * head.number_stride],
                   head.value_dim, missed.data(), out ? out + t * head.value_stride : nullptr);
  }
}

/// What a backward has at hand.
struct DeltaWork {
  explicit DeltaWork(const DeltaHead& head)
      : unit(head.key_dim),
        d_memory(head.key_dim * head.value_dim),
        delta(head.value_dim),
        d_delta(head.value_dim),
        d_known(head.value_dim),
        d_q(head.key_dim),
        d_k(head.key_dim) {}
  UnitRows unit;
  std::vector<float> d_memory, delta, d_delta, d_known, d_q, d_k;
};

/// The gradients of token t, of which `before` is the memory before it and `missed` as
/// advance_memory()'s.
void step_back(const DeltaHead& head, const DeltaHeadGrads& grads, size_t t, const float* before,
               const float* missed, DeltaWork& work) {
  const size_t key_dim = head.key_dim, width = head.value_dim;
  const size_t row = t * head.value_stride, number = t * head.number_stride;
  const float keep = std::exp(head.decay[number]), step = head.step[number];
  const float* const d_out = grads.out + row;
  const Vector keeps = set(keep);
  work.unit.read(head, t);
  for (size_t j = 0; j < width; ++j) work.delta[j] = step * missed[j];
  std::fill(work.d_delta.begin(), work.d_delta.end(), 0.0f);
  for (size_t i = 0; i < key_dim; ++i) {
    float* const d_row = work.d_memory.data() + i * width;
    const float* const old_row = before + i * width;
    const Vector q = set(work.unit.q[i]), k = set(work.unit.k[i]);
    Vector d_q = set(0), d_k = set(0);
    for (size_t j = 0; j < width; j += lanes()) {
      const size_t left = width - j;
      const Vector given = load(d_out + j, left), delta = load(work.delta.data() + j, left);
      const Vector after = hn::MulAdd(k, delta, hn::Mul(keeps, load(old_row + j, left)));
      const Vector d_after = hn::MulAdd(q, given, load(d_row + j, left));
      store(d_after, d_row + j, left);
      d_q = hn::MulAdd(after, given, d_q);
      d_k = hn::MulAdd(d_after, delta, d_k);
      float* const d_delta = work.d_delta.data() + j;
      store(hn::MulAdd(k, d_after, load(d_delta, left)), d_delta, left);
    }
    work.d_q[i] = sum_of(d_q);
    work.d_k[i] = sum_of(d_k);
  }
  float d_step = 0;
  for (size_t j = 0; j < width; ++j) {
    d_step += work.d_delta[j] * missed[j];
    grads.v[row + j] = step * work.d_delta[j];
    work.d_known[j] = -step * work.d_delta[j];
  }
  grads.step[number] = d_step;
  Vector d_keep = set(0);
  for (size_t i = 0; i < key_dim; ++i) {
    float* const d_row = work.d_memory.data() + i * width;
    const float* const old_row = before + i * width;
    const Vector k = set(work.unit.k[i]);
    Vector d_k = set(0);
    for (size_t j = 0; j < width; j += lanes()) {
      const size_t left = width - j;
      const Vector d_known = load(work.d_known.data() + j, left), old = load(old_row + j, left);
      const Vector d_kept = hn::MulAdd(k, d_known, load(d_row + j, left));
      d_k = hn::MulAdd(hn::Mul(keeps, old), d_known, d_k);
      d_keep = hn::MulAdd(d_kept, old, d_keep);
      store(hn::Mul(keeps, d_kept), d_row + j, left);
    }
    work.d_k[i] += sum_of(d_k);
  }
  grads.decay[number] = keep * sum_of(d_keep);
  const size_t key_row = t * head.key_stride;
  UnitRows::add_grad(work.unit.q.data(), work.d_q.data(), work.unit.q_factor, work.unit.scale,
                     key_dim, grads.q + key_row);
  UnitRows::add_grad(work.unit.k.data(), work.d_k.data(), work.unit.k_factor, 1.0f, key_dim,
                     grads.k + key_row);
}

/// Goes forward once, keeping the memory before each run of tokens, and then back run by run, with
/// the memories of each of its tokens made again.
void DeltaBackward(const DeltaHead& head, const DeltaHeadGrads& grads) {
  const size_t size = head.key_dim * head.value_dim,
               runs = (head.tokens + kSavedTokens - 1) / kSavedTokens;
  std::vector<float> before_run(runs * size), before(kSavedTokens * size),
      missed(kSavedTokens * head.value_dim);
  DeltaWork work(head);
  const auto go = [&](size_t t, float* missed_row) {
    work.unit.read(head, t);
    advance_memory(head.memory, work.unit, head.v + t * head.value_stride,
                   std::exp(head.decay[t * head.number_stride]), head.step[t * head.number_stride],
                   head.value_dim, missed_row, nullptr);
  };
  for (size_t run = 0; run < runs; ++run) {
    std::memcpy(before_run.data() + run * size, head.memory, size * sizeof(float));
    if (run + 1 == runs) break;
    for (size_t t = run * kSavedTokens; t < (run + 1) * kSavedTokens; ++t) go(t, missed.data());
  }
  for (size_t run = runs; run-- > 0;) {
    const size_t first = run * kSavedTokens, past = std::min(head.tokens, first + kSavedTokens);
    std::memcpy(head.memory, before_run.data() + run * size, size * sizeof(float));
    for (size_t t = first; t < past; ++t) {
      std::memcpy(before.data() + (t - first) * size, head.memory, size * sizeof(float));
      go(t, missed.data() + (t - first) * head.value_dim);
    }
    for (size_t t = past; t-- > first;) {
      step_back(head, grads, t, before.data() + (t - first) * size,
                missed.data() + (t - first) * head.value_dim, work);
    }
  }
}

}  // namespace danlu::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace danlu::ops::cpu {

// The name of the target is asked for first: it closes those above the class in use.
#define DANLU_DELTA_DISPATCH(function) \
  (static_cast<void>(vector_target()), HWY_DYNAMIC_DISPATCH(function))

HWY_EXPORT(DeltaForward);
HWY_EXPORT(DeltaBackward);

void delta_forward(const DeltaHead& head, float* out) {
  DANLU_DELTA_DISPATCH(DeltaForward)(head, out);
}
void delta_backward(const DeltaHead& head, const DeltaHeadGrads& grads) {
  DANLU_DELTA_DISPATCH(DeltaBackward)(head, grads);
}

}  // namespace danlu::ops::cpu
#endif
