#include "train/throughput.h"

#include <algorithm>
#include <map>

#include "arch/attention_size.h"
#include "arch/gated_delta.h"
#include "arch/learned_positions.h"
#include "arch/model_config.h"
#include "device/peak.h"
#include "parallel/agree.h"
#include "train/precision.h"

namespace danlu::train {
namespace {

double flops_of_adapter(const parallel::Parameter& adapter) {
  // A module trained whole takes the place of a base weight that is counted as frozen.
  const bool low_rank = adapter.name().find(".lora_") != std::string::npos;
  return (low_rank ? 6.0 : 2.0) * static_cast<double>(adapter.whole_numel());
}

}  // namespace

double flops_per_token(const models::CausalLM& model, const data::LengthStats& lengths) {
  const arch::ModelConfig& config = model.config();
  std::map<std::string, bool> trained;
  for (const parallel::Parameter& parameter : model.parameters())
    trained[parameter.name()] = parameter.trainable;

  // A token passes `per_token` experts of the model: on the average over ranks so many times
  // `expert` of a rank's own.
  const auto share = [&](int64_t expert) {
    if (expert < 0) return 1.0;
    const parallel::MeshShape& shape = model.mesh().shape();
    return static_cast<double>(config.experts.per_token * shape.expert * shape.expert_dealers) /
           static_cast<double>(config.experts.count);
  };
  double flops = 0;
  for (const arch::ParamSpec& weight : arch::parameters_of(config)) {
    if (weight.tower_place >= 0) continue;
    // A tied head multiplies by the embedding's table, which its own look-up does not.
    if (weight.shape.size() != 2 || arch::is_table(weight)) continue;
    if (!model.stage().holds(weight)) continue;
    const auto found = trained.find(weight.tied_to.empty() ? weight.name : weight.tied_to);
    if (found == trained.end()) continue;  // another rank's expert
    flops += (found->second ? 6.0 : 4.0) * share(weight.expert) *
             static_cast<double>(weight.shape[0] * weight.shape[1]);
  }
  for (const parallel::Parameter& adapter : model.adapter_parameters()) {
    if (adapter.tensor.dim() != 2 || adapter.spec.tower_place >= 0) continue;
    flops += share(adapter.spec.expert) * flops_of_adapter(adapter);
  }
  const double length =
      lengths.sum > 0 ? lengths.sum_of_squares / static_cast<double>(lengths.sum) : 0;
  const parallel::Group& stages = model.mesh().pipeline();
  return static_cast<double>(parallel::sum_of(stages, static_cast<int64_t>(flops))) +
         3.0 *
             static_cast<double>(arch::count_key_layers(config) * config.num_heads *
                                 (config.head_dim + arch::value_dim(config))) *
             length;
}

double flops_per_visual_token(const models::CausalLM& model) {
  const arch::ModelConfig& config = model.config();
  if (!config.vision) return 0;
  const double patches = static_cast<double>(config.vision->merge_size * config.vision->merge_size);
  const auto rows_of = [&](const parallel::Parameter& parameter) {
    return parameter.name().find("visual.merger.") != std::string::npos ? 1.0 : patches;
  };
  const auto is_of_tower = [](const parallel::Parameter& parameter) {
    return parameter.spec.tower_place >= 0;
  };
  const std::vector<parallel::Parameter> base = model.parameters(),
                                         adapters = model.adapter_parameters();
  bool is_trained = std::any_of(adapters.begin(), adapters.end(), is_of_tower);
  for (const parallel::Parameter& parameter : base)
    is_trained |= is_of_tower(parameter) && parameter.trainable;
  double flops = 0;
  for (const parallel::Parameter& weight : base) {
    if (!is_of_tower(weight) || weight.spec.shape.size() < 2) continue;
    const double each = !is_trained ? 2.0 : weight.trainable ? 6.0 : 4.0;
    flops += each * rows_of(weight) * static_cast<double>(weight.whole_numel());
  }
  for (const parallel::Parameter& adapter : adapters) {
    if (is_of_tower(adapter) && adapter.tensor.dim() == 2)
      flops += rows_of(adapter) * flops_of_adapter(adapter);
  }
  return static_cast<double>(
      parallel::sum_of(model.mesh().pipeline(), static_cast<int64_t>(flops)));
}

double peak_flops(const TrainConfig& config, const at::Device& device) {
  if (config.output.device_tflops > 0) return config.output.device_tflops * 1e12;
  return device::peak_flops(device, scalar_type_of(config.precision));
}

}  // namespace danlu::train
