// Where a distributed optimizer keeps each parameter, against what Megatron-LM core_v0.8.0's own
// ParamAndGradBuffer computed for the same model; and what of real files is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/edit_torch_file.h"
#include "weights/megatron/arguments.h"
#include "weights/megatron/checkpoint.h"
#include "weights/megatron/group_check.h"
#include "weights/random_models.h"
#include "weights/write_megatron.h"

namespace danlu::weights::megatron {
namespace {

using testing::HasSubstr;

/// No size is a multiple of the alignment, and the larger matrices fill buckets.
arch::ModelConfig odd_model(bool tied) {
  Json json = test::tiny_config("qwen2");
  json.update({{"hidden_size", 2040},
               {"intermediate_size", 5637},
               {"num_hidden_layers", 4},
               {"num_attention_heads", 15},
               {"num_key_value_heads", 5},
               {"vocab_size", 32003},
               {"tie_word_embeddings", tied},
               {"torch_dtype", "bfloat16"}});
  return arch::family_of(json).parse(json);
}

OptimizerLayout layout_of(const arch::ModelConfig& config, int64_t pp, int64_t data_parallel,
                          bool overlap) {
  Split split;
  split.pp = pp;
  const ModelLayout model = model_layout(config, split, {}, global_tensors(config, DType::kBF16));
  return optimizer_layout(
      model, {.distributed = true, .data_parallel = data_parallel, .overlap_grad_reduce = overlap});
}

struct Facts {
  int64_t data_parallel;
  bool overlap;
  int64_t numel_unpadded;
  /// First element of a parameter's state, by HF name (q for all of the fused matrix).
  std::map<std::string, int64_t> first;
};

TEST(MegatronOptimizer, FlatBuffersHaveTheOffsetsOfMegatronsOwnBuffers) {
  const std::string layers = "model.layers.";
  const std::vector<Facts> facts = {
      {8,
       false,
       312988904,
       {{"model.embed_tokens.weight", 247702784},
        {layers + "0.input_layernorm.weight", 247700736},
        {layers + "0.self_attn.o_proj.weight", 243539136},
        {layers + "0.self_attn.q_proj.bias", 236599680},
        {layers + "1.mlp.gate_proj.weight", 167995008},
        {"model.norm.weight", 65286144},
        {"lm_head.weight", 0}}},
      {8,
       true,
       312988880,
       {{"model.embed_tokens.weight", 247702760},
        {layers + "0.input_layernorm.weight", 247700712},
        {layers + "0.self_attn.o_proj.weight", 243539112},
        {layers + "0.self_attn.q_proj.bias", 236599656},
        {layers + "1.mlp.gate_proj.weight", 167994984},
        {"model.norm.weight", 65286120},
        {"lm_head.weight", 0}}},
      // More ranks make larger buckets.
      {48,
       true,
       312988824,
       {{"model.embed_tokens.weight", 247702704},
        {layers + "0.input_layernorm.weight", 247700656},
        {layers + "0.self_attn.o_proj.weight", 243539056},
        {layers + "0.self_attn.q_proj.bias", 236599600},
        {layers + "1.mlp.gate_proj.weight", 167994944},
        {"model.norm.weight", 65286120},
        {"lm_head.weight", 0}}},
  };
  for (const Facts& fact : facts) {
    SCOPED_TRACE(std::to_string(fact.data_parallel) + (fact.overlap ? " overlapping" : ""));
    const OptimizerLayout layout = layout_of(odd_model(false), 1, fact.data_parallel, fact.overlap);
    ASSERT_EQ(layout.ranks[0].size(), 1u);
    ASSERT_EQ(layout.ranks[0][0].buffers.size(), 1u);
    const RankOptimizer::Buffer& buffer = layout.ranks[0][0].buffers[0];
    EXPECT_EQ(buffer.numel_unpadded, fact.numel_unpadded);
    std::map<std::string, int64_t> first;
    for (const Section& section : layout.layout.tensors[buffer.exp_avg].sections)
      first[layout.layout.globals[section.pieces.front().global].name] = section.first;
    for (const auto& [name, at] : fact.first) EXPECT_EQ(first.at("exp_avg." + name), at) << name;
  }
}

TEST(MegatronOptimizer, ATiedEmbeddingWhoseBucketIsNotAlignedIsRefused) {
  // Megatron-LM puts the parameter 64 elements before its bucket here, and then fails.
  const std::string error =
      test::error_of<ModelError>([] { (void)layout_of(odd_model(true), 2, 2, true); });
  EXPECT_THAT(error, HasSubstr("tied embedding"));
  EXPECT_THAT(error, HasSubstr("2 data parallel ranks"));
}

TEST(MegatronOptimizer, ContextParallelRanksShareGradientsToo) {
  Json json = test::tiny_config("llama");
  json["tie_word_embeddings"] = true;
  const arch::ModelConfig config = arch::family_of(json).parse(json);
  const ModelLayout model =
      model_layout(config, {.pp = 2}, {}, global_tensors(config, DType::kBF16));
  const auto place = [&](int64_t data_parallel, int64_t context_parallel) {
    (void)optimizer_layout(model, {.distributed = true,
                                   .data_parallel = data_parallel,
                                   .context_parallel = context_parallel});
  };
  // The first stage's layer fills 1792 + 3584 + 64 + 2048 + 1024 + 64 = 8576 elements: a multiple
  // of 128, where the embedding's bucket may begin, and not of lcm(3, 128) = 384.
  EXPECT_NO_THROW(place(1, 1));
  EXPECT_NO_THROW(place(1, 2));
  EXPECT_THAT(test::error_of<ModelError>([&] { place(3, 1); }), HasSubstr("3 data parallel ranks"));
  EXPECT_THAT(test::error_of<ModelError>([&] { place(1, 3); }), HasSubstr("3 data parallel ranks"));
}

/// First elements of a rank's buffer of experts, by HF name.
std::map<std::string, int64_t> expert_places(const OptimizerLayout& layout, size_t rank) {
  std::map<std::string, int64_t> first;
  const RankOptimizer::Buffer& buffer = layout.ranks.at(rank).at(1).buffers.at(0);
  for (const Section& section : layout.layout.tensors[buffer.exp_avg].sections)
    first[layout.layout.globals[section.pieces.front().global].name] = section.first;
  return first;
}

TEST(MegatronOptimizer, ExpertsOfARankHaveABufferOfTheirOwnInBuckets) {
  Json json = test::tiny_config("mixtral");
  json.update({{"hidden_size", 2040},
               {"intermediate_size", 4099},
               {"num_attention_heads", 15},
               {"num_key_value_heads", 5},
               {"torch_dtype", "bfloat16"}});
  const arch::ModelConfig config = arch::family_of(json).parse(json);
  const ModelLayout model =
      model_layout(config, {.ep = 2}, {}, global_tensors(config, DType::kBF16));
  const auto layout_for = [&](int64_t data_parallel) {
    return optimizer_layout(
        model, {.distributed = true, .data_parallel = data_parallel, .overlap_grad_reduce = true});
  };
  const auto name = [&](int layer, int expert, const char* matrix) {
    return fmt::format("exp_avg.model.layers.{}.block_sparse_moe.experts.{}.{}.weight", layer,
                       expert, matrix);
  };
  // fc2 has 8361960 elements, rounded up to 8361984; fc1 16723920, rounded up to 16723968. Four of
  // them end at 50171856, which closes a bucket of 40M or 48M elements and not one of 60M.
  for (const int64_t data_parallel : {4, 48}) {
    const OptimizerLayout layout = layout_for(data_parallel);
    // Expert rank 1 is a data parallel rank of everything else.
    EXPECT_EQ(layout.ranks[0][0].buffers.size(), 1u);
    EXPECT_TRUE(layout.ranks[1][0].buffers.empty());
    EXPECT_EQ(layout.ranks[1][1].buffers.at(0).numel_unpadded, 100343712);
    const auto first = expert_places(layout, 1);
    EXPECT_EQ(first.at(name(1, 3, "w2")), 0);
    EXPECT_EQ(first.at(name(1, 3, "w1")), 8361984);
    EXPECT_EQ(first.at(name(1, 2, "w2")), 25085952);
    EXPECT_EQ(first.at(name(1, 2, "w1")), 33447936);
    EXPECT_EQ(first.at(name(0, 3, "w2")), 50171856);
    EXPECT_EQ(first.at(name(0, 3, "w1")), 58533840);
    EXPECT_EQ(first.at(name(0, 2, "w2")), 75257808);
    EXPECT_EQ(first.at(name(0, 2, "w1")), 83619792);
  }
  const auto first = expert_places(layout_for(60), 0);
  EXPECT_EQ(first.at(name(0, 1, "w2")), 50171904);
  EXPECT_EQ(first.at(name(0, 1, "w1")), 58533888);
  EXPECT_EQ(first.at(name(0, 0, "w2")), 75257808);
  EXPECT_EQ(first.at(name(0, 0, "w1")), 83619792);
}

TEST(MegatronOptimizer, GradientsSummedInTheParametersDtypeNameTheBuffers) {
  test::RandomModels random(8);
  Json json = test::tiny_config("llama");
  json["torch_dtype"] = "bfloat16";
  const arch::ModelConfig config = random.parse(json);
  const auto globals = global_tensors(config, DType::kBF16);
  const OptimizerState state = random.optimizer(globals, true);
  TargetOptions options{.optimizer = &state};
  options.optimizer_shape = {.distributed = true, .grad_dtype = DType::kBF16};
  const test::TemporaryDirectory directory;
  test::write_megatron(directory.path(), json, config, random.source(globals), options);
  const auto file = open_torch_file(directory / "iter_0000001/mp_rank_00" / kOptimizerFile);
  EXPECT_TRUE(file->find("0.(torch.bfloat16, torch.bfloat16).exp_avg"));
  const Checkpoint opened = open_checkpoint(directory.path(), {.with_optimizer = true});
  for (const TensorInfo& info : state.tensors->tensors()) {
    EXPECT_EQ(test::read_tensor(*state.tensors, info.name),
              test::read_tensor(*opened.optimizer.tensors, info.name))
        << info.name;
  }
}

TEST(MegatronOptimizer, SettingsOfTheWrongKindAreErrors) {
  test::RandomModels random(9);
  const Json json = test::tiny_config("llama");
  const arch::ModelConfig config = random.parse(json);
  const auto globals = global_tensors(config, DType::kF32);
  OptimizerState state = random.optimizer(globals, false);
  TargetOptions options{.optimizer = &state};
  options.optimizer_shape.fp32 = true;
  const test::TemporaryDirectory directory;
  test::write_megatron(directory / "a", json, config, random.source(globals), options);
  const fs::path file = directory / "a/iter_0000001/mp_rank_00" / kModelFile;
  const auto error_with = [&](PyValue group) {
    test::edit_torch_file(file, [&](test::TorchParts& parts) {
      PyValue optimizer = parts.root.get("optimizer");
      PyValue::Items groups = optimizer.get("param_groups").items();
      groups.at(0) = std::move(group);
      parts.root.put("optimizer", optimizer.put("param_groups", PyValue::list(groups)));
    });
    return test::error_of<ModelError>(
        [&] { (void)open_checkpoint(directory / "a", {.with_optimizer = true}); });
  };
  EXPECT_THAT(error_with(PyValue::integer(1)), HasSubstr("param_groups[0]"));
  PyValue odd = PyValue::dict();
  odd.put("lr_mult", PyValue::none());
  EXPECT_THAT(error_with(odd), HasSubstr("lr_mult"));
  // Wherever settings come from, a target does not take them on trust.
  state.settings.groups = Json::array({1});
  EXPECT_THAT(test::error_of<ModelError>([&] { (void)plan_checkpoint(config, globals, options); }),
              HasSubstr("groups[0]"));
}

PyValue group(double wd_mult, int64_t count) {
  PyValue ids = PyValue::list();
  for (int64_t i = 0; i < count; ++i) ids.append(PyValue::integer(i));
  PyValue group = PyValue::dict();
  group.put("wd_mult", PyValue::real(wd_mult)).put("params", std::move(ids));
  return group;
}

PyValue with_groups(std::vector<PyValue> groups) {
  PyValue list = PyValue::list(), inner = PyValue::dict(), optimizer = PyValue::dict();
  for (PyValue& group : groups) list.append(std::move(group));
  inner.put("param_groups", std::move(list));
  optimizer.put("optimizer", std::move(inner));
  return optimizer;
}

TEST(MegatronOptimizer, OtherGroupsThanTheRuleMakesAreRefused) {
  RankOptimizer expected;
  expected.groups = {{false, false, {0, 1}, {}}, {true, false, {2}, {}}};
  const auto error = [&](const PyValue& optimizer) {
    return test::error_of<ModelError>([&] { check_groups(optimizer, {expected}, "f: optimizer"); });
  };
  EXPECT_NO_THROW(check_groups(with_groups({group(1, 2), group(0, 1)}), {expected}, "f"));
  EXPECT_THAT(error(with_groups({group(1, 3)})), HasSubstr("1 param_groups, expected 2"));
  EXPECT_THAT(error(with_groups({group(1, 1), group(0, 2)})),
              HasSubstr("param_groups[0]: 1 parameters, expected 2"));
  EXPECT_THAT(error(with_groups({group(0, 2), group(1, 1)})), HasSubstr("wd_mult is 0"));
  PyValue own_rate = group(1, 2);
  own_rate.put("is_decoupled_lr", PyValue::boolean(true));
  EXPECT_THAT(error(with_groups({own_rate, group(0, 1)})), HasSubstr("--decoupled-lr"));
  EXPECT_THAT(error(PyValue::list({with_groups({}), with_groups({})})),
              HasSubstr("2 optimizers, expected 1"));
}

TEST(MegatronCheckpoint, ExpertsCutByMegatronsExtendedTensorParallelismAreRefused) {
  test::RandomModels random(1);
  const Json json = test::tiny_config("mixtral");
  const arch::ModelConfig config = random.parse(json);
  TargetOptions options;
  options.split.ep = 2;
  options.args = make_arguments(config, options.split, options.form, DType::kF32);
  options.args.put("moe_extended_tp", PyValue::boolean(true));
  const test::TemporaryDirectory directory;
  test::write_megatron(directory.path(), json, config,
                       random.source(global_tensors(config, DType::kF32)), options);
  EXPECT_THAT(test::error_of<ModelError>([&] { (void)read_header(directory.path()); }),
              HasSubstr("--moe-extended-tp"));
}

TEST(MegatronSplit, VirtualStagesNeedAPipeline) {
  test::RandomModels random(1);
  const arch::ModelConfig config = random.parse(test::tiny_config("qwen2"));
  EXPECT_THAT(test::error_of<UsageError>(
                  [&] { check_split(config, {.pp = 1, .layers_per_virtual_stage = 1}); }),
              HasSubstr("more than one pipeline stage"));
}

}  // namespace
}  // namespace danlu::weights::megatron
