// MindSpeed-MM checkpoints: every cut of a model with a vision tower holds every number once, in
// the places that loops over heads give, and reads back as the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/megatron/checkpoint.h"
#include "weights/megatron/target.h"
#include "weights/python_torch.h"
#include "weights/random_models.h"
#include "weights/write_megatron.h"

namespace danlu::weights::megatron {
namespace mindspeed_mm_test {

using test::RandomModels;
using test::write_megatron;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Form kMm{.dialect = Dialect::kMindSpeedMm};
using Lists = std::vector<std::vector<int64_t>>;

std::vector<std::string> unequal(const TensorSource& a, const TensorSource& b) {
  std::vector<std::string> names;
  if (a.tensors().size() != b.tensors().size()) names.push_back("(count)");
  for (const TensorInfo& info : a.tensors()) {
    const TensorInfo* other = b.find(info.name);
    if (!other || other->shape != info.shape || other->dtype != info.dtype ||
        test::read_tensor(a, info.name) != test::read_tensor(b, info.name))
      names.push_back(info.name);
  }
  return names;
}

/// A tiny model in F32 with changes to its config.json, and its cut below a folder.
class MindSpeedMm : public ::testing::Test {
 protected:
  void make(const std::string& family, const Json& changes = Json::object()) {
    json_ = test::tiny_config(family);
    json_["vocab_size"] = 98;
    json_.update(changes);
    config_ = random_.parse(json_);
    model_ = random_.source(global_tensors(config_, DType::kF32));
  }
  Checkpoint written(const Split& split, const std::string& name = "mm") {
    write_megatron(folder_ / name, json_, config_, model_, {split, kMm, std::nullopt});
    return open_checkpoint(folder_ / name);
  }
  std::shared_ptr<const TensorSource> file(const std::string& rank,
                                           const std::string& name = "mm") {
    return open_torch_file(folder_ / name / "release" / rank / kModelFile);
  }
  std::vector<float> floats(const TensorSource& source, const std::string& name) {
    const std::string bytes = test::read_tensor(source, name);
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }
  std::string refusal(const Split& split) {
    return test::error_of<UsageError>([&] { written(split, "refused"); });
  }

  RandomModels random_{77};
  Json json_;
  arch::ModelConfig config_;
  std::shared_ptr<const TensorSource> model_;
  const test::TemporaryDirectory folder_;
};

TEST_F(MindSpeedMm, CoversEveryTensorOnceAtAnyCut) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomModels random(seed);
    const arch::ModelConfig config = random.parse(random.vision_config_json());
    const Split split = random.vision_split(config);
    const ModelLayout layout =
        model_layout(config, split, kMm, global_tensors(config, DType::kBF16));
    ASSERT_NO_THROW(check_layout(layout.layout)) << config.family << " " << describe(split);
  }
}

TEST_F(MindSpeedMm, AnyCutReadsBackAsTheSameBitsAndIsCutAgain) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomModels random(500 + seed);
    const Json json = random.vision_config_json();
    const arch::ModelConfig config = random.parse(json);
    SCOPED_TRACE(std::to_string(seed) + " " + json.dump());
    const auto model = random.source(global_tensors(config, config.dtype));
    const test::TemporaryDirectory folder;
    Split split = random.vision_split(config);
    write_megatron(folder / "a", json, config, model, {split, kMm, std::nullopt});
    const Checkpoint first = open_checkpoint(folder / "a");
    EXPECT_THAT(unequal(*model, *first.model), IsEmpty()) << describe(split);
    EXPECT_EQ(first.header.form, kMm);
    EXPECT_EQ(first.header.split.chunk_list, split.chunk_list);
    EXPECT_EQ(first.header.split.block_list, split.block_list);
    EXPECT_EQ(first.header.split.tp, split.tp);
    EXPECT_THAT(first.differing_copies(), IsEmpty());
    split = random.vision_split(config);
    write_megatron(folder / "b", json, config, first.model, {split, kMm, 7});
    EXPECT_THAT(unequal(*model, *open_checkpoint(folder / "b").model), IsEmpty())
        << describe(split);
  }
}

TEST_F(MindSpeedMm, TheTowersRowsGoHeadByHead) {
  make("qwen2_vl", {{"vision_config",
                     {{"depth", 3},
                      {"embed_dim", 16},
                      {"num_heads", 4},
                      {"mlp_ratio", 2},
                      {"hidden_size", 32},
                      {"hidden_act", "quick_gelu"}}}});
  written({.tp = 2, .pp = 2, .chunk_list = {{0, 2}}, .block_list = {{2, 1}}});
  // Block 2 is block 0 of stage 1. Rank 1 has heads 2 and 3 of 4 columns each.
  const auto rank = file("mp_rank_01_001");
  const std::string at = "model.image_encoder.encoder.blocks.layers.0.self_attention.linear_qkv.";
  for (const auto& [kind, cols] : {std::pair{"weight", 16}, std::pair{"bias", 1}}) {
    const std::vector<float> whole =
        floats(*model_, std::string("visual.blocks.2.attn.qkv.") + kind);
    std::vector<float> expected;
    for (int head = 2; head < 4; ++head) {
      for (int part = 0; part < 3; ++part) {
        for (int row = 0; row < 4; ++row) {
          for (int col = 0; col < cols; ++col)
            expected.push_back(
                whole[static_cast<size_t>((part * 16 + head * 4 + row) * cols + col)]);
        }
      }
    }
    EXPECT_EQ(floats(*rank, at + kind), expected) << kind;
  }
  EXPECT_EQ(rank->find(at + "weight")->shape, (std::vector<int64_t>{24, 16}));
}

TEST_F(MindSpeedMm, GateAndUpOfTheTowerAreCutEachWithTheirBiases) {
  make("qwen2_5_vl");
  written({.tp = 2, .chunk_list = {{2}}, .block_list = {{2}}});
  const std::vector<float> gate = floats(*model_, "visual.blocks.1.mlp.gate_proj.bias"),
                           up = floats(*model_, "visual.blocks.1.mlp.up_proj.bias");
  std::vector<float> expected(gate.begin() + 10, gate.end());
  expected.insert(expected.end(), up.begin() + 10, up.end());
  EXPECT_EQ(floats(*file("mp_rank_01"),
                   "model.image_encoder.encoder.blocks.layers.1.mlp.linear_fc1.bias"),
            expected);
}

TEST_F(MindSpeedMm, PartsStandWhereTheirListsPutThem) {
  make("qwen2_5_vl", {{"tie_word_embeddings", true}, {"num_hidden_layers", 3}});
  written({.pp = 2, .chunk_list = {{0, 1}, {2, 0}}, .block_list = {{1, 1}, {0, 0}}});
  const auto has = [&](const std::string& rank, const std::string& name) {
    return file(rank)->find(name + ".weight") != nullptr;
  };
  const std::string first = "mp_rank_00_000", last = "mp_rank_00_001";
  EXPECT_TRUE(has(first, "model0.image_encoder.encoder.patch_embed.proj"));
  EXPECT_TRUE(has(last, "model0.image_encoder.projector.layernorm"));
  EXPECT_TRUE(has(last, "model0.text_decoder.embedding.word_embeddings"));
  EXPECT_TRUE(has(last, "model0.text_decoder.decoder.layers.0.input_layernorm"));
  EXPECT_TRUE(has(first, "model1.text_decoder.decoder.layers.1.input_layernorm"));
  EXPECT_TRUE(has(last, "model1.text_decoder.decoder.final_layernorm"));
  // The embedding's copy, as MindSpeed-MM adds it with several stages.
  EXPECT_TRUE(has(last, "model1.text_decoder.output_layer"));
  EXPECT_FALSE(has(first, "model1.text_decoder.output_layer"));
  written({.chunk_list = {{3}}, .block_list = {{2}}}, "whole");
  EXPECT_EQ(file("mp_rank_00", "whole")->find("model.text_decoder.output_layer.weight"), nullptr);
}

TEST_F(MindSpeedMm, CutsThatAreImpossibleAreRefusedWithWhatWouldDo) {
  make("qwen2_5_vl");
  EXPECT_THAT(refusal({.pp = 2, .chunk_list = {{1, 2}}, .block_list = {{2, 0}}}),
              AllOf(HasSubstr("[1,2]"), HasSubstr("2 layers")));
  EXPECT_THAT(refusal({.pp = 2, .chunk_list = {{1, 1}}, .block_list = {{1, 0}}}),
              AllOf(HasSubstr("[1,0]"), HasSubstr("vit")));
  EXPECT_THAT(refusal({.pp = 2, .chunk_list = {{1, 1}}, .block_list = {{1, 1}}}),
              HasSubstr("before all layers"));
  EXPECT_THAT(refusal({.tp = 4, .chunk_list = {{2}}, .block_list = {{2}}}),
              HasSubstr("does not divide 2"));
  EXPECT_THAT(refusal({.chunk_list = {{1}, {1}}, .block_list = {{2}, {0}}}),
              HasSubstr("more than one pipeline stage"));
  make("qwen2_5_vl", {{"vocab_size", 97}});
  EXPECT_THAT(refusal({.tp = 2, .chunk_list = {{2}}, .block_list = {{2}}}),
              HasSubstr("97 rows of the vocabulary"));
  make("qwen2_5_vl", {{"vision_config",
                       {{"depth", 2},
                        {"hidden_size", 36},
                        {"num_heads", 3},
                        {"intermediate_size", 20},
                        {"out_hidden_size", 32}}}});
  EXPECT_THAT(refusal({.tp = 2, .chunk_list = {{2}}, .block_list = {{2}}}),
              HasSubstr("3 heads of the vision tower"));
}

TEST_F(MindSpeedMm, OtherFormatsAndOtherModelsAreRefused) {
  make("qwen2_vl");
  const auto plan = [&](const Form& form) {
    plan_checkpoint(config_, global_tensors(config_, DType::kF32), {{}, form});
  };
  EXPECT_THAT(test::error_of<ModelError>([&] { plan({}); }), HasSubstr("vision tower"));
  make("qwen2");
  EXPECT_THAT(test::error_of<ModelError>([&] { plan(kMm); }), HasSubstr("no vision tower"));
}

TEST_F(MindSpeedMm, WhatIsMissingOrOfNoPartIsNamed) {
  make("qwen2_vl");
  written({.pp = 2, .chunk_list = {{0, 2}}, .block_list = {{2, 0}}});
  std::filesystem::remove(folder_ / "mm/config.json");
  EXPECT_THAT(test::error_of<ModelError>([&] { open_checkpoint(folder_ / "mm"); }),
              HasSubstr("config.json"));
  json_["vision_config"]["depth"] = 3;
  write_json_file(folder_ / "mm/config.json", json_);
  EXPECT_THAT(test::error_of<ModelError>([&] { open_checkpoint(folder_ / "mm"); }),
              HasSubstr("does not cut 3 layers"));
  std::filesystem::remove_all(folder_ / "mm/release/mp_rank_00_000");
  EXPECT_THAT(test::error_of<ModelError>([&] { open_checkpoint(folder_ / "mm"); }),
              HasSubstr("mp_rank_00_000"));
}

TEST_F(MindSpeedMm, ThePublishedReferencesWeightsComeBackFromEveryCut) {
  DANLU_REQUIRES_SHARED();
  const Lists whole_layers = {{2}};
  for (const auto& [name, depth] : {std::pair{"qwen2_vl", 2}, std::pair{"qwen2_5_vl", 4},
                                    std::pair{"qwen2_5_vl_newnames", 4}}) {
    const std::filesystem::path from = test::shared_dir() / "golden/vl" / name;
    const CheckpointSource source = open_checkpoint_source(from);
    const Json json = read_json_file(from / "config.json");
    const int64_t half = depth / 2;
    int number = 0;
    for (Split split :
         {Split{.chunk_list = whole_layers, .block_list = {{depth}}},
          Split{.pp = 2, .chunk_list = {{1, 1}}, .block_list = {{depth, 0}}},
          Split{.pp = 2, .chunk_list = {{0, 0}, {1, 1}}, .block_list = {{half, half}, {0, 0}}}}) {
      for (const int64_t tp : {1, 2}) {
        split.tp = tp;
        const std::filesystem::path to = folder_ / (name + std::to_string(number++));
        write_megatron(to, json, source.config, source.model, {split, kMm, std::nullopt});
        EXPECT_THAT(unequal(*source.model, *open_checkpoint_source(to).model), IsEmpty())
            << name << " " << describe(split);
      }
    }
  }
}

TEST_F(MindSpeedMm, EveryRankHoldsWhatTorchOperationsMakeOfTheModel) {
  DANLU_REQUIRES_PYTHON_TORCH();
  constexpr uint64_t kCases = 40;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    SCOPED_TRACE(seed);
    RandomModels random(4000 + seed);
    const Json json = random.vision_config_json();
    const arch::ModelConfig config = random.parse(json);
    const auto model = random.source(global_tensors(config, config.dtype));
    const Split split = random.vision_split(config);
    const std::filesystem::path at = folder_ / std::to_string(seed);
    write_megatron(at / "mm", json, config, model, {split, kMm, std::nullopt});
    std::filesystem::create_directories(at / "model");
    save_safetensors(at / "model", model->tensors(),
                     [&](size_t i) { return model->mapped(model->tensors()[i].name); });
    write_json_file(
        at / "case.json",
        {{"config", json}, {"tp", split.tp}, {"llm", split.chunk_list}, {"vit", split.block_list}});
  }
  ASSERT_EQ(test::run_python(python, "check_mindspeed_mm.py", folder_.path().string()), 0);
}

}  // namespace mindspeed_mm_test
}  // namespace danlu::weights::megatron
