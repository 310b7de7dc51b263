// Files of a Llama-4 that sees pictures: the text part is read, under the names and with the
// config.json of the text model.
#include "weights/hf/text_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/hf/save_model.h"

namespace danlu::weights {
namespace {

using testing::HasSubstr;

std::filesystem::path text_model() { return test::shared_dir() / "golden/moe/llama4_text"; }

/// The golden text model as the hub has such models: behind a prefix, beside a tower, its
/// config.json within another.
void write_whole_model(const std::filesystem::path& directory, const std::string& left_out = "") {
  const Json text = read_json_file(text_model() / "config.json");
  Json config = {{"model_type", "llama4"},
                 {"architectures", {"Llama4ForConditionalGeneration"}},
                 {"text_config", text},
                 {"torch_dtype", text.value("torch_dtype", "float32")},
                 {"vision_config", {{"model_type", "llama4_vision_model"}, {"hidden_size", 24}}},
                 {"image_token_index", 5}};
  config["text_config"].erase("architectures");
  config["text_config"].erase("eos_token_id");
  config["eos_token_id"] = {7, 8};
  write_json_file(directory / "config.json", config);
  const auto golden = open_weights(text_model());
  std::vector<TensorInfo> infos = {
      {"vision_model.patch_embedding.linear.weight", DType::kF32, {3, 2}},
      {"multi_modal_projector.linear_1.weight", DType::kF32, {2, 2}}};
  for (TensorInfo info : golden->tensors()) {
    if (info.name == left_out) continue;
    info.name = "language_model." + info.name;
    infos.push_back(info);
  }
  std::string bytes;
  save_safetensors(directory, infos,
                   [&](size_t index) -> std::span<const std::byte> {
                     bytes = index < 2 ? std::string(infos[index].size_bytes(), '\1')
                                       : test::read_tensor(*golden, infos[index].name.substr(15));
                     return test::as_bytes(bytes);
                   },
                   {});
}

TEST(TextPart, IsTheTextModelOfTheSameTensors) {
  DANLU_REQUIRES_SHARED();
  const test::TemporaryDirectory directory;
  write_whole_model(directory.path());
  const CheckpointSource whole = open_checkpoint_source(directory.path()),
                         text = open_checkpoint_source(text_model());
  EXPECT_EQ(whole.config.family, "llama4_text");
  EXPECT_EQ(whole.config.eos_ids, (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(whole.config.unrotated_layers, text.config.unrotated_layers);
  ASSERT_EQ(whole.model->tensors().size(), text.model->tensors().size());
  for (const TensorInfo& info : text.model->tensors()) {
    ASSERT_TRUE(whole.model->find(info.name)) << info.name;
    EXPECT_EQ(test::read_tensor(*whole.model, info.name), test::read_tensor(*text.model, info.name))
        << info.name;
  }
  const Json saved = saved_config(whole.config, DType::kF32);
  EXPECT_EQ(saved["model_type"], "llama4_text");
  EXPECT_EQ(saved["architectures"], Json({"Llama4ForCausalLM"}));
  EXPECT_FALSE(saved.contains("vision_config"));
}

TEST(TextPart, MissingTensorsAreNamed) {
  DANLU_REQUIRES_SHARED();
  const test::TemporaryDirectory directory;
  write_whole_model(directory.path(), "model.norm.weight");
  EXPECT_THAT(test::error_of<ModelError>([&] { open_checkpoint_source(directory.path()); }),
              HasSubstr("missing: model.norm.weight"));
}

}  // namespace
}  // namespace danlu::weights
