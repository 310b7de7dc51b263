#include "settings/mesh_shape.h"

#include <map>

namespace danlu::settings {

using arch::Axes, arch::Axis;

int64_t MeshShape::size_of(Axis axis) const {
  switch (axis) {
    case Axis::kTensor:
      return tensor;
    case Axis::kContext:
      return context.size();
    case Axis::kExpert:
      return expert;
    case Axis::kData:
      return data / expert;
    case Axis::kPipeline:
      break;
  }
  return pipeline;
}

int64_t MeshShape::stride_of(Axis axis) const {
  int64_t stride = 1;
  for (const Axis inner : arch::kAllAxes) {
    if (inner == axis) break;
    stride *= size_of(inner);
  }
  return stride;
}

int64_t MeshShape::place_on(Axis axis, int64_t rank) const {
  return rank / stride_of(axis) % size_of(axis);
}

arch::Coord MeshShape::coord(int64_t rank) const {
  return {.tp_size = tensor,
          .tp_rank = place_on(Axis::kTensor, rank),
          .ep_size = expert,
          .ep_rank = place_on(Axis::kExpert, rank),
          .expert_dealers = expert_dealers};
}

Axes MeshShape::several_of(Axes axes) const {
  for (const Axis axis : arch::kAllAxes) {
    if (size_of(axis) == 1) axes = axes.without(axis);
  }
  return axes;
}

RankGroups ranks_over(const MeshShape& shape, Axes axes) {
  std::map<std::vector<int64_t>, std::vector<int64_t>> by_other_places;
  for (int64_t rank = 0; rank < shape.size(); ++rank) {
    std::vector<int64_t>
        others;  // outermost first, so that groups come in the order of their first
    for (auto axis = arch::kAllAxes.rbegin(); axis != arch::kAllAxes.rend(); ++axis)
      others.push_back(axes.has(*axis) ? 0 : shape.place_on(*axis, rank));
    by_other_places[others].push_back(rank);
  }
  RankGroups groups;
  for (auto& [places, ranks] : by_other_places) groups.push_back(std::move(ranks));
  return groups;
}

RankGroups neighbours_in(const RankGroups& groups, int64_t size) {
  RankGroups result;
  for (const std::vector<int64_t>& group : groups) {
    for (size_t i = 0; i < group.size(); ++i) {
      if (i % static_cast<size_t>(size) == 0) result.emplace_back();
      result.back().push_back(group[i]);
    }
  }
  return result;
}

RankGroups together_in(const RankGroups& one, const RankGroups& other) {
  std::map<int64_t, size_t> place_in_other;
  for (size_t i = 0; i < other.size(); ++i) {
    for (const int64_t rank : other[i]) place_in_other[rank] = i;
  }
  RankGroups result;
  for (const std::vector<int64_t>& group : one) {
    std::map<size_t, std::vector<int64_t>> parts;
    for (const int64_t rank : group) parts[place_in_other.at(rank)].push_back(rank);
    for (auto& [place, ranks] : parts) result.push_back(std::move(ranks));
  }
  return result;
}

RankGroups across(const RankGroups& parts, const RankGroups& whole) {
  std::map<int64_t, size_t> place_in_part;
  for (const std::vector<int64_t>& part : parts) {
    for (size_t i = 0; i < part.size(); ++i) place_in_part[part[i]] = i;
  }
  RankGroups result;
  for (const std::vector<int64_t>& group : whole) {
    std::map<size_t, std::vector<int64_t>> alike;
    for (const int64_t rank : group) alike[place_in_part.at(rank)].push_back(rank);
    for (auto& [place, ranks] : alike) result.push_back(std::move(ranks));
  }
  return result;
}

RankGroups sharers_over(const MeshShape& shape, Axes axes) {
  const RankGroups all = ranks_over(shape, axes);
  if (!shape.are_some_sharers()) return all;
  const Axes dense = {Axis::kContext, Axis::kExpert, Axis::kData};
  return together_in(all, neighbours_in(ranks_over(shape, dense), shape.sharers));
}

}  // namespace danlu::settings
