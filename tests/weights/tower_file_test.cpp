// Adapters of ms-swift's tuner lora_llm (tuner_plugin/lora_llm.py): the tower that was trained
// whole lies in vit.safetensors beside them.
#include "weights/hf/tower_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/hf/tower_names.h"
#include "weights/lora/adapter_places.h"
#include "weights/lora/lora_source.h"
#include "weights/random_models.h"

namespace danlu::weights {
namespace tower_file_test {

using testing::HasSubstr;

arch::ModelConfig seeing() {
  const Json json = test::tiny_config("qwen2_5_vl");
  return arch::family_of(json).parse(json);
}

void save(const std::filesystem::path& directory, const TensorSource& source,
          const std::string& name) {
  std::filesystem::create_directories(directory);
  save_safetensors(directory, source.tensors(),
                   [&](size_t i) { return source.mapped(source.tensors()[i].name); },
                   {.base_name = name});
}

/// The names that transformers gives inside PEFT's model, "base_model.model.model.visual.…".
std::string in_peft(const std::string& name) { return "base_model.model." + newer_name(name); }

/// Everything of the model's tower under those names, with other values than the model's.
std::shared_ptr<const TensorSource> trained_tower(const arch::ModelConfig& config) {
  std::vector<TensorInfo> infos;
  for (const arch::ParamSpec& spec : arch::parameters_of(config))
    if (spec.tower_place >= 0) infos.push_back({in_peft(spec.name), DType::kF32, spec.shape});
  return test::RandomModels(7).source(infos);
}

/// An adapter of the decoder's gates as ms-swift writes it, without its tower's file.
void write_adapter(const std::filesystem::path& directory, const arch::ModelConfig& config) {
  std::vector<TensorInfo> infos;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    const std::string module = arch::module_of(spec.name);
    if (spec.tower_place >= 0 || !module.ends_with(".mlp.gate_proj")) continue;
    infos.push_back({newer_name(adapter_tensor_name(module, AdapterPart::kLoraA)),
                     DType::kF32,
                     {2, spec.shape[1]}});
    infos.push_back({newer_name(adapter_tensor_name(module, AdapterPart::kLoraB)),
                     DType::kF32,
                     {spec.shape[0], 2}});
  }
  save(directory, *test::RandomModels(5).source(infos), "adapter_model");
  write_json_file(directory / "adapter_config.json",
                  {{"peft_type", "LORA"},
                   {"r", 2},
                   {"lora_alpha", 4},
                   {"modules_to_save", nullptr},
                   {"target_modules", R"(^(model\.language_model(?=\.).*\.gate_proj)$)"}});
}

TEST(TowerFile, ItsTensorsTakeTheModelsPlace) {
  const test::TemporaryDirectory folder;
  test::write_tiny_model(folder / "base", test::tiny_config("qwen2_5_vl"));
  const CheckpointSource base = open_checkpoint_source(folder / "base");
  write_adapter(folder / "swift", base.config);
  const auto tower = trained_tower(base.config);
  save(folder / "swift", *tower, "vit");
  ASSERT_TRUE(std::filesystem::exists(folder / "swift" / kTowerFile));
  const AdapterSource opened = open_adapter_source(folder / "swift", base.config);
  const MergedModel merged = merge_adapters(base.model, opened.tensors, opened.peft, base.config);
  int of_tower = 0, of_decoder = 0;
  for (const arch::ParamSpec& spec : arch::parameters_of(base.config)) {
    const auto got = test::read_tensor(*merged.source, spec.name),
               had = test::read_tensor(*base.model, spec.name);
    if (spec.tower_place >= 0) {
      ++of_tower;
      EXPECT_EQ(got, test::read_tensor(*tower, in_peft(spec.name))) << spec.name;
      EXPECT_NE(got, had) << spec.name;
    } else {
      const bool is_adapted = spec.name.ends_with(".mlp.gate_proj.weight");
      of_decoder += is_adapted ? 1 : 0;
      EXPECT_EQ(got != had, is_adapted) << spec.name;
    }
  }
  EXPECT_GT(of_tower, 20);
  EXPECT_EQ(of_decoder, 2);
}

TEST(TowerFile, IsKnownWhereverTheAdapterIs) {
  const test::TemporaryDirectory folder;
  const arch::ModelConfig config = seeing();
  write_adapter(folder.path(), config);
  EXPECT_TRUE(load_peft_config(folder.path()).modules_to_save.empty());
  save(folder.path(), *trained_tower(config), "vit");
  const std::vector<std::string> saved = load_peft_config(folder.path()).modules_to_save;
  for (const char* module : {"visual.patch_embed.proj", "visual.merger.mlp.0",
                             "visual.blocks.0.attn.qkv", "visual.blocks.1.norm2"})
    EXPECT_EQ(std::count(saved.begin(), saved.end(), module), 1) << module;
  const std::string patches = in_peft("visual.patch_embed.proj.weight");
  EXPECT_TRUE(open_weights(folder.path())->find(patches));
  // A tower that is trained whole has no adapters: its layers are no targets.
  const AdapterSource opened = open_adapter_source(folder.path(), config);
  EXPECT_FALSE(has_tower_adapters(*opened.tensors));
  EXPECT_EQ(
      chosen_modules(opened.peft, config),
      (std::vector<std::string>{"model.layers.0.mlp.gate_proj", "model.layers.1.mlp.gate_proj"}));
}

TEST(TowerFile, OfSomethingElseIsRefusedByName) {
  const test::TemporaryDirectory folder;
  const arch::ModelConfig config = seeing();
  write_adapter(folder.path(), config);
  save(folder.path(), *test::RandomModels(1).source({{"visual.other", DType::kF32, {2}}}), "vit");
  EXPECT_THAT(test::error_of<ModelError>([&] { load_peft_config(folder.path()); }),
              HasSubstr("vit.safetensors: visual.other is no weight of a vision tower"));
  // What the adapter has too.
  const std::string twice =
      open_safetensors(folder / "adapter_model.safetensors")->tensors()[0].name;
  save(folder.path(), *test::RandomModels(1).source({{twice, DType::kF32, {2}}}), "vit");
  EXPECT_THAT(test::error_of<ModelError>([&] { open_weights(folder.path()); }),
              HasSubstr("is in adapter_model.safetensors too"));
}

}  // namespace tower_file_test
}  // namespace danlu::weights
