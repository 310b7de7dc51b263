// Products of matrices.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <atomic>

#include "npu/arithmetic.h"
#include "npu/operators.h"
#include "npu/table.h"

namespace danlu::npu {
namespace {

constexpr int8_t kExact = 0;  // operands as they are, sums in f32

/// Whether the library keeps the f32 sums of a product of 16 bits: sources of 2026 do, of older
/// binaries nobody says. 1 + 2^-10 has more bits than bf16, and 1 + 2^-12 more than f16.
bool keeps_wide_sums(const at::Tensor& like, at::ScalarType type) {
  static std::atomic<int> known[2] = {-1, -1};  // unknown, no, yes; of bf16 and of f16
  std::atomic<int>& own = known[type == at::kHalf ? 1 : 0];
  if (own >= 0) return own == 1;
  const double small = type == at::kHalf ? 0x1p-12 : 0x1p-10;
  at::Tensor host = at::full({16, 16}, 0.0, at::kFloat);
  host.select(0, 0).fill_(1.0);  // row 0: ones; column 0 of the other: 1, then `small`
  at::Tensor other = at::full({16, 16}, 0.0, at::kFloat);
  other.data_ptr<float>()[0] = 1.0F;
  other.data_ptr<float>()[16] = static_cast<float>(small);
  const auto there = [&](const at::Tensor& x) { return x.to(type).to(like.device()); };
  const at::Tensor a = there(host), b = there(other), out = fresh(like, {16, 16}, at::kFloat);
  const bool keeps = aclnn::matmul.runs(View(a), View(b), View(out), kExact) &&
                     out.to(at::kCPU).data_ptr<float>()[0] == static_cast<float>(1.0 + small);
  own = keeps ? 1 : 0;
  return keeps;
}

/// a b into `out`, rounded once to its type.
void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (out.numel() == 0) return;
  if (a.size(1) == 0) {
    at::Tensor(out).zero_();
    return;
  }
  const at::ScalarType type = a.scalar_type();
  if (type != b.scalar_type()) return multiply_into(out, wide(a), wide(b));
  const at::ScalarType result = out.scalar_type();
  if (type == result || (result == at::kFloat && keeps_wide_sums(out, type))) {
    aclnn::matmul(View(a), View(b), View(out), kExact);
  } else if (result == at::kFloat) {
    aclnn::matmul(View(wide(a)), View(wide(b)), View(out), kExact);
  } else {
    const at::Tensor sums = fresh(out, out.sizes(), at::kFloat);
    multiply_into(sums, a, b);
    aclnn::inplace_copy(View(out), View(sums));
  }
}

at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b, at::ScalarType result) {
  const at::Tensor out = fresh(a, {a.size(0), b.size(1)}, result);
  multiply_into(out, a, b);
  return out;
}

/// sum (f32) += a b.
void add_multiplied(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  if (sum.numel() == 0 || a.size(1) == 0) return;
  const at::ScalarType type = a.scalar_type();
  if (type != b.scalar_type()) return add_multiplied(sum, wide(a), wide(b));
  if (type == at::kFloat || keeps_wide_sums(sum, type)) {
    aclnn::inplace_addmm(View(sum), View(a), View(b), Number(1.0), Number(1.0), kExact);
  } else {
    add(sum, multiplied(a, b, at::kFloat));
  }
}

}  // namespace

at::Tensor product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O,
                   at::ScalarType result) {
  const at::Tensor weight_IO = weight_OI.t();
  const bool is_plain = x_NI.scalar_type() == result && weight_OI.scalar_type() == result &&
                        x_NI.size(1) > 0 && x_NI.size(0) > 0 && weight_OI.size(0) > 0;
  if (!bias_O.defined()) return multiplied(x_NI, weight_IO, result);
  if (!is_plain) {
    const at::Tensor sums = multiplied(x_NI, weight_IO, at::kFloat);
    add(sums, wide(bias_O));
    return cast(sums, result);
  }
  const at::Tensor out = fresh(x_NI, {x_NI.size(0), weight_OI.size(0)}, result);
  aclnn::addmm(View(bias_O), View(x_NI), View(weight_IO), Number(1.0), Number(1.0), View(out),
               kExact);
  return out;
}

at::Tensor input_grad(const at::Tensor& d_y_NO, const at::Tensor& weight_OI,
                      at::ScalarType result) {
  return multiplied(d_y_NO, weight_OI, result);
}

at::Tensor weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, at::ScalarType result) {
  return multiplied(d_y_NO.t(), x_NI, result);
}

void add_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, const at::Tensor& sum_OI,
                     bool is_fresh) {
  if (is_fresh) {
    multiply_into(sum_OI, d_y_NO.t(), x_NI);
  } else {
    add_multiplied(sum_OI, d_y_NO.t(), x_NI);
  }
}

void add_product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& y_NO) {
  add_multiplied(y_NO, x_NI, weight_OI.t());
}

}  // namespace danlu::npu
