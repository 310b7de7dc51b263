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
#include "layers/positions.h"
#include "layers/prediction.h"
#include "layers/score_head.h"
#include "layers/vision.h"
#include "parallel/mesh.h"

namespace danlu::models {

using parallel::Parameter;

class StageParameters;

struct Network {
  arch::Stage stage;
  layers::VisionPatches patches;  ///< undefined in stages without it, as the rest of the tower
  /// The blocks of the vision tower, by their numbers in the whole tower.
  std::map<int64_t, std::unique_ptr<layers::Block>> blocks;
  layers::VisionMerger merger;
  layers::Embedding embedding;     ///< undefined in stages that hold neither it nor its copy
  layers::Positions positions;     ///< undefined without an embedding, and in most families
  layers::TokenTypes token_types;  ///< of an encoder
  layers::Norm embedding_norm;     ///< undefined without an embedding, and in most families
  /// The layers of all chunks of the stage, by their numbers in the whole model.
  std::map<int64_t, std::unique_ptr<layers::Block>> layers;
  layers::Norm final_norm;  ///< undefined without a head, and in encoders
  layers::Head head;        ///< undefined in a reward model, as `score` in all others
  layers::ScoreHead score;
  /// Layers that predict further ahead, in the stage of the head.
  std::vector<layers::Prediction> predictions;
  /// The stage's parameters where they stand in the layers, in the order of arch::parameters_of. A
  /// tied head shares the embedding's tensor.
  std::vector<Parameter*> parameters;

  /// Makes the layers. Parameters have no memory yet (device/late_memory.h). Errors: InternalError
  /// if the family declares no parameter for a role that a layer needs, or one that no layer takes.
  Network(const arch::ModelConfig& config, const arch::Stage& stage, const parallel::Mesh& mesh,
          const at::TensorOptions& options);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  void visit(layers::Visitor& visitor);

  /// The linear layers of the vision tower and of the decoder's layers, and the head, if the stage
  /// has it: all layers that can have an adapter, in model order.
  std::vector<layers::Linear*> adaptable();

 private:
  void add_prediction(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                      const StageParameters& parameters, int64_t layer);
  void add_tower(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                 const StageParameters& parameters);
};

/// What this rank holds of `spec`, as a parameter without memory.
Parameter describe(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                   const arch::ParamSpec& spec, const at::TensorOptions& options);

}  // namespace danlu::models
