// GPTQ of one matrix and of a model: against plain rounding, of which it is a better kind.
#include "models/gptq.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/calibrate.h"
#include "models/weight_files.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/hf/gptq_files.h"

namespace danlu::models {
namespace gptq_test {

using test::error_of;
using testing::HasSubstr;

at::Tensor drawn(int64_t rows, int64_t cols, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * cols; ++i)
    values.push_back(test::tiny_normal(seed, static_cast<uint64_t>(i)));
  return at::from_blob(values.data(), {rows, cols}, at::kFloat).clone();
}

float half(float value) { return f16_to_float(float_to_f16(value)); }

/// Each number rounded by itself, straight from the formula.
at::Tensor rounded(const at::Tensor& weight_OI, const GptqForm& form) {
  at::Tensor result_OI = weight_OI.clone();
  const int64_t cols = weight_OI.size(1), group = form.group > 0 ? form.group : cols;
  const float most = std::pow(2.0f, static_cast<float>(form.bits)) - 1;
  for (int64_t r = 0; r < weight_OI.size(0); ++r) {
    for (int64_t begin = 0; begin < cols; begin += group) {
      const at::Tensor part = weight_OI[r].narrow(0, begin, std::min(group, cols - begin));
      const float low = std::min(0.0f, part.min().item<float>()),
                  high = std::max(0.0f, part.max().item<float>()), far = std::max(-low, high);
      const float scale =
          half(form.symmetric ? (low < 0 ? 2 * far : far) / most : (high - low) / most);
      const float zero = form.symmetric ? (most + 1) / 2 : std::nearbyint(-low / scale);
      for (int64_t c = begin; c < std::min(begin + group, cols); ++c) {
        const float x = weight_OI[r][c].item<float>();
        const float code = std::min(std::max(std::nearbyint(x / scale) + zero, 0.0f), most);
        result_OI[r][c] = half((code - zero) * scale);
      }
    }
  }
  return result_OI;
}

double output_error(const at::Tensor& weight_OI, const at::Tensor& made_OI,
                    const at::Tensor& inputs_NI) {
  return at::mm(inputs_NI, (weight_OI - made_OI).t()).square().sum().item<double>();
}

TEST(Gptq, IsRoundingWhereInputsAreNotCorrelated) {
  const at::Tensor weight_OI = drawn(8, 48, 3);
  at::Tensor diagonal_II = at::eye(48, at::kDouble);
  for (int64_t i = 0; i < 48; ++i) diagonal_II[i][i] = 0.5 + static_cast<double>(i % 5);
  diagonal_II[7][7] = 0;  // an input that is always zero
  for (const int64_t bits : {2, 3, 4, 8}) {
    for (const bool symmetric : {true, false}) {
      const GptqForm form{.bits = bits, .group = 16, .symmetric = symmetric};
      const GptqMatrix made = quantise_by_gptq(weight_OI, diagonal_II.clone(), form, "w");
      EXPECT_TRUE(at::equal(made.dense_OI, rounded(weight_OI, form))) << bits << symmetric;
    }
  }
}

TEST(Gptq, ItsOutputsAreNearerThanThoseOfRounding) {
  const at::Tensor weight_OI = drawn(24, 160, 5);
  // Forty causes behind 160 inputs.
  const at::Tensor inputs_NI =
      at::mm(drawn(300, 40, 6), drawn(40, 160, 7)) + drawn(300, 160, 8).mul(0.3);
  const at::Tensor wide_NI = inputs_NI.to(at::kDouble);
  const at::Tensor hessian_II = at::mm(wide_NI.t(), wide_NI);
  for (const int64_t group : {32, 128, -1}) {
    for (const bool by_activation : {false, true}) {
      const GptqForm form{.bits = 4, .group = group, .by_activation = by_activation, .damp = 0.01};
      const GptqMatrix made = quantise_by_gptq(weight_OI, hessian_II.clone(), form, "w");
      const double own = output_error(weight_OI, made.dense_OI, inputs_NI),
                   plain = output_error(weight_OI, rounded(weight_OI, form), inputs_NI);
      EXPECT_LT(own, 0.5 * plain) << group << by_activation;
    }
  }
}

// What is given to the files says the same numbers as what the model goes on with.
TEST(Gptq, CodesScalesAndGroupsGiveTheNumbers) {
  const at::Tensor weight_OI = drawn(8, 64, 9);
  const at::Tensor wide_NI =
      drawn(90, 64, 10).to(at::kDouble) * (at::arange(64, at::kDouble).remainder(7) + 1);
  const GptqForm form{.bits = 4, .group = 16, .symmetric = false, .by_activation = true};
  const GptqMatrix made = quantise_by_gptq(weight_OI, at::mm(wide_NI.t(), wide_NI), form, "w");
  ASSERT_EQ(made.groups, 4);
  std::vector<int> columns(4, 0);
  for (int64_t c = 0; c < 64; ++c) {
    const auto group = made.groups_I[static_cast<size_t>(c)];
    ++columns[static_cast<size_t>(group)];
    for (int64_t r = 0; r < 8; ++r) {
      const auto place = static_cast<size_t>(group * 8 + r);
      const float number =
          half((static_cast<float>(made.codes_OI[static_cast<size_t>(r * 64 + c)]) -
                static_cast<float>(made.zeros_GO[place])) *
               made.scales_GO[place]);
      ASSERT_EQ(made.dense_OI[r][c].item<float>(), number) << r << ' ' << c;
    }
  }
  EXPECT_THAT(columns, testing::Each(16));
  // The columns of the largest inputs make the first group.
  for (int64_t c = 0; c < 64; ++c) {
    if (c % 7 == 6) {
      EXPECT_EQ(made.groups_I[static_cast<size_t>(c)], 0) << c;
    }
  }
}

TEST(Gptq, InputsThatSayNothingAreRefused) {
  at::Tensor hessian_II = at::eye(32, at::kDouble);
  hessian_II[3][3] = std::nan("");
  EXPECT_THAT(
      error_of<ModelError>([&] { quantise_by_gptq(drawn(4, 32, 1), hessian_II, {}, "layer.q"); }),
      HasSubstr("layer.q"));
}

Json small_config() {
  Json json = test::tiny_config("qwen3");
  json.update({{"hidden_size", 64}, {"intermediate_size", 96}, {"head_dim", 16}});
  return json;
}

/// Token ids of which some are far more frequent than others.
Calibration some_texts(int64_t vocabulary) {
  Calibration calibration;
  calibration.batch_size = 2;
  for (uint64_t text = 0; text < 5; ++text) {
    std::vector<int64_t> ids;
    for (uint64_t i = 0; i < 40 - text; ++i)
      ids.push_back(static_cast<int64_t>(mix64(text, i) % (i % 3 ? 7 : 97)) % vocabulary);
    calibration.texts.push_back(ids);
  }
  return calibration;
}

at::Tensor hidden_of(const CausalLM& model, const std::vector<int64_t>& ids) {
  const auto count = static_cast<int64_t>(ids.size());
  ForwardInput input;
  input.ids_N = at::from_blob(const_cast<int64_t*>(ids.data()), {count}, at::kLong).clone();
  input.positions_N = at::arange(count, at::kLong);
  input.segments = {{0, count}, {0, count}};
  return model.forward_hidden(input);
}

TEST(Calibrate, TheModelStaysNearerThanByRoundingAndItsFilesSayTheSame) {
  const at::NoGradGuard no_grad;
  const test::TemporaryDirectory folder;
  const arch::ModelConfig config = test::write_tiny_model(folder / "model", small_config());
  const at::Device cpu(at::kCPU);
  const auto load = [&](const char* name) {
    return load_model(folder / name, parallel::Mesh::single(), at::kFloat, cpu);
  };
  const auto plain = load("model"), calibrated = load("model"), simple = load("model");
  const GptqForm form{.bits = 4, .group = 32};
  const Calibration texts = some_texts(config.vocab_size);
  std::map<std::string, weights::GptqTensors> layers;
  int64_t last = 0;
  calibrate_gptq(
      *calibrated, texts, form,
      [&](const std::string& module, GptqMatrix made) {
        layers[module] =
            weights::pack_gptq(made.rows, made.cols, form.bits, made.codes_OI, made.scales_GO,
                               made.zeros_GO, std::move(made.groups_I), true);
      },
      [&](int64_t done) { last = done; });
  EXPECT_EQ(last, config.num_layers);
  EXPECT_EQ(std::ssize(layers), 7 * config.num_layers);
  for (const Parameter& parameter : simple->parameters()) {
    if (layers.count(arch::module_of(parameter.name())))
      parameter.tensor.copy_(rounded(parameter.tensor, form));
  }
  double by_calibration = 0, by_rounding = 0;
  for (const auto& ids : texts.texts) {
    const at::Tensor before = hidden_of(*plain, ids);
    by_calibration += (hidden_of(*calibrated, ids) - before).square().sum().item<double>();
    by_rounding += (hidden_of(*simple, ids) - before).square().sum().item<double>();
  }
  EXPECT_LT(by_calibration, 0.8 * by_rounding);

  const auto source = weights::open_checkpoint_source(folder / "model", {.all_tensors = true});
  std::filesystem::create_directories(folder / "gptq");
  weights::save_gptq(*source.model, source.config, DType::kF32, layers,
                     {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}}, folder / "gptq",
                     UINT64_MAX);
  const auto again = load("gptq");
  for (const auto& ids : texts.texts)
    EXPECT_TRUE(at::equal(hidden_of(*again, ids), hidden_of(*calibrated, ids)));
}

TEST(Calibrate, WhatIsNotCalibratedIsSaid) {
  const auto error = [&](const Json& json, const GptqForm& form = {}) {
    return error_of<Error>(
        [&] { require_calibrated(arch::parse_model_config(json, "config"), form); });
  };
  EXPECT_THAT(error(test::tiny_config("qwen3_moe")), HasSubstr("has experts"));
  Json odd = small_config();
  odd["intermediate_size"] = 100;
  EXPECT_THAT(error(odd), HasSubstr("words of 32 bits hold 8 codes"));
}

}  // namespace gptq_test
}  // namespace danlu::models
