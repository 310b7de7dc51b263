// Norms, the rotary embedding and the gated activation.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <tuple>

#include "npu/arithmetic.h"
#include "npu/operators.h"
#include "npu/streams.h"
#include "npu/table.h"

namespace danlu::npu {

ops::NormResult rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  const int64_t width = x.size(-1), rows = width > 0 ? x.numel() / width : 0;
  const at::Tensor y = fresh(x), rstd = fresh(x, {rows}, at::kFloat);
  if (x.numel() > 0) {
    const at::Tensor x_ND = x.view({rows, width});
    aclnn::rms_norm(View(x_ND), View(weight_D), eps, View(y.view({rows, width})),
                    View(rstd.view({rows, 1})));
  }
  return {y, rstd};
}

ops::NormGrads rms_norm_backward(const at::Tensor& x, const at::Tensor& weight_D,
                                 const at::Tensor& rstd, const at::Tensor& dy, bool x_grad,
                                 bool weight_grad) {
  const int64_t width = x.size(-1), rows = width > 0 ? x.numel() / width : 0;
  // The operator makes both.
  const at::Tensor d_x = fresh(x), d_weight_D = fresh(x, {width}, at::kFloat);
  if (x.numel() == 0) {
    at::Tensor(d_weight_D).zero_();
  } else {
    const at::Tensor x_ND = x.view({rows, width}), dy_ND = dy.contiguous().view({rows, width});
    aclnn::rms_norm_grad(View(dy_ND), View(x_ND), View(rstd.reshape({rows, 1})), View(weight_D),
                         View(d_x.view({rows, width})), View(d_weight_D));
  }
  return {x_grad ? d_x : at::Tensor(), weight_grad ? d_weight_D : at::Tensor()};
}

namespace {

/// A table as the operator takes it: [1, N, 1, 2E], each number for both dimensions of its pair.
struct WideTable {
  at::Tensor cos, sin, less_sin;
};

WideTable widened(const ops::RotaryTable& table) {
  const int64_t n = table.cos_NE.size(0), half = table.cos_NE.size(1);
  const auto both = [&](const at::Tensor& x_NE) {
    const at::Tensor wide_N2E = fresh(x_NE, {n, 2 * half}, at::kFloat);
    // Pairs lie beside each other, or half a width apart.
    const at::Tensor pairs = table.is_pairwise ? wide_N2E.view({n, half, 2})
                                               : wide_N2E.view({n, 2, half}).transpose(1, 2);
    pairs.copy_(x_NE.unsqueeze(2));
    return wide_N2E.view({1, n, 1, 2 * half});
  };
  WideTable made{both(table.cos_NE), both(table.sin_NE), {}};
  made.less_sin = fresh(made.sin);
  aclnn::neg(View(made.sin), View(made.less_sin));
  return made;
}

/// All layers turn by the same table: a thread keeps the last one, for one stream.
const WideTable& known_table(const ops::RotaryTable& table) {
  struct Known {
    at::Tensor cos_NE, sin_NE;
    bool is_pairwise = false;
    c10::StreamId stream = 0;
    WideTable wide;
  };
  thread_local Known known;
  const c10::StreamId stream = current_stream(table.cos_NE.device().index());
  if (!known.cos_NE.defined() || !known.cos_NE.is_same(table.cos_NE) ||
      !known.sin_NE.is_same(table.sin_NE) || known.is_pairwise != table.is_pairwise ||
      known.stream != stream) {
    known = {table.cos_NE, table.sin_NE, table.is_pairwise, stream, widened(table)};
  }
  return known.wide;
}

/// The same where CANN has no such operator: x cos + (x turned by a right angle) sin.
void turn_by_parts(const at::Tensor& from, const WideTable& known, bool inverse, bool is_pairwise,
                   const at::Tensor& to) {
  const int64_t n = from.size(0), heads = from.size(1), half = from.size(2) / 2;
  const auto pairs = [&](const at::Tensor& x) {
    return is_pairwise ? x.view({n, heads, half, 2}) : x.view({n, heads, 2, half}).transpose(2, 3);
  };
  const at::Tensor turned = fresh(from);
  pairs(turned).select(3, 0).copy_(times(pairs(from).select(3, 1), -1.0));
  pairs(turned).select(3, 1).copy_(pairs(from).select(3, 0));
  const at::Tensor sin = (inverse ? known.less_sin : known.sin).view({n, 1, 2 * half});
  to.copy_(times(from, known.cos.view({n, 1, 2 * half})));
  add(to, times(turned, sin));
}

}  // namespace

at::Tensor rotary(const at::Tensor& x_NQD, const ops::RotaryTable& table, bool inverse) {
  const int64_t n = x_NQD.size(0), heads = x_NQD.size(1), width = x_NQD.size(2);
  const int64_t turning = 2 * table.cos_NE.size(1);
  const at::Tensor y = fresh(x_NQD, {n, heads, width}, x_NQD.scalar_type());
  if (y.numel() == 0) return y;
  // f32 tables and one rounding: the operator would round tables to x's type.
  const bool is_whole = turning == width && x_NQD.scalar_type() == at::kFloat;
  const at::Tensor part = x_NQD.narrow(2, 0, turning);
  const at::Tensor from = cast(part, at::kFloat).contiguous();
  const at::Tensor to = is_whole ? y : fresh(from);
  const WideTable& known = known_table(table);
  constexpr int64_t kHalves = 0, kPairs = 1;
  const int64_t sizes[] = {1, n, heads, turning};
  if (aclnn::rotary.is_there()) {
    aclnn::rotary(View(from.view(sizes)), View(known.cos),
                  View(inverse ? known.less_sin : known.sin), table.is_pairwise ? kPairs : kHalves,
                  View(to.view(sizes)));
  } else {
    turn_by_parts(from, known, inverse, table.is_pairwise, to);
  }
  if (is_whole) return y;
  y.narrow(2, 0, turning).copy_(to);
  if (turning < width) {
    y.narrow(2, turning, width - turning).copy_(x_NQD.narrow(2, turning, width - turning));
  }
  return y;
}

ops::RotaryTable rotary_table(const at::Tensor& positions_N, const at::Tensor& inv_freq,
                              double attention_factor) {
  const at::Tensor angle_NE = times(cast(positions_N, at::kFloat).unsqueeze(1), inv_freq);
  const at::Tensor cos_NE = fresh(angle_NE), sin_NE = fresh(angle_NE);
  if (angle_NE.numel() > 0) {
    aclnn::cos(View(angle_NE), View(cos_NE));
    aclnn::sin(View(angle_NE), View(sin_NE));
  }
  if (attention_factor != 1) {
    multiply(cos_NE, attention_factor);
    multiply(sin_NE, attention_factor);
  }
  return {cos_NE, sin_NE};
}

namespace {

/// [gate | up], as the operators take them.
at::Tensor side_by_side(const at::Tensor& gate, const at::Tensor& up) {
  const int64_t width = gate.size(-1), rows = gate.numel() / width;
  const at::Tensor both = fresh(gate, {rows, 2 * width}, gate.scalar_type());
  both.narrow(1, 0, width).copy_(gate.view({rows, width}));
  both.narrow(1, width, width).copy_(up.view({rows, width}));
  return both;
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor y = fresh(gate);
  if (y.numel() == 0) return y;
  const at::Tensor both = side_by_side(gate, up);
  aclnn::swi_glu(View(both), int64_t{-1}, View(y.view({both.size(0), both.size(1) / 2})));
  return y;
}

ops::SwigluGrads swiglu_backward(const at::Tensor& gate, const at::Tensor& up,
                                 const at::Tensor& dy) {
  const at::Tensor d_gate = fresh(gate), d_up = fresh(up);
  if (gate.numel() == 0) return {d_gate, d_up};
  const at::Tensor both = side_by_side(gate, up), d_both = fresh(both);
  const int64_t rows = both.size(0), width = both.size(1) / 2;
  aclnn::swi_glu_grad(View(dy.contiguous().view({rows, width})), View(both), int64_t{-1},
                      View(d_both));
  d_gate.view({rows, width}).copy_(d_both.narrow(1, 0, width));
  d_up.view({rows, width}).copy_(d_both.narrow(1, width, width));
  return {d_gate, d_up};
}

}  // namespace danlu::npu
