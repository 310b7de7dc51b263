// models/stage_parameters.h: how layers get their parameters, and how a kind of layer is added to
// the assembly. Internal to models and to kinds of layers.
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

/// This rank's parameters of a stage, by their role. They have no memory yet
/// (device/late_memory.h).
class StageParameters {
 public:
  StageParameters(const arch::ModelConfig& config, const arch::Stage& stage,
                  const parallel::Mesh& mesh, const at::TensorOptions& options);
  /// The parameter with that role; undefined if the family declares none.
  Parameter optional(arch::Role role, int64_t layer, bool is_bias, int64_t expert = -1) const;
  /// As optional(), but throws InternalError if the family declares none.
  Parameter weight(arch::Role role, int64_t layer = -1, int64_t expert = -1) const;
  layers::Linear linear(arch::Role role, int64_t layer, int64_t expert = -1) const;
  /// The parameter of a layer with a kind of its own (arch/layer_kind.h) whose name ends in `name`,
  /// such as "gate.weight"; undefined if there is none.
  Parameter own(const std::string& name, int64_t layer) const;
  /// The linear layer of `name`.weight and, if there is one, `name`.bias. Errors: InternalError if
  /// there is no weight.
  layers::Linear own_linear(const std::string& name, int64_t layer) const;
  /// The same of a vision tower's parameters, by their whole names.
  Parameter of_tower(const std::string& name) const;
  layers::Linear linear_of_tower(const std::string& name) const;

 private:
  /// By role, layer, whether it is a bias, and expert.
  std::map<std::tuple<arch::Role, int64_t, bool, int64_t>, Parameter> by_role_;
  std::map<std::pair<int64_t, std::string>, Parameter> by_name_;  ///< by layer and name
};

/// What the maker of a layer is given.
struct BlockPlace {
  const arch::ModelConfig& config;
  const parallel::Mesh& mesh;  ///< outlives the model
  const StageParameters& parameters;
  int64_t layer = 0;                 ///< its number in the whole model
  const at::Tensor& alibi_slopes_Q;  ///< those of this rank's heads, or undefined
};
using MakeBlock = std::unique_ptr<layers::Block> (*)(const BlockPlace& at);

/// Says how layers of that kind are made. Call it before a model that has them is made.
void add_layer_kind(const arch::LayerKind& kind, MakeBlock make);

}  // namespace danlu::models
