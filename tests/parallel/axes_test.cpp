// Along which axes parameters are cut and copied: for every family and mesh.
#include "arch/axes.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "arch/pipeline.h"
#include "parallel/comm/local.h"
#include "parallel/mesh.h"
#include "parallel/parameter.h"
#include "parallel/whole_tensors.h"
#include "support/tiny_model.h"

namespace danlu::parallel {
namespace {

using arch::Axes, arch::Axis, arch::ParamSpec;
using settings::RankGroups, settings::ranks_over;
using testing::ElementsAre;

arch::ModelConfig config_of(const std::string& family) {
  return arch::parse_model_config(test::tiny_config(family), family);
}

/// Meshes of up to 32 ranks that the model can be cut for.
std::vector<MeshShape> shapes_for(const arch::ModelConfig& config) {
  std::vector<MeshShape> shapes;
  for (const int64_t tensor : {1, 2, 4}) {
    for (const int64_t data : {1, 2, 4}) {
      for (const int64_t pipeline : {1, 2}) {
        for (const int64_t ulysses : {1, 2}) {
          for (const int64_t expert : {1, 2, 4}) {
            const bool fits = expert == 1 || (data % expert == 0 && config.has_experts());
            const MeshShape shape{.tensor = tensor,
                                  .data = data,
                                  .pipeline = pipeline,
                                  .context = {.ulysses = ulysses},
                                  .expert = expert};
            if (fits && shape.size() <= 32) shapes.push_back(shape);
          }
        }
      }
    }
  }
  return shapes;
}

/// How many ranks of the group hold each element.
at::Tensor holders_of(const arch::ModelConfig& config, const ParamSpec& spec,
                      const MeshShape& shape, const std::vector<int64_t>& ranks, bool weighted) {
  const arch::Rect matrix = arch::matrix_of(spec.shape);
  at::Tensor held = at::zeros({matrix.rows, matrix.cols}, at::kDouble);
  for (const int64_t rank : ranks) {
    for (const auto& [rect, holders] : held_rects(config, spec, shape.coord(rank))) {
      held.narrow(0, rect.row, rect.rows)
          .narrow(1, rect.col, rect.cols)
          .add_(weighted ? 1.0 / static_cast<double>(holders) : 1.0);
    }
  }
  return held;
}

void expect_covered(const arch::ModelConfig& config, const MeshShape& shape,
                    const arch::Stage& stage, int64_t number) {
  const auto is_of_stage = [&](const std::vector<int64_t>& ranks) {
    return shape.stage(ranks.front()) == number;
  };
  for (const ParamSpec& spec : arch::parameters_of(config)) {
    if (!stage.holds(spec)) continue;
    for (const Axis axis : arch::kAllAxes)
      ASSERT_NE(spec.cut_on().has(axis), spec.copied_on().has(axis)) << spec.name;
    for (const std::vector<int64_t>& ranks : ranks_over(shape, spec.copied_on())) {
      if (!is_of_stage(ranks)) continue;
      for (const int64_t rank : ranks)
        ASSERT_EQ(arch::shard(config, spec, shape.coord(rank)),
                  arch::shard(config, spec, shape.coord(ranks.front())))
            << spec.name << " of ranks " << rank << " and " << ranks.front();
    }
    for (const auto& ranks : ranks_over(shape, spec.cut_on().without(Axis::kPipeline))) {
      if (!is_of_stage(ranks)) continue;
      // What is copied along the whole tensor axis is counted there.
      const double times = spec.cut_on().has(Axis::kTensor)
                               ? 1.0
                               : 1.0 / static_cast<double>(shape.size_of(Axis::kTensor));
      const at::Tensor held = holders_of(config, spec, shape, ranks, /*weighted=*/true);
      ASSERT_TRUE(held.eq(times).all().item<bool>()) << spec.name;
    }
  }
}

TEST(Axes, EveryElementIsHeldOnceWhereItIsCutAndAlikeWhereItIsCopied) {
  int64_t meshes = 0;
  for (const arch::Family& family : arch::families()) {
    const arch::ModelConfig config = config_of(family.name);
    for (const MeshShape& shape : shapes_for(config)) {
      SCOPED_TRACE(testing::Message()
                   << family.name << " tensor " << shape.tensor << " data " << shape.data
                   << " expert " << shape.expert << " pipeline " << shape.pipeline);
      if (config.num_kv_heads % shape.tensor != 0 && shape.tensor % config.num_kv_heads != 0)
        continue;
      const auto stages = arch::stages_of(config, {.stages = shape.pipeline});
      for (int64_t stage = 0; stage < shape.pipeline; ++stage)
        expect_covered(config, shape, stages[static_cast<size_t>(stage)], stage);
      ++meshes;
    }
  }
  EXPECT_GT(meshes, 200);
}

TEST(Axes, RanksAreNumberedFromTheTensorAxisOutwards) {
  const MeshShape shape{.tensor = 2, .data = 4, .pipeline = 2, .expert = 2};
  EXPECT_THAT(ranks_over(shape, {Axis::kTensor})[1], ElementsAre(2, 3));
  EXPECT_THAT(ranks_over(shape, {Axis::kExpert})[1], ElementsAre(1, 3));
  EXPECT_THAT(ranks_over(shape, {Axis::kData})[2], ElementsAre(2, 6));
  EXPECT_THAT(ranks_over(shape, {Axis::kExpert, Axis::kData})[0], ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(ranks_over(shape, {Axis::kPipeline})[3], ElementsAre(3, 11));
  EXPECT_EQ(ranks_over(shape, {}).size(), 16u);
}

// Eight copies of dense parameters in blocks of four: two ranks of each keep shares of one expert.
TEST(Axes, NeighboursThatShareAreThoseOfABlockThatHoldTheSame) {
  const MeshShape shape{.data = 8, .sharers = 4, .expert = 2};
  const Axes dense = ModelGroups::kEveryCopy, experts = {Axis::kContext, Axis::kData};
  EXPECT_THAT(settings::sharers_over(shape, dense),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
  const RankGroups of_experts = settings::sharers_over(shape, experts);
  EXPECT_THAT(of_experts, ElementsAre(ElementsAre(0, 2), ElementsAre(4, 6), ElementsAre(1, 3),
                                      ElementsAre(5, 7)));
  EXPECT_THAT(
      settings::across(of_experts, ranks_over(shape, experts)),
      ElementsAre(ElementsAre(0, 4), ElementsAre(2, 6), ElementsAre(1, 5), ElementsAre(3, 7)));
}

TEST(Axes, AMeshHasTheGroupsOfEveryParameter) {
  const arch::ModelConfig config = config_of("mixtral");
  const MeshShape shape{.tensor = 2, .data = 4, .expert = 2};
  run_local_ranks(shape.size(), [&](World& world) {
    const Mesh mesh(world, shape);
    const auto sum_over = [&](const Group& group) {
      at::Tensor sum = at::full({1}, world.rank(), at::kLong);
      group.all_reduce_sum(sum);
      return sum.item<int64_t>();
    };
    const auto sum_of = [&](Axes axes) {
      int64_t sum = 0;
      for (const auto& ranks : ranks_over(shape, axes)) {
        if (std::count(ranks.begin(), ranks.end(), world.rank()) == 0) continue;
        for (const int64_t rank : ranks) sum += rank;
      }
      return sum;
    };
    for (const ParamSpec& spec : arch::parameters_of(config)) {
      const Axes copied_on = spec.copied_on().without(Axis::kTensor);
      const Axes cut_on = spec.cut_on().with(Axis::kTensor).without(Axis::kPipeline);
      EXPECT_EQ(sum_over(mesh.holders(spec.copied_on())), sum_of(copied_on)) << spec.name;
      EXPECT_EQ(sum_over(mesh.background().sharers(spec.copied_on())), sum_of(copied_on));
      EXPECT_EQ(sum_over(mesh.saving().cutting(cut_on)), sum_of(cut_on)) << spec.name;
    }
  });
}

/// Different numbers for every parameter.
at::Tensor values_of(const ParamSpec& spec) {
  const arch::Rect matrix = arch::matrix_of(spec.shape);
  return (at::arange(matrix.rows * matrix.cols, at::kFloat) +
          1000.0 * static_cast<double>(hash_bytes(spec.name) % 1000))
      .view(spec.shape);
}

TEST(Axes, ExpertsOfOtherRanksAreSavedToo) {
  const arch::ModelConfig config = config_of("mixtral");
  const MeshShape shape{.tensor = 2, .data = 4, .expert = 2};
  for (const bool shares : {false, true}) {
    SCOPED_TRACE(shares);
    run_local_ranks(shape.size(), [&](World& world) {
      const Mesh mesh(world, shape);
      std::vector<Parameter> parts;
      for (const ParamSpec& spec : arch::parameters_of(config)) {
        Parameter part;
        part.spec = spec;
        part.place = arch::whole_of(config).place_of(spec);
        part.rects = held_rects(config, spec, mesh.coord());
        part.tensor = cut_out(values_of(spec), part.rects);
        parts.push_back(part);
      }
      std::vector<Parameter*> places;
      for (Parameter& part : parts) places.push_back(&part);
      ParameterStore store(mesh, {.sharding = Sharding::kParameters},
                           {{{0, config.num_layers + 1}}, config.num_layers + 1});
      if (shares) store.lay_out(places, /*keeps_values=*/true);
      if (!shares && mesh.holders({Axis::kContext, Axis::kData}).rank() > 0) return;
      const WholeTensors whole(mesh, parts, shares ? &store : nullptr);
      if (!whole.asks()) return whole.serve();
      ASSERT_EQ(whole.all().size(), parts.size());
      for (size_t i = 0; i < parts.size(); ++i) {
        const std::string& name = whole.all()[i].name;
        const auto part = std::find_if(parts.begin(), parts.end(),
                                       [&](const Parameter& one) { return one.name() == name; });
        ASSERT_NE(part, parts.end()) << name;
        EXPECT_TRUE(at::equal(whole.whole(i), values_of(part->spec))) << name;
      }
    });
  }
}

}  // namespace
}  // namespace danlu::parallel
