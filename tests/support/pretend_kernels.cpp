#include "support/pretend_kernels.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/backend.h"
#include "support/pretend_device.h"

namespace danlu::test {
namespace pretend_kernels_detail {

using ops::Backend;

// ---- copies of arguments and results in which each tensor is `f` of the one that was there ----

template <typename F>
at::Tensor mapped(const at::Tensor& tensor, F& f) {
  return f(tensor);
}
template <typename F>
ops::Nf4Matrix mapped(const ops::Nf4Matrix& matrix, F& f) {
  return {matrix.layout, f(matrix.bytes)};
}
template <typename F>
ops::RotaryTable mapped(const ops::RotaryTable& table, F& f) {
  return {f(table.cos_NE), f(table.sin_NE)};
}
template <typename F>
ops::AttentionOptions mapped(ops::AttentionOptions options, F& f) {
  options.alibi_slopes_Q = f(options.alibi_slopes_Q);
  return options;
}
template <typename F>
ops::AdamWState mapped(const ops::AdamWState& state, F& f) {
  return {f(state.master), f(state.exp_avg), f(state.exp_avg_sq),
          f(state.grad),   f(state.weight),  f(state.low)};
}
template <typename F>
ops::CrossEntropyChunk mapped(ops::CrossEntropyChunk chunk, F& f) {
  for (at::Tensor* tensor : {&chunk.logits_CV, &chunk.targets_C, &chunk.sum, &chunk.correct})
    *tensor = f(*tensor);
  return chunk;
}
template <typename F>
ops::SharedChunk mapped(const ops::SharedChunk& chunk, F& f) {
  return {f(chunk.logits_Cv), f(chunk.targets_C), chunk.first_row};
}
template <typename F>
ops::SharedLoss mapped(ops::SharedLoss loss, F& f) {
  loss.chunk = mapped(loss.chunk, f);
  for (at::Tensor* tensor :
       {&loss.own_C1, &loss.largest_C1, &loss.sums_C2, &loss.first_C1, &loss.sum, &loss.correct})
    *tensor = f(*tensor);
  return loss;
}
template <typename F>
ops::PartialAttention mapped(const ops::PartialAttention& part, F& f) {
  return {f(part.out_NQD), f(part.lse_QN)};
}
template <typename F>
ops::NormResult mapped(const ops::NormResult& result, F& f) {
  return {f(result.y), f(result.rstd)};
}
template <typename F>
ops::NormGrads mapped(const ops::NormGrads& grads, F& f) {
  return {f(grads.x), f(grads.weight_D)};
}
template <typename F>
ops::NormHeadResult mapped(const ops::NormHeadResult& result, F& f) {
  return {f(result.y_VH), f(result.length_V1)};
}
template <typename F>
ops::SwigluGrads mapped(const ops::SwigluGrads& grads, F& f) {
  return {f(grads.gate), f(grads.up)};
}
template <typename F>
ops::AttentionGrads mapped(const ops::AttentionGrads& grads, F& f) {
  return {f(grads.q_NQD), f(grads.k_MKD), f(grads.v_MKD)};
}
template <typename F>
ops::Pages mapped(ops::Pages pages, F& f) {
  for (at::Tensor& slab : pages.slabs) slab = f(slab);
  return pages;
}
template <typename F>
ops::CachedSequences mapped(ops::CachedSequences sequences, F& f) {
  sequences.tables_BP = f(sequences.tables_BP);
  return sequences;
}
template <typename T, typename F>
std::vector<T> mapped(std::span<const T> values, F&) {
  return {values.begin(), values.end()};
}
template <typename T, typename F>
T mapped(const T& value, F&) {
  return value;
}

// ---- what an entry gives, before it has been done ----

std::string text_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none ";
  return fmt::format("{}[{}|{}] ", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ","), fmt::join(tensor.strides(), ","));
}
template <typename T>
std::string text_of_scalar(const T& value) {
  if constexpr (std::is_same_v<T, ops::Nf4Matrix>)
    return fmt::format("{}x{} ", value.layout->rows(), value.layout->columns());
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_enum_v<T>)
    return fmt::format("{} ", static_cast<int64_t>(value));
  return "";
}

/// Zeros of the host, laid out as a tensor.
at::Tensor zeros_for(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  int64_t elements = tensor.numel() > 0 ? 1 : 0;
  for (int64_t d = 0; elements > 0 && d < tensor.dim(); ++d)
    elements += (tensor.size(d) - 1) * tensor.stride(d);
  return at::zeros({elements}, at::TensorOptions(tensor.scalar_type()))
      .as_strided(tensor.sizes(), tensor.strides());
}
at::Tensor shape_only(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           tensor.options().device(c10::DeviceType::Meta));
}

/// Results without numbers, known from an entry's work on zeros: which the CPU does once for
/// arguments of these shapes, while the device may not have theirs yet.
template <typename Result, typename Function, typename... Arguments>
Result described(Function function, const Arguments&... arguments) {
  static std::mutex mutex;
  static std::map<std::pair<Function, std::string>, Result> known;
  std::string key;
  auto note = [&](const at::Tensor& tensor) {
    key += text_of(tensor);
    return tensor;
  };
  ((mapped(arguments, note), key += text_of_scalar(arguments)), ...);
  {
    const std::lock_guard lock(mutex);
    const auto found = known.find({function, key});
    if (found != known.end()) return found->second;
  }
  const Result result = function(mapped(arguments, zeros_for)...);
  const std::lock_guard lock(mutex);
  return known[{function, key}] = mapped(result, shape_only);
}

// ---- entries ----

/// The arguments of a call as the host's, in the devices' memory, and whose they are.
struct Arrival {
  at::Device device = at::kCPU;
  std::vector<at::Tensor> tensors;
  at::Tensor operator()(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    TORCH_CHECK(tensor.device().type() == pretend_device().type(),
                "an entry of the pretend device was given a tensor of ", tensor.device());
    device = tensor.device();
    tensors.push_back(tensor.detach());
    return pretend_memory(tensor);
  }
};

/// Fresh tensors of the device, which is yet to write them.
struct Departure {
  at::Device device;
  std::vector<at::Tensor>& uses;
  std::vector<at::Tensor> written;
  at::Tensor operator()(const at::Tensor& shape) {
    if (!shape.defined()) {
      written.emplace_back();
      return shape;
    }
    const auto options = at::TensorOptions(shape.scalar_type()).device(device);
    const at::Tensor result = shape.is_non_overlapping_and_dense()
                                  ? at::empty_strided(shape.sizes(), shape.strides(), options)
                                  : at::empty(shape.sizes(), options);
    uses.push_back(result);
    written.push_back(pretend_memory(result));
    return result;
  }
};

/// Writes results where they were announced.
struct Delivery {
  const std::vector<at::Tensor>& written;
  size_t next = 0;
  at::Tensor operator()(const at::Tensor& result) {
    const at::Tensor& to = written.at(next++);
    TORCH_CHECK(to.defined() == result.defined() &&
                    (!to.defined() ||
                     (to.sizes() == result.sizes() && to.scalar_type() == result.scalar_type())),
                "an entry gives another tensor of real numbers than of zeros");
    if (to.defined()) to.copy_(result);
    return result;
  }
};

/// An entry of the CPU's, or of the composite where the CPU has none, on the device's tensors. What
/// gives numbers to the host waits for the device.
template <auto Entry, typename Function>
struct Forwarded;
template <auto Entry, typename Result, typename... Arguments>
struct Forwarded<Entry, Result (*Backend::*)(Arguments...)> {
  static Result call(Arguments... arguments) {
    const auto function = ops::completed_backend(c10::DeviceType::CPU).*Entry;
    Arrival arrival;
    using Own = std::tuple<decltype(mapped(arguments, arrival))...>;
    // In braces: one after the other.
    const auto own = std::make_shared<Own>(Own{mapped(arguments, arrival)...});
    const auto call_it = [function, own] {
      return std::apply([&](const auto&... each) { return function(each...); }, *own);
    };
    constexpr const char* kWhat = "an entry of the table";
    if constexpr (std::is_void_v<Result>) {
      give_pretend_device(arrival.device, kWhat, arrival.tensors, call_it);
    } else if constexpr (std::is_same_v<Result, bool> ||
                         std::is_same_v<Result, std::vector<double>>) {
      wait_for_pretend_stream(arrival.device);
      return call_it();
    } else {
      const Result shapes = described<Result>(function, arguments...);
      Departure departure{arrival.device, arrival.tensors, {}};
      Result result = mapped(shapes, departure);
      give_pretend_device(arrival.device, kWhat, arrival.tensors,
                          [call_it, written = std::move(departure.written)] {
                            Delivery delivery{written};
                            mapped(call_it(), delivery);
                          });
      return result;
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
          &Backend::add_product, &Backend::nf4_product, &Backend::nf4_input_grad,
          &Backend::nf4_rows, &Backend::rms_norm, &Backend::rms_norm_backward, &Backend::rotary,
          &Backend::swiglu, &Backend::swiglu_backward, &Backend::attention,
          &Backend::attention_backward, &Backend::dropout, &Backend::cross_entropy,
          &Backend::attention_over_pages, &Backend::store_in_pages, &Backend::rotary_table,
          &Backend::add_into, &Backend::add_to, &Backend::add_bias, &Backend::scaled,
          &Backend::take_rows, &Backend::add_rows, &Backend::column_sums, &Backend::attention_delta,
          &Backend::adapted_row_squares, &Backend::stretch_factor, &Backend::scale_columns,
          &Backend::stretch_grad, &Backend::norm_head, &Backend::norm_head_backward,
          &Backend::sigmoid, &Backend::sigmoid_backward, &Backend::largest_of_share,
          &Backend::sums_of_share, &Backend::place_of_largest, &Backend::loss_of_share,
          &Backend::merge, &Backend::larger_into, &Backend::adamw_update, &Backend::split_master,
          &Backend::join_master, &Backend::sums_of_squares, &Backend::all_finite>(table);
  return table;
}

}  // namespace pretend_kernels_detail

PretendKernels::PretendKernels() {
  ops::set_backend(pretend_device().type(), pretend_kernels_detail::filled());
  set_pretend_aten(false);
}

PretendKernels::~PretendKernels() {
  try {
    wait_for_pretend_devices();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  set_pretend_aten(true);
  ops::set_backend(pretend_device().type(), {});
}

}  // namespace danlu::test
