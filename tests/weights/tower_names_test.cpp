// The two ways of naming the tensors of a model with a vision tower.
#include "weights/hf/tower_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/lora/adapter_places.h"
#include "weights/random_models.h"

namespace danlu::weights {
namespace tower_names_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

arch::ModelConfig tiny(const std::string& family) {
  const Json json = test::tiny_config(family);
  return arch::family_of(json).parse(json);
}
std::shared_ptr<const TensorSource> with_tensors(const std::vector<std::string>& names) {
  test::RandomModels random(3);
  std::vector<TensorInfo> infos;
  for (const std::string& name : names) infos.push_back({name, DType::kF32, {2}});
  return random.source(infos);
}
std::vector<std::string> names_in(const TensorSource& source) {
  std::vector<std::string> names;
  for (const TensorInfo& info : source.tensors()) names.push_back(info.name);
  return names;
}

/// A tiny model in two files, its tensors called as `name_of` says.
template <typename NameOf>
void write_named(const std::filesystem::path& directory, const NameOf& name_of) {
  test::write_tiny_model(directory / "hub", test::tiny_config("qwen2_5_vl"));
  const auto hub = open_weights(directory / "hub");
  std::vector<TensorInfo> infos = hub->tensors();
  for (TensorInfo& info : infos) info.name = name_of(info.name);
  std::filesystem::create_directories(directory / "named");
  std::filesystem::copy_file(directory / "hub/config.json", directory / "named/config.json");
  save_safetensors(directory / "named", infos,
                   [&](size_t i) { return hub->mapped(hub->tensors()[i].name); },
                   {.max_shard_bytes = 40'000});
}

void expect_same_model(const std::filesystem::path& directory) {
  const auto hub = open_checkpoint_source(directory / "hub").model,
             named = open_checkpoint_source(directory / "named").model;
  ASSERT_EQ(names_in(*hub), names_in(*named));
  for (const TensorInfo& info : hub->tensors())
    EXPECT_EQ(test::read_tensor(*hub, info.name), test::read_tensor(*named, info.name))
        << info.name;
  ASSERT_GT(named->files().size(), 2u) << "in several files";
  EXPECT_EQ(names_in(*open_any_tensors(directory / "named")), names_in(*hub));
}

TEST(TowerNames, NewerNamesAndAMixtureAreTheSameModel) {
  const test::TemporaryDirectory newer, mixed;
  write_named(newer.path(), [](const std::string& name) { return newer_name(name); });
  expect_same_model(newer.path());
  write_named(mixed.path(), [](const std::string& name) {
    return name.starts_with("visual.") ? newer_name(name) : name;
  });
  expect_same_model(mixed.path());
}

TEST(TowerNames, WhatHasNoPlaceUnderEitherNameIsAnError) {
  const test::TemporaryDirectory folder;
  write_named(folder.path(), [](const std::string& name) {
    return name == "visual.merger.mlp.2.bias" ? "model.vision.merger.mlp.2.bias" : name;
  });
  EXPECT_THAT(
      test::error_of<ModelError>([&] { open_checkpoint_source(folder / "named"); }),
      AllOf(HasSubstr("visual.merger.mlp.2.bias"), HasSubstr("model.vision.merger.mlp.2.bias")));
}

TEST(TowerNames, OneTensorUnderBothNamesIsAnError) {
  EXPECT_THAT(test::error_of<ModelError>([&] {
                with_hub_names(
                    with_tensors({"model.norm.weight", "model.language_model.norm.weight"}),
                    tiny("qwen2_vl"), "some/file");
              }),
              AllOf(HasSubstr("some/file"), HasSubstr("model.language_model.norm.weight")));
}

TEST(TowerNames, ModelsOfTextKeepTheirs) {
  const auto source = with_tensors({"model.language_model.norm.weight", "model.visual.x"});
  EXPECT_EQ(with_hub_names(source, tiny("qwen2"), "file"), source);
  EXPECT_THAT(names_in(*with_hub_names(source, tiny("qwen2_vl"), "file")),
              ElementsAre("model.norm.weight", "visual.x"));
}

TEST(TowerNames, AdaptersKeepTheirPrefix) {
  EXPECT_EQ(hub_name("base_model.model.model.language_model.layers.0.mlp.up_proj.lora_A.weight"),
            "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight");
  EXPECT_EQ(hub_name("base_model.model.model.visual.blocks.0.attn.qkv.lora_B.weight"),
            "base_model.model.visual.blocks.0.attn.qkv.lora_B.weight");
  EXPECT_EQ(hub_name("model.layers.0.x"), "model.layers.0.x");
  EXPECT_EQ(hub_name("model.visual"), "visual");
  for (const char* name : {"visual.merger.mlp.0.bias", "model.norm.weight", "lm_head.weight",
                           "base_model.model.visual.blocks.0.attn.qkv.lora_B.weight"})
    EXPECT_EQ(hub_name(newer_name(name)), name);
}

TEST(TowerNames, TheReferencesTwoLayoutsAreOneModel) {
  DANLU_REQUIRES_SHARED();
  const std::filesystem::path golden = test::shared_dir() / "golden/vl";
  const auto hub = open_checkpoint_source(golden / "qwen2_5_vl"),
             newer = open_checkpoint_source(golden / "qwen2_5_vl_newnames");
  ASSERT_EQ(names_in(*hub.model), names_in(*newer.model));
  for (const TensorInfo& info : hub.model->tensors()) {
    EXPECT_EQ(test::read_tensor(*hub.model, info.name), test::read_tensor(*newer.model, info.name))
        << info.name;
  }
  EXPECT_EQ(newer.model->find("visual.patch_embed.proj.weight")->shape.size(), 5u);
  EXPECT_EQ(hub.model->tensors().size(), 80u);
}

/// An adapter on `modules` of a tiny model, under the newer names.
void write_adapter(const std::filesystem::path& directory, const std::vector<std::string>& modules,
                   const arch::ModelConfig& config, const Json& targets) {
  std::filesystem::create_directories(directory);
  write_json_file(
      directory / "adapter_config.json",
      {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}, {"target_modules", targets}});
  std::vector<TensorInfo> infos;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    const std::string module = arch::module_of(spec.name);
    if (spec.is_bias || std::count(modules.begin(), modules.end(), module) == 0) continue;
    for (const AdapterPart part : {AdapterPart::kLoraA, AdapterPart::kLoraB}) {
      infos.push_back({newer_name(adapter_tensor_name(module, part)), DType::kF32,
                       part == AdapterPart::kLoraA ? std::vector<int64_t>{2, spec.shape[1]}
                                                   : std::vector<int64_t>{spec.shape[0], 2}});
    }
  }
  test::RandomModels random(5);
  const auto source = random.source(infos);
  save_safetensors(directory, source->tensors(),
                   [&](size_t i) { return source->mapped(source->tensors()[i].name); },
                   {.base_name = "adapter_model"});
}

TEST(TowerNames, AnAdapterOfTheDecoderAloneIsReadThoughItsTargetsNameTheTowerToo) {
  const test::TemporaryDirectory folder;
  const arch::ModelConfig config = tiny("qwen2_5_vl");
  const std::vector<std::string> decoder = {"model.layers.0.mlp.gate_proj",
                                            "model.layers.1.mlp.gate_proj"};
  write_adapter(folder / "a", decoder, config, {"gate_proj"});
  const AdapterSource opened = open_adapter_source(folder / "a", config);
  EXPECT_EQ(chosen_modules(opened.peft, config), decoder);
  EXPECT_TRUE(opened.tensors->find("base_model.model." + decoder[0] + ".lora_A.weight"));
  // With parts in the tower the targets mean what they mean to PEFT.
  const std::vector<std::string> everywhere = {
      "visual.blocks.0.mlp.gate_proj", "visual.blocks.1.mlp.gate_proj",
      "model.layers.0.mlp.gate_proj", "model.layers.1.mlp.gate_proj"};
  write_adapter(folder / "b", everywhere, config, {"gate_proj"});
  EXPECT_EQ(chosen_modules(open_adapter_source(folder / "b", config).peft, config), everywhere);
  // A regular expression of the newer names, as ms-swift writes it.
  write_adapter(folder / "c", decoder, config, R"(^(model\.language_model(?=\.).*\.gate_proj)$)");
  EXPECT_EQ(chosen_modules(open_adapter_source(folder / "c", config).peft, config), decoder);
}

}  // namespace tower_names_test
}  // namespace danlu::weights
