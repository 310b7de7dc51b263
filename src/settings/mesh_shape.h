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
  /// Neighbours among the copies of whom each keeps its share of what Keeping says; other
  /// neighbours keep the same again (hybrid sharding). 0: all copies.
  int64_t sharers = 0;
  /// Stages hold several runs of layers each (arch::Stage): the last one gives to the first.
  bool ring = false;
  /// Neighbours of the data axis over whom a layer's experts are dealt; divides `data`.
  int64_t expert = 1;

  /// Ranks along an axis; along the data axis without the expert axis, which is its inner part.
  int64_t size_of(arch::Axis axis) const;
  /// Where `rank` stands along it.
  int64_t place_on(arch::Axis axis, int64_t rank) const;
  /// Where it stands on the axes that cut parameters.
  arch::Coord coord(int64_t rank) const;
  /// Those of `axes` along which more than one rank stands.
  arch::Axes several_of(arch::Axes axes) const;

  /// Ranks that hold the same parameters, experts aside: those of the data and the context axis.
  int64_t copies() const { return data * context.size(); }
  bool are_some_sharers() const { return sharers > 1 && sharers < copies(); }
  int64_t size() const { return tensor * copies() * pipeline; }
  /// Ranks that compute one micro-batch between them.
  int64_t per_batch() const { return tensor * context.size() * pipeline; }
  /// Of a stage.
  int64_t stage_size() const { return tensor * copies(); }
  /// Of whom the batches are.
  int64_t data_rank(int64_t rank) const { return rank / tensor / context.size() % data; }
  int64_t stage(int64_t rank) const { return place_on(arch::Axis::kPipeline, rank); }

 private:
  /// Between the numbers of neighbours along an axis.
  int64_t stride_of(arch::Axis axis) const;
};

/// All ranks of a mesh in groups, each rank in one; ascending.
using RankGroups = std::vector<std::vector<int64_t>>;

/// Those that differ in nothing but their places on `axes`.
RankGroups ranks_over(const MeshShape& shape, arch::Axes axes);
/// `size` neighbours of a group at a time. REQUIRES: it divides every group's size.
RankGroups neighbours_in(const RankGroups& groups, int64_t size);
/// Those that are in one group of both.
RankGroups together_in(const RankGroups& one, const RankGroups& other);
/// Those of a group of `whole` that have the same place in the parts of it that they stand in.
/// REQUIRES: `parts` divide the groups of `whole` into parts of one size.
RankGroups across(const RankGroups& parts, const RankGroups& whole);

/// Those that hold the same of a parameter that is copied on `axes`, and keep shares of it between
/// them.
RankGroups sharers_over(const MeshShape& shape, arch::Axes axes);

}  // namespace danlu::settings
