#include "parallel/mesh.h"

#include <numeric>

#include "base/error.h"

namespace danlu::parallel {
namespace mesh_detail {

/// `count` groups of `size` ranks, `stride` apart; returns this rank's, or nullptr where groups
/// have one member.
std::unique_ptr<Group> group_of(World& world, int64_t size, int64_t stride) {
  if (size == 1) return nullptr;
  std::unique_ptr<Group> mine;
  for (int64_t first = 0; first < world.size(); ++first) {
    if (first / stride % size != 0) continue;
    std::vector<int64_t> ranks;
    for (int64_t i = 0; i < size; ++i) ranks.push_back(first + i * stride);
    if (auto group = world.make_group(ranks)) mine = std::move(group);
  }
  return mine;
}

const Group* or_alone(const std::unique_ptr<Group>& group) {
  return group ? group.get() : &Group::alone();
}

}  // namespace mesh_detail

std::unique_ptr<Group> World::make_group_of_all() {
  std::vector<int64_t> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  return make_group(ranks);
}

Mesh::Mesh() : tensor_(&Group::alone()), data_(&Group::alone()) {}

Mesh::Mesh(World& world, const MeshShape& shape) : shape_(shape), rank_(world.rank()) {
  if (shape.size() != world.size()) {
    throw InternalError("[mesh] " + std::to_string(shape.size()) + " places for " +
                        std::to_string(world.size()) + " ranks");
  }
  make_groups(world);
  if (shape.size() == 1) return;
  all_ = world.make_group_of_all();
  const auto again = [this] {
    std::unique_ptr<Mesh> same(new Mesh);
    same->shape_ = shape_;
    same->rank_ = rank_;
    return same;
  };
  background_ = again();
  background_->make_groups(world);
  saving_ = again();
  saving_->make_cutting_groups(world);
}

void Mesh::make_cutting_groups(World& world) {
  using mesh_detail::group_of, mesh_detail::or_alone;
  own_tensor_ = group_of(world, shape_.tensor, 1);
  tensor_ = or_alone(own_tensor_);
  if (shape_.are_some_sharers()) {
    own_sharers_ = group_of(world, shape_.sharers, shape_.tensor);
  } else {
    own_data_ = group_of(world, shape_.data, shape_.tensor);
    data_ = or_alone(own_data_);
  }
}

void Mesh::make_groups(World& world) {
  using mesh_detail::group_of, mesh_detail::or_alone;
  make_cutting_groups(world);
  if (shape_.are_some_sharers()) {
    own_data_ = group_of(world, shape_.data, shape_.tensor);
    data_ = or_alone(own_data_);
    own_replicas_ = group_of(world, shape_.data / shape_.sharers, shape_.tensor * shape_.sharers);
  }
  for (int64_t copies = 2; copies < shape_.tensor; ++copies) {
    if (shape_.tensor % copies == 0) copies_[copies] = group_of(world, copies, 1);
  }
}

const Group& Mesh::copies(int64_t copies) const {
  if (copies == 1) return Group::alone();
  if (copies == shape_.tensor) return *tensor_;
  return *copies_.at(copies);
}

void Mesh::abort() const {
  for (const auto& [size, group] : copies_) {
    if (group) group->abort();
  }
  for (const auto* group : {&own_tensor_, &own_data_, &own_sharers_, &own_replicas_, &all_}) {
    if (*group) (*group)->abort();
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
