#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "device/parallel.h"
#include "ops/delta_kernels_cpu.h"
#include "ops/kernels_cpu.h"

namespace danlu::ops::cpu {
namespace {

at::Tensor wide(const at::Tensor& x) { return x.to(at::kFloat).contiguous(); }

/// Inputs in f32, and where heads and sequences lie in them.
struct WideInputs {
  WideInputs(const DeltaInputs& of, const std::vector<int64_t>& borders)
      : q(wide(of.q_NGK)),
        k(wide(of.k_NGK)),
        v(wide(of.v_NHV)),
        decay(wide(of.decay_NH)),
        step(wide(of.step_NH)),
        starts(borders),
        groups(q.size(1)),
        heads(v.size(1)),
        key_dim(q.size(2)),
        value_dim(v.size(2)) {}

  int64_t sequences() const { return static_cast<int64_t>(starts.size()) - 1; }
  int64_t key_at(int64_t sequence, int64_t head) const {
    const int64_t group = head / (heads / groups);
    return (starts[static_cast<size_t>(sequence)] * groups + group) * key_dim;
  }
  int64_t value_at(int64_t sequence, int64_t head) const {
    return (starts[static_cast<size_t>(sequence)] * heads + head) * value_dim;
  }
  int64_t number_at(int64_t sequence, int64_t head) const {
    return starts[static_cast<size_t>(sequence)] * heads + head;
  }
  DeltaHead head_of(int64_t sequence, int64_t head, float* memory) const {
    const auto at = static_cast<size_t>(sequence);
    const auto size = [](int64_t count) { return static_cast<size_t>(count); };
    return {.tokens = size(starts[at + 1] - starts[at]),
            .key_dim = size(key_dim),
            .value_dim = size(value_dim),
            .q = q.data_ptr<float>() + key_at(sequence, head),
            .k = k.data_ptr<float>() + key_at(sequence, head),
            .v = v.data_ptr<float>() + value_at(sequence, head),
            .decay = decay.data_ptr<float>() + number_at(sequence, head),
            .step = step.data_ptr<float>() + number_at(sequence, head),
            .key_stride = size(groups * key_dim),
            .value_stride = size(heads * value_dim),
            .number_stride = size(heads),
            .memory = memory};
  }

  at::Tensor q, k, v, decay, step;
  const std::vector<int64_t>& starts;
  int64_t groups, heads, key_dim, value_dim;
};

}  // namespace

DeltaResult gated_delta(const DeltaInputs& inputs, const std::vector<int64_t>& starts,
                        const at::Tensor& memory_SHKV) {
  const WideInputs of(inputs, starts);
  const std::vector<int64_t> sizes = {of.sequences(), of.heads, of.key_dim, of.value_dim};
  const at::Tensor memory = memory_SHKV.defined()
                                ? memory_SHKV.to(at::kFloat).clone(at::MemoryFormat::Contiguous)
                                : at::zeros(sizes, of.v.options());
  const at::Tensor out = at::empty(of.v.sizes(), of.v.options());
  float* const memories = memory.data_ptr<float>();
  float* const outs = out.data_ptr<float>();
  device::parallel_each(of.sequences() * of.heads, [&](int64_t task) {
    const int64_t sequence = task / of.heads, head = task % of.heads;
    delta_forward(of.head_of(sequence, head, memories + task * of.key_dim * of.value_dim),
                  outs + of.value_at(sequence, head));
  });
  return {out.to(inputs.v_NHV.scalar_type()), memory};
}

DeltaInputs gated_delta_backward(const DeltaInputs& inputs, const std::vector<int64_t>& starts,
                                 const at::Tensor& out_grad_NHV) {
  const WideInputs of(inputs, starts);
  const at::Tensor given = wide(out_grad_NHV);
  const auto made = [](const at::Tensor& like) { return at::zeros(like.sizes(), like.options()); };
  const DeltaInputs found{made(of.q), made(of.k), made(of.v), made(of.decay), made(of.step)};
  const auto at = [](const at::Tensor& x, int64_t place) { return x.data_ptr<float>() + place; };
  // Value heads of one key head add to the same gradients, one after the other.
  const int64_t each = of.heads / of.groups;
  device::parallel_each(of.sequences() * of.groups, [&](int64_t task) {
    const int64_t sequence = task / of.groups, group = task % of.groups;
    for (int64_t head = group * each; head < (group + 1) * each; ++head) {
      std::vector<float> memory(static_cast<size_t>(of.key_dim * of.value_dim));
      const int64_t key = of.key_at(sequence, head), value = of.value_at(sequence, head),
                    number = of.number_at(sequence, head);
      delta_backward(of.head_of(sequence, head, memory.data()),
                     {.out = at(given, value),
                      .q = at(found.q_NGK, key),
                      .k = at(found.k_NGK, key),
                      .v = at(found.v_NHV, value),
                      .decay = at(found.decay_NH, number),
                      .step = at(found.step_NH, number)});
    }
  });
  return {found.q_NGK.to(inputs.q_NGK.scalar_type()), found.k_NGK.to(inputs.k_NGK.scalar_type()),
          found.v_NHV.to(inputs.v_NHV.scalar_type()),
          found.decay_NH.to(inputs.decay_NH.scalar_type()),
          found.step_NH.to(inputs.step_NH.scalar_type())};
}

}  // namespace danlu::ops::cpu
