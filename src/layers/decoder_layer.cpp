#include "layers/decoder_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "layers/saved_tensors.h"

namespace danlu::layers {

at::Tensor DecoderLayer::forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                                 const Again& again) const {
  // Under sequence parallelism the norm's output is gathered, in backward as well: these rows are
  // not kept either.
  const auto through = [&](const at::Tensor& rows_NH, const RmsNorm& norm,
                           const parallel::Region& region, const auto& part) {
    if (!again.norm_outputs) return rows_NH + part(region.enter(norm.forward(rows_NH)));
    const Body normed = [&norm](const std::vector<at::Tensor>& x) { return norm.forward(x[0]); };
    const at::Tensor inside_NH =
        region.enter(keeping_inputs(normed, {rows_NH}, {norm.weight.tensor}));
    const MadeAgain not_kept(inside_NH, {rows_NH}, [&norm, region](const auto& x) {
      return region.enter(norm.forward(x[0]));
    });
    return rows_NH + part(inside_NH);
  };
  const at::Tensor middle_NH =
      through(x_NH, attention_norm, attention.region,
              [&](const at::Tensor& in_NH) { return attention.forward(in_NH, *pass, again); });
  return through(middle_NH, mlp_norm, mlp.region,
                 [&](const at::Tensor& in_NH) { return mlp.forward(in_NH, pass, again); });
}

void DecoderLayer::collect(std::vector<at::Tensor>& tensors) const {
  tensors.push_back(attention_norm.weight.tensor);
  attention.collect(tensors);
  tensors.push_back(mlp_norm.weight.tensor);
  mlp.collect(tensors);
}

}  // namespace danlu::layers
