// train/rollouts/drawing_ranks.h: the ranks of a mesh as rollouts see them.
#pragma once
#include <memory>

#include "parallel/mesh.h"

namespace danlu::train {

/// Ranks that hold one model together draw the answers to the same prompts. Each that has the same
/// part of it on the tensor axis draws some of them.
class DrawingRanks {
 public:
  /// For a mesh where only ranks of the tensor axis hold one model together. It outlives the
  /// object.
  explicit DrawingRanks(const parallel::Mesh& mesh) : trained_(mesh) {}
  /// world: of the mesh; both outlive the object. Collective.
  DrawingRanks(parallel::World& world, const parallel::Mesh& mesh);

  /// The ranks that hold one model together and take the same batches.
  const parallel::Group& model() const {
    return has_own_groups_ ? or_alone(model_) : trained_.tensor();
  }
  /// The ranks of model() that have the same part on the tensor axis.
  const parallel::Group& drawers() const { return or_alone(drawers_); }
  /// One rank of each model.
  const parallel::Group& models() const {
    return has_own_groups_ ? or_alone(models_) : trained_.batch_ranks();
  }
  /// Whether answers need another layout than training.
  bool draws_otherwise() const { return draws_otherwise_; }
  /// The mesh in which answers are drawn: the tensor axis of the other. REQUIRES:
  /// draws_otherwise().
  const parallel::Mesh& mesh() const { return own_mesh_ ? *own_mesh_ : parallel::Mesh::single(); }

 private:
  using MaybeGroup = std::unique_ptr<parallel::Group>;
  static const parallel::Group& or_alone(const MaybeGroup& group) {
    return group ? *group : parallel::Group::alone();
  }
  const parallel::Mesh& trained_;
  bool draws_otherwise_ = false, has_own_groups_ = false;
  MaybeGroup model_, drawers_, models_;
  std::unique_ptr<parallel::Mesh> own_mesh_;
};

/// A signal asked the run to stop while answers were drawn or judged, on all ranks alike. What a
/// stream gives is as before the call, and the journal has what was drawn.
struct RolloutStopped {};
/// Throws RolloutStopped where a signal came to any rank. Collective over all ranks.
void stop_if_asked(const DrawingRanks& ranks);

}  // namespace danlu::train
