#include "ops/head_parts.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/linear.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace {

void check_beside(const at::Tensor& first, const at::Tensor& last) {
  require(first.dim() == 3 && last.dim() == 3 && first.size(0) == last.size(0) &&
              (last.size(1) == first.size(1) || last.size(1) == 1) &&
              first.scalar_type() == last.scalar_type(),
          "beside", "first ", first.sizes(), ' ', first.scalar_type(), " and last ", last.sizes(),
          ' ', last.scalar_type(), " must be [N, Q, A] and [N, Q, B] or [N, 1, B] of one dtype");
}

at::Tensor put_beside(const at::Tensor& first, const at::Tensor& last) {
  const int64_t a = first.size(2), b = last.size(2);
  const at::Tensor all = at::empty({first.size(0), first.size(1), a + b}, first.options());
  all.narrow(2, 0, a).copy_(first);
  all.narrow(2, a, b).copy_(last.expand({first.size(0), first.size(1), b}));
  return all;
}

/// By the table, one head after the other: autograd would ask ATen for the sum.
at::Tensor sum_over_heads(const at::Tensor& x_NQB) {
  const at::Tensor sum = at::zeros({x_NQB.size(0), x_NQB.size(2)},
                                   x_NQB.options().dtype(device::wide_type(x_NQB.scalar_type())));
  for (int64_t head = 0; head < x_NQB.size(1); ++head) add_to(sum, x_NQB.select(1, head));
  return sum.to(x_NQB.scalar_type()).unsqueeze(1);
}

class OwnBeside : public torch::autograd::Function<OwnBeside> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& first,
                            const at::Tensor& last) {
    ctx->saved_data["first"] = first.size(2);
    ctx->saved_data["shared"] = last.size(1) != first.size(1);
    return put_beside(first, last);
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const int64_t a = ctx->saved_data["first"].toInt(), b = grads[0].size(2) - a;
    const at::Tensor d_last = grads[0].narrow(2, a, b);
    return {grads[0].narrow(2, 0, a),
            ctx->saved_data["shared"].toBool() ? sum_over_heads(d_last) : d_last};
  }
};

void check_by_head(const at::Tensor& x_NQI, const at::Tensor& w, int64_t inner) {
  require(x_NQI.dim() == 3 && w.dim() == 3 && x_NQI.size(1) == w.size(0) &&
              x_NQI.size(2) == w.size(inner) && x_NQI.scalar_type() == w.scalar_type(),
          "products_by_head", "x ", x_NQI.sizes(), ' ', x_NQI.scalar_type(), " and weights ",
          w.sizes(), ' ', w.scalar_type(), " do not fit");
}

/// product(x of a head, its matrix) of every head.
template <typename Product>
at::Tensor each_head(const at::Tensor& x_NQI, const at::Tensor& w, int64_t width,
                     const Product& product) {
  const at::Tensor y = at::empty({x_NQI.size(0), x_NQI.size(1), width}, x_NQI.options());
  for (int64_t head = 0; head < w.size(0); ++head)
    y.select(1, head).copy_(product(x_NQI.select(1, head), w.select(0, head)));
  return y;
}

}  // namespace

at::Tensor beside(const at::Tensor& first_NQA, const at::Tensor& last_NTB) {
  check_beside(first_NQA, last_NTB);
  return needs_no_graph({&first_NQA, &last_NTB}) ? put_beside(first_NQA, last_NTB)
                                                 : OwnBeside::apply(first_NQA, last_NTB);
}

at::Tensor products_by_head(const at::Tensor& x_NQI, const at::Tensor& w_QIO) {
  check_by_head(x_NQI, w_QIO, 1);
  const at::NoGradGuard no_grad;
  if (const Backend* const own = products_for(w_QIO)) {
    return each_head(x_NQI, w_QIO, w_QIO.size(2), [&](const at::Tensor& x, const at::Tensor& w) {
      return own->input_grad(x, w, x.scalar_type());
    });
  }
  return batched_product(x_NQI.transpose(0, 1), w_QIO).transpose(0, 1).contiguous();
}

at::Tensor turned_products_by_head(const at::Tensor& x_NQI, const at::Tensor& w_QOI) {
  check_by_head(x_NQI, w_QOI, 2);
  const at::NoGradGuard no_grad;
  if (const Backend* const own = products_for(w_QOI)) {
    return each_head(x_NQI, w_QOI, w_QOI.size(1), [&](const at::Tensor& x, const at::Tensor& w) {
      return own->product(x, w, {}, x.scalar_type());
    });
  }
  return batched_product(x_NQI.transpose(0, 1), w_QOI.transpose(1, 2)).transpose(0, 1).contiguous();
}

}  // namespace danlu::ops
