// Rotary positions in time, rows and columns (M-RoPE of Qwen2-VL), against the definition in
// double.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "../ops/finite_differences.h"
#include "base/error.h"
#include "models/rope.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "support/shared_data.h"
#include "support/tiny_model.h"
#include "weights/tensor_source.h"

namespace danlu::models {
namespace {

arch::ModelConfig config_of_axes(const std::vector<int64_t>& sections, const Json& changes = {}) {
  Json json = test::tiny_config("qwen2");
  if (!changes.is_null()) json.update(changes);
  json["head_dim"] = 2 * (sections[0] + sections[1] + sections[2]);
  arch::ModelConfig config = arch::family_of(json).parse(json);
  config.rope.mrope_section = sections;
  config.validate();
  return config;
}

/// Qwen2-VL's: cosines and sines over a whole head, cut into the sections twice; each cut is taken
/// from the axis that follows; dimension d is turned with its partner half a head away.
std::vector<double> turned(const arch::ModelConfig& config, const double* x,
                           const std::vector<int64_t>& positions) {
  const std::vector<double> frequencies = rope_frequencies(config);
  const size_t half = frequencies.size();
  std::vector<size_t> axis_of;  // of each dimension of a head
  for (size_t cut = 0; cut < 6; ++cut)
    axis_of.insert(axis_of.end(), static_cast<size_t>(config.rope.mrope_section[cut % 3]), cut % 3);
  std::vector<double> result(2 * half);
  for (size_t d = 0; d < 2 * half; ++d) {
    const double angle = static_cast<double>(positions[axis_of[d]]) * frequencies[d % half];
    const double partner = d < half ? -x[d + half] : x[d - half];
    result[d] =
        (x[d] * std::cos(angle) + partner * std::sin(angle)) * rope_attention_factor(config);
  }
  return result;
}

void expect_turned(const arch::ModelConfig& config, const at::Tensor& positions_3N) {
  const int64_t n = positions_3N.size(1);
  ForwardInput input;
  input.segments = {{0, n}, {0, n}};
  const ops::RotaryTable table = rope_table(config, positions_3N, input);
  const at::Tensor x = test::random_f64({n, 1, config.head_dim}, 3);
  const at::Tensor got = ops::rotary(x, table);
  for (int64_t token = 0; token < n; ++token) {
    std::vector<int64_t> positions;
    for (int64_t axis = 0; axis < 3; ++axis)
      positions.push_back(positions_3N[axis][token].item<int64_t>());
    const std::vector<double> expected =
        turned(config, x.data_ptr<double>() + token * config.head_dim, positions);
    for (size_t d = 0; d < expected.size(); ++d) {
      // Angles up to 500 are rounded to f32 three times.
      EXPECT_NEAR(got[token][0][static_cast<int64_t>(d)].item<double>(), expected[d], 4e-4)
          << "token " << token << ", dimension " << d;
    }
  }
}

TEST(RopeAxes, EachPairTurnsByTheAxisOfItsSection) {
  std::mt19937 random(5);
  const auto positions = [&](int64_t n) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < 3 * n; ++i) values.push_back(static_cast<int64_t>(random() % 500));
    return at::tensor(values, at::kLong).view({3, n});
  };
  for (const std::vector<int64_t>& sections :
       std::vector<std::vector<int64_t>>{{1, 1, 1}, {2, 3, 3}, {16, 24, 24}, {5, 1, 2}}) {
    expect_turned(config_of_axes(sections), positions(7));
    expect_turned(
        config_of_axes(
            sections,
            {{"rope_scaling",
              {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}}}}),
        positions(5));
  }
}

TEST(RopeAxes, EqualPositionsHaveTheBitsOfOne) {
  for (const Json& changes : {Json(), Json{{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}},
                                           {"max_position_embeddings", 16}}}) {
    const arch::ModelConfig config = config_of_axes({4, 6, 6}, changes);
    const at::Tensor one_N = at::arange(90).remainder(61) * 7;
    ForwardInput input;
    input.segments = {{0, 50, 90}, {0, 50, 90}};
    const ops::RotaryTable one = rope_table(config, one_N, input),
                           three = rope_table(config, at::stack({one_N, one_N, one_N}), input);
    EXPECT_TRUE(at::equal(one.cos_NE, three.cos_NE));
    EXPECT_TRUE(at::equal(one.sin_NE, three.sin_NE));
  }
}

TEST(RopeAxes, APassTakesPositionsOfThreeAxes) {
  const arch::ModelConfig config = config_of_axes({1, 1, 2});
  CausalLM model(config, parallel::Mesh::single(), at::kFloat, at::kCPU);
  initialize(model, 1);
  const at::Tensor one_N = at::arange(9);
  ForwardInput input{.ids_N = at::arange(9), .positions_N = one_N, .segments = {{0, 9}, {0, 9}}};
  const at::Tensor plain = model.forward_hidden(input);
  input.positions_N = at::stack({one_N, one_N, one_N});
  EXPECT_TRUE(at::equal(model.forward_hidden(input), plain));
  input.positions_N = at::stack({one_N, one_N, one_N + 1});
  EXPECT_FALSE(at::equal(model.forward_hidden(input), plain));
  for (const at::Tensor& wrong : {at::stack({one_N, one_N}), one_N.view({9, 1}), one_N[0]}) {
    input.positions_N = wrong;
    EXPECT_THROW(model.forward_hidden(input), InternalError) << wrong.sizes();
  }
}

TEST(RopeAxes, OfAModelWithOneAreRefused) {
  const Json json = test::tiny_config("qwen2");
  const at::Tensor one_N = at::arange(4);
  EXPECT_THROW(rope_table(arch::family_of(json).parse(json), at::stack({one_N, one_N, one_N}), {}),
               InternalError);
}

/// Positions of rows with pictures and a film, as the reference counts them.
TEST(RopeAxes, PositionsOfPicturesFollowTheDefinition) {
  DANLU_REQUIRES_SHARED();
  for (const auto& [folder, sections] :
       {std::pair("qwen2_vl", std::vector<int64_t>{2, 2, 2}), {"qwen2_5_vl", {3, 2, 2}}}) {
    const auto golden = weights::open_safetensors(test::shared_dir() / "golden" / "vl" / folder /
                                                  "golden.safetensors");
    const at::Tensor positions_3BT = read_tensor(*golden, "position_ids");
    for (int64_t row = 0; row < positions_3BT.size(1); ++row)
      expect_turned(config_of_axes(sections), positions_3BT.select(1, row));
  }
}

}  // namespace
}  // namespace danlu::models
