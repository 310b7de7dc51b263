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
  using mesh_detail::group_of, mesh_detail::or_alone;
  if (shape.size() != world.size()) {
    throw InternalError("[mesh] " + std::to_string(shape.size()) + " places for " +
                        std::to_string(world.size()) + " ranks");
  }
  own_tensor_ = group_of(world, shape.tensor, 1);
  own_data_ = group_of(world, shape.data, shape.tensor);
  for (int64_t copies = 2; copies < shape.tensor; ++copies) {
    if (shape.tensor % copies == 0) copies_[copies] = group_of(world, copies, 1);
  }
  tensor_ = or_alone(own_tensor_);
  data_ = or_alone(own_data_);
}

const Group& Mesh::copies(int64_t copies) const {
  if (copies == 1) return Group::alone();
  if (copies == shape_.tensor) return *tensor_;
  return *copies_.at(copies);
}

arch::Coord Mesh::coord() const {
  return {.tp_size = shape_.tensor, .tp_rank = rank_ % shape_.tensor};
}

const Mesh& Mesh::single() {
  static const Mesh mesh;
  return mesh;
}

}  // namespace danlu::parallel
