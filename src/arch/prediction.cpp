#include "arch/prediction.h"

#include <charconv>
#include <string_view>

namespace danlu::arch {

bool is_of_prediction_layer(const ModelConfig& config, const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (config.experts.prediction_layers == 0 || !name.starts_with(kLayers)) return false;
  int64_t layer = -1;
  const char* const begin = name.data() + kLayers.size();
  const auto [stop, error] = std::from_chars(begin, name.data() + name.size(), layer);
  return error == std::errc() && *stop == '.' && layer >= config.num_layers &&
         layer < config.num_layers + config.experts.prediction_layers;
}

std::string prediction_loss_name(int64_t depth) { return "mtp_" + std::to_string(depth) + "_loss"; }

}  // namespace danlu::arch
