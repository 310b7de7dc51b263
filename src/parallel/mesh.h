// parallel/mesh.h: which groups a rank belongs to, one per axis of parallelism.
#pragma once
#include <array>
#include <cstddef>

#include "parallel/group.h"

namespace danlu::parallel {

enum class Axis { kTensor, kPipeline, kData, kContext, kExpert };
inline constexpr size_t kNumAxes = 5;

/// Immutable. Does not own its groups; they must outlive it.
class Mesh {
 public:
  /// All axes of size 1.
  Mesh() { groups_.fill(&Group::alone()); }
  explicit Mesh(const std::array<const Group*, kNumAxes>& groups) : groups_(groups) {}

  const Group& group(Axis axis) const { return *groups_[static_cast<size_t>(axis)]; }
  /// Ranks in all: the product over axes.
  int64_t size() const {
    int64_t product = 1;
    for (const Group* group : groups_) product *= group->size();
    return product;
  }
  /// The mesh of one rank.
  static const Mesh& single();

 private:
  std::array<const Group*, kNumAxes> groups_;
};

}  // namespace danlu::parallel
