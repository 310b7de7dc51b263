#include "ops/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/dropout_threshold.h"
#include "ops/keyed_bits.h"

namespace danlu::ops {
namespace {

void check_dropout(const at::Tensor& x_NI, double p, const at::Tensor& keys_N) {
  require(p >= 0 && p < 1, "dropout", "probability ", p, " must be in [0, 1)");
  require(x_NI.dim() == 2 && keys_N.dim() == 1 && keys_N.size(0) == x_NI.size(0) &&
              keys_N.scalar_type() == at::kLong,
          "dropout", "x ", x_NI.sizes(), " needs one int64 key for each row, got ", keys_N.sizes());
}

/// [N, I] bool: true where an element stays.
at::Tensor kept(const at::Tensor& x_NI, double p, const at::Tensor& keys_N, uint64_t salt,
                int64_t first_column) {
  return keyed_bits(keys_N, salt, first_column, x_NI.size(1)) >=
         static_cast<int64_t>(dropout_threshold(p));
}

class KeyedDropout : public torch::autograd::Function<KeyedDropout> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_NI, double p,
                            const at::Tensor& keys_N, int64_t salt, int64_t first_column) {
    ctx->save_for_backward({keys_N});
    ctx->saved_data["p"] = p;
    ctx->saved_data["salt"] = salt;
    ctx->saved_data["first_column"] = first_column;
    return backend_of(x_NI.device().type())
        .dropout(x_NI, p, keys_N, static_cast<uint64_t>(salt), first_column);
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    return {backend_of(grads[0].device().type())
                .dropout(grads[0], ctx->saved_data["p"].toDouble(), ctx->get_saved_variables()[0],
                         static_cast<uint64_t>(ctx->saved_data["salt"].toInt()),
                         ctx->saved_data["first_column"].toInt()),
            {},
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x_NI, double p, const at::Tensor& keys_N, uint64_t salt,
                   int64_t first_column) {
  check_dropout(x_NI, p, keys_N);
  if (p == 0) return x_NI;
  const Backend* const table = fused_for(Work::kDropout, x_NI);
  if (!table || !table->dropout) return oracle::dropout(x_NI, p, keys_N, salt, first_column);
  return KeyedDropout::apply(x_NI, p, keys_N, static_cast<int64_t>(salt), first_column);
}

at::Tensor oracle::dropout(const at::Tensor& x_NI, double p, const at::Tensor& keys_N,
                           uint64_t salt, int64_t first_column) {
  check_dropout(x_NI, p, keys_N);
  const at::ScalarType wide = device::wide_type(x_NI.scalar_type());
  const at::Tensor factor_NI =
      kept(x_NI, p, keys_N, salt, first_column).to(wide) * (1.0 / (1.0 - p));
  return (x_NI.to(wide) * factor_NI).to(x_NI.scalar_type());
}

}  // namespace danlu::ops
