#include "support/pretend_kernels.h"

#include <ATen/core/Tensor.h>

#include <span>
#include <utility>
#include <vector>

#include "ops/backend.h"
#include "support/pretend_device.h"

namespace danlu::test {
namespace pretend_kernels_detail {

using ops::Backend;

/// Of the arguments of the entry that this thread is in.
thread_local at::Device of_arguments = at::kCPU;

// ---- arguments: the same memory, as the CPU's ----

at::Tensor here(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  TORCH_CHECK(tensor.device().type() == pretend_device().type(),
              "an entry of the pretend device was given a tensor of ", tensor.device());
  of_arguments = tensor.device();
  return pretend_memory(tensor);
}
ops::RotaryTable here(const ops::RotaryTable& table) {
  return {here(table.cos_NE), here(table.sin_NE)};
}
ops::AttentionOptions here(ops::AttentionOptions options) {
  options.alibi_slopes_Q = here(options.alibi_slopes_Q);
  return options;
}
ops::AdamWState here(const ops::AdamWState& state) {
  return {here(state.master), here(state.exp_avg), here(state.exp_avg_sq),
          here(state.grad),   here(state.weight),  here(state.low)};
}
ops::CrossEntropyChunk here(ops::CrossEntropyChunk chunk) {
  chunk.logits_CV = here(chunk.logits_CV);
  chunk.targets_C = here(chunk.targets_C);
  chunk.sum = here(chunk.sum);
  chunk.correct = here(chunk.correct);
  return chunk;
}
ops::SharedChunk here(const ops::SharedChunk& chunk) {
  return {here(chunk.logits_Cv), here(chunk.targets_C), chunk.first_row};
}
ops::SharedLoss here(ops::SharedLoss loss) {
  loss.chunk = here(loss.chunk);
  for (at::Tensor* tensor :
       {&loss.own_C1, &loss.largest_C1, &loss.sums_C2, &loss.first_C1, &loss.sum, &loss.correct})
    *tensor = here(*tensor);
  return loss;
}
ops::PartialAttention here(const ops::PartialAttention& part) {
  return {here(part.out_NQD), here(part.lse_QN)};
}
ops::Pages here(ops::Pages pages) {
  for (at::Tensor& slab : pages.slabs) slab = here(slab);
  return pages;
}
ops::CachedSequences here(ops::CachedSequences sequences) {
  sequences.tables_BP = here(sequences.tables_BP);
  return sequences;
}
template <typename T>
const T& here(const T& value) {
  return value;
}

// ---- results: in the device's memory ----

at::Tensor there(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(of_arguments) : tensor;
}
ops::RotaryTable there(const ops::RotaryTable& table) {
  return {there(table.cos_NE), there(table.sin_NE)};
}
ops::NormResult there(const ops::NormResult& result) {
  return {there(result.y), there(result.rstd)};
}
ops::NormGrads there(const ops::NormGrads& grads) {
  return {there(grads.x), there(grads.weight_D)};
}
ops::NormHeadResult there(const ops::NormHeadResult& result) {
  return {there(result.y_VH), there(result.length_V1)};
}
ops::SwigluGrads there(const ops::SwigluGrads& grads) {
  return {there(grads.gate), there(grads.up)};
}
ops::PartialAttention there(const ops::PartialAttention& part) {
  return {there(part.out_NQD), there(part.lse_QN)};
}
ops::AttentionGrads there(const ops::AttentionGrads& grads) {
  return {there(grads.q_NQD), there(grads.k_MKD), there(grads.v_MKD)};
}
template <typename T>
T there(T value) {
  return value;
}

/// An entry of the CPU's, or of the composite where the CPU has none, on the device's tensors.
template <auto Entry, typename Function>
struct Forwarded;
template <auto Entry, typename Result, typename... Arguments>
struct Forwarded<Entry, Result (*Backend::*)(Arguments...)> {
  static Result call(Arguments... arguments) {
    const auto function = ops::completed_backend(c10::DeviceType::CPU).*Entry;
    if constexpr (std::is_void_v<Result>) {
      function(here(arguments)...);
    } else {
      return there(function(here(arguments)...));
    }
  }
};

template <auto... Entries>
void forward(Backend& table) {
  ((table.*Entries = &Forwarded<Entries, decltype(Entries)>::call), ...);
}

Backend filled() {
  Backend table;
  const Backend& cpu = ops::backend_of(c10::DeviceType::CPU);
  table.takes = cpu.takes;
  table.fewest_queries = cpu.fewest_queries;
  forward<&Backend::product, &Backend::input_grad, &Backend::weight_grad, &Backend::add_weight_grad,
          &Backend::add_product, &Backend::rms_norm, &Backend::rms_norm_backward, &Backend::rotary,
          &Backend::swiglu, &Backend::swiglu_backward, &Backend::attention,
          &Backend::attention_backward, &Backend::dropout, &Backend::cross_entropy,
          &Backend::attention_over_pages, &Backend::store_in_pages, &Backend::rotary_table,
          &Backend::add_into, &Backend::add_to, &Backend::add_bias, &Backend::scaled,
          &Backend::take_rows, &Backend::add_rows, &Backend::column_sums, &Backend::attention_delta,
          &Backend::adapted_row_squares, &Backend::stretch_factor, &Backend::scale_columns,
          &Backend::stretch_grad, &Backend::norm_head, &Backend::norm_head_backward,
          &Backend::largest_of_share, &Backend::sums_of_share, &Backend::place_of_largest,
          &Backend::loss_of_share, &Backend::merge, &Backend::larger_into, &Backend::adamw_update,
          &Backend::split_master, &Backend::join_master, &Backend::sums_of_squares,
          &Backend::all_finite>(table);
  return table;
}

}  // namespace pretend_kernels_detail

PretendKernels::PretendKernels() {
  ops::set_backend(pretend_device().type(), pretend_kernels_detail::filled());
  set_pretend_aten(false);
}

PretendKernels::~PretendKernels() {
  set_pretend_aten(true);
  ops::set_backend(pretend_device().type(), {});
}

}  // namespace danlu::test
