// arch/layer_kind.h: a kind of layer other than attention with an MLP: what it holds and what it
// costs. Its arithmetic is a layers::Block, which models::add_layer_kind attaches to it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "arch/parameter_list.h"

namespace danlu::arch {

/// A pass of one micro-batch through a layer, on one rank.
struct LayerPass {
  int64_t tokens = 0;  ///< tokens inside a region (parallel/region.h)
  int64_t rows = 0;  ///< tokens between regions: fewer under sequence parallelism, which cuts them
  int64_t tensor = 1;  ///< size of the tensor axis
  int64_t element_bytes = 4;
};

/// What such a pass costs if everything is trained and nothing is recomputed.
struct LayerCost {
  int64_t kept = 0;       ///< bytes that the forward keeps for the backward
  int64_t backward = 0;   ///< the most bytes beside them while the backward runs
  int64_t passing = 0;    ///< the most bytes of a forward that keeps nothing
  double operations = 0;  ///< matrix products of the forward; a multiply-add counts as two
};

struct LayerKind {
  std::string name;
  /// Appends what one layer has, under its names in files.
  void (*parameters)(const ModelConfig& config, ParameterList& list);
  LayerCost (*cost)(const ModelConfig& config, const LayerPass& pass);
  /// The names under which its passes give figures (layers/pass_results.h).
  std::vector<std::string> results = {};
};

/// The names under which passes of the model may give sums: those of routers of experts, then the
/// `results` of all layers, each once, in the order of the layers, and the losses of those that
/// predict further ahead.
std::vector<std::string> result_names(const ModelConfig& config);

}  // namespace danlu::arch
