#include "train/rollouts/drawing_ranks.h"

#include "base/interrupt.h"
#include "parallel/agree.h"

namespace danlu::train {

DrawingRanks::DrawingRanks(parallel::World& world, const parallel::Mesh& mesh) : trained_(mesh) {
  const parallel::MeshShape& shape = mesh.shape();
  const bool is_cut_otherwise = shape.pipeline > 1 || !shape.context.is_alone();
  draws_otherwise_ = is_cut_otherwise || shape.expert > 1 || shape.sequence_parallel;
  if (!draws_otherwise_) return;
  if (is_cut_otherwise) {
    has_own_groups_ = true;
    const auto over = [&](arch::Axes axes) {
      return world.make_groups(settings::ranks_over(shape, axes));
    };
    model_ = over({arch::Axis::kTensor, arch::Axis::kContext, arch::Axis::kPipeline});
    drawers_ = over({arch::Axis::kContext, arch::Axis::kPipeline});
    models_ = over({arch::Axis::kExpert, arch::Axis::kData});
  }
  if (shape.tensor == 1) return;
  parallel::MeshShape drawing;
  drawing.tensor = shape.tensor;
  drawing.data = shape.size() / shape.tensor;
  drawing.expert_dealers = shape.expert_dealers;
  own_mesh_ = std::make_unique<parallel::Mesh>(world, drawing);
}

void stop_if_asked(const DrawingRanks& ranks) {
  const int64_t of_model = parallel::largest_of(ranks.model(), pending_interrupt());
  if (parallel::largest_of(ranks.models(), of_model) != 0) throw RolloutStopped();
}

}  // namespace danlu::train
