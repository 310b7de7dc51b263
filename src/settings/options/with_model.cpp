#include "settings/options/with_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "arch/gated_delta.h"
#include "arch/pipeline.h"
#include "arch/shard.h"
#include "base/error.h"
#include "settings/options/adapter_flags.h"
#include "settings/options/data_options.h"
#include "settings/options/module_names.h"
#include "settings/options/processes.h"
#include "settings/options/recompute.h"
#include "settings/run_plan.h"

namespace danlu::settings {
namespace {

void require_positions(const arch::ModelConfig& model, const TrainConfig& config) {
  const int64_t positions = longest_sample(config.verb, model);
  // LLaMA-Factory does not look; its rows do, once their tokens are there.
  if (config.data.max_length <= positions || config.profile.name == "llamafactory") return;
  throw UsageError(
      tr("[train] {} {} exceeds the model's {} positions", config.flag("max_length"),
         config.data.max_length, positions),
      tr("give --max_length {}; where nothing names it, the model's own limit is taken, up "
         "to 2048",
         positions));
}

/// chunks: of each stage.
PipelineWithModel pipeline_of_chunks(int64_t chunks, const TrainConfig& config) {
  const int64_t stages = config.mesh.pipeline, micro_batches = accumulation_of(config.batch);
  const int64_t batch = config.batch.micro_batch_size * config.batch.ranks * stages;
  require_schedule({config.order, config.keeping.sharding, stages, chunks, micro_batches},
                   config.batch.global_batch_size > 0
                       ? fmt::format("{} {}", config.flag("global_batch_size"), batch)
                       : fmt::format("{} {}", config.flag("accum"), stages));
  const bool is_one_virtual_stage =
      chunks == 1 && config.order == arch::PipelineOrder::kInterleaved;
  return {chunks, chunks > 1,
          is_one_virtual_stage ? arch::PipelineOrder::kOneForwardOneBackward : config.order};
}

}  // namespace

PipelineWithModel check_with_model(const Options& options, const arch::ModelConfig& model,
                                   const TrainConfig& config) {
  require_positions(model, config);
  arch::require_divides(model, config.mesh.tensor);
  arch::require_whole_sequences(model, config.mesh.context.size());
  require_shared_heads(options, model, config.mesh);
  require_shared_experts(options, model, config.mesh);
  const std::vector<arch::Stage> stages = arch::stages_of(model, config.pipeline);
  const PipelineWithModel pipeline = pipeline_of_chunks(stages.front().num_chunks(), config);
  size_t layers = 0;
  for (const arch::Stage& stage : stages) layers = std::max(layers, stage.layers().size());
  report_more_layers(options, static_cast<int64_t>(layers));
  if (!config.model.adapter.empty())
    check_adapter_flags(options, config.model.adapter, config.lora.target_modules, model);
  check_module_names(config, model);
  return pipeline;
}

}  // namespace danlu::settings
