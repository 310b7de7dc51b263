// Megatron checkpoints: every layout covers every tensor once, and what is written, at any split
// and in any dialect, reads back as the same bits, optimizer included.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/megatron/arguments.h"
#include "weights/megatron/checkpoint.h"
#include "weights/megatron/target.h"
#include "weights/random_models.h"
#include "weights/write_megatron.h"

namespace danlu::weights::megatron {
namespace {

using test::RandomModels;
using test::write_megatron;

/// Names of tensors that differ in anything.
std::vector<std::string> differences(const TensorSource& a, const TensorSource& b) {
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

OptimizerShape random_shape(RandomModels& random, const arch::ModelConfig& config) {
  OptimizerShape shape;
  shape.distributed = random.coin();
  shape.fp32 = config.dtype == DType::kF32 && !shape.distributed;
  shape.param_dtype = config.dtype;
  shape.data_parallel = random.one_of<int64_t>({1, 2, 3, 8});
  shape.overlap_grad_reduce = random.coin();
  return shape;
}

TEST(MegatronLayout, CoversEveryTensorOnceAtAnySplit) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomModels random(seed);
    const arch::ModelConfig config = random.parse(random.config_json());
    const Split split = random.split(config);
    const ModelLayout layout =
        model_layout(config, split, random.form(config), global_tensors(config, DType::kBF16));
    ASSERT_NO_THROW(check_layout(layout.layout)) << config.family << " " << describe(split);
    OptimizerShape shape = random_shape(random, config);
    try {
      const OptimizerLayout states = optimizer_layout(layout, shape);
      ASSERT_NO_THROW(check_layout(states.layout));
    } catch (const ModelError& e) {
      // Megatron itself has no valid place for a tied embedding whose bucket is not aligned.
      EXPECT_TRUE(shape.distributed && config.tie_embeddings && split.pp > 1) << e.what();
    }
  }
}

TEST(MegatronCheckpoint, AnySplitReadsBackAsTheSameBitsAndSplitsAgain) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomModels random(1000 + seed);
    const Json json = random.config_json();
    const arch::ModelConfig config = random.parse(json);
    SCOPED_TRACE(std::to_string(seed) + " " + json.dump());
    const auto model = random.source(global_tensors(config, config.dtype));
    const test::TemporaryDirectory directory;
    TargetOptions options{random.split(config), random.form(config)};
    write_megatron(directory / "a", json, config, model, options);
    const Checkpoint first = open_checkpoint(directory / "a");
    EXPECT_THAT(differences(*model, *first.model), testing::IsEmpty()) << describe(options.split);
    EXPECT_EQ(first.header.form, options.form);
    EXPECT_THAT(first.differing_copies(), testing::IsEmpty());

    options = {random.split(config), random.form(config), std::nullopt, first.header.args};
    write_megatron(directory / "b", json, config, first.model, options);
    const Checkpoint second = open_checkpoint(directory / "b");
    EXPECT_THAT(differences(*model, *second.model), testing::IsEmpty()) << describe(options.split);
    EXPECT_FALSE(second.header.place.iteration);
  }
}

/// Four experts and heads that four ranks divide.
Json config_for_four_ranks() {
  Json json = test::tiny_config("qwen2_moe");
  json["num_attention_heads"] = json["num_key_value_heads"] = json["num_experts"] = 4;
  return json;
}

// Megatron-LM's rank r of a stage stands at r mod etp among those that cut an expert, and at
// r / etp mod ep among those that divide experts (core/parallel_state.py, expert RankGenerator).
TEST(MegatronLayout, SomeTensorRanksCutAnExpertBetweenThem) {
  RandomModels random(5);
  const arch::ModelConfig config = random.parse(config_for_four_ranks());
  const Split split{
      .tp = 4, .ep = 2, .tp_extends_ep = true, .counts_tensor_ranks = true, .expert_tp = 2};
  EXPECT_EQ(describe(split), "TP4 PP1 EP4 ETP2");
  const ModelLayout layout =
      model_layout(config, split, Form{}, global_tensors(config, DType::kBF16));
  ASSERT_EQ(layout.ranks.size(), 8u);
  const int64_t half = config.experts.ffn_size / 2;
  for (int64_t r = 0; r < 8; ++r) {
    const Rank& rank = layout.ranks[static_cast<size_t>(r)];
    const int64_t expert = r / 2 % 4, part = r % 2;
    EXPECT_EQ(rank.directory, fmt::format("mp_rank_{:02}_{:03}", r % 4, expert));
    size_t seen = 0;
    for (const StoredTensor& tensor : layout.layout.tensors) {
      const bool is_down = tensor.info.name.ends_with("experts.local_experts.0.linear_fc2.weight");
      if (tensor.file != static_cast<size_t>(r) || !is_down) continue;
      ++seen;
      const Piece& piece = tensor.sections.at(0).pieces.at(0);
      EXPECT_THAT(layout.layout.globals[piece.global].name,
                  testing::HasSubstr(fmt::format("experts.{}.down_proj", expert)));
      EXPECT_EQ(piece.of, (Rect{0, config.hidden_size, part * half, half}));
    }
    EXPECT_EQ(seen, static_cast<size_t>(config.num_layers));
  }
}

TEST(MegatronCheckpoint, ExpertsThatSomeTensorRanksCutReadBackAndSplitAgain) {
  for (const ExpertForm experts :
       {ExpertForm::kSequential, ExpertForm::kGrouped, ExpertForm::kTeGrouped}) {
    RandomModels random(6);
    const Json json = config_for_four_ranks();
    const arch::ModelConfig config = random.parse(json);
    const auto model = random.source(global_tensors(config, config.dtype));
    const test::TemporaryDirectory directory;
    Form form;
    form.experts = experts;
    if (experts == ExpertForm::kTeGrouped) form.dialect = Dialect::kTransformerEngine;
    const Split pairs{.tp = 4, .tp_extends_ep = true, .counts_tensor_ranks = true, .expert_tp = 2};
    write_megatron(directory / "pairs", json, config, model, {pairs, form});
    const Checkpoint first = open_checkpoint(directory / "pairs");
    EXPECT_EQ(describe(first.header.split), describe(pairs));
    EXPECT_THAT(differences(*model, *first.model), testing::IsEmpty());
    write_megatron(directory / "cut", json, config, first.model,
                   {{.tp = 2, .ep = 2}, form, std::nullopt, first.header.args});
    const Checkpoint second = open_checkpoint(directory / "cut");
    EXPECT_THAT(differences(*model, *second.model), testing::IsEmpty());
  }
}

TEST(MegatronCheckpoint, NamesEveryFileItIsReadFrom) {
  RandomModels random(3);
  const Json json = test::tiny_config("llama");
  const arch::ModelConfig config = random.parse(json);
  const auto model = random.source(global_tensors(config, config.dtype));
  const test::TemporaryDirectory directory;
  write_megatron(directory / "a", json, config, model, {.split = {.tp = 2, .pp = 2}});
  EXPECT_EQ(open_checkpoint(directory / "a").model->files().size(), 4u);
}

TEST(MegatronCheckpoint, ARectangleOutsideATensorIsNotRead) {
  RandomModels random(3);
  const Json json = test::tiny_config("llama");
  const arch::ModelConfig config = random.parse(json);
  const auto model = random.source(global_tensors(config, config.dtype));
  const test::TemporaryDirectory directory;
  write_megatron(directory / "a", json, config, model, {.split = {.tp = 2}});
  const auto opened = open_checkpoint(directory / "a").model;
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  const Rect all = matrix_of(opened->find(name)->shape);
  std::vector<std::byte> out(opened->find(name)->size_bytes());
  EXPECT_NO_THROW(opened->read_rect(name, all, out.data(), all.cols));
  EXPECT_THROW(opened->read_rect(name, {all.rows, 1, 0, 1}, out.data(), 1), InternalError);
  EXPECT_THROW(opened->read_rect(name, {0, 1, all.cols - 1, 2}, out.data(), 2), InternalError);
  EXPECT_THROW(opened->read_rect(name, {-1, 1, 0, 1}, out.data(), 1), InternalError);
}

TEST(MegatronCheckpoint, OptimizerStatesAreSplitAgainWithTheWeights) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomModels random(2000 + seed);
    Json json = random.config_json();
    json["tie_word_embeddings"] = false;
    const arch::ModelConfig config = random.parse(json);
    SCOPED_TRACE(std::to_string(seed) + " " + json.dump());
    const auto globals = global_tensors(config, config.dtype);
    const auto model = random.source(globals);
    OptimizerShape shape = random_shape(random, config);
    const OptimizerState state = random.optimizer(globals, shape.distributed || !shape.fp32);
    const test::TemporaryDirectory directory;
    TargetOptions options{random.split(config), random.form(config), 42, {}, &state, shape};
    write_megatron(directory / "a", json, config, model, options);
    const Checkpoint first = open_checkpoint(directory / "a", {.with_optimizer = true});
    ASSERT_TRUE(first.optimizer.tensors);
    EXPECT_THAT(differences(*state.tensors, *first.optimizer.tensors), testing::IsEmpty());
    EXPECT_EQ(first.optimizer.settings.iteration, 42);
    EXPECT_EQ(first.optimizer.settings.consumed_train_samples, 672);
    EXPECT_EQ(first.optimizer.settings.scheduler, state.settings.scheduler);
    EXPECT_EQ(first.optimizer.settings.groups.at(0).value("step", 0), 42);

    shape.distributed = !shape.distributed;
    shape.fp32 = config.dtype == DType::kF32 && !shape.distributed;
    options = {random.split(config), random.form(config), 42,
               first.header.args,    &first.optimizer,    shape};
    write_megatron(directory / "b", json, config, first.model, options);
    const Checkpoint second = open_checkpoint(directory / "b", {.with_optimizer = true});
    EXPECT_THAT(differences(*model, *second.model), testing::IsEmpty());
    // F32 weights are their own masters where the layout keeps none.
    for (const TensorInfo& info : second.optimizer.tensors->tensors()) {
      const bool is_weight = !state.tensors->find(info.name);
      EXPECT_EQ(test::read_tensor(*second.optimizer.tensors, info.name),
                is_weight ? test::read_tensor(*model, info.name.substr(7))
                          : test::read_tensor(*state.tensors, info.name))
          << info.name;
    }
  }
}

TEST(MegatronArguments, ASplitOfNothingIsRefusedBeforeAnythingIsDividedByIt) {
  RandomModels random(13);
  const arch::ModelConfig config = random.parse(test::tiny_config("llama"));
  PyValue args = make_arguments(config, {}, {}, DType::kBF16);
  args.put("tensor_model_parallel_size", PyValue::integer(0));
  EXPECT_THROW(split_of_arguments(args, "a file"), ModelError);
  EXPECT_THROW(doubts(args, config, 97), ModelError);
}

TEST(MegatronArguments, ADefaultOfTheRotaryBaseIsDoubtedAndAStatedValueContradicts) {
  RandomModels random(17);
  Json json = test::tiny_config("llama");
  json["rope_theta"] = 1e6;
  json["rms_norm_eps"] = 1e-6;
  const arch::ModelConfig config = random.parse(json);
  const auto said = [&](const char* key, const PyValue& value) {
    PyValue args = make_arguments(config, {}, {}, DType::kBF16);
    args.put(key, value);
    return std::pair(doubts(args, config, 0).size(), disagreements(args, config));
  };
  using testing::IsEmpty, testing::ElementsAre, testing::HasSubstr, testing::AllOf, testing::Pair;
  EXPECT_THAT(said("theirs", PyValue::none()), Pair(0, IsEmpty()));
  EXPECT_THAT(said("rotary_base", PyValue::integer(10000)), Pair(1, IsEmpty()));
  EXPECT_THAT(said("norm_epsilon", PyValue::real(1e-5)), Pair(1, IsEmpty()));
  EXPECT_THAT(said("norm_epsilon", PyValue::real(1e-6F)), Pair(0, IsEmpty()));
  EXPECT_THAT(said("rotary_base", PyValue::integer(500000)),
              Pair(0, ElementsAre(AllOf(HasSubstr("500000"), HasSubstr("1000000")))));
  EXPECT_THAT(said("norm_epsilon", PyValue::real(1e-8)),
              Pair(0, ElementsAre(AllOf(HasSubstr("1e-08"), HasSubstr("1e-06")))));
}

TEST(MegatronArguments, OnlyPlainSettingsOfAnotherFileArePassedOn) {
  RandomModels random(11);
  const arch::ModelConfig config = random.parse(test::tiny_config("llama"));
  PyValue args = make_arguments(config, {}, {}, DType::kBF16);
  args.put("theirs", PyValue::string("kept"));
  args.put("model_type",
           PyValue::enum_member("megatron.core.enums", "ModelType", PyValue::integer(1)));
  args.put("timers", PyValue::object({.module = "somewhere", .name = "Timers"}));
  args.put("nested", PyValue::list({PyValue::global("somewhere", "function")}));
  const PyValue updated = update_arguments(args, config, {.tp = 2}, {}, DType::kBF16);
  EXPECT_EQ(*updated.find("theirs"), PyValue::string("kept"));
  EXPECT_EQ(*updated.find("tensor_model_parallel_size"), PyValue::integer(2));
  EXPECT_FALSE(updated.find("model_type")) << "readers without Megatron have no such class";
  EXPECT_FALSE(updated.find("timers"));
  EXPECT_FALSE(updated.find("nested"));
}

}  // namespace
}  // namespace danlu::weights::megatron
