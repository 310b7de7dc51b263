// Layers that predict further ahead: DeepSeek-V3's against Hugging Face's numbers, and their files.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"

namespace danlu::models {
namespace {

std::filesystem::path v3_directory() { return test::shared_dir() / "golden/moe/deepseek_v3"; }

std::unique_ptr<CausalLM> predicting_v3() {
  weights::CheckpointSource source =
      weights::open_checkpoint_source(v3_directory(), {.all_tensors = true});
  source.config.predicts_ahead = true;
  return load_model(source, parallel::Mesh::single(), at::kFloat, at::kCPU);
}

TEST(PredictionGolden, LogitsAreHuggingFaces) {
  DANLU_REQUIRES_SHARED();
  const at::NoGradGuard no_grad;
  const auto model = predicting_v3();
  const auto golden = weights::open_safetensors(v3_directory() / "golden.safetensors");
  const at::Tensor ids_BT = read_tensor(*golden, "input_ids"),
                   mask_BT = read_tensor(*golden, "attention_mask");
  for (const bool normed : {true, false}) {
    const at::Tensor expected_BTV =
        read_tensor(*golden, normed ? "mtp_logits_post_norm" : "mtp_logits_pre_norm");
    for (int64_t row = 0; row < ids_BT.size(0); ++row) {
      const int64_t tokens = mask_BT[row].sum().item<int64_t>();
      ForwardInput input;
      input.ids_N = ids_BT[row].narrow(0, 0, tokens).contiguous();
      input.positions_N = at::arange(tokens, at::kLong);
      input.segments.q_starts = input.segments.k_starts = {0, tokens};
      const std::vector<at::Tensor> logits = model->predicted_logits(input, normed);
      ASSERT_EQ(logits.size(), 1u);
      const at::Tensor expected_NV = expected_BTV[row].narrow(0, 0, tokens);
      EXPECT_LE((logits[0] - expected_NV).abs().max().item<float>(), 5e-5f)
          << "row " << row << (normed ? " behind" : " before") << " the norm";
    }
  }
}

/// Every tensor of both directories, bit for bit.
void expect_same_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto one = weights::open_weights(a), other = weights::open_weights(b);
  ASSERT_EQ(one->tensors().size(), other->tensors().size());
  for (const weights::TensorInfo& info : one->tensors())
    EXPECT_TRUE(at::equal(read_tensor(*one, info.name), read_tensor(*other, info.name)))
        << info.name;
}

TEST(PredictionFiles, AreSavedAsTheyWereWhetherPartOfTheNetworkOrNot) {
  DANLU_REQUIRES_SHARED();
  const test::TemporaryDirectory folder;
  save(*predicting_v3(), folder / "part", DType::kF32, {});
  expect_same_tensors(v3_directory(), folder / "part");
  const auto without = load_model(v3_directory(), parallel::Mesh::single(), at::kFloat, at::kCPU);
  save(*without, folder / "beside", DType::kF32, v3_directory());
  expect_same_tensors(v3_directory(), folder / "beside");
}

TEST(PredictionFiles, BiasesOfTheChoiceStayWide) {
  DANLU_REQUIRES_SHARED();
  const test::TemporaryDirectory folder;
  const auto model = load_model(v3_directory(), parallel::Mesh::single(), at::kBFloat16, at::kCPU);
  save(*model, folder / "narrow", DType::kBF16, v3_directory());
  const auto wide = weights::open_weights(v3_directory()),
             narrow = weights::open_weights(folder / "narrow");
  for (const char* layer : {"2", "3"}) {
    const std::string name =
        "model.layers." + std::string(layer) + ".mlp.gate.e_score_correction_bias";
    EXPECT_TRUE(at::equal(read_tensor(*narrow, name), read_tensor(*wide, name))) << name;
  }
  EXPECT_EQ(narrow->find("model.layers.3.eh_proj.weight")->dtype, DType::kBF16);
}

TEST(PredictionFiles, ALayerThatIsPartOfTheNetworkMustBeThere) {
  DANLU_REQUIRES_SHARED();
  weights::CheckpointSource source =
      weights::open_checkpoint_source(v3_directory(), {.all_tensors = true});
  source.config.experts.prediction_layers = 2;
  source.config.predicts_ahead = true;
  try {
    load_model(source, parallel::Mesh::single(), at::kFloat, at::kCPU);
    FAIL() << "a layer that is missing was not missed";
  } catch (const ModelError& error) {
    EXPECT_NE(std::string(error.what()).find("model.layers.4."), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace danlu::models
