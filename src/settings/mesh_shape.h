// settings/mesh_shape.h: how many ranks stand along each axis, and who they are.
#pragma once
#include <cstdint>
#include <vector>

#include "arch/axes.h"
#include "arch/shard.h"
#include "settings/context_cut.h"

namespace danlu::settings {

/// Sizes of the axes. Ranks are numbered with the tensor axis innermost (neighbours on one
/// machine) and the pipeline outermost, as Megatron does:
/// rank = ((pipeline · data_size + data) · context_size + context) · tensor_size + tensor.
struct MeshShape {
  int64_t tensor = 1, data = 1, pipeline = 1;
  ContextShape context = {};
  bool sequence_parallel = false;  ///< between regions, ranks of the tensor axis share the rows
  /// How many neighbours among the ranks that hold the same share what Keeping says. With fewer
  /// than all of them, each group of neighbours shares for itself (hybrid sharding). 0: all of
  /// them.
  int64_t sharers = 0;
  /// Stages hold several chunks of layers each (arch::Stage), so the last stage gives to the first.
  bool ring = false;
  /// How many neighbours on the data axis a layer's experts are divided among; divides `data`.
  int64_t expert = 1;
  /// Into how many runs of neighbours the tensor axis falls, each of which has experts of its own
  /// and cuts every one of them. 1: all tensor ranks cut every expert; `tensor`: experts are whole.
  int64_t expert_dealers = 1;
  /// Rows travel to experts and back beside what the passes compute.
  bool overlaps_experts = true;

  /// How many ranks of the tensor axis cut each expert.
  int64_t expert_tensor() const { return tensor / expert_dealers; }

  /// The axes along which ranks have other experts.
  arch::Axes expert_axes() const {
    return expert_dealers > 1 ? arch::Axes{arch::Axis::kTensor, arch::Axis::kExpert}
                              : arch::Axes{arch::Axis::kExpert};
  }
  /// The number of ranks along an axis. Those along the data axis are counted without the expert
  /// axis, which is its inner part.
  int64_t size_of(arch::Axis axis) const;
  /// The position of `rank` along an axis.
  int64_t place_on(arch::Axis axis, int64_t rank) const;
  /// The position of `rank` on the axes that cut parameters.
  arch::Coord coord(int64_t rank) const;
  /// The axes in `axes` along which more than one rank stands.
  arch::Axes several_of(arch::Axes axes) const;

  /// The number of ranks that hold the same parameters, experts aside: those along the data and the
  /// context axis.
  int64_t model_copies() const { return data * context.size(); }
  bool are_some_sharers() const { return sharers > 1 && sharers < model_copies(); }
  int64_t size() const { return tensor * model_copies() * pipeline; }
  /// The number of ranks that compute one micro-batch together.
  int64_t per_batch() const { return tensor * context.size() * pipeline; }
  /// The number of ranks in a stage.
  int64_t stage_size() const { return tensor * model_copies(); }
  /// The number by which `rank` takes its batches; ranks that compute one together have the same.
  int64_t data_rank(int64_t rank) const { return rank / tensor / context.size() % data; }
  int64_t stage(int64_t rank) const { return place_on(arch::Axis::kPipeline, rank); }

 private:
  /// The difference between the numbers of two neighbours along an axis.
  int64_t stride_of(arch::Axis axis) const;
};

/// The ranks of a mesh in groups. Each rank is in one; ranks ascend within a group.
using RankGroups = std::vector<std::vector<int64_t>>;

/// Puts ranks into one group if they differ only in their positions on `axes`.
RankGroups ranks_over(const MeshShape& shape, arch::Axes axes);
/// Divides every group into groups of `size` neighbours. REQUIRES: `size` divides their sizes.
RankGroups neighbours_in(const RankGroups& groups, int64_t size);
/// Puts ranks into one group if both `one` and `other` have them in one group.
RankGroups together_in(const RankGroups& one, const RankGroups& other);
/// Puts ranks of a group of `whole` into one group if they have the same position in their parts.
/// REQUIRES: `parts` divides each group of `whole` into parts of one size.
RankGroups across(const RankGroups& parts, const RankGroups& whole);

/// Puts ranks into one group if they hold the same of a parameter that is copied on `axes`, and
/// share it.
RankGroups sharers_over(const MeshShape& shape, arch::Axes axes);

}  // namespace danlu::settings
