// models/network.h: the layers of a decoder, assembled from an arch::ModelConfig. Internal to
// models.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arch/model_config.h"
#include "layers/decoder_layer.h"
#include "layers/head.h"

namespace danlu::models {

/// A base parameter: its description and the live tensor all layers share.
struct BaseParameter {
  arch::ParamSpec spec;
  at::Tensor tensor;
  bool trainable = true;
};

struct Network {
  layers::Embedding embedding;
  std::vector<std::unique_ptr<layers::DecoderLayer>> layers;
  layers::RmsNorm final_norm;
  layers::Head head;

  /// Builds layers around `parameters` (one per spec of arch::parameters_of, tied ones included).
  /// Errors: InternalError if the family declares no parameter for a role that the config needs.
  Network(const arch::ModelConfig& config, const std::vector<BaseParameter>& parameters);
  /// Linear layers of the blocks, in model order: what "all-linear" means.
  std::vector<layers::Linear*> linears();
  /// linears() and the head: every place an adapter can sit on.
  std::vector<layers::Linear*> adaptable();
  /// Every place that holds a parameter.
  std::vector<layers::Parameter*> slots();
};

}  // namespace danlu::models
