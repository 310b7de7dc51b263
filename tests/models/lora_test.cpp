// Adapters: what PEFT writes, reads and computes.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "models/adapters.h"
#include "models/batch.h"
#include "models/merge.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/hf/save_model.h"

namespace danlu::models {
namespace lora_test {

using test::error_of;
using testing::HasSubstr;

std::unique_ptr<CausalLM> tiny(const std::string& family = "llama",
                               const Json& changes = Json::object()) {
  const test::TemporaryDirectory directory;
  Json config = test::tiny_config(family);
  config.update(changes);
  test::write_tiny_model(directory.path(), config);
  return load_model(directory.path(), parallel::Mesh::single(), at::kFloat, at::kCPU);
}

/// Random adapters: B and DoRA magnitudes off their starting values.
void shake(const CausalLM& model) {
  const at::NoGradGuard no_grad;
  uint64_t seed = 1;
  for (const Parameter& p : model.adapter_parameters()) {
    at::Tensor tensor = p.tensor;
    tensor.add_(normal_values(tensor.sizes().vec(), 0.1, seed++));
  }
}

at::Tensor weight_of(const std::vector<Parameter>& list, const std::string& name) {
  for (const Parameter& p : list) {
    if (p.name() == name) return p.tensor.detach();
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

/// Keys of dropout as of another step for each `seed`.
at::Tensor dropout_keys(int64_t count, int64_t seed) {
  return at::arange(count, at::TensorOptions(at::kLong)) * 31 + seed * 1'000'003;
}

at::Tensor dropped_logits(const CausalLM& model, int64_t seed) {
  const at::NoGradGuard no_grad;
  PaddedBatch batch = pack_padded(at::arange(24, at::TensorOptions(at::kLong)).view({2, 12}));
  if (seed >= 0) batch.input.dropout_keys_N = dropout_keys(24, seed);
  return model.logits(model.forward_hidden(batch.input));
}

/// Files of a model and its adapters, merged as they are read.
weights::MergedModel merged_files(const CausalLM& model, const fs::path& directory) {
  save(model, directory / "base", DType::kF32, {});
  save_adapter(model, directory / "adapter", "base");
  const auto base = weights::open_checkpoint_source(directory / "base");
  const auto adapter = weights::open_adapter_source(directory / "adapter", base.config);
  return weights::merge_adapters(base.model, adapter.tensors, adapter.peft, base.config);
}

MergeReport merge_checked(const CausalLM& model, double tolerance) {
  const test::TemporaryDirectory directory;
  const auto merged = load_merged(merged_files(model, directory.path()), parallel::Mesh::single(),
                                  at::kFloat, at::kCPU);
  EXPECT_FALSE(merged->lora().has_value());
  EXPECT_TRUE(merged->adapter_parameters().empty());
  const auto base = load_model(directory / "base", parallel::Mesh::single(), at::kFloat, at::kCPU);
  return check_merged(*merged, probe_logits(model), probe_logits(*base), tolerance);
}

std::vector<std::string> names(const std::vector<Parameter>& list) {
  std::vector<std::string> result;
  for (const Parameter& p : list) result.push_back(p.name());
  return result;
}

weights::PeftConfig config(const std::vector<std::string>& targets = {"all-linear"}) {
  weights::PeftConfig lora = settings::new_adapters();
  lora.rank = 4;
  lora.alpha = 6;
  weights::set_targets(lora, targets);
  return lora;
}

TEST(Lora, StartsAsTheIdentityAndFreezesTheBase) {
  for (const bool dora : {false, true}) {
    const auto model = tiny();
    const at::Tensor before = probe_logits(*model);
    weights::PeftConfig lora = config();
    lora.dora = dora;
    add_lora(*model, lora, 3);
    EXPECT_LT((probe_logits(*model) - before).abs().max().item<double>(), 2e-5);
    EXPECT_EQ(model->trainable_parameters().size(), model->adapter_parameters().size());
    EXPECT_EQ(model->adapter_parameters().size(), 2u * 7 * (dora ? 3 : 2));
    for (const Parameter& p : model->parameters())
      EXPECT_FALSE(p.tensor.requires_grad()) << p.name();
  }
}

TEST(Lora, AddsScaleTimesBTimesA) {
  // alpha 6, rank 4: scale 1.5; rsLoRA 6/sqrt(4) = 3.
  for (const bool rslora : {false, true}) {
    const auto model = tiny(), plain = tiny();
    weights::PeftConfig lora = config({"q_proj"});
    lora.rslora = rslora;
    add_lora(*model, lora, 3);
    shake(*model);
    const at::NoGradGuard no_grad;
    for (const std::string i : {"0", "1"}) {
      const std::string module = "model.layers." + i + ".self_attn.q_proj";
      const auto adapters = model->adapter_parameters();
      const at::Tensor delta =
          at::mm(weight_of(adapters, "base_model.model." + module + ".lora_B.weight"),
                 weight_of(adapters, "base_model.model." + module + ".lora_A.weight"));
      weight_of(plain->parameters(), module + ".weight").add_(delta, rslora ? 3.0 : 1.5);
    }
    EXPECT_LT((probe_logits(*model) - probe_logits(*plain)).abs().max().item<double>(), 1e-5);
  }
}

TEST(Lora, DoraScalesRowsToItsMagnitude) {
  const auto model = tiny(), plain = tiny();
  weights::PeftConfig lora = config({"down_proj"});
  lora.dora = true;
  add_lora(*model, lora, 3);
  shake(*model);
  const at::NoGradGuard no_grad;
  for (const std::string i : {"0", "1"}) {
    const std::string module = "model.layers." + i + ".mlp.down_proj",
                      prefix = "base_model.model." + module;
    const auto adapters = model->adapter_parameters();
    at::Tensor weight = weight_of(plain->parameters(), module + ".weight");
    const at::Tensor sum = weight + 1.5 * at::mm(weight_of(adapters, prefix + ".lora_B.weight"),
                                                 weight_of(adapters, prefix + ".lora_A.weight"));
    weight.copy_(sum / sum.square().sum(1, true).sqrt() *
                 weight_of(adapters, prefix + ".lora_magnitude_vector").unsqueeze(1));
  }
  EXPECT_LT((probe_logits(*model) - probe_logits(*plain)).abs().max().item<double>(), 1e-5);
}

TEST(Lora, PatternsChangeRankAndScaleOfTheirModules) {
  const auto model = tiny();
  weights::PeftConfig lora = config({"q_proj", "v_proj"});
  lora.rank_pattern = {{"layers.1.self_attn.q_proj", 2}};
  add_lora(*model, lora, 3);
  const auto adapters = model->adapter_parameters();
  EXPECT_EQ(
      weight_of(adapters, "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight").size(0),
      2);
  EXPECT_EQ(
      weight_of(adapters, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight").size(0),
      4);
}

TEST(Lora, TargetsAreNamesRegularExpressionsOrAllLinear) {
  const auto count = [](std::vector<std::string> targets) {
    const auto model = tiny();
    add_lora(*model, config(std::move(targets)), 1);
    return model->adapter_parameters().size() / 2;
  };
  EXPECT_EQ(count({"q_proj", "mlp.up_proj"}), 4u);
  EXPECT_EQ(count({".*layers\\.1\\.mlp\\..*"}), 3u);
  EXPECT_EQ(count({"all-linear"}), 14u);
}

TEST(Lora, FusedProjectionsTakeAdaptersToo) {
  for (const char* family : {"baichuan", "internlm2"}) {
    const auto model = tiny(family);
    add_lora(*model, config(), 1);
    EXPECT_EQ(model->adapter_parameters().size(), 2u * 2 * 5) << family;
    shake(*model);
    EXPECT_LE(merge_checked(*model, 1e-5).relative(), 1e-5);
  }
}

TEST(Lora, TargetsThatMatchNothingAreNamedWithWhatThereIs) {
  const auto model = tiny();
  const std::string text =
      error_of<UsageError>([&] { add_lora(*model, config({"q_proj", "W_pack"}), 1); });
  EXPECT_THAT(text, HasSubstr("'W_pack' matches no linear layer"));
  EXPECT_THAT(text, HasSubstr("down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"));
  EXPECT_THAT(error_of<UsageError>([&] { add_lora(*model, config({"embed_tokens"}), 1); }),
              HasSubstr("modules_to_save"));
  EXPECT_FALSE(model->lora().has_value());
  for (const Parameter& p : model->parameters()) EXPECT_TRUE(p.trainable);
}

TEST(Lora, OnTheHeadComputesWithTheSumOfBothMatrices) {
  // Reference: a plain model whose head is W + s B A, and autograd through the whole logits.
  const auto model = tiny(), plain = tiny();
  add_lora(*model, config({"lm_head", "q_proj"}), 3);
  shake(*model);
  const auto adapters = model->adapter_parameters();
  const at::Tensor a = weight_of(adapters, "base_model.model.lm_head.lora_A.weight");
  const at::Tensor b = weight_of(adapters, "base_model.model.lm_head.lora_B.weight");
  const PaddedBatch batch =
      pack_padded(at::randint(0, 97, {2, 9}, at::kLong), {}, at::randint(0, 97, {2, 9}, at::kLong));
  const at::Tensor hidden = model->forward_hidden(batch.input).detach();
  const at::Tensor head = weight_of(model->parameters(), "lm_head.weight");
  const at::Tensor a_leaf = a.clone().requires_grad_(true), b_leaf = b.clone().requires_grad_(true);
  const at::Tensor expected = at::mm(hidden, (head + 1.5 * at::mm(b_leaf, a_leaf)).t());
  EXPECT_TRUE(at::allclose(model->logits(hidden), expected, 1e-5, 1e-5));

  const at::Tensor expected_loss = at::cross_entropy_loss(
      expected, batch.targets_N, {}, at::Reduction::Sum, /*ignore_index=*/-100);
  const auto expected_grads = torch::autograd::grad({expected_loss}, {a_leaf, b_leaf});
  const LossSum loss = model->loss(batch.input, batch.targets_N);
  EXPECT_NEAR(loss.sum.item<double>(), expected_loss.item<double>(), 1e-3);
  std::vector<at::Tensor> leaves;
  for (const Parameter& p : model->adapter_parameters()) {
    if (p.name().find("lm_head") != p.name().npos) leaves.push_back(p.tensor);
  }
  ASSERT_EQ(leaves.size(), 2u);
  const auto grads = torch::autograd::grad({loss.sum}, leaves);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(at::allclose(grads[i], expected_grads[i], 1e-4, 1e-4)) << i;
}

TEST(Lora, OnTheHeadIsSavedLoadedMergedAndDropped) {
  const test::TemporaryDirectory directory;
  const auto model = tiny();
  weights::PeftConfig lora = config({"lm_head"});
  lora.dropout = 0.5;
  add_lora(*model, lora, 3);
  shake(*model);
  const at::Tensor adapted = probe_logits(*model);
  save_adapter(*model, directory.path(), "base");
  const auto again = tiny();
  load_adapter(*again, directory.path());
  EXPECT_TRUE(at::equal(probe_logits(*again), adapted));
  merge_checked(*again, 1e-5);

  PaddedBatch batch =
      pack_padded(at::randint(0, 97, {2, 9}, at::kLong), {}, at::randint(0, 97, {2, 9}, at::kLong));
  const auto loss = [&](int64_t seed) {
    batch.input.dropout_keys_N = seed < 0 ? at::Tensor() : dropout_keys(18, seed);
    return model->loss(batch.input, batch.targets_N).sum.item<double>();
  };
  const double quiet = loss(-1), first = loss(1);
  EXPECT_NE(first, quiet);
  EXPECT_NE(first, loss(2));
  EXPECT_EQ(first, loss(1));
}

TEST(Lora, OnTheHeadIsRefusedWhereOtherArithmeticIsNeeded) {
  EXPECT_THAT(error_of<UsageError>([&] {
                add_lora(*tiny("qwen2", {{"tie_word_embeddings", true}}), config({"lm_head"}), 1);
              }),
              HasSubstr("a head tied to the embedding"));
  EXPECT_THAT(error_of<UsageError>([&] { add_lora(*tiny("baichuan"), config({"lm_head"}), 1); }),
              HasSubstr("a head with normalised rows"));
  weights::PeftConfig dora = config({"lm_head"});
  dora.dora = true;
  EXPECT_THAT(error_of<UsageError>([&] { add_lora(*tiny(), dora, 1); }), HasSubstr("DoRA"));
  weights::PeftConfig both = config({"lm_head"});
  both.modules_to_save = {"lm_head"};
  EXPECT_THAT(error_of<UsageError>([&] { add_lora(*tiny(), both, 1); }),
              HasSubstr("both a target and in modules_to_save"));
}

TEST(Lora, AFinishedAdapterThatIsRefusedIsToBeMergedNotTrainedOtherwise) {
  const auto hint_of = [](const Json& changes) {
    const test::TemporaryDirectory directory;
    const auto model = tiny();
    add_lora(*model, config({"q_proj"}), 3);
    save_adapter(*model, directory.path(), "base");
    Json json = read_json_file(directory / "adapter_config.json");
    json.update(changes);
    write_json_file(directory / "adapter_config.json", json);
    try {
      load_adapter(*tiny(), directory.path());
    } catch (const ModelError& error) {
      return error.hint();
    }
    return std::string("not refused");
  };
  for (const Json& changes :
       {Json{{"bias", "all"}}, Json{{"fan_in_fan_out", true}},
        Json{{"target_modules", {"q_proj", "embed_tokens"}}}, Json{{"modules_to_save", {"mlp"}}}}) {
    EXPECT_THAT(hint_of(changes), HasSubstr("danlu convert MODEL DIR --to hf --adapters ADAPTER"))
        << changes;
  }
  // Convert does neither.
  EXPECT_EQ(hint_of({{"modules_to_save", {"nonsense"}}}), "");
  EXPECT_EQ(hint_of({{"target_modules", {"q_proj", "embed_tokens"}}, {"use_dora", true}}), "");
}

/// Rewrites an adapter's weights with one more tensor.
void add_tensor(const fs::path& directory, const std::string& name, const at::Tensor& tensor) {
  std::vector<Parameter> tensors = {parallel::whole_parameter(name, tensor)};
  {
    const auto source = weights::open_weights(directory);
    for (const weights::TensorInfo& info : source->tensors())
      tensors.push_back(parallel::whole_parameter(info.name, read_tensor(*source, info.name)));
  }
  write_tensors(directory, tensors, DType::kF32, "adapter_model");
}

TEST(Lora, CopiesOfTheBaseThatPeftStoresBesideAHeadAdapterMustBeCopies) {
  for (const bool equal : {true, false}) {
    const test::TemporaryDirectory directory;
    const auto model = tiny();
    add_lora(*model, config({"lm_head"}), 3);
    shake(*model);
    save_adapter(*model, directory.path(), "base");
    const at::Tensor head = weight_of(model->parameters(), "lm_head.weight");
    add_tensor(directory.path(), "base_model.model.lm_head.base_layer.weight",
               equal ? head : head + 1);
    if (equal) {
      const auto again = tiny();
      load_adapter(*again, directory.path());
      EXPECT_TRUE(at::equal(probe_logits(*again), probe_logits(*model)));
    } else {
      EXPECT_THAT(error_of<ModelError>([&] { load_adapter(*tiny(), directory.path()); }),
                  HasSubstr("lm_head.base_layer.weight differs from the base model's"));
    }
  }
}

TEST(Lora, AnAdapterOfAnotherModelNamesThatModelAndTheFirstTensor) {
  const test::TemporaryDirectory directory;
  const auto wide = tiny("llama", {{"hidden_size", 64}});
  add_lora(*wide, config({"q_proj"}), 3);
  save_adapter(*wide, directory.path(), "org/wide-model");
  const std::string error = error_of<ModelError>([&] { load_adapter(*tiny(), directory.path()); });
  EXPECT_THAT(error, HasSubstr("this adapter was trained on org/wide-model, which is not this "
                               "model: base_model.model.model.layers.0.self_attn.q_proj.lora_A."
                               "weight is [4, 64], this model needs [4, 32]"));
  EXPECT_THAT(error, HasSubstr("adapter_model.safetensors"));
  // Other names: the same words, though every target is unknown here.
  const test::TemporaryDirectory fused;
  const auto baichuan = tiny("baichuan");
  add_lora(*baichuan, config({"W_pack"}), 3);
  save_adapter(*baichuan, fused.path(), "org/baichuan");
  EXPECT_THAT(error_of<ModelError>([&] { load_adapter(*tiny(), fused.path()); }),
              HasSubstr("trained on org/baichuan, which is not this model: base_model.model.model."
                        "layers.0.self_attn.W_pack.lora_A.weight is for 'model.layers.0.self_attn."
                        "W_pack', which this model does not have"));
}

TEST(Lora, TargetsOfAFileThatThisModelLacksArePassedOverAsPeftDoes) {
  const test::TemporaryDirectory directory;
  const auto model = tiny();
  add_lora(*model, config({"q_proj"}), 3);
  shake(*model);
  save_adapter(*model, directory.path(), "base");
  Json json = read_json_file(directory / "adapter_config.json");
  json["target_modules"] = {"query_key_value", "q_proj"};
  write_json_file(directory / "adapter_config.json", json);
  const auto again = tiny();
  load_adapter(*again, directory.path());
  EXPECT_TRUE(at::equal(probe_logits(*again), probe_logits(*model)));
}

TEST(Lora, SavedFilesLoadBackToTheSameModel) {
  for (const bool dora : {false, true}) {
    const test::TemporaryDirectory directory;
    const auto model = tiny();
    weights::PeftConfig lora = config();
    lora.dora = dora;
    lora.rslora = dora;
    lora.dropout = 0.1;
    lora.modules_to_save = {"lm_head"};
    add_lora(*model, lora, 3);
    shake(*model);
    save_adapter(*model, directory.path(), "base/model");
    const Json json = read_json_file(directory / "adapter_config.json");
    EXPECT_EQ(json["peft_type"], "LORA");
    EXPECT_EQ(json["base_model_name_or_path"], "base/model");
    EXPECT_EQ(json["target_modules"],
              Json({"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}));
    const auto again = tiny();
    load_adapter(*again, directory.path());
    EXPECT_EQ(names(again->adapter_parameters()), names(model->adapter_parameters()));
    EXPECT_TRUE(at::equal(probe_logits(*again), probe_logits(*model)));
    EXPECT_EQ(again->lora()->dora, dora);
    EXPECT_EQ(again->lora()->dropout, 0.1);
  }
}

TEST(Lora, AdapterFilesThatDoNotFitAreRefusedByTensor) {
  const test::TemporaryDirectory directory;
  const auto model = tiny();
  add_lora(*model, config({"q_proj"}), 3);
  save_adapter(*model, directory.path(), "base");
  Json json = read_json_file(directory / "adapter_config.json");
  json["target_modules"] = {"q_proj", "v_proj"};
  write_json_file(directory / "adapter_config.json", json);
  EXPECT_THAT(error_of<ModelError>([&] { load_adapter(*tiny(), directory.path()); }),
              HasSubstr("missing: base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight"));
  json["target_modules"] = {"q_proj"};
  json["layers_to_transform"] = {0};
  write_json_file(directory / "adapter_config.json", json);
  EXPECT_THAT(error_of<ModelError>([&] { load_adapter(*tiny(), directory.path()); }),
              HasSubstr("unknown: base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"));
  json["layers_to_transform"] = nullptr;
  json["r"] = 5;
  write_json_file(directory / "adapter_config.json", json);
  const std::string text = error_of<ModelError>([&] { load_adapter(*tiny(), directory.path()); });
  EXPECT_THAT(text, HasSubstr("[4, 32]"));
  EXPECT_THAT(text, HasSubstr("[5, 32]"));
}

TEST(Lora, DropoutActsWhereKeysAreGivenAndFollowsThem) {
  const auto model = tiny();
  weights::PeftConfig lora = config();
  lora.dropout = 0.5;
  add_lora(*model, lora, 3);
  shake(*model);
  const at::Tensor quiet = dropped_logits(*model, -1), first = dropped_logits(*model, 1);
  EXPECT_FALSE(at::equal(first, quiet));
  EXPECT_FALSE(at::equal(first, dropped_logits(*model, 2)));
  EXPECT_TRUE(at::equal(first, dropped_logits(*model, 1)));
  EXPECT_TRUE(at::equal(quiet, dropped_logits(*model, -1)));
}

TEST(Lora, DropoutIsUnbiasedForDoraToo) {
  const auto model = tiny();
  weights::PeftConfig lora = config({"down_proj"});
  lora.dropout = 0.2;
  lora.dora = true;
  add_lora(*model, lora, 3);
  shake(*model);
  const at::Tensor quiet = dropped_logits(*model, -1);
  at::Tensor mean = at::zeros_like(quiet);
  for (int i = 0; i < 200; ++i) mean.add_(dropped_logits(*model, i), 1.0 / 200);
  const double spread = (mean - quiet).abs().mean().item<double>();
  EXPECT_LT(spread, 0.3 * (dropped_logits(*model, 1) - quiet).abs().mean().item<double>());
}

TEST(Merge, KeepsTheLogitsForEveryKindOfAdapter) {
  for (const bool dora : {false, true}) {
    const auto model = tiny("qwen2", {{"tie_word_embeddings", true}});
    weights::PeftConfig lora = config();
    lora.dora = dora;
    lora.modules_to_save = {"input_layernorm"};
    add_lora(*model, lora, 3);
    shake(*model);
    EXPECT_GT(merge_checked(*model, 1e-5).largest_logit, 0);
  }
}

TEST(Merge, UntiesAnEmbeddingThatWasTrainedAlone) {
  const test::TemporaryDirectory directory;
  const auto model = tiny("qwen2", {{"tie_word_embeddings", true}});
  weights::PeftConfig lora = config();
  lora.modules_to_save = {"embed_tokens"};
  add_lora(*model, lora, 3);
  shake(*model);
  const weights::MergedModel merged = merged_files(*model, directory.path());
  fs::create_directory(directory / "merged");
  weights::save_model(*merged.source, merged.config, DType::kF32, directory / "merged");
  const auto again =
      load_model(directory / "merged", parallel::Mesh::single(), at::kFloat, at::kCPU);
  EXPECT_FALSE(again->config().tie_embeddings);
  EXPECT_LE(check_merged(*again, probe_logits(*model), probe_logits(*model) * 0, 1e-5).max_abs,
            1e-5);
}

TEST(Merge, RefusesAboveTheTolerance) {
  const auto model = tiny();
  add_lora(*model, config(), 3);
  shake(*model);
  EXPECT_THAT(error_of<ModelError>([&] { merge_checked(*model, 1e-12); }),
              HasSubstr("above the tolerance 1e-12"));
  // Another model, and logits that are no numbers.
  const at::Tensor adapted = probe_logits(*model);
  const at::Tensor base = probe_logits(*tiny());
  EXPECT_THAT(error_of<ModelError>([&] { check_merged(*tiny(), adapted, base, 1e-4); }),
              HasSubstr("above the tolerance 0.0001"));
  EXPECT_THAT(error_of<ModelError>([&] { check_merged(*tiny(), adapted * NAN, base, 1e-4); }),
              HasSubstr("diverged run"));
  // Within the tolerance, and yet nothing was merged.
  const at::Tensor weakly = base + base.abs().max() * 5e-5;
  EXPECT_THAT(error_of<ModelError>([&] { check_merged(*tiny(), weakly, base, 1e-4); }),
              HasSubstr("the adapter itself moves them by"));
}

TEST(Merge, TellsWhatRoundingCosts) {
  const auto model = tiny();
  const LogitsReport rounding = round_parameters(*model, DType::kBF16);
  EXPECT_GT(rounding.max_abs, 0);
  EXPECT_GT(rounding.same_argmax, 0.8);
  EXPECT_EQ(round_parameters(*model, DType::kBF16).max_abs, 0);
}

}  // namespace lora_test
}  // namespace danlu::models
