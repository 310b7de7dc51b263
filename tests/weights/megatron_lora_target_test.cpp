// A PEFT adapter written as MindSpeed-LLM's LoRA: its fused matrices say the same updates by the
// definition, and reading gives the very adapter back, at every split.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/convert/joined_source.h"
#include "weights/convert/layout_writer.h"
#include "weights/edit_torch_file.h"
#include "weights/lora/adapter_places.h"
#include "weights/megatron/checkpoint.h"
#include "weights/megatron/lora_target.h"
#include "weights/megatron/place.h"
#include "weights/megatron/target.h"
#include "weights/random_models.h"
#include "weights/small_tensors.h"

namespace danlu::weights::megatron {
namespace {

using test::MemorySource;
using test::numbers_of;
using testing::HasSubstr;

constexpr int64_t kR = 3;

class LoraTarget : public testing::Test {
 protected:
  /// Qwen2: biases on q, k and v, which lie below the adapted matrix too.
  LoraTarget() {
    json_ = test::tiny_config("qwen2");
    json_["hidden_size"] = 16;
    json_["num_attention_heads"] = 4;
    json_["num_key_value_heads"] = 2;
    json_["intermediate_size"] = 24;
    json_["num_hidden_layers"] = 2;
    json_["vocab_size"] = 10;
    config_ = random_.parse(json_);
    model_ = random_.source(global_tensors(config_, DType::kBF16));
    peft_.rank = kR;
    peft_.alpha = 6;
  }
  /// F32 adapters, by the places' shapes.
  std::shared_ptr<const TensorSource> adapter(const std::vector<std::string>& targets) {
    peft_.target_modules = targets;
    std::vector<TensorInfo> infos;
    const auto weights = module_weights(config_);
    for (const std::string& module : chosen_modules(peft_, config_)) {
      for (const AdapterPart part : {AdapterPart::kLoraA, AdapterPart::kLoraB}) {
        infos.push_back({adapter_tensor_name(module, part), DType::kF32,
                         adapter_shape(weights.at(module), part, kR)});
      }
    }
    return random_.source(infos);
  }
  FusedAdapters write(const std::vector<std::string>& targets, const Split& split, Dialect dialect,
                      bool alone, ExpertForm experts = ExpertForm::kSequential) {
    adapter_ = adapter(targets);
    std::vector<TensorInfo> globals = global_tensors(config_, DType::kBF16);
    TargetOptions options;
    options.split = split;
    options.form.dialect = dialect;
    options.form.experts = experts;
    FusedAdapters fused =
        fuse_adapters(model_layout(config_, split, options.form, globals), adapter_, peft_);
    options.adapters = &fused;
    options.adapters_alone = alone;
    const Target target = plan_checkpoint(config_, globals, options);
    fs::remove_all(root());
    fs::create_directories(root());
    write_json_file(root() / "config.json", json_);
    write_layout(*join_tensors(model_, fused.tensors), target.layout, target.plans, root());
    for (const auto& [path, text] : target.texts) write_file_atomic(root() / path, text);
    return fused;
  }
  void expect_same(const TensorSource& expected, const TensorSource& got) const {
    ASSERT_EQ(got.tensors().size(), expected.tensors().size());
    for (const TensorInfo& info : expected.tensors()) {
      const TensorInfo* found = got.find(info.name);
      ASSERT_TRUE(found) << info.name;
      ASSERT_EQ(found->shape, info.shape) << info.name;
      EXPECT_EQ(test::read_tensor(got, info.name), test::read_tensor(expected, info.name))
          << info.name;
    }
  }
  fs::path root() const { return directory_ / "lora"; }

  test::RandomModels random_{11};
  test::TemporaryDirectory directory_;
  Json json_;
  arch::ModelConfig config_;
  PeftConfig peft_;
  std::shared_ptr<const TensorSource> model_, adapter_;
};

const std::vector<std::string> kAll = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                       "gate_proj", "up_proj", "down_proj"};

TEST_F(LoraTarget, ReadingGivesTheAdapterAndTheBaseBackAtEverySplit) {
  for (const auto& [tp, pp] : {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
    for (const Dialect dialect : {Dialect::kCore, Dialect::kTransformerEngine}) {
      for (const bool alone : {false, true}) {
        SCOPED_TRACE(fmt::format("tp {} pp {} dialect {} alone {}", tp, pp,
                                 static_cast<int>(dialect), alone));
        write(kAll, {.tp = tp, .pp = pp}, dialect, alone);
        const Checkpoint opened = open_checkpoint(root());
        expect_same(*adapter_, *opened.adapters);
        EXPECT_EQ(opened.peft->rank, kR);
        EXPECT_EQ(opened.peft->alpha, 6);
        ASSERT_EQ(opened.model == nullptr, alone);
        if (!alone) expect_same(*model_, *opened.model);
        EXPECT_TRUE(opened.differing_copies().empty());
      }
    }
  }
}

/// Every linear layer of every expert, and the shared one's, each with an adapter of its own.
TEST_F(LoraTarget, AdaptersOfExpertsComeBackAtEverySplit) {
  json_ = test::tiny_config("qwen2_moe");
  config_ = random_.parse(json_);
  model_ = random_.source(global_tensors(config_, DType::kBF16));
  for (const ExpertForm experts : {ExpertForm::kTeGrouped, ExpertForm::kSequential}) {
    const bool is_grouped = experts == ExpertForm::kTeGrouped;
    const Dialect dialect = is_grouped ? Dialect::kTransformerEngine : Dialect::kCore;
    for (const Split& split :
         {Split{}, Split{.tp = 2}, Split{.ep = 2}, Split{.pp = 2, .ep = 4}, Split{.tp = 2, .ep = 2},
          Split{.tp = 2, .ep = 2, .tp_extends_ep = true}}) {
      for (const bool alone : {false, true}) {
        SCOPED_TRACE(fmt::format("tp {} pp {} ep {} {} alone {} grouped {}", split.tp, split.pp,
                                 split.ep, split.tp_extends_ep, alone, is_grouped));
        const FusedAdapters fused = write(kAll, split, dialect, alone, experts);
        EXPECT_THAT(fused.modules,
                    testing::ElementsAre("linear_fc1", "linear_fc2", "linear_proj", "linear_qkv"));
        const Checkpoint opened = open_checkpoint(root());
        expect_same(*adapter_, *opened.adapters);
        EXPECT_EQ(opened.peft->rank, kR);
        if (!alone) expect_same(*model_, *opened.model);
        EXPECT_TRUE(opened.differing_copies().empty());
      }
    }
  }
  const auto file = open_torch_file(root() / "iter_0000001/mp_rank_00_000" / kModelFile);
  EXPECT_TRUE(
      file->find("model.decoder.layers.1.mlp.experts.local_experts.0.linear_fc1.lora_A."
                 "default.weight"));
  EXPECT_TRUE(
      file->find("model.decoder.layers.1.mlp.shared_experts.linear_fc2.lora_B."
                 "default.weight"));
}

/// Names and shapes as ms-swift's LoraParallelLinear has them around Transformer-Engine's grouped
/// linear layers: an A and a B for each expert, of fc1 one A for gate and up.
TEST_F(LoraTarget, ExpertsBesideEachOtherHaveAdaptersBesideEachOther) {
  json_ = test::tiny_config("qwen3_moe");  // 4 experts, hidden 32, width 24
  config_ = random_.parse(json_);
  model_ = random_.source(global_tensors(config_, DType::kBF16));
  write({"gate_proj", "up_proj", "down_proj"}, {.ep = 2}, Dialect::kTransformerEngine, false,
        ExpertForm::kTeGrouped);
  const auto file = open_torch_file(root() / "iter_0000001/mp_rank_00_001" / kModelFile);
  const std::string layer = "model.decoder.layers.1.mlp.experts.";
  const auto shape = [&](const std::string& name) {
    const TensorInfo* found = file->find(layer + name);
    return found ? found->shape : std::vector<int64_t>{};
  };
  EXPECT_THAT(shape("linear_fc1.base_layer.weight1"), testing::ElementsAre(48, 32));
  EXPECT_THAT(shape("linear_fc1.lora_A.default.weight1"), testing::ElementsAre(2 * kR, 32));
  EXPECT_THAT(shape("linear_fc1.lora_B.default.weight1"), testing::ElementsAre(48, 2 * kR));
  EXPECT_THAT(shape("linear_fc2.lora_A.default.weight0"), testing::ElementsAre(2 * kR, 24));
  EXPECT_THAT(shape("linear_fc2.lora_B.default.weight0"), testing::ElementsAre(32, 2 * kR));
  EXPECT_THAT(shape("linear_fc1.lora_A.default.weight2"), testing::IsEmpty());
  // The last of this rank is the model's expert 3: its A is the first kR rows.
  const std::vector<double> stored = numbers_of(*file, layer + "linear_fc2.lora_A.default.weight1"),
                            own = numbers_of(
                                *adapter_,
                                adapter_tensor_name("model.layers.1.mlp.experts.3.down_proj",
                                                    AdapterPart::kLoraA));
  ASSERT_EQ(own.size(), static_cast<size_t>(kR * 24));
  EXPECT_TRUE(std::equal(own.begin(), own.end(), stored.begin()));
  EXPECT_THAT(test::error_of<ModelError>([&] {
                write({"experts.3.down_proj"}, {.ep = 2}, Dialect::kTransformerEngine, false,
                      ExpertForm::kTeGrouped);
              }),
              HasSubstr("has no adapter, and other experts beside it have"));
}

TEST_F(LoraTarget, ExpertsThatShareAMatrixCarryNoAdapters) {
  json_ = test::tiny_config("mixtral");
  config_ = random_.parse(json_);
  const auto layout = model_layout(config_, {}, {.experts = ExpertForm::kGrouped},
                                   global_tensors(config_, DType::kBF16));
  EXPECT_THAT(
      test::error_of<ModelError>([&] { fuse_adapters(layout, adapter({"q_proj", "w1"}), peft_); }),
      HasSubstr("stored with others in one matrix"));
}

/// Element [row, col] of alpha / rank · B · A.
double update(const TensorSource& source, const std::string& a, const std::string& b, double scale,
              int64_t rank, int64_t row, int64_t col) {
  const std::vector<double> lower = numbers_of(source, b), upper = numbers_of(source, a);
  const int64_t cols = source.find(a)->shape[1];
  double sum = 0;
  for (int64_t r = 0; r < rank; ++r)
    sum += lower[static_cast<size_t>(row * rank + r)] * upper[static_cast<size_t>(r * cols + col)];
  return scale * sum;
}

// The files themselves, by the definition, without our reader of adapters: rank and alpha of
// `args`, one A for a fused matrix, the rows of its B in the order q q k v of each group.
TEST_F(LoraTarget, FusedMatricesSayTheSameUpdates) {
  const FusedAdapters fused = write(kAll, {}, Dialect::kCore, false);
  EXPECT_EQ(fused.rank, 3 * kR) << "of q, k and v";
  EXPECT_EQ(fused.alpha, 18);
  EXPECT_THAT(fused.modules,
              testing::ElementsAre("linear_fc1", "linear_fc2", "linear_proj", "linear_qkv"));
  const auto file = open_torch_file(root() / "iter_0000001/mp_rank_00" / kModelFile);
  const std::string layer = "model.decoder.layers.1.";
  for (const char* name :
       {"self_attention.linear_qkv.base_layer.weight", "self_attention.linear_qkv.base_layer.bias",
        "self_attention.linear_proj.base_layer.weight", "mlp.linear_fc1.base_layer.weight",
        "mlp.linear_fc2.lora_B.default.weight"})
    EXPECT_TRUE(file->find(layer + name)) << name;
  struct Row {
    const char* fused;
    int64_t row;
    const char* module;
    int64_t of;
  };
  // Heads of 4; a group is 2 query heads, a key and a value: 16 rows.
  for (const Row& at : {Row{"self_attention.linear_qkv", 5, "self_attn.q_proj", 5},
                        Row{"self_attention.linear_qkv", 8 + 1, "self_attn.k_proj", 1},
                        Row{"self_attention.linear_qkv", 16 + 8 + 1, "self_attn.k_proj", 4 + 1},
                        Row{"self_attention.linear_qkv", 16 + 12 + 2, "self_attn.v_proj", 4 + 2},
                        Row{"mlp.linear_fc1", 7, "mlp.gate_proj", 7},
                        Row{"mlp.linear_fc1", 24 + 7, "mlp.up_proj", 7},
                        Row{"self_attention.linear_proj", 3, "self_attn.o_proj", 3},
                        Row{"mlp.linear_fc2", 9, "mlp.down_proj", 9}}) {
    const std::string module = std::string("model.layers.1.") + at.module;
    const std::string key = layer + at.fused;
    const double written =
        update(*file, key + ".lora_A.default.weight", key + ".lora_B.default.weight",
               fused.alpha / static_cast<double>(fused.rank), fused.rank, at.row, 2);
    const double meant =
        update(*adapter_, adapter_tensor_name(module, AdapterPart::kLoraA),
               adapter_tensor_name(module, AdapterPart::kLoraB), 6.0 / kR, kR, at.of, 2);
    EXPECT_EQ(written, meant) << at.fused << " " << at.row;
  }
}

TEST_F(LoraTarget, PartsWithoutAdaptersStayWithoutAndOneModuleKeepsItsRank) {
  FusedAdapters fused = write({"q_proj", "v_proj"}, {.tp = 2}, Dialect::kCore, false);
  EXPECT_EQ(fused.rank, 2 * kR);
  expect_same(*adapter_, *open_checkpoint(root()).adapters);
  fused = write({"down_proj"}, {.tp = 2}, Dialect::kCore, true);
  EXPECT_EQ(fused.rank, kR) << "MindSpeed's own form";
  EXPECT_EQ(fused.alpha, 6);
  expect_same(*adapter_, *open_adapters(root(), config_).adapters);
}

/// As a program that trained on writes it.
TEST_F(LoraTarget, WithoutOurRecordItIsReadAsMindSpeedsOwn) {
  write(kAll, {}, Dialect::kCore, true);
  const std::string rank_file = "iter_0000001/mp_rank_00";
  test::edit_torch_file(root() / rank_file / kModelFile, [](test::TorchParts& parts) {
    torch_file::PyValue args = parts.root.get("args");
    args.put(kFusedFrom, torch_file::PyValue::none());
    parts.root.put("args", args);
  });
  const Checkpoint opened = open_checkpoint(root());
  EXPECT_EQ(opened.peft->rank, 3 * kR);
  EXPECT_EQ(opened.peft->alpha, 18);
  EXPECT_EQ(opened.adapters->tensors().size(), adapter_->tensors().size());
}

TEST_F(LoraTarget, FlagsAreComparedWithTheAdapterThatWasTrained) {
  write(kAll, {}, Dialect::kCore, true);
  open_checkpoint(root(), {.lora_rank = kR, .lora_alpha = 6.0});
  EXPECT_THAT(test::error_of<UsageError>([&] { open_checkpoint(root(), {.lora_rank = 9}); }),
              testing::AllOf(HasSubstr("9"), HasSubstr("rank 3")));
}

TEST_F(LoraTarget, WhatTheFormCannotHoldIsNamed) {
  const auto layout = model_layout(config_, {}, {}, global_tensors(config_, DType::kBF16));
  const auto refused = [&](const std::shared_ptr<const TensorSource>& tensors) {
    return test::error_of<ModelError>([&] { fuse_adapters(layout, tensors, peft_); });
  };
  const auto good = adapter({"q_proj"});
  peft_.dora = true;
  EXPECT_THAT(refused(good), HasSubstr("DoRA"));
  peft_.dora = false;
  const std::string norm = "base_model.model.model.norm.weight";
  EXPECT_THAT(refused(random_.source({{norm, DType::kF32, {16}}})), HasSubstr(norm));
  const std::string other = "base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight";
  EXPECT_THAT(refused(random_.source({{other, DType::kF32, {kR, 16}}})), HasSubstr(other));
  peft_.alpha_pattern = {{"layers.0.self_attn.q_proj", 5}};
  EXPECT_THAT(refused(good), HasSubstr("scale"));
}

}  // namespace
}  // namespace danlu::weights::megatron
