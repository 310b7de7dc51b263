#include "ops/pointwise.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"

namespace danlu::ops {
namespace {

using torch::autograd::AutogradContext;
using List = torch::autograd::variable_list;

const Backend& table_of(const at::Tensor& x) { return completed_backend(x.device().type()); }

/// Where a table has no addition of its own, ATen's is the device's, and autograd adds with it as
/// well.
bool adds_itself(const at::Tensor& x) { return backend_of(x.device().type()).add_into != nullptr; }

at::Tensor sum_of(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor sum = at::empty(a.sizes(), a.options());
  add_into(sum, a, b);
  return sum;
}

class OwnSum : public torch::autograd::Function<OwnSum> {
 public:
  static at::Tensor forward(AutogradContext*, const at::Tensor& a, const at::Tensor& b) {
    return sum_of(a, b);
  }
  static List backward(AutogradContext*, const List& grads) { return {grads[0], grads[0]}; }
};

class OwnBias : public torch::autograd::Function<OwnBias> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_NO, const at::Tensor& bias_O,
                            const MainGradPtr& main) {
    ctx->saved_data["main"] = held(main);
    ctx->saved_data["type"] = bias_O.scalar_type();
    return table_of(x_NO).add_bias(x_NO, bias_O);
  }
  static List backward(AutogradContext* ctx, const List& grads) {
    if (!ctx->needs_input_grad(1)) return {grads[0], {}, {}};
    const at::Tensor sum_O = column_sums(grads[0]);
    const auto& main = held_in<MainGradPtr>(ctx->saved_data["main"]);
    if (!takes_grad(main)) return {grads[0], sum_O.to(ctx->saved_data["type"].toScalarType()), {}};
    add_to(main->sum, sum_O);
    return {grads[0], at::Tensor(), {}};
  }
};

class OwnFactor : public torch::autograd::Function<OwnFactor> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, double factor) {
    ctx->saved_data["factor"] = factor;
    return table_of(x).scaled(x, factor);
  }
  static List backward(AutogradContext* ctx, const List& grads) {
    return {table_of(grads[0]).scaled(grads[0], ctx->saved_data["factor"].toDouble()), {}};
  }
};

/// One tensor under several names.
class Fork : public torch::autograd::Function<Fork> {
 public:
  static List forward(AutogradContext* ctx, const at::Tensor& x, int64_t count) {
    ctx->set_materialize_grads(false);  // what nobody has read costs no zeros
    List names;
    for (int64_t i = 0; i < count; ++i) names.push_back(x.view_as(x));
    return names;
  }
  static List backward(AutogradContext*, const List& grads) {
    at::Tensor sum;
    bool is_own = false;
    // From the last reader on, in whose order autograd comes to them.
    for (size_t i = grads.size(); i-- > 0;) {
      const at::Tensor& grad = grads[i];
      if (!grad.defined()) continue;
      if (!sum.defined()) {
        sum = grad;
      } else if (is_own) {
        add_into(sum, sum, grad);
      } else {
        sum = sum_of(sum, grad);
        is_own = true;
      }
    }
    return {sum, {}};
  }
};

std::vector<at::Tensor> cut(const at::Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(x.narrow(dim, begin, size));
    begin += size;
  }
  return parts;
}

/// Whose gradients are put together by copies, where autograd would ask ATen for a concatenation.
class OwnParts : public torch::autograd::Function<OwnParts> {
 public:
  static List forward(AutogradContext* ctx, const at::Tensor& x, const std::vector<int64_t>& sizes,
                      int64_t dim) {
    ctx->set_materialize_grads(false);
    ctx->saved_data["shape"] = x.sizes().vec();
    ctx->saved_data["type"] = x.scalar_type();
    ctx->saved_data["device"] = x.device();
    ctx->saved_data["sizes"] = sizes;
    ctx->saved_data["dim"] = dim;
    return cut(x, sizes, dim);
  }
  static List backward(AutogradContext* ctx, const List& grads) {
    const auto options = at::TensorOptions(ctx->saved_data["type"].toScalarType())
                             .device(ctx->saved_data["device"].toDevice());
    const at::Tensor grad = at::empty(ctx->saved_data["shape"].toIntVector(), options);
    const List parts =
        cut(grad, ctx->saved_data["sizes"].toIntVector(), ctx->saved_data["dim"].toInt());
    for (size_t i = 0; i < parts.size(); ++i) {
      if (grads[i].defined()) {
        parts[i].copy_(grads[i]);
      } else {
        parts[i].zero_();
      }
    }
    return {grad, {}, {}};
  }
};

class OwnRows : public torch::autograd::Function<OwnRows> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_NH,
                            const at::Tensor& index_n) {
    ctx->save_for_backward({index_n});
    ctx->saved_data["shape"] = x_NH.sizes().vec();
    return table_of(x_NH).take_rows(x_NH, index_n);
  }
  static List backward(AutogradContext* ctx, const List& grads) {
    const at::Tensor sum_NH = at::zeros(ctx->saved_data["shape"].toIntVector(), grads[0].options());
    add_rows(sum_NH, ctx->get_saved_variables()[0], grads[0]);
    return {sum_NH, {}};
  }
};

class OwnRowsPut : public torch::autograd::Function<OwnRowsPut> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_NH, const at::Tensor& index_n,
                            const at::Tensor& rows_nH) {
    ctx->save_for_backward({index_n});
    return table_of(x_NH).with_rows(x_NH, index_n, rows_nH);
  }
  static List backward(AutogradContext* ctx, const List& grads) {
    const at::Tensor index_n = ctx->get_saved_variables()[0];
    const at::Tensor d_x = ctx->needs_input_grad(0)
                               ? table_of(grads[0]).with_rows(grads[0], index_n, {})
                               : at::Tensor();
    const at::Tensor d_rows =
        ctx->needs_input_grad(2) ? table_of(grads[0]).take_rows(grads[0], index_n) : at::Tensor();
    return {d_x, {}, d_rows};
  }
};

at::Tensor sum_of_rows(const at::Tensor& x_nH, const at::Tensor& index_n, int64_t rows) {
  const auto wide =
      x_nH.options().requires_grad(false).dtype(device::wide_type(x_nH.scalar_type()));
  const at::Tensor sum_NH = at::zeros({rows, x_nH.size(1)}, wide);
  add_rows(sum_NH, index_n, x_nH);
  return sum_NH.to(x_nH.scalar_type());
}

class OwnRowSums : public torch::autograd::Function<OwnRowSums> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_nH, const at::Tensor& index_n,
                            int64_t rows) {
    ctx->save_for_backward({index_n});
    return sum_of_rows(x_nH, index_n, rows);
  }
  static List backward(AutogradContext* ctx, const List& grads) {
    return {take_rows(grads[0], ctx->get_saved_variables()[0]), {}, {}};
  }
};

class OwnRowFactors : public torch::autograd::Function<OwnRowFactors> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_NH,
                            const at::Tensor& factor_N) {
    ctx->save_for_backward({x_NH, factor_N});
    return table_of(x_NH).scale_rows(x_NH, factor_N);
  }
  static List backward(AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const Backend& table = table_of(saved[0]);
    List result(2);
    if (ctx->needs_input_grad(0)) result[0] = table.scale_rows(grads[0], saved[1]);
    if (ctx->needs_input_grad(1))
      result[1] = table.row_dots(grads[0], saved[0]).view(saved[1].sizes());
    return result;
  }
};

class OwnRowsJoined : public torch::autograd::Function<OwnRowsJoined> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::TensorList parts) {
    std::vector<int64_t> sizes;
    for (const at::Tensor& part : parts) sizes.push_back(part.size(0));
    ctx->saved_data["sizes"] = sizes;
    return joined(parts.vec(), 0);
  }
  static List backward(AutogradContext* ctx, const List& grads) {
    return cut(grads[0], ctx->saved_data["sizes"].toIntVector(), 0);
  }
};

}  // namespace

at::Tensor rows_summed(const at::Tensor& x_nH, const at::Tensor& index_n, int64_t rows) {
  require(x_nH.dim() == 2 && index_n.dim() == 1 && index_n.size(0) == x_nH.size(0), "rows_summed",
          "rows ", x_nH.sizes(), " with ", index_n.sizes(), " indices");
  return needs_no_graph({&x_nH}) ? sum_of_rows(x_nH, index_n, rows)
                                 : OwnRowSums::apply(x_nH, index_n, rows);
}

at::Tensor scale_rows(const at::Tensor& x_NH, const at::Tensor& factor_N) {
  require(x_NH.dim() == 2 && factor_N.numel() == x_NH.size(0), "scale_rows", "rows ", x_NH.sizes(),
          " with factors ", factor_N.sizes());
  return needs_no_graph({&x_NH, &factor_N}) ? table_of(x_NH).scale_rows(x_NH, factor_N)
                                            : OwnRowFactors::apply(x_NH, factor_N);
}

at::Tensor rows_joined(const std::vector<at::Tensor>& parts) {
  require(!parts.empty(), "rows_joined", "there is no part");
  return OwnRowsJoined::apply(at::TensorList(parts));
}

at::Tensor with_rows(const at::Tensor& x_NH, const at::Tensor& index_n, const at::Tensor& rows_nH) {
  require(rows_nH.dim() == 2 && rows_nH.size(0) == index_n.size(0) &&
              rows_nH.size(1) == x_NH.size(1) && rows_nH.scalar_type() == x_NH.scalar_type(),
          "with_rows", "rows ", rows_nH.sizes(), " at ", index_n.sizes(),
          " places do not fit into ", x_NH.sizes());
  if (needs_no_graph({&x_NH, &rows_nH})) return table_of(x_NH).with_rows(x_NH, index_n, rows_nH);
  return OwnRowsPut::apply(x_NH, index_n, rows_nH);
}

at::Tensor add(const at::Tensor& a, const at::Tensor& b) {
  require(a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type(), "add", "terms ", a.sizes(),
          " ", a.scalar_type(), " and ", b.sizes(), " ", b.scalar_type(),
          " must have one shape and dtype");
  const bool has_no_graph = needs_no_graph({&a, &b});
  const Backend* const table = has_no_graph ? fused_for(Work::kRows, a) : nullptr;
  if (table && table->add) return table->add(a.contiguous(), b.contiguous());
  if (!adds_itself(a)) return a + b;
  return has_no_graph ? sum_of(a, b) : OwnSum::apply(a, b);
}

at::Tensor add_bias(const at::Tensor& x_NO, const at::Tensor& bias_O, const MainGradPtr& main) {
  if (needs_no_graph({&x_NO, &bias_O})) return table_of(x_NO).add_bias(x_NO, bias_O);
  // Autograd would round the sum over the rows to the bias's type.
  if (!adds_itself(x_NO) && !main) return x_NO + bias_O;
  return OwnBias::apply(x_NO, bias_O, main);
}

at::Tensor scaled(const at::Tensor& x, double factor) {
  if (!backend_of(x.device().type()).scaled) return x * factor;
  return needs_no_graph({&x}) ? table_of(x).scaled(x, factor) : OwnFactor::apply(x, factor);
}

std::vector<at::Tensor> shared_by(int64_t count, const at::Tensor& x) {
  if (!adds_itself(x) || needs_no_graph({&x}))
    return std::vector<at::Tensor>(static_cast<size_t>(count), x);
  return Fork::apply(x, count);
}

std::vector<at::Tensor> parts_of(const at::Tensor& x, const std::vector<int64_t>& sizes,
                                 int64_t dim) {
  if (!adds_itself(x)) return x.split_with_sizes(sizes, dim);
  return needs_no_graph({&x}) ? cut(x, sizes, dim) : OwnParts::apply(x, sizes, dim);
}

at::Tensor shaped(const at::Tensor& x, at::IntArrayRef sizes) {
  // Nobody counts changes of an inference tensor, of which a view would have to know.
  if (!x.is_inference() || !x.is_cpu() || !x.is_contiguous()) return x.reshape(sizes);
  require(c10::multiply_integers(sizes) == x.numel(), "shaped", "sizes ", sizes,
          " have not as many elements as ", x.sizes());
  auto view = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(x.storage()),
                                                   x.key_set(), x.dtype());
  view->set_storage_offset(x.storage_offset());
  view->set_sizes_contiguous(sizes);
  return at::Tensor(std::move(view));
}

at::Tensor take_rows(const at::Tensor& x_NH, const at::Tensor& index_n) {
  if (!backend_of(x_NH.device().type()).take_rows) return x_NH.index_select(0, index_n);
  return needs_no_graph({&x_NH}) ? table_of(x_NH).take_rows(x_NH, index_n)
                                 : OwnRows::apply(x_NH, index_n);
}

c10::Device device_of_numbers(const c10::Device& device) {
  return backend_of(device.type()).has_aten ? device : c10::Device(c10::DeviceType::CPU);
}

at::Tensor as_numbers(const at::Tensor& x) { return x.to(device_of_numbers(x.device())); }

void add_to(const at::Tensor& sum, const at::Tensor& x) {
  require(sum.sizes() == x.sizes(), "add_to", "a sum ", sum.sizes(), " and ", x.sizes(),
          " must have one shape");
  table_of(sum).add_to(sum, x);
}

void add_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  table_of(out).add_into(out, a, b);
}

void larger_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  table_of(out).larger_into(out, a, b);
}

at::Tensor joined(const std::vector<at::Tensor>& parts, int64_t dim) {
  require(!parts.empty(), "joined", "there is no part");
  if (parts.size() == 1) return parts[0];
  const auto along = static_cast<size_t>(dim);
  std::vector<int64_t> shape = parts[0].sizes().vec();
  shape[along] = 0;
  for (const at::Tensor& part : parts) shape[along] += part.size(dim);
  const at::Tensor all = at::empty(shape, parts[0].options());
  int64_t begin = 0;
  for (const at::Tensor& part : parts) {
    all.narrow(dim, begin, part.size(dim)).copy_(part);
    begin += part.size(dim);
  }
  return all;
}

void add_rows(const at::Tensor& sum_NH, const at::Tensor& index_n, const at::Tensor& rows_nH) {
  table_of(sum_NH).add_rows(sum_NH, index_n, rows_nH);
}

at::Tensor column_sums(const at::Tensor& x_NO) { return table_of(x_NO).column_sums(x_NO); }

}  // namespace danlu::ops
