// models/stage_parameters.h: what kinds of layers are made of: a stage's parameters by what they
// are, and where a kind of layer enters the assembly. Internal to models and to kinds of layers.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "arch/layer_kind.h"
#include "arch/pipeline.h"
#include "layers/linear.h"
#include "layers/module.h"
#include "parallel/mesh.h"

namespace danlu::models {

using parallel::Parameter;

/// What this rank holds, without memory (device/late_memory.h).
class StageParameters {
 public:
  StageParameters(const arch::ModelConfig& config, const arch::Stage& stage,
                  const parallel::Mesh& mesh, const at::TensorOptions& options);
  /// Undefined where the family declares none.
  Parameter optional(arch::Role role, int64_t layer, bool is_bias) const;
  /// Errors: InternalError where the family declares none.
  Parameter weight(arch::Role role, int64_t layer = -1) const;
  layers::Linear linear(arch::Role role, int64_t layer) const;
  /// Of a layer of its own kind, by the end of its name: "gate.weight"; undefined without one.
  Parameter own(const std::string& name, int64_t layer) const;
  /// The same of `name`.weight and, if there is one, `name`.bias. Errors: InternalError.
  layers::Linear own_linear(const std::string& name, int64_t layer) const;

 private:
  std::map<std::tuple<arch::Role, int64_t, bool>, Parameter> by_role_;
  std::map<std::pair<int64_t, std::string>, Parameter> by_name_;  ///< by layer and name
};

/// Where a layer is made.
struct BlockPlace {
  const arch::ModelConfig& config;
  const parallel::Mesh& mesh;  ///< outlives the model
  const StageParameters& parameters;
  int64_t layer = 0;                 ///< in the whole model
  const at::Tensor& alibi_slopes_Q;  ///< of this rank's heads, or undefined
};
using MakeBlock = std::unique_ptr<layers::Block> (*)(const BlockPlace& at);

/// Layers of that kind are made so; before a model of it is.
void add_layer_kind(const arch::LayerKind& kind, MakeBlock make);

}  // namespace danlu::models
