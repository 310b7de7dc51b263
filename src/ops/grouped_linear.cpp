#include "ops/grouped_linear.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/kernels.h"
#include "ops/linear.h"
#include "ops/weight_grad.h"

namespace danlu::ops {
namespace {

using Weights = std::vector<at::Tensor>;
using Counts = std::vector<int64_t>;

void check_grouped(const at::Tensor& x_RI, const Weights& weights_OI, const Counts& counts,
                   size_t main) {
  require(!weights_OI.empty() && weights_OI.size() == counts.size(), "grouped_linear",
          weights_OI.size(), " weights for ", counts.size(), " groups");
  require(main == 0 || main == weights_OI.size(), "grouped_linear", main,
          " places for gradients of ", weights_OI.size(), " weights");
  require(x_RI.dim() == 2, "grouped_linear", "x ", x_RI.sizes(), " must be [R, I]");
  for (const at::Tensor& weight_OI : weights_OI) {
    require(weight_OI.dim() == 2 && weight_OI.size(1) == x_RI.size(1) &&
                weight_OI.sizes() == weights_OI.front().sizes(),
            "grouped_linear", "weights must be [O, ", x_RI.size(1), "] alike, got ",
            weight_OI.sizes(), " beside ", weights_OI.front().sizes());
    require(weight_OI.scalar_type() == x_RI.scalar_type(), "grouped_linear", "x is ",
            x_RI.scalar_type(), ", a weight ", weight_OI.scalar_type(), "; they must be equal");
  }
  const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  require(rows == x_RI.size(0), "grouped_linear", "groups of ", rows, " rows for x ", x_RI.sizes());
}

/// Calls visit(group, first row) for every group that has rows.
template <typename Visit>
void for_each_group(const Counts& counts, const Visit& visit) {
  int64_t first = 0;
  for (size_t group = 0; group < counts.size(); ++group) {
    if (counts[group] > 0) visit(group, first);
    first += counts[group];
  }
}

/// What one() gives of each group's rows, one below the other.
template <typename One>
at::Tensor group_by_group(const at::Tensor& rows_RI, int64_t columns, const Counts& counts,
                          const One& one) {
  const at::Tensor all_RO =
      at::empty({rows_RI.size(0), columns}, rows_RI.options().requires_grad(false));
  for_each_group(counts, [&](size_t group, int64_t first) {
    all_RO.narrow(0, first, counts[group])
        .copy_(one(rows_RI.narrow(0, first, counts[group]), group));
  });
  return all_RO;
}

at::Tensor product(const at::Tensor& x_RI, const Weights& weights_OI, const Counts& counts) {
  const Backend* const own = products_for(weights_OI.front());
  if (own && own->grouped_product) return own->grouped_product(x_RI, weights_OI, counts);
  return group_by_group(x_RI, weights_OI.front().size(0), counts,
                        [&](const at::Tensor& x_nI, size_t group) {
                          return own ? own->product(x_nI, weights_OI[group], {}, x_RI.scalar_type())
                                     : oracle::linear(x_nI, weights_OI[group]);
                        });
}

at::Tensor input_grad(const at::Tensor& d_y_RO, const Weights& weights_OI, const Counts& counts) {
  const Backend* const own = products_for(weights_OI.front());
  if (own && own->grouped_input_grad) return own->grouped_input_grad(d_y_RO, weights_OI, counts);
  return group_by_group(
      d_y_RO, weights_OI.front().size(1), counts, [&](const at::Tensor& d_y_nO, size_t group) {
        return own ? own->input_grad(d_y_nO, weights_OI[group], d_y_nO.scalar_type())
                   : matrix_product(d_y_nO, weights_OI[group]);
      });
}

struct GroupedGrads {
  Counts counts;
  std::vector<MainGradPtr> main;

  MainGradPtr main_of(size_t group) const { return main.empty() ? MainGradPtr{} : main[group]; }
};

/// The gradient of one weight, where it goes to autograd; undefined where the sum has it.
at::Tensor weight_grad(const at::Tensor& d_y_nO, const at::Tensor& x_nI,
                       const at::Tensor& weight_OI, const MainGradPtr& main) {
  const at::ScalarType type = weight_OI.scalar_type();
  if (x_nI.size(0) == 0) {
    // A sum that nobody has added to yet means nothing before it is 0.
    if (takes_grad(main)) return {};
    return at::zeros(weight_OI.sizes(), weight_OI.options().requires_grad(false));
  }
  if (!has_place(main)) {
    const Backend* const own = products_for(weight_OI);
    return own ? own->weight_grad(d_y_nO, x_nI, type) : matrix_product(d_y_nO.t(), x_nI);
  }
  const auto add = [d_y_nO, x_nI, main] {
    add_weight_grad(d_y_nO, x_nI, main->sum, is_first(main));
  };
  if (main->later) {
    main->later->push_back(add);
  } else {
    add();
  }
  return {};
}

class OwnGrouped : public torch::autograd::Function<OwnGrouped> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_RI,
                            const at::TensorList given_weights, const GroupedGrads& grads) {
    const Weights weights_OI = given_weights.vec();
    ctx->saved_data["x_grad"] = x_RI.requires_grad();
    bool any = false;
    for (const at::Tensor& weight : weights_OI) any = any || weight.requires_grad();
    List saved = weights_OI;
    saved.push_back(any ? x_RI : at::Tensor());
    ctx->save_for_backward(saved);
    ctx->saved_data["grads"] = held(grads);
    return product(x_RI, weights_OI, grads.counts);
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& given) {
    List saved = ctx->get_saved_variables();
    const at::Tensor x_RI = saved.back();
    saved.pop_back();
    const auto& grads = held_in<GroupedGrads>(ctx->saved_data["grads"]);
    const at::Tensor d_y_RO = given[0].contiguous();
    List result(saved.size() + 2);
    int64_t first = 0;
    for (size_t group = 0; group < saved.size(); ++group) {
      const int64_t count = grads.counts[group];
      if (saved[group].requires_grad()) {
        result[group + 1] =
            weight_grad(d_y_RO.narrow(0, first, count), x_RI.narrow(0, first, count), saved[group],
                        grads.main_of(group));
      }
      first += count;
    }
    if (ctx->saved_data["x_grad"].toBool()) result[0] = input_grad(d_y_RO, saved, grads.counts);
    return result;
  }
};

}  // namespace

at::Tensor grouped_linear(const at::Tensor& x_RI, const std::vector<at::Tensor>& weights_OI,
                          const std::vector<int64_t>& counts,
                          const std::vector<MainGradPtr>& main) {
  check_grouped(x_RI, weights_OI, counts, main.size());
  if (!at::GradMode::is_enabled()) return product(x_RI, weights_OI, counts);
  if (kernels() == Kernels::kComposite && x_RI.is_cpu())
    return oracle::grouped_linear(x_RI, weights_OI, counts);
  return OwnGrouped::apply(x_RI, at::TensorList(weights_OI), GroupedGrads{counts, main});
}

at::Tensor oracle::grouped_linear(const at::Tensor& x_RI, const std::vector<at::Tensor>& weights_OI,
                                  const std::vector<int64_t>& counts) {
  check_grouped(x_RI, weights_OI, counts, 0);
  std::vector<at::Tensor> results;
  int64_t first = 0;
  for (size_t group = 0; group < counts.size(); ++group) {
    results.push_back(oracle::linear(x_RI.narrow(0, first, counts[group]), weights_OI[group]));
    first += counts[group];
  }
  return at::cat(results, 0);
}

}  // namespace danlu::ops
