#include "parallel/mesh.h"

#include <numeric>

#include "base/error.h"
#include "parallel/agree.h"

namespace danlu::parallel {

using arch::Axes, arch::Axis;

namespace {

/// On which axes beside the pipeline parameters are cut, and beside the tensor axis copied: those
/// of experts, and all others.
const std::vector<Axes> kCut = {
    {}, {Axis::kTensor}, {Axis::kTensor, Axis::kExpert}, {Axis::kExpert}};
const std::vector<Axes> kCopied = {ModelGroups::kEveryCopy, {Axis::kContext, Axis::kData}};

void require_places(const World& world, const MeshShape& shape) {
  if (shape.expert > 1 && shape.are_some_sharers() &&
      shape.sharers % (shape.context.size() * shape.expert) != 0)
    throw InternalError("[mesh] neighbours that share must have every expert between them");
  if (shape.size() == world.size()) return;
  throw InternalError("[mesh] " + std::to_string(shape.size()) + " places for " +
                      std::to_string(world.size()) + " ranks");
}

}  // namespace

std::unique_ptr<Group> World::make_group_of_all() {
  std::vector<int64_t> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  return make_group(ranks);
}

std::unique_ptr<Group> World::make_groups(const settings::RankGroups& groups) {
  std::unique_ptr<Group> mine;
  for (const std::vector<int64_t>& ranks : groups) {
    if (ranks.size() == 1) continue;
    if (auto group = make_group(ranks)) mine = std::move(group);
  }
  return mine;
}

GroupsOver::GroupsOver(World& world, const MeshShape& shape, const std::vector<Axes>& sets,
                       const std::function<settings::RankGroups(Axes)>& ranks_of)
    : shape_(shape) {
  for (const Axes set : sets) {
    const Axes axes = shape.several_of(set);
    if (!groups_.count(axes)) groups_[axes] = world.make_groups(ranks_of(axes));
  }
}

const Group& GroupsOver::at(Axes axes) const {
  const auto found = groups_.find(shape_.several_of(axes));
  if (found == groups_.end()) throw InternalError("[mesh] no groups were made over these axes");
  return found->second ? *found->second : Group::alone();
}

void GroupsOver::abort() const {
  for (const auto& [axes, group] : groups_) {
    if (group) group->abort();
  }
}

ModelGroups::ModelGroups(World& world, const MeshShape& shape, bool with_stages) {
  require_places(world, shape);
  cutting_.emplace(world, shape, kCut,
                   [&](Axes axes) { return settings::ranks_over(shape, axes); });
  sharers_.emplace(world, shape, kCopied,
                   [&](Axes axes) { return settings::sharers_over(shape, axes); });
  if (with_stages)
    own_pipeline_ = world.make_groups(settings::ranks_over(shape, {Axis::kPipeline}));
}

const Group& ModelGroups::cutting(Axes cut_on) const {
  return cutting_ ? cutting_->at(cut_on.without(Axis::kPipeline)) : Group::alone();
}

const Group& ModelGroups::sharers(Axes copied_on) const {
  return sharers_ ? sharers_->at(copied_on.without(Axis::kTensor)) : Group::alone();
}

void ModelGroups::abort() const {
  if (cutting_) cutting_->abort();
  if (sharers_) sharers_->abort();
  pipeline().abort();
}

PassGroups::PassGroups(World& world, const MeshShape& shape, bool with_stages)
    : ModelGroups(world, shape, with_stages) {
  if (shape.are_some_sharers()) {
    holders_.emplace(world, shape, kCopied,
                     [&](Axes axes) { return settings::ranks_over(shape, axes); });
    replicas_.emplace(world, shape, kCopied, [&](Axes axes) {
      return settings::across(settings::sharers_over(shape, axes),
                              settings::ranks_over(shape, axes));
    });
  }
  const settings::RankGroups tensor = settings::ranks_over(shape, {Axis::kTensor});
  for (int64_t count = 2; count < shape.tensor; ++count) {
    if (shape.tensor % count == 0)
      neighbours_[count] = world.make_groups(settings::neighbours_in(tensor, count));
  }
}

const Group& PassGroups::holders(Axes copied_on) const {
  return holders_ ? holders_->at(copied_on.without(Axis::kTensor)) : sharers(copied_on);
}

const Group& PassGroups::replicas(Axes copied_on) const {
  return replicas_ ? replicas_->at(copied_on.without(Axis::kTensor)) : Group::alone();
}

const Group& PassGroups::neighbours(int64_t count) const {
  if (count == 1) return Group::alone();
  if (count == tensor().size()) return tensor();
  return *neighbours_.at(count);
}

void PassGroups::abort() const {
  ModelGroups::abort();
  for (const auto& [size, group] : neighbours_) {
    if (group) group->abort();
  }
  if (holders_) holders_->abort();
  if (replicas_) replicas_->abort();
}

Mesh::Mesh(World& world, const MeshShape& shape, std::unique_ptr<Group> all)
    : PassGroups(world, shape), shape_(shape), rank_(world.rank()) {
  if (shape.size() == 1) return;
  all_ = all ? std::move(all) : world.make_group_of_all();
  background_ = std::make_unique<PassGroups>(world, shape, /*with_stages=*/false);
  saving_ = std::make_unique<ModelGroups>(world, shape);
  context_ = std::make_unique<Context>(world, shape);
  if (shape.expert > 1 && shape.overlaps_experts) {
    experts_beside_ = std::make_unique<AsyncExchange>(
        world.make_groups(settings::ranks_over(shape, {Axis::kExpert})));
  }
  make_links(world);
}

void Mesh::make_links(World& world) {
  if (shape_.pipeline == 1) return;
  const int64_t between = shape_.stage_size();
  for (Link& link : links_) {
    for (int64_t rank = 0; rank + between < world.size(); ++rank) {
      auto group = world.make_group({rank, rank + between});
      if (group) (rank == rank_ ? link.next : link.previous) = std::move(group);
    }
    for (int64_t rank = 0; shape_.ring && rank < between; ++rank) {
      auto group = world.make_group({rank, rank + (shape_.pipeline - 1) * between});
      if (group) (rank == rank_ ? link.previous : link.next) = std::move(group);
    }
  }
  for (int64_t rank = 0; rank < between; ++rank) {
    auto group = world.make_group({rank, rank + (shape_.pipeline - 1) * between});
    if (group) own_ends_ = std::move(group);
  }
}

int64_t Mesh::sum_over_stages(int64_t common, int64_t of_experts) const {
  return sum_of(pipeline(), common + sum_of(cutting(shape_.expert_axes()), of_experts));
}

void Mesh::abort() const {
  PassGroups::abort();
  all().abort();
  ends().abort();
  context_->abort();
  if (experts_beside_) experts_beside_->abort();
  for (const Link& link : links_) {
    or_alone(link.previous).abort();
    or_alone(link.next).abort();
  }
}

const Mesh& Mesh::single() {
  static const Mesh mesh;
  return mesh;
}

}  // namespace danlu::parallel
