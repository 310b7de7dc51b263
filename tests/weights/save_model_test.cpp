// A model of any source as a Hugging Face directory.
#include "weights/hf/save_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"
#include "weights/small_tensors.h"

namespace danlu::weights {
namespace save_model_test {

using test::error_of;
using testing::HasSubstr;

TEST(SavedConfig, ANestedOneSaysItWhereItIsRead) {
  Json json = test::tiny_config("qwen2_5_vl");
  Json decoder = Json::object();
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "intermediate_size", "vocab_size", "torch_dtype", "rope_scaling"})
    decoder[key] = json[key];
  decoder["tie_word_embeddings"] = true;
  json["text_config"] = decoder;
  arch::ModelConfig config = arch::family_of(json).parse(json);
  ASSERT_TRUE(config.tie_embeddings);
  config.tie_embeddings = false;
  const Json saved = saved_config(config, DType::kBF16);
  const arch::ModelConfig again = arch::family_of(saved).parse(saved);
  EXPECT_FALSE(again.tie_embeddings);
  EXPECT_EQ(again.dtype, DType::kBF16);
  EXPECT_EQ(saved["tie_word_embeddings"], false) << "the top agrees";
}

TEST(SaveModel, HasTheBytesThatTheModelWasWrittenWith) {
  const test::TemporaryDirectory folder;
  const arch::ModelConfig config = test::write_tiny_model(folder / "model");
  std::filesystem::create_directory(folder / "copy");
  save_model(*open_weights(folder / "model"), config, DType::kF32, folder / "copy");
  for (const char* name : {"model.safetensors", "config.json"})
    EXPECT_EQ(read_file(folder / "copy" / name), read_file(folder / "model" / name)) << name;
}

TEST(SaveModel, TakesWhatTheConfigNamesInTheTypeThatIsAskedFor) {
  const test::TemporaryDirectory folder;
  Json json = test::tiny_config();
  json["tie_word_embeddings"] = true;
  arch::ModelConfig config = test::write_tiny_model(folder / "model", json);
  test::SmallTensors tensors;
  const auto model = open_weights(folder / "model");
  for (const TensorInfo& info : model->tensors())
    tensors[info.name] = {info.shape, test::numbers_of(*model, info.name)};
  // A head of its own is left behind while the config ties it, and taken when it does not.
  tensors["lm_head.weight"] = {{97, 32}, std::vector<double>(97 * 32, 0.5)};
  tensors["rotary.inv_freq"] = {{2}, {1, 2}};
  const auto source = test::make_source(folder / "more", tensors);
  for (const bool tied : {true, false}) {
    config.tie_embeddings = tied;
    const auto directory = folder / (tied ? "tied" : "untied");
    std::filesystem::create_directory(directory);
    save_model(*source, config, DType::kBF16, directory);
    const auto saved = open_weights(directory);
    EXPECT_EQ(saved->tensors().size(), tied ? tensors.size() - 2 : tensors.size() - 1);
    for (const TensorInfo& info : saved->tensors()) {
      std::string rounded;
      for (const double value : tensors.at(info.name).values)
        test::append_number(rounded, static_cast<float>(value), DType::kBF16);
      EXPECT_EQ(test::read_tensor(*saved, info.name), rounded) << info.name;
    }
    const Json written = read_json_file(directory / "config.json");
    EXPECT_EQ(written["torch_dtype"], "bfloat16");
    EXPECT_EQ(written["tie_word_embeddings"], tied);
    EXPECT_EQ(written["hidden_size"], 32);
  }
}

TEST(SaveModel, KeepsLayersThatPredictAheadAndBiasesOfTheChoiceAsTheyAre) {
  const test::TemporaryDirectory folder;
  Json json = test::tiny_config("glm4_moe");
  json.update({{"n_routed_experts", 4},
               {"n_shared_experts", 1},
               {"moe_intermediate_size", 24},
               {"num_experts_per_tok", 2},
               {"first_k_dense_replace", 1},
               {"n_group", 1},
               {"topk_group", 1},
               {"num_nextn_predict_layers", 1}});
  const arch::ModelConfig config = arch::family_of(json).parse(json);
  arch::ModelConfig all = config;
  all.predicts_ahead = true;
  // 1.00390625 lies between two numbers of bf16.
  test::SmallTensors tensors;
  for (const arch::ParamSpec& spec : arch::parameters_of(all)) {
    size_t count = 1;
    for (const int64_t size : spec.shape) count *= static_cast<size_t>(size);
    tensors[spec.name] = {spec.shape, std::vector<double>(count, 1.00390625)};
  }
  const auto source = test::make_source(folder / "source", tensors);
  std::filesystem::create_directory(folder / "saved");
  save_model(*source, config, DType::kBF16, folder / "saved");
  const auto saved = open_weights(folder / "saved");
  EXPECT_EQ(saved->tensors().size(), tensors.size());
  size_t wide = 0;
  for (const TensorInfo& info : saved->tensors()) {
    const bool is_bias = info.name.ends_with("e_score_correction_bias");
    wide += is_bias ? 1 : 0;
    EXPECT_EQ(info.dtype, is_bias ? DType::kF32 : DType::kBF16) << info.name;
    EXPECT_EQ(test::numbers_of(*saved, info.name)[0], is_bias ? 1.00390625 : 1.0) << info.name;
  }
  EXPECT_EQ(wide, 2u) << "of the last layer, and of the one that predicts ahead";
}

TEST(SaveModel, ANumberThatTheTypeCannotHoldIsAnErrorAndSoIsATypeOfNoWeights) {
  const test::TemporaryDirectory folder;
  const arch::ModelConfig config = test::write_tiny_model(folder / "model");
  const auto model = open_weights(folder / "model");
  test::SmallTensors tensors;
  for (const TensorInfo& info : model->tensors())
    tensors[info.name] = {info.shape, test::numbers_of(*model, info.name)};
  tensors["model.norm.weight"].values[3] = 70000;  // fp16 ends at 65504
  const auto source = test::make_source(folder / "large", tensors);
  std::filesystem::create_directory(folder / "out");
  EXPECT_THAT(
      error_of<ModelError>([&] { save_model(*source, config, DType::kF16, folder / "out"); }),
      HasSubstr("model.norm.weight"));
  EXPECT_THAT(error_of<UsageError>([&] { saved_config(config, DType::kI8); }),
              HasSubstr("models are saved in fp32, bf16, fp16 or fp64, not I8"));
}

}  // namespace save_model_test
}  // namespace danlu::weights
