#include "layers/decoder_layer.h"

#include <ATen/core/Tensor.h>

#include <optional>

#include "layers/saved_tensors.h"
#include "ops/pointwise.h"

namespace danlu::layers {

at::Tensor DecoderLayer::forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                                 const Again& again, const Leaving& leaving) const {
  struct Leaves {
    bool norm, part;
  };
  // Under sequence parallelism the norm's output is gathered, in backward as well: these rows are
  // not kept either.
  const auto through = [&](const at::Tensor& given_NH, const Norm& norm,
                           const std::optional<Norm>& post_norm, const parallel::Region& region,
                           Leaves leaves, const auto& part) {
    const auto given = ops::shared_by(2, given_NH);
    const at::Tensor& rows_NH = given[0];
    // The norm and the part after it both keep the rows of an output that is made again: they
    // leave with both, or with neither.
    if (again.norm_outputs && leaving.layer && leaves.norm != leaves.part) {
      leaves.norm = false;
      leaving.layer->stay({rows_NH});
    }
    at::Tensor inside_NH;
    {
      const auto scope = leaving.scope(leaves.norm);
      const Body normed = [&norm](const std::vector<at::Tensor>& x) { return norm.forward(x[0]); };
      inside_NH =
          region.enter(again.norm_outputs ? keeping_inputs(normed, {rows_NH}, tensors_of(norm))
                                          : norm.forward(rows_NH));
    }
    const auto scope = leaving.scope(leaves.part);
    std::optional<MadeAgain> not_kept;
    if (again.norm_outputs) {
      not_kept.emplace(inside_NH, std::vector<at::Tensor>{rows_NH},
                       [&norm, region](const auto& x) { return region.enter(norm.forward(x[0])); });
    }
    at::Tensor more_NH = part(inside_NH);
    if (post_norm) more_NH = post_norm->forward(more_NH);
    if (residual_scale != 1.0) more_NH = ops::scaled(more_NH, residual_scale);
    return ops::add(given[1], more_NH);
  };
  const at::Tensor middle_NH =
      through(x_NH, attention_norm, attention_post_norm, attention->region,
              {leaving.input_norm, leaving.self_attention},
              [&](const at::Tensor& in_NH) { return attention->forward(in_NH, *pass, again); });
  return through(middle_NH, mlp_norm, mlp_post_norm, mlp->region,
                 {leaving.post_attention_norm, leaving.mlp},
                 [&](const at::Tensor& in_NH) { return mlp->forward(in_NH, pass, again); });
}

void DecoderLayer::visit(Visitor& visitor) {
  attention_norm.visit(visitor);
  attention->visit(visitor);
  if (attention_post_norm) attention_post_norm->visit(visitor);
  mlp_norm.visit(visitor);
  mlp->visit(visitor);
  if (mlp_post_norm) mlp_post_norm->visit(visitor);
}

}  // namespace danlu::layers
