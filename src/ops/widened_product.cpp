#include "ops/widened_product.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "device/select.h"
#include "ops/fused_cpu.h"
#include "ops/kernels.h"

namespace danlu::ops::cpu {
namespace widened_detail {

// A block of widened rows is a few megabytes: large enough that BLAS packs its other operand
// rarely.
constexpr int64_t kBlockElements = int64_t{1} << 20;
constexpr int64_t kLeastRows = 128;
// Below this the dot product, which reads the weight once as it is, beats widen-and-multiply.
constexpr int64_t kFewRows = 8;

int64_t block_rows(int64_t width) {
  return std::max(kLeastRows, kBlockElements / std::max<int64_t>(1, width));
}

/// Calls body(first row, number of rows) for pieces of about 32 Ki elements, on all threads.
template <typename Body>
void for_rows(int64_t rows, int64_t width, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, (int64_t{32} << 10) / std::max<int64_t>(1, width));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) { body(begin, end - begin); });
}

bool has_whole_rows(const at::Tensor& x) { return x.size(1) == 1 || x.stride(1) == 1; }

/// Row-wise kernels take these; anything else is libtorch's to convert.
bool takes_kernels(const at::Tensor& x) { return fused_on_cpu(x) && has_whole_rows(x); }

void* row_of(const at::Tensor& x, int64_t row) {
  return static_cast<char*>(x.data_ptr()) + row * x.stride(0) * x.element_size();
}

size_t unsigned_of(int64_t value) { return static_cast<size_t>(value); }

/// to [rows, width] f32 = from.
void widen_into(const at::Tensor& to, const at::Tensor& from) {
  if (!takes_kernels(from)) {
    to.copy_(from);
    return;
  }
  for_rows(from.size(0), from.size(1), [&](int64_t begin, int64_t count) {
    widen(element_of(from), unsigned_of(count), unsigned_of(from.size(1)), row_of(from, begin),
          unsigned_of(from.stride(0)), static_cast<float*>(row_of(to, begin)),
          unsigned_of(to.stride(0)));
  });
}

/// to [rows, width] = from f32, rounded.
void narrow_into(const at::Tensor& to, const at::Tensor& from) {
  if (!takes_kernels(to)) {
    to.copy_(from);
    return;
  }
  for_rows(from.size(0), from.size(1), [&](int64_t begin, int64_t count) {
    narrow(element_of(to), unsigned_of(count), unsigned_of(from.size(1)),
           static_cast<const float*>(row_of(from, begin)), unsigned_of(from.stride(0)),
           row_of(to, begin), unsigned_of(to.stride(0)));
  });
}

at::Tensor wide(const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) return has_whole_rows(x) ? x : x.contiguous();
  at::Tensor result = at::empty(x.sizes(), x.options().dtype(at::kFloat));
  widen_into(result, x);
  return result;
}

at::Tensor rounded(const at::Tensor& x, at::ScalarType type) {
  if (x.scalar_type() == type) return x;
  at::Tensor result = at::empty(x.sizes(), x.options().dtype(type));
  narrow_into(result, x);
  return result;
}

/// Memory of one block, kept by the thread: fresh pages would cost as much as the widening.
at::Tensor block_buffer(int64_t rows, int64_t width) {
  static thread_local at::Tensor memory;
  // Made while answering it would be an inference tensor, which no training writes into later.
  const c10::InferenceMode kept_normal(false);
  if (!memory.defined() || memory.numel() < rows * width)
    memory = at::empty({rows * width}, at::TensorOptions(at::kFloat));
  return memory.narrow(0, 0, rows * width).view({rows, width});
}

/// Calls body(first row, widened block) for every block of the weight.
template <typename Body>
void for_blocks(const at::Tensor& weight_OI, const Body& body) {
  const int64_t rows = weight_OI.size(0), width = weight_OI.size(1);
  const int64_t step = std::min(rows, block_rows(width));
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t count = std::min(step, rows - begin);
    const at::Tensor block = block_buffer(count, width);
    widen_into(block, weight_OI.narrow(0, begin, count));
    body(begin, block);
  }
}

void dots(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& y_NO) {
  const at::Tensor x = x_NI.contiguous();
  for_rows(weight_OI.size(0), weight_OI.size(1), [&](int64_t begin, int64_t count) {
    dot_rows({element_of(weight_OI), unsigned_of(x.size(0)), unsigned_of(count),
              unsigned_of(x.size(1)), x.data_ptr<float>(), row_of(weight_OI, begin),
              y_NO.data_ptr<float>() + begin, unsigned_of(y_NO.size(1))});
  });
}

}  // namespace widened_detail

bool needs_widening(const at::Tensor& weight_OI, int64_t rows) {
  const at::ScalarType type = weight_OI.scalar_type();
  return weight_OI.is_cpu() && (type == at::kBFloat16 || type == at::kHalf) &&
         !device::has_matmul(weight_OI.device(), type, rows * weight_OI.numel());
}

at::Tensor widened_product(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                           const at::Tensor& bias_O, at::ScalarType result) {
  using namespace widened_detail;
  const at::Tensor x = wide(x_NI);
  const at::Tensor y_NO = at::empty({x.size(0), weight_OI.size(0)}, x.options().dtype(at::kFloat));
  if (x.size(0) <= kFewRows && takes_kernels(weight_OI) && weight_OI.is_contiguous()) {
    dots(x, weight_OI, y_NO);
  } else {
    for_blocks(weight_OI, [&](int64_t begin, const at::Tensor& block_bI) {
      at::Tensor part = y_NO.narrow(1, begin, block_bI.size(0));
      at::mm_out(part, x, block_bI.t());
    });
  }
  if (bias_O.defined()) y_NO.add_(bias_O);
  return rounded(y_NO, result);
}

at::Tensor widened_input_grad(const at::Tensor& d_y_NO, const at::Tensor& weight_OI,
                              at::ScalarType result) {
  using namespace widened_detail;
  const at::Tensor d_y = wide(d_y_NO);
  at::Tensor d_x_NI = at::empty({d_y.size(0), weight_OI.size(1)}, d_y.options().dtype(at::kFloat));
  if (weight_OI.size(0) == 0) d_x_NI.zero_();
  for_blocks(weight_OI, [&](int64_t begin, const at::Tensor& block_bI) {
    const at::Tensor part = d_y.narrow(1, begin, block_bI.size(0));
    d_x_NI.addmm_(part, block_bI, begin == 0 ? 0 : 1);
  });
  return rounded(d_x_NI, result);
}

at::Tensor widened_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI,
                               at::ScalarType result) {
  using namespace widened_detail;
  const at::Tensor d_y = wide(d_y_NO), x = wide(x_NI);
  if (result == at::kFloat) return at::mm(d_y.t(), x);
  const int64_t rows = d_y.size(1), width = x.size(1);
  at::Tensor d_weight_OI = at::empty({rows, width}, x.options().dtype(result));
  const int64_t step = std::min(rows, block_rows(width));
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t count = std::min(step, rows - begin);
    at::Tensor block = block_buffer(count, width);
    at::mm_out(block, d_y.narrow(1, begin, count).t(), x);
    narrow_into(d_weight_OI.narrow(0, begin, count), block);
  }
  return d_weight_OI;
}

void add_widened_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, at::Tensor sum_OI) {
  sum_OI.addmm_(widened_detail::wide(d_y_NO).t(), widened_detail::wide(x_NI));
}

}  // namespace danlu::ops::cpu
