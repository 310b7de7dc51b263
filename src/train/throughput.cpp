#include "train/throughput.h"

#include <map>

#include "arch/attention_size.h"
#include "arch/model_config.h"
#include "device/peak.h"
#include "train/precision.h"

namespace danlu::train {

double flops_per_token(const models::CausalLM& model, const data::LengthStats& lengths) {
  const arch::ModelConfig& config = model.config();
  std::map<std::string, bool> trained;
  for (const parallel::Parameter& parameter : model.parameters())
    trained[parameter.name()] = parameter.trainable;

  // Of the rank's experts a token passes as many as of all, on the average over ranks.
  const auto share = [&](int64_t expert) {
    if (expert < 0) return 1.0;
    return static_cast<double>(config.experts.per_token * model.mesh().shape().expert) /
           static_cast<double>(config.experts.count);
  };
  double flops = 0;
  for (const arch::ParamSpec& weight : arch::parameters_of(config)) {
    // A tied head multiplies by the embedding's table, which its own look-up does not.
    if (weight.shape.size() != 2 || weight.role == arch::Role::kEmbedding) continue;
    if (!model.stage().holds(weight)) continue;
    const auto found = trained.find(weight.tied_to.empty() ? weight.name : weight.tied_to);
    if (found == trained.end()) continue;  // another rank's expert
    flops += (found->second ? 6.0 : 4.0) * share(weight.expert) *
             static_cast<double>(weight.shape[0] * weight.shape[1]);
  }
  for (const parallel::Parameter& adapter : model.adapter_parameters()) {
    if (adapter.tensor.dim() != 2) continue;
    // A module trained whole takes the place of a base weight that is counted as frozen above.
    const bool low_rank = adapter.name().find(".lora_") != std::string::npos;
    flops += (low_rank ? 6.0 : 2.0) * share(adapter.spec.expert) *
             static_cast<double>(adapter.whole_numel());
  }
  const double length =
      lengths.sum > 0 ? lengths.sum_of_squares / static_cast<double>(lengths.sum) : 0;
  const parallel::Group& stages = model.mesh().pipeline();
  return static_cast<double>(parallel::sum_of(stages, static_cast<int64_t>(flops))) +
         3.0 *
             static_cast<double>(config.num_layers * config.num_heads *
                                 (config.head_dim + arch::value_dim(config))) *
             length;
}

double peak_flops(const TrainConfig& config, const at::Device& device) {
  if (config.output.device_tflops > 0) return config.output.device_tflops * 1e12;
  return device::peak_flops(device, scalar_type_of(config.precision));
}

}  // namespace danlu::train
