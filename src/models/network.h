// models/network.h: the layers of a stage of a decoder, assembled from an arch::ModelConfig for one
// rank of a mesh. Internal to models.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "arch/pipeline.h"
#include "layers/head.h"
#include "layers/module.h"
#include "layers/norm.h"
#include "parallel/mesh.h"

namespace danlu::models {

using parallel::Parameter;

struct Network {
  arch::Stage stage;
  layers::Embedding embedding;  ///< undefined without one or a copy
  /// Of all chunks of the stage, by their numbers in the whole model.
  std::map<int64_t, std::unique_ptr<layers::Block>> layers;
  layers::RmsNorm final_norm;  ///< undefined without a head
  layers::Head head;
  /// Where each of arch::parameters_of that the stage holds is, in that order; a tied head shares
  /// the embedding's tensor.
  std::vector<Parameter*> parameters;

  /// What this rank holds, without memory (device/late_memory.h). Errors: InternalError if the
  /// family declares no parameter for a role that the config needs, or one that no layer takes.
  Network(const arch::ModelConfig& config, const arch::Stage& stage, const parallel::Mesh& mesh,
          const at::TensorOptions& options);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// By its number in the whole model. REQUIRES: it is here.
  const layers::Block& layer(int64_t number) const;
  void visit(layers::Visitor& visitor);

  /// Linear layers of the blocks, in model order: what "all-linear" means.
  std::vector<layers::Linear*> linears();
  /// linears() and the head, if it is here: every place an adapter can sit on.
  std::vector<layers::Linear*> adaptable();
};

/// What this rank holds of `spec`, without memory.
Parameter describe(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                   const arch::ParamSpec& spec, const at::TensorOptions& options);

}  // namespace danlu::models
