#include "parallel/mesh.h"

#include <numeric>

#include "base/error.h"

namespace danlu::parallel {
namespace mesh_detail {

void require_places(const World& world, const MeshShape& shape) {
  if (shape.size() == world.size()) return;
  throw InternalError("[mesh] " + std::to_string(shape.size()) + " places for " +
                      std::to_string(world.size()) + " ranks");
}

}  // namespace mesh_detail

std::unique_ptr<Group> World::make_group_of_all() {
  std::vector<int64_t> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  return make_group(ranks);
}

std::unique_ptr<Group> World::make_groups(int64_t size, int64_t stride) {
  if (size == 1) return nullptr;
  std::unique_ptr<Group> mine;
  for (int64_t first = 0; first < this->size(); ++first) {
    if (first / stride % size != 0) continue;
    std::vector<int64_t> ranks;
    for (int64_t i = 0; i < size; ++i) ranks.push_back(first + i * stride);
    if (auto group = make_group(ranks)) mine = std::move(group);
  }
  return mine;
}

ModelGroups::ModelGroups(World& world, const MeshShape& shape, bool with_stages)
    : own_tensor_((mesh_detail::require_places(world, shape), world.make_groups(shape.tensor, 1))),
      own_sharers_(world.make_groups(shape.are_some_sharers() ? shape.sharers : shape.copies(),
                                     shape.tensor)),
      own_pipeline_(with_stages ? world.make_groups(shape.pipeline, shape.stage_size()) : nullptr),
      tensor_(&or_alone(own_tensor_)),
      sharers_(&or_alone(own_sharers_)) {}

void ModelGroups::abort() const {
  tensor_->abort();
  sharers_->abort();
  pipeline().abort();
}

PassGroups::PassGroups(World& world, const MeshShape& shape, bool with_stages)
    : ModelGroups(world, shape, with_stages) {
  if (shape.are_some_sharers()) {
    own_data_ = world.make_groups(shape.copies(), shape.tensor);
    own_replicas_ = world.make_groups(shape.copies() / shape.sharers, shape.tensor * shape.sharers);
  }
  for (int64_t copies = 2; copies < shape.tensor; ++copies) {
    if (shape.tensor % copies == 0) copies_[copies] = world.make_groups(copies, 1);
  }
}

const Group& PassGroups::copies(int64_t copies) const {
  if (copies == 1) return Group::alone();
  if (copies == tensor().size()) return tensor();
  return *copies_.at(copies);
}

void PassGroups::abort() const {
  ModelGroups::abort();
  for (const auto& [size, group] : copies_) {
    if (group) group->abort();
  }
  data().abort();
  replicas().abort();
}

Mesh::Mesh(World& world, const MeshShape& shape, std::unique_ptr<Group> all)
    : PassGroups(world, shape), shape_(shape), rank_(world.rank()) {
  if (shape.size() == 1) return;
  all_ = all ? std::move(all) : world.make_group_of_all();
  background_ = std::make_unique<PassGroups>(world, shape, /*with_stages=*/false);
  saving_ = std::make_unique<ModelGroups>(world, shape);
  context_ = std::make_unique<Context>(world, shape.context, shape.tensor);
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

void Mesh::abort() const {
  PassGroups::abort();
  all().abort();
  ends().abort();
  context_->abort();
  for (const Link& link : links_) {
    or_alone(link.previous).abort();
    or_alone(link.next).abort();
  }
}

arch::Coord Mesh::coord() const {
  return {.tp_size = shape_.tensor, .tp_rank = rank_ % shape_.tensor};
}

const Mesh& Mesh::single() {
  static const Mesh mesh;
  return mesh;
}

}  // namespace danlu::parallel
