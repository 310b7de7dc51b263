// settings/options/processes.h: flags about the processes that train together.
#pragma once
#include <cstdint>

#include "arch/model_config.h"
#include "arch/pipeline.h"
#include "arch/placement.h"
#include "base/options.h"
#include "base/rank_place.h"
#include "settings/config.h"
#include "settings/mesh_shape.h"
#include "settings/sharing.h"

namespace danlu::settings {

/// Says what of --fsdp, --shard, --offload is ignored, and that a line's number of processes is not
/// that of those that were started. Errors: UsageError for words that these flags do not have.
void explain_processes(const Options& options, const RankPlace& place);

/// How the processes of a job share the work, and wait for each other.
struct Processes {
  RankPlace place;
  int64_t data_ranks_of_job = 1;  ///< more than mesh.data where some ranks of a job are lost
  MeshShape mesh;                 ///< of those that are there
  arch::PipelineLayers pipeline;
  arch::PipelineOrder order = arch::PipelineOrder::kOneForwardOneBackward;
  bool shares_cache = true;
  double dist_timeout_s = 0;
};
/// place: of this process; of a plan, that of rank 0. Errors: as mesh_from, pipeline_from and
/// order_from; UsageError where the ranks that are left cannot compute whole micro-batches.
Processes processes_from(const Options& options, const RankPlace& place, bool is_planned);

/// How `processes` share the work. Errors: UsageError for axes that this version does not have,
/// sizes that do not divide, and those of several processes where one runs.
MeshShape mesh_from(const Options& options, int64_t processes);

/// Errors: UsageError where experts cannot be divided as the mesh says.
void require_shared_experts(const Options& options, const arch::ModelConfig& model,
                            const MeshShape& shape);

/// Errors: UsageError with the sizes that do, unless the ranks that exchange heads for tokens can
/// share those that a tensor rank has.
void require_shared_heads(const Options& options, const arch::ModelConfig& model,
                          const MeshShape& shape);

/// What the parts of a schedule ask of each other.
struct ScheduleOf {
  arch::PipelineOrder order;
  Sharding sharding;
  int64_t stages, chunks;  ///< chunks: virtual stages of each stage
  int64_t micro_batches;   ///< of a step
};
/// Errors: UsageError; `remedy`: the flag, with its value, that gives enough micro-batches.
void require_schedule(const ScheduleOf& schedule, const std::string& remedy);

/// Which layers each stage has. Errors: UsageError for numbers that are none.
arch::PipelineLayers pipeline_from(const Options& options);
/// Megatron's --decoder-first-pipeline-num-layers and the last's: the layers of the first and of
/// the last stage; the others share the rest. Errors: UsageError where they cannot, and beside a
/// list.
void put_end_stages(const Options& options, int64_t num_layers, arch::PipelineLayers& split);
/// In which order stages work. Errors: UsageError for flags that exclude each other.
arch::PipelineOrder order_from(const Options& options, const arch::PipelineLayers& split);

}  // namespace danlu::settings
