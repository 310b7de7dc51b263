#include "ops/quantized_linear.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/linear.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/kernels.h"
#include "ops/nf4.h"

namespace danlu::ops {
namespace {

void check(const at::Tensor& x, const QuantizedWeight& weight, const at::Tensor& bias_O) {
  if (!multiplies_quantized(x.device().type())) {
    throw DeviceError(tr("[quantize] {} has no products with weights in blocks", x.device().str()),
                      tr("--device cpu, or --quantize none"));
  }
  require(x.dim() >= 1 && x.size(-1) == weight.columns(), "quantized_linear", "x ", x.sizes(),
          " must end in I = ", weight.columns());
  require(!bias_O.defined() || (bias_O.dim() == 1 && bias_O.size(0) == weight.rows()),
          "quantized_linear", "bias must be [O] with O = ", weight.rows(), ", got ",
          bias_O.defined() ? bias_O.sizes() : at::IntArrayRef());
}

/// [N, O] as [..., O] for x [..., I].
at::Tensor shaped_like(const at::Tensor& x, const at::Tensor& y_NO) {
  if (x.dim() == 2) return y_NO;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = y_NO.size(1);
  return y_NO.view(sizes);
}

}  // namespace

bool multiplies_quantized(c10::DeviceType type) {
  return backend_of(type).block_products != nullptr;
}

at::Tensor quantized_linear(const at::Tensor& x, const QuantizedWeight& weight,
                            const at::Tensor& bias_O) {
  return quantized_linears(x, {{weight, bias_O}}).front();
}

std::vector<at::Tensor> quantized_linears(const at::Tensor& x,
                                          const std::vector<QuantizedFactor>& factors) {
  std::vector<at::Tensor> results;
  results.reserve(factors.size());
  if (std::any_of(factors.begin(), factors.end(),
                  [](const QuantizedFactor& factor) { return nf4_of(factor.weight) != nullptr; })) {
    for (const auto& [weight, bias_O] : factors) {
      const Nf4Weight* const nf4 = nf4_of(weight);
      results.push_back(nf4 ? nf4_linear(x, nf4->matrix(), bias_O)
                            : quantized_linear(x, weight, bias_O));
    }
    return results;
  }
  for (const auto& [weight, bias_O] : factors) check(x, weight, bias_O);
  const Backend* const table = fused_for(Work::kProducts, x);
  if (!table) {
    for (const auto& [weight, bias_O] : factors)
      results.push_back(oracle::quantized_linear(x, weight, bias_O).to(x.scalar_type()));
    return results;
  }
  const at::Tensor x_NI = (x.dim() == 2 ? x : x.reshape({-1, x.size(-1)})).contiguous();
  std::vector<BlockFactor> blocks;
  blocks.reserve(factors.size());
  for (const auto& [weight, bias_O] : factors)
    blocks.push_back({dynamic_cast<const BlockWeight&>(weight), bias_O});
  for (const at::Tensor& y_NO : table->block_products(x_NI, blocks))
    results.push_back(shaped_like(x, y_NO));
  return results;
}

at::Tensor oracle::quantized_linear(const at::Tensor& x, const QuantizedWeight& weight,
                                    const at::Tensor& bias_O) {
  check(x, weight, bias_O);
  return at::linear(x.to(at::kDouble), weight.dense().to(x.device(), at::kDouble),
                    bias_O.defined() ? bias_O.to(at::kDouble) : bias_O);
}

at::Tensor quantized_embedding(const at::Tensor& ids_N, const QuantizedWeight& weight,
                               at::ScalarType type) {
  const auto& blocks = dynamic_cast<const BlockWeight&>(weight);
  return backend_of(blocks.codes().device().type())
      .block_rows(blocks, ids_N.to(blocks.codes().device()).contiguous(), type);
}

}  // namespace danlu::ops
