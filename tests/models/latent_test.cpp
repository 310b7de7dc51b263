// Latent attention against Hugging Face's own numbers.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "models/batch.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "ops/rms_norm.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"

namespace danlu::models {
namespace {

/// The golden's first layer alone, which has no experts.
std::unique_ptr<CausalLM> first_layer_of(const std::filesystem::path& golden) {
  const test::TemporaryDirectory directory;
  Json config = read_json_file(golden / "config.json");
  config["num_hidden_layers"] = 1;
  write_json_file(directory.path() / "config.json", config);
  const auto all = weights::open_weights(golden);
  std::vector<weights::TensorInfo> infos;
  for (const arch::ParamSpec& spec : arch::parameters_of(arch::load_model_config(directory.path())))
    infos.push_back(*all->find(spec.name));
  weights::save_safetensors(directory.path(), infos,
                            [&](size_t index) { return all->mapped(infos[index].name); });
  return load_model(directory.path(), parallel::Mesh::single(), at::kFloat, at::kCPU);
}

class LatentGolden : public testing::TestWithParam<const char*> {};

// The golden has the state between the layers, this model's one is behind the final norm.
TEST_P(LatentGolden, TheFirstLayerGivesHuggingFacesHiddenState) {
  DANLU_REQUIRES_SHARED();
  const at::NoGradGuard no_grad;
  const auto directory = test::shared_dir() / "golden" / "moe" / GetParam();
  const auto golden = weights::open_safetensors(directory / "golden.safetensors");
  const auto model = first_layer_of(directory);
  ASSERT_TRUE(model->config().latent);
  const PaddedBatch batch =
      pack_padded(read_tensor(*golden, "input_ids"), read_tensor(*golden, "attention_mask"));
  const at::Tensor between = read_tensor(*golden, "hidden_states.1");
  const at::Tensor norm = read_tensor(*weights::open_weights(directory), "model.norm.weight");
  const at::Tensor expected =
      ops::rms_norm(between.view({-1, between.size(2)}).index_select(0, batch.index_N), norm, 1e-6);
  const at::Tensor difference = model->forward_hidden(batch.input) - expected;
  EXPECT_LT(difference.abs().max().item<double>(), 5e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, LatentGolden,
                         testing::Values("deepseek_v2_lite", "deepseek_v2", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace danlu::models
