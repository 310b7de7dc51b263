// Megatron checkpoints that others wrote, mixed up or damaged: what the files say is believed where
// it is consistent, and every contradiction is an error that names both sides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "support/throws.h"
#include "weights/edit_torch_file.h"
#include "weights/megatron/arguments.h"
#include "weights/megatron/checkpoint.h"
#include "weights/megatron/described_model.h"
#include "weights/random_models.h"
#include "weights/write_megatron.h"

namespace danlu::weights::megatron {
namespace {

using test::RandomModels;
using test::TorchParts;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// `dict` without some of its keys.
PyValue without(const PyValue& dict, const std::vector<std::string>& keys) {
  PyValue::Entries kept;
  for (const torch_file::PyItem& entry : dict.entries()) {
    if (std::find(keys.begin(), keys.end(), entry.key.key_text()) == keys.end())
      kept.push_back(entry);
  }
  return dict.is(torch_file::PyKind::kNamespace) ? PyValue::name_space(std::move(kept))
                                                 : PyValue::dict(std::move(kept));
}

class ForeignCheckpoint : public testing::Test {
 protected:
  void write(const Json& changes, const TargetOptions& options, const char* family = "llama") {
    Json json = test::tiny_config(family);
    json["num_attention_heads"] = 4;
    json["num_key_value_heads"] = 2;
    if (!changes.is_null()) json.update(changes);
    RandomModels random(1);
    config_ = random.parse(json);
    model_ = random.source(global_tensors(config_, config_.dtype));
    test::write_megatron(root(), json, config_, model_, options);
    iteration_ = root() / iteration_directory(options.iteration);
  }
  void edit(const std::string& rank, const std::function<void(TorchParts&)>& change) {
    test::edit_torch_file(iteration_ / rank / kModelFile, change);
  }
  void edit_all(const std::function<void(TorchParts&)>& change) {
    for (const std::string& rank : find_checkpoint(root()).ranks) edit(rank, change);
  }
  void edit_args(const std::string& rank, const std::function<PyValue(PyValue)>& change) {
    edit(rank, [&](TorchParts& parts) { parts.root.put("args", change(parts.root.get("args"))); });
  }
  /// Every argument gone that says how stages are cut, as stripped files and converters leave it.
  void forget_stages() {
    edit_all([](TorchParts& parts) {
      parts.root.put("args", without(parts.root.get("args"),
                                     {"num_layer_list", "noop_layers", "padded_vocab_size",
                                      "num_layers", "num_layers_per_virtual_pipeline_stage",
                                      "virtual_pipeline_model_parallel_size"}));
    });
  }
  void expect_same_model(const Checkpoint& opened) const {
    for (const TensorInfo& info : model_->tensors()) {
      EXPECT_EQ(test::read_tensor(*model_, info.name), test::read_tensor(*opened.model, info.name))
          << info.name;
    }
  }
  std::string model_error(const OpenOptions& options = {}) const {
    return test::error_of<ModelError>([&] { (void)open_checkpoint(root(), options); });
  }
  fs::path root() const { return directory_ / "megatron"; }

  test::TemporaryDirectory directory_;
  fs::path iteration_;
  arch::ModelConfig config_;
  std::shared_ptr<const TensorSource> model_;
};

// --- sizes in the header -------------------------------------------------------------------------

TEST_F(ForeignCheckpoint, AFolderWithANumberBeyondReasonIsNoRank) {
  write({}, {});
  edit_all([](TorchParts& parts) { parts.root = without(parts.root, {"args"}); });
  fs::create_directory(iteration_ / "mp_rank_99999999999999999999");
  expect_same_model(open_checkpoint(root()));
  fs::copy(iteration_ / "mp_rank_00", iteration_ / "mp_rank_999999");
  EXPECT_THAT(model_error(), HasSubstr("TP1000000"));
}

TEST_F(ForeignCheckpoint, MindSpeedsHeadOfARewardModelIsCalledThat) {
  write({}, {});
  // As orm leaves it: the head's name where the vocabulary's was.
  edit_all([](TorchParts& parts) {
    PyValue model = parts.root.get("model");
    const PyValue head = model.get("output_layer.weight");
    parts.root.put("model", without(model, {"output_layer.weight"}).put("rm_head.weight", head));
  });
  EXPECT_THAT(model_error(), AllOf(HasSubstr("a reward model of MindSpeed-LLM (rm_head)"),
                                   HasSubstr("--reward_model")));
}

TEST_F(ForeignCheckpoint, ARewardModelIsOpenedWhereScoresAreWanted) {
  write({}, {});
  edit_all([](TorchParts& parts) {
    const auto zeros = [&](const std::string& name, const std::vector<int64_t>& shape) {
      parts.tensors.push_back({"model." + name, DType::kF32, shape});
      parts.bytes.emplace_back(parts.tensors.back().size_bytes(), '\0');
      return PyValue::tensor(parts.tensors.size() - 1);
    };
    PyValue model = parts.root.get("model");
    const int64_t width = parts.root.get("args").get("hidden_size").as_int("args.hidden_size");
    model.put("rm_head.weight", zeros("rm_head.weight", {1, width}))
        .put("rm_head.bias", zeros("rm_head.bias", {1}));
    parts.root.put("model", model);  // beside an output layer that nobody uses
  });
  const Checkpoint opened = open_checkpoint(root(), {.scores = true});
  ASSERT_TRUE(opened.config.score);
  EXPECT_EQ(opened.config.score->labels, 1);
  ASSERT_TRUE(opened.model->find("score.weight"));
  EXPECT_TRUE(opened.model->find("score.bias"));
  EXPECT_FALSE(opened.model->find("lm_head.weight"));
  edit_all([](TorchParts& parts) {
    PyValue args = parts.root.get("args");
    parts.root.put("args", args.put("post_layer_norm", PyValue::boolean(false)));
  });
  EXPECT_THAT(model_error({.scores = true}), HasSubstr("--no-post-layer-norm"));
}

TEST(MindSpeedReward, RanksHaveColumnsOfTheHeadAndItsWholeBias) {
  RandomModels random(1);
  const arch::ModelConfig config = arch::with_score(
      random.parse(test::tiny_config("llama")), {.form = arch::ScoreForm::kTokens, .labels = 1});
  const ModelLayout made =
      model_layout(config, {.tp = 2, .pp = 2}, {}, global_tensors(config, DType::kF32));
  std::vector<std::string> heads;
  for (size_t i = 0; i < made.traits.size(); ++i) {
    const StoredTensor& stored = made.layout.tensors[i];
    EXPECT_NE(made.traits[i].key, "output_layer.weight");
    if (!made.traits[i].key.starts_with("rm_head.")) continue;
    const Rank& rank = made.ranks[stored.file];
    EXPECT_EQ(rank.pp, 1);
    const Piece& piece = stored.sections.front().pieces.front();
    if (made.traits[i].key == "rm_head.weight") {
      const int64_t half = config.hidden_size / 2;
      EXPECT_EQ(stored.info.shape, (std::vector<int64_t>{1, half}));
      EXPECT_EQ(piece.of.col, rank.tp * half);
      EXPECT_FALSE(piece.replica);
    } else {
      EXPECT_EQ(stored.info.shape, (std::vector<int64_t>{1}));
      EXPECT_EQ(piece.replica, rank.tp > 0);
    }
    heads.push_back(made.traits[i].key);
  }
  EXPECT_THAT(heads,
              ElementsAre("rm_head.weight", "rm_head.bias", "rm_head.weight", "rm_head.bias"));
}

TEST_F(ForeignCheckpoint, WholeNumbersInStringsAreNumbers) {
  write({}, {.split = {.tp = 2}});
  edit_all([](TorchParts& parts) {
    PyValue args = parts.root.get("args");
    args.put("tensor_model_parallel_size", PyValue::string("2"))
        .put("num_layers", PyValue::string("2"));
    parts.root.put("args", args);
  });
  expect_same_model(open_checkpoint(root()));
  edit_all([](TorchParts& parts) {
    PyValue args = parts.root.get("args");
    parts.root.put("args", args.put("tensor_model_parallel_size", PyValue::string("two")));
  });
  EXPECT_THAT(model_error(), AllOf(HasSubstr("args.tensor_model_parallel_size"), HasSubstr("two")));
}

TEST_F(ForeignCheckpoint, ImpossibleNumbersInArgsAreErrors) {
  write({}, {.split = {.tp = 2}});
  edit_all([](TorchParts& parts) {
    parts.root.put("args", without(parts.root.get("args"), {"num_layers"}));
  });
  const auto error_with = [&](const char* key, PyValue value) {
    edit_all([&](TorchParts& parts) {
      PyValue args = without(parts.root.get("args"), {key});
      parts.root.put("args", args.put(key, value));
    });
    const std::string error = model_error();
    edit_all([&](TorchParts& parts) {
      parts.root.put("args", without(parts.root.get("args"), {key})
                                 .put("tensor_model_parallel_size", PyValue::integer(2)));
    });
    return error;
  };
  for (const int64_t number : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    SCOPED_TRACE(number);
    const PyValue value = PyValue::integer(number);
    EXPECT_THAT(error_with("make_vocab_size_divisible_by", value),
                HasSubstr("args.make_vocab_size_divisible_by"));
    EXPECT_THAT(error_with("tensor_model_parallel_size", value), HasSubstr("no possible split"));
    if (number == 0) continue;
    EXPECT_THAT(error_with("num_layer_list", PyValue::list({value, value})), HasSubstr("layers"));
    EXPECT_THAT(error_with("noop_layers", PyValue::list({value})), HasSubstr("slot"));
  }
}

TEST_F(ForeignCheckpoint, ArgsOfOtherArithmeticAreRefusedByName) {
  write({}, {});
  std::optional<PyValue> args;
  edit_all([&](TorchParts& parts) { args = parts.root.get("args"); });
  const auto described = [&](const std::vector<std::pair<const char*, PyValue>>& more) {
    PyValue all = *args;
    for (const auto& [key, value] : more) all = without(all, {key}).put(key, value);
    return described_model(all, 0, "here");
  };
  EXPECT_NO_THROW(described({}));
  const std::vector<std::pair<const char*, PyValue>> others = {
      {"rotary_seq_len_interpolation_factor", PyValue::integer(4)},
      {"use_rope_scaling", PyValue::boolean(true)},
      {"window_size", PyValue::integer(16)}};
  for (const auto& other : others) {
    EXPECT_THAT(test::error_of<ModelError>([&] { described({other}); }), HasSubstr(other.first));
    if (std::string(other.first) == "window_size") continue;
    EXPECT_THAT(
        disagreements(without(*args, {other.first}).put(other.first, other.second), config_),
        Contains(HasSubstr(other.first)));
  }
  const std::vector<std::pair<const char*, PyValue>> experts = {
      {"qk_layernorm", PyValue::boolean(true)},
      {"add_qkv_bias", PyValue::boolean(false)},
      {"num_experts", PyValue::integer(4)},
      {"moe_router_topk", PyValue::integer(2)},
      {"moe_ffn_hidden_size", PyValue::integer(24)}};
  args = without(*args, {"norm_topk_prob", "moe_router_pre_softmax"});
  EXPECT_EQ(described(experts)["norm_topk_prob"], true) << "as Megatron's default normalises";
  args->put("moe_router_pre_softmax", PyValue::boolean(true));
  EXPECT_EQ(described(experts)["norm_topk_prob"], false);
}

TEST_F(ForeignCheckpoint, NegativeVirtualStagesAreAnError) {
  write({}, {.split = {.pp = 2}});
  edit_all([](TorchParts& parts) {
    PyValue args = parts.root.get("args");
    parts.root.put("args", args.put("num_layers_per_virtual_pipeline_stage", PyValue::integer(-1)));
  });
  EXPECT_THAT(model_error(), HasSubstr("virtual"));
}

// --- ranks of different runs ---------------------------------------------------------------------

TEST_F(ForeignCheckpoint, RanksOfDifferentSplitsAreRefused) {
  for (const char* key : {"tensor_model_parallel_size", "pipeline_model_parallel_size",
                          "expert_model_parallel_size"}) {
    write({}, {.split = {.tp = 2}});
    edit_args("mp_rank_01", [&](PyValue args) { return args.put(key, PyValue::integer(4)); });
    EXPECT_THAT(model_error(), AllOf(HasSubstr(key), HasSubstr("mp_rank_01"), HasSubstr("4")));
    fs::remove_all(root());
  }
}

TEST_F(ForeignCheckpoint, RanksOfDifferentVersionsAreRefused) {
  write({}, {.split = {.tp = 2}});
  edit("mp_rank_01",
       [](TorchParts& parts) { parts.root.put("checkpoint_version", PyValue::real(1.0)); });
  EXPECT_THAT(model_error(), AllOf(HasSubstr("checkpoint_version"), HasSubstr("mp_rank_01")));
}

TEST_F(ForeignCheckpoint, TheFoldersIterationMustBeTheFiles) {
  write({}, {.iteration = 20});
  EXPECT_NO_THROW((void)open_checkpoint(root()));
  edit("mp_rank_00", [](TorchParts& parts) { parts.root.put("iteration", PyValue::integer(10)); });
  EXPECT_THAT(model_error(), AllOf(HasSubstr("iter_0000020"), HasSubstr("10")));
}

// --- stages that args do not name ----------------------------------------------------------------

TEST_F(ForeignCheckpoint, StagesOfAnyLengthAreFoundInTheFiles) {
  write({{"num_hidden_layers", 7}}, {.split = {.tp = 2, .pp = 3, .layer_list = {1, 4, 2}}});
  forget_stages();
  const Checkpoint opened = open_checkpoint(root());
  EXPECT_THAT(opened.header.split.layer_list, ElementsAre(1, 4, 2));
  expect_same_model(opened);
}

TEST_F(ForeignCheckpoint, StagesThatCouldBeEqualButAreNotAreFoundToo) {
  write({{"num_hidden_layers", 6}}, {.split = {.pp = 2, .layer_list = {2, 4}}});
  forget_stages();
  expect_same_model(open_checkpoint(root()));
}

TEST_F(ForeignCheckpoint, VirtualStagesAreFoundInTheFiles) {
  for (const Dialect dialect : {Dialect::kCore, Dialect::kLegacy}) {
    write({{"num_hidden_layers", 8}},
          {.split = {.pp = 2, .layers_per_virtual_stage = 2}, .form = {.dialect = dialect}});
    forget_stages();
    const Checkpoint opened = open_checkpoint(root());
    EXPECT_EQ(opened.header.split.layers_per_virtual_stage, 2);
    expect_same_model(opened);
    fs::remove_all(root());
  }
}

TEST_F(ForeignCheckpoint, ANoopSlotAtAStagesEndIsAShorterStage) {
  write({{"num_hidden_layers", 3}}, {.split = {.pp = 2, .noop_layers = {3}}});
  forget_stages();
  expect_same_model(open_checkpoint(root()));
}

TEST_F(ForeignCheckpoint, WithoutAnyArgsTheFilesSayEnough) {
  write({{"num_hidden_layers", 5}}, {.split = {.tp = 2, .pp = 2, .layer_list = {2, 3}}});
  edit_all([](TorchParts& parts) { parts.root = without(parts.root, {"args"}); });
  expect_same_model(open_checkpoint(root()));
}

TEST_F(ForeignCheckpoint, WithoutAnyArgsTheEmbeddingTellsStagesFromExpertRanks) {
  for (const Split& split : {Split{.pp = 2}, Split{.ep = 2}, Split{.pp = 2, .ep = 2}}) {
    write({}, {.split = split}, "mixtral");
    edit_all([](TorchParts& parts) { parts.root = without(parts.root, {"args"}); });
    const Checkpoint opened = open_checkpoint(root());
    EXPECT_EQ(opened.header.split.pp, split.pp);
    EXPECT_EQ(opened.header.split.ep, split.ep);
    expect_same_model(opened);
    fs::remove_all(root());
  }
}

// --- copies --------------------------------------------------------------------------------------

TEST_F(ForeignCheckpoint, CopiesThatDifferBetweenRanksAreNamed) {
  write({{"tie_word_embeddings", true}}, {.split = {.tp = 2, .pp = 2}});
  EXPECT_THAT(open_checkpoint(root()).differing_copies(), IsEmpty());
  edit("mp_rank_01_000", [](TorchParts& parts) {
    parts.bytes[parts.at("model.decoder.layers.0.input_layernorm.weight")][0] ^= 1;
  });
  edit("mp_rank_00_001",
       [](TorchParts& parts) { parts.bytes[parts.at("model.output_layer.weight")][0] ^= 1; });
  const Checkpoint opened = open_checkpoint(root());
  EXPECT_THAT(opened.differing_copies(),
              testing::UnorderedElementsAre(
                  AllOf(HasSubstr("mp_rank_01_000"), HasSubstr("layers.0.input_layernorm.weight")),
                  AllOf(HasSubstr("mp_rank_00_001"), HasSubstr("output_layer.weight"))));
  EXPECT_EQ(opened.differing_copies(1).size(), 1u);
  // The tied head is larger than a norm's 64 bytes.
  EXPECT_EQ(opened.differing_copies(10, 128).size(), 1u);
}

TEST_F(ForeignCheckpoint, CopiesOfAnotherDtypeThanConfigSaysAreComparedToo) {
  write({}, {.split = {.tp = 2}});
  const auto in_bf16 = [](TorchParts& parts) {
    for (size_t i = 0; i < parts.tensors.size(); ++i) {
      std::string halves(parts.bytes[i].size() / 2, '\0');
      cast_elements(parts.bytes[i].data(), parts.tensors[i].dtype, halves.data(), DType::kBF16,
                    halves.size() / 2);
      parts.bytes[i] = halves;
      parts.tensors[i].dtype = DType::kBF16;
    }
  };
  edit_all(in_bf16);
  EXPECT_THAT(open_checkpoint(root()).differing_copies(), IsEmpty());
  edit("mp_rank_01", [](TorchParts& parts) {
    parts.bytes[parts.at("model.decoder.final_layernorm.weight")][0] ^= 1;
  });
  EXPECT_THAT(open_checkpoint(root()).differing_copies(),
              ElementsAre(HasSubstr("final_layernorm.weight")));
  edit("mp_rank_01", [](TorchParts& parts) {
    const size_t norm = parts.at("model.decoder.final_layernorm.weight");
    parts.tensors[norm].dtype = DType::kF32;
    parts.bytes[norm].resize(2 * parts.bytes[norm].size());
  });
  EXPECT_THAT(open_checkpoint(root()).differing_copies(),
              ElementsAre(AllOf(HasSubstr("final_layernorm.weight"), HasSubstr("F32"))));
}

// --- arguments -----------------------------------------------------------------------------------

TEST(MegatronArguments, UpdatedOnesNeverContradictTheModel) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomModels random(7000 + seed);
    const arch::ModelConfig before = random.parse(random.config_json());
    const arch::ModelConfig after = random.parse(random.config_json());
    const Split split = random.split(after);
    const Form form = random.form(after);
    const PyValue made = make_arguments(after, split, form, DType::kBF16);
    const PyValue updated = update_arguments(make_arguments(before, {}, {}, DType::kBF16), after,
                                             split, form, DType::kBF16);
    EXPECT_THAT(disagreements(updated, after), IsEmpty()) << seed;
    // Only what a run chooses freely may stay as it was.
    for (const torch_file::PyItem& entry : made.entries()) {
      const std::string key = entry.key.key_text();
      const bool is_free = key == "seq_length" || key == "max_position_embeddings" ||
                           key == "moe_aux_loss_coeff" || key == "first_k_dense_replace" ||
                           key == "moe_layer_freq";
      if (is_free) continue;
      EXPECT_EQ(updated.get(key).repr(), entry.value.repr()) << seed << " " << key;
    }
  }
}

TEST(MegatronArguments, AnUntiedHeadIsSaidInTheArgs) {
  RandomModels random(3);
  Json json = test::tiny_config("qwen2");
  json["tie_word_embeddings"] = true;
  const arch::ModelConfig tied = random.parse(json);
  json["tie_word_embeddings"] = false;
  const arch::ModelConfig untied = random.parse(json);
  const PyValue updated =
      update_arguments(make_arguments(tied, {}, {}, DType::kBF16), untied, {}, {}, DType::kBF16);
  EXPECT_EQ(*updated.find("untie_embeddings_and_output_weights"), PyValue::boolean(true));
}

TEST(MegatronArguments, ExpertRanksAreDataParallelRanks) {
  RandomModels random(4);
  const arch::ModelConfig config = random.parse(test::tiny_config("mixtral"));
  PyValue args = make_arguments(config, {.tp = 2, .ep = 2}, {}, DType::kBF16);
  const auto number = [&](const char* key) { return args.get(key).as_int(key); };
  EXPECT_EQ(number("data_parallel_size"), 2);
  EXPECT_EQ(number("world_size"), 4);
  // A larger job keeps its sizes, and the world is their product.
  args.put("data_parallel_size", PyValue::integer(8))
      .put("context_parallel_size", PyValue::integer(3));
  args = update_arguments(args, config, {.pp = 2, .ep = 2}, {}, DType::kBF16);
  EXPECT_EQ(number("data_parallel_size"), 8);
  EXPECT_EQ(number("world_size"), 2 * 3 * 8);
  // Three ranks cannot be two expert ranks each of some.
  args.put("data_parallel_size", PyValue::integer(1));
  args = update_arguments(args, config, {.ep = 2}, {}, DType::kBF16);
  EXPECT_EQ(number("data_parallel_size"), 2);
}

// --- splits --------------------------------------------------------------------------------------

TEST(MegatronSplit, PaddingBeyondReasonIsRefused) {
  RandomModels random(5);
  Json json = test::tiny_config("llama");
  json["num_attention_heads"] = json["num_key_value_heads"] = 4;
  const arch::ModelConfig config = random.parse(json);
  const std::string error =
      test::error_of<UsageError>([&] { check_split(config, {.tp = 4, .vocab_divisor = 1 << 20}); });
  EXPECT_THAT(error, AllOf(HasSubstr("4194304"), HasSubstr(std::to_string(config.vocab_size))));
  EXPECT_NO_THROW(check_split(config, {.tp = 4, .vocab_divisor = 128}));
  for (const int64_t divisor : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    EXPECT_THAT(
        test::error_of<UsageError>([&] { check_split(config, {.vocab_divisor = divisor}); }),
        HasSubstr("make-vocab-size-divisible-by"));
  }
}

}  // namespace
}  // namespace danlu::weights::megatron
