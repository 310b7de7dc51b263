// arch/layer_kind.h: a kind of layer that is not the decoder's own: what it holds and what it
// costs. Its arithmetic is a layers::Block, made in models/network.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "arch/parameter_list.h"

namespace danlu::arch {

/// A pass of one micro-batch through a layer, on a rank.
struct LayerPass {
  int64_t tokens = 0;  ///< inside a region (parallel/region.h)
  int64_t rows = 0;    ///< between regions: under sequence parallelism this rank's share of them
  int64_t tensor = 1;  ///< ranks of the tensor axis
  int64_t element_bytes = 4;
};

/// What such a pass takes where everything is trained and nothing is recomputed.
struct LayerCost {
  int64_t kept = 0;       ///< bytes from forward to backward
  int64_t backward = 0;   ///< bytes beside them while its backward runs, at most
  int64_t passing = 0;    ///< bytes of a forward pass that keeps nothing, at most
  double operations = 0;  ///< of the forward pass in matrix products; a product and a sum are two
};

struct LayerKind {
  std::string name;
  /// Appends what one layer has, under its names in files.
  void (*parameters)(const ModelConfig& config, ParameterList& list);
  LayerCost (*cost)(const ModelConfig& config, const LayerPass& pass);
  /// Names of what its passes give beside hidden states (layers/pass_results.h).
  std::vector<std::string> results = {};
};

/// Of every layer of the model, each name once, in the order of the layers.
std::vector<std::string> result_names(const ModelConfig& config);

}  // namespace danlu::arch
