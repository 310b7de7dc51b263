#include "settings/options/teacher.h"

#include "arch/pipeline.h"
#include "arch/shard.h"
#include "base/error.h"
#include "settings/model_source.h"

namespace danlu::settings {

void check_teacher(const TrainConfig& config, const arch::ModelConfig& model) {
  if (config.objective.kind != ObjectiveKind::kDistillation) return;
  ModelSource source;
  source.path = config.objective.reference;
  const arch::ModelConfig teacher = open_model(source).config;
  const std::string flag = config.flag("teacher_model"), path = source.path.string();
  const int64_t stages = config.pipeline.stages;
  if (teacher.num_layers < stages) {
    throw UsageError(tr("[train] {} {}: {} layers, of which {} pipeline stages cannot all have one",
                        flag, path, teacher.num_layers, stages));
  }
  try {
    arch::require_divides(teacher, config.mesh.tensor);
    (void)arch::stages_of(
        teacher, arch::split_beside(config.pipeline, model.num_layers, teacher.num_layers));
  } catch (const UsageError& error) {
    throw UsageError(tr("[train] {} {} cannot be cut: {}", flag, path, error.what()), error.hint());
  }
}

}  // namespace danlu::settings
