#include "plan/request.h"

#include <algorithm>

#include "settings/run_plan.h"

namespace danlu::plan {

Request request_of(const settings::TrainConfig& config, const arch::ModelConfig& model,
                   int64_t longest) {
  Request request{.model = model,
                  .mesh = config.mesh,
                  .pipeline = config.pipeline,
                  .sharding = config.keeping.sharding,
                  .recompute = config.recompute,
                  .offload = config.activation_offload,
                  .precision = config.precision,
                  .freeze = config.freeze,
                  .parameters_in_files = !config.keeping.parameters_in.empty(),
                  .state_in_files = !config.keeping.state_in.empty(),
                  .tokens = longest,
                  .longest = longest,
                  .order = config.order};
  if (config.tuner == settings::Tuner::kLora) request.adapters = config.lora;
  if (config.data.share_passes) request.packed = config.data.max_length;
  request.cut_into(settings::accumulation_of(config.batch), config.batch.micro_batch_size);
  // Samples that are put together make fewer passes; virtual stages need as many as stages.
  if (config.chunks > 1)
    request.num_micro_batches = std::max(request.num_micro_batches, config.mesh.pipeline);
  return request;
}

}  // namespace danlu::plan
