#include "train/gated_residual.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>

#include "arch/decoder.h"
#include "device/dtype.h"
#include "layers/pass_results.h"
#include "models/stage_parameters.h"

namespace danlu::train {
namespace {

void gated_parameters(const arch::ModelConfig& config, arch::ParameterList& list) {
  using arch::Role, arch::Cut;
  list.weight(Role::kOwn, "norm", {config.hidden_size}, Cut::kCopiedBetween);
  list.weight(Role::kOwn, "gate", {config.hidden_size}, Cut::kCopiedBetween);
  list.linear(Role::kOwn, "up", config.ffn_size, config.hidden_size, Cut::kRows, true);
  list.linear(Role::kOwn, "down", config.hidden_size, config.ffn_size, Cut::kColumns, true);
}

arch::LayerCost gated_cost(const arch::ModelConfig& config, const arch::LayerPass& pass) {
  const int64_t rows = pass.rows * config.hidden_size * pass.element_bytes,
                inside = pass.tokens * config.hidden_size * pass.element_bytes,
                wide = pass.tokens * config.ffn_size / pass.tensor * pass.element_bytes;
  // Kept: input, normed input, rectified values and their square, what `down` gave; beside them the
  // gradients at the square.
  return {.kept = 2 * rows + inside + 2 * wide,
          .backward = 2 * wide + rows,
          .passing = 2 * rows + inside + 2 * wide,
          .operations = 4.0 * static_cast<double>(pass.tokens * config.hidden_size *
                                                  config.ffn_size / pass.tensor)};
}

const arch::LayerKind& gated_kind() {
  static const arch::LayerKind kind{"gated_residual", gated_parameters, gated_cost, {kGateTerm}};
  return kind;
}

std::unique_ptr<layers::Block> make_gated(const models::BlockPlace& at) {
  auto block = std::make_unique<GatedResidual>();
  block->norm.weight = at.parameters.own("norm.weight", at.layer);
  block->norm.eps = at.config.norm_eps;
  block->gate_H = at.parameters.own("gate.weight", at.layer);
  block->up = at.parameters.own_linear("up", at.layer);
  block->down = at.parameters.own_linear("down", at.layer);
  block->region = at.mesh.region();
  return block;
}

arch::ModelConfig parse_gated(const Json& config_json) {
  arch::ModelConfig model = arch::parse_decoder(config_json, "gated_residual", {});
  for (int64_t layer = 0; layer < model.num_layers; ++layer)
    model.own_kinds.push_back(layer % 2 == 1 ? &gated_kind() : nullptr);
  return model;
}

}  // namespace

void GatedResidual::visit(layers::Visitor& visitor) {
  norm.visit(visitor);
  visitor.parameter(gate_H);
  up.visit(visitor);
  down.visit(visitor);
}

at::Tensor GatedResidual::forward(const at::Tensor& x_NH,
                                  const std::shared_ptr<const layers::Pass>& pass,
                                  const layers::Again&, const layers::Leaving&) const {
  const at::Tensor gate_N1 = at::sigmoid(at::matmul(x_NH, gate_H.tensor)).unsqueeze(1);
  const at::Tensor wide_NF = at::relu(up.forward(region.enter(norm.forward(x_NH)), *pass)).square();
  const at::Tensor given_NH = down.leave(down.partial(wide_NF, *pass, region), region);
  const at::Tensor open =
      gate_N1.narrow(0, 0, pass->num_rows).to(device::wide_type(x_NH.scalar_type())).square().sum();
  return layers::with_loss_term(x_NH + gate_N1 * given_NH, kGateTerm, open * kGateWeight, *pass);
}

void add_gated_residual() {
  static const bool is_added = [] {
    arch::add_family(
        {"gated_residual",
         {"gated_residual"},
         {"GatedResidualForCausalLM"},
         parse_gated,
         [](const arch::ModelConfig& config) { return arch::decoder_parameters(config, {}); },
         {}});
    models::add_layer_kind(gated_kind(), make_gated);
    return true;
  }();
  (void)is_added;
}

}  // namespace danlu::train
