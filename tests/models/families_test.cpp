// What must hold for every family: packing, caching, layouts, scalings, recomputation, precision.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "models/adapters.h"
#include "models/batch.h"
#include "models/golden.h"
#include "models/rope.h"
#include "models/tensor_io.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "support/tiny_model.h"

namespace danlu::models {
namespace families_test {

/// A config for one way a decoder may be built.
struct Variant {
  const char* name;
  const char* family;
  Json changes;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

std::unique_ptr<CausalLM> tiny(const std::string& family, const Json& changes = Json::object(),
                               at::ScalarType dtype = at::kFloat, uint64_t seed = 1) {
  const test::TemporaryDirectory directory;
  Json config = test::tiny_config(family);
  for (const auto& [key, value] : changes.items()) {
    if (value.is_null()) {
      config.erase(key);
    } else {
      config[key] = value;
    }
  }
  test::write_tiny_model(directory.path(), config, seed);
  return load_model(directory.path(), parallel::Mesh::single(), dtype, at::kCPU);
}

const std::vector<Variant>& variants() {
  static const std::vector<Variant> list{
      {"llama", "llama", Json::object()},
      {"llama_biases", "llama", {{"attention_bias", true}, {"mlp_bias", true}}},
      {"llama3_scaling",
       "llama",
       {{"rope_scaling",
         {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 16}}}}},
      {"dynamic_scaling",
       "llama",
       {{"max_position_embeddings", 4}, {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}},
      {"yarn_scaling",
       "qwen2",
       {{"rope_scaling",
         {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8}}}}},
      {"qwen2_tied", "qwen2", {{"tie_word_embeddings", true}}},
      {"qwen3", "qwen3", Json::object()},
      {"mistral_window", "mistral", {{"sliding_window", 3}}},
      {"baichuan2_7b", "baichuan", Json::object()},
      {"baichuan_alibi",
       "baichuan",
       {{"max_position_embeddings", nullptr}, {"model_max_length", 64}}},
      {"internlm2", "internlm2", Json::object()},
      // Two of the rows are longer than 4, one is not.
      {"phi3_longrope",
       "phi3",
       {{"original_max_position_embeddings", 4},
        {"rope_scaling",
         {{"type", "longrope"},
          {"short_factor", {1.0, 1.1, 1.2}},
          {"long_factor", {1.5, 2.5, 4.0}}}},
        {"partial_rotary_factor", 0.75},
        {"sliding_window", 5}}},
      {"gemma", "gemma", Json::object()},
      {"gemma2", "gemma2", Json::object()},
      {"gemma3", "gemma3_text", Json::object()},
      {"glm", "glm", Json::object()},
      {"glm4", "glm4", Json::object()},
      {"chatglm", "chatglm", Json::object()},
      {"minicpm", "minicpm", Json::object()},
      {"internlm3", "internlm3", Json::object()},
      {"internlm", "internlm", Json::object()},
      {"qwen", "qwen", Json::object()},
      {"bloom", "bloom", {{"tie_word_embeddings", true}}},
      {"gpt2", "gpt2", {{"tie_word_embeddings", true}}},
      {"deepseek_v3",
       "deepseek_v3",
       {{"attention_bias", true},
        {"rope_scaling",
         {{"type", "yarn"},
          {"factor", 40.0},
          {"original_max_position_embeddings", 4},
          {"mscale", 1.0},
          {"mscale_all_dim", 0.8}}}}},
      {"qwen3_next", "qwen3_next", {{"mlp_only_layers", {0, 1}}}},
      {"qwen3_5", "qwen3_5_text", Json::object()},
      {"deepseek_v2_lite", "deepseek_v2", {{"q_lora_rank", nullptr}}},
      {"minicpm3",
       "minicpm3",
       {{"rope_scaling",
         {{"type", "longrope"},
          {"original_max_position_embeddings", 64},
          {"short_factor", {1.0, 1.2}},
          {"long_factor", {1.5, 2.5}}}}}}};
  return list;
}

std::vector<at::Tensor> rows() {
  const at::TensorOptions as_int(at::kLong);
  return {at::tensor({5, 9, 2, 7, 31, 40, 3}, as_int), at::tensor({90}, as_int),
          at::tensor({8, 8, 1, 60, 61}, as_int)};
}

ForwardInput packed(const std::vector<at::Tensor>& sequences) {
  ForwardInput input;
  std::vector<int64_t> starts{0};
  std::vector<at::Tensor> positions;
  for (const at::Tensor& row : sequences) {
    starts.push_back(starts.back() + row.size(0));
    positions.push_back(at::arange(row.size(0)));
  }
  input.ids_N = at::cat(sequences);
  input.positions_N = at::cat(positions);
  input.segments = {starts, starts};
  return input;
}

/// Next-token targets within each row.
at::Tensor targets_of(const std::vector<at::Tensor>& sequences) {
  std::vector<at::Tensor> targets;
  for (const at::Tensor& row : sequences) {
    targets.push_back(at::cat({row.narrow(0, 1, row.size(0) - 1), at::full({1}, -100, at::kLong)}));
  }
  return at::cat(targets);
}

std::vector<at::Tensor> gradients(const CausalLM& model, const std::vector<at::Tensor>& sequences,
                                  double scale = 1.0, const at::Tensor& dropout_keys_N = {}) {
  std::vector<at::Tensor> leaves;
  for (const Parameter& p : model.trainable_parameters()) leaves.push_back(p.tensor);
  ForwardInput input = packed(sequences);
  input.dropout_keys_N = dropout_keys_N;
  return torch::autograd::grad({model.loss(input, targets_of(sequences)).sum * scale}, leaves);
}

/// Keeps everything as plain tensors: the simplest thing that satisfies the contract.
class PlainCache : public KvCache {
 public:
  at::Tensor attend(int64_t layer, const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                    const at::Tensor& v_NKD, const ops::AttentionOptions& options) override {
    auto& [k, v] = stored_[layer];
    k = k.defined() ? at::cat({k, k_NKD}) : k_NKD;
    v = v.defined() ? at::cat({v, v_NKD}) : v_NKD;
    return ops::attention(q_NQD, k, v, {{0, q_NQD.size(0)}, {0, k.size(0)}}, options);
  }

  at::Tensor attend_latent(int64_t layer, const ops::LatentQueries& queries,
                           const ops::AttentionOptions& options) override {
    at::Tensor& rows = rows_[layer];
    rows = rows.defined() ? at::cat({rows, queries.rows_NR}) : queries.rows_NR;
    const auto made = queries.expand(rows);
    return ops::attention(queries.q_NQD, made.k_MQD, made.v_MQD,
                          {{0, queries.q_NQD.size(0)}, {0, rows.size(0)}}, options);
  }

  void with_state(int64_t layer, const ops::AdvanceState& advance) override {
    states_[layer] = advance(states_[layer]);
  }

 private:
  std::map<int64_t, std::pair<at::Tensor, at::Tensor>> stored_;
  std::map<int64_t, at::Tensor> rows_;
  std::map<int64_t, ops::DeltaState> states_;
};

class EveryVariant : public testing::TestWithParam<Variant> {
 protected:
  std::unique_ptr<CausalLM> model_ = tiny(GetParam().family, GetParam().changes);
};

TEST_P(EveryVariant, SavesTheTensorsItWasReadFrom) {
  const test::TemporaryDirectory directory;
  Json config = test::tiny_config(GetParam().family);
  config.merge_patch(GetParam().changes);
  test::write_tiny_model(directory / "a", config);
  save(*load_model(directory / "a", parallel::Mesh::single(), at::kFloat, at::kCPU),
       directory / "b", DType::kF32, {});
  const auto a = weights::open_weights(directory / "a"), b = weights::open_weights(directory / "b");
  ASSERT_EQ(a->tensors().size(), b->tensors().size());
  for (const weights::TensorInfo& info : a->tensors()) {
    ASSERT_NE(b->find(info.name), nullptr) << info.name;
    ASSERT_EQ(b->find(info.name)->shape, info.shape) << info.name;
    std::vector<std::byte> one(info.size_bytes()), two(info.size_bytes());
    a->read(info.name, one);
    b->read(info.name, two);
    EXPECT_EQ(one, two) << info.name;
  }
}

TEST_P(EveryVariant, PackedSequencesEqualOneByOne) {
  const at::NoGradGuard no_grad;
  const at::Tensor together = model_->logits(model_->forward_hidden(packed(rows())));
  std::vector<at::Tensor> apart;
  for (const at::Tensor& row : rows())
    apart.push_back(model_->logits(model_->forward_hidden(packed({row}))));
  // Sums of another order; a token seen across segments moves logits by tenths.
  EXPECT_LT((together - at::cat(apart)).abs().max().item<double>(), 1e-5);
}

TEST_P(EveryVariant, PackedLossAndGradientsAreTheSumOfTheirSequences) {
  const LossSum together = model_->loss(packed(rows()), targets_of(rows()));
  double sum = 0;
  int64_t count = 0, correct = 0;
  std::vector<at::Tensor> total;
  for (const at::Tensor& row : rows()) {
    const LossSum alone = model_->loss(packed({row}), targets_of({row}));
    sum += alone.sum.item<double>();
    count += alone.num_targets;
    correct += alone.num_correct.item<int64_t>();
    const auto grads = gradients(*model_, {row});
    if (total.empty())
      total = grads;
    else
      for (size_t i = 0; i < grads.size(); ++i) total[i] = total[i] + grads[i];
  }
  EXPECT_NEAR(together.sum.item<double>(), sum, 1e-4);
  EXPECT_EQ(together.num_targets, count);
  EXPECT_EQ(together.num_correct.item<int64_t>(), correct);
  const auto ours = gradients(*model_, rows());
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(at::allclose(ours[i], total[i], 1e-4, 1e-5)) << i;
}

TEST_P(EveryVariant, CachedStepsEqualTheWholeSequence) {
  // Dynamic scaling and longrope turn earlier keys with the frequencies of a shorter sequence:
  // cached and whole differ by design.
  if (model_->config().rope.scaling == arch::RopeScaling::kDynamic ||
      model_->config().rope.scaling == arch::RopeScaling::kLongRope)
    return;
  const c10::InferenceMode inference;
  const at::Tensor ids = rows()[0];
  const at::Tensor whole = model_->logits(model_->forward_hidden(packed({ids})));
  PlainCache cache;
  int64_t done = 0;
  std::vector<at::Tensor> steps;
  for (const int64_t count : {3, 1, 2, 1}) {
    ForwardInput input;
    input.ids_N = ids.narrow(0, done, count);
    input.positions_N = at::arange(done, done + count);
    input.segments = {{0, count}, {0, done + count}};
    input.cache = &cache;
    steps.push_back(model_->logits(model_->forward_hidden(input)));
    done += count;
  }
  EXPECT_TRUE(at::allclose(at::cat(steps), whole, 1e-5, 2e-6));
}

TEST_P(EveryVariant, RecomputationChangesNoBit) {
  const auto plain = gradients(*model_, rows());
  for (const Recompute mode : {Recompute::kSelective, Recompute::kFull}) {
    model_->memory().set_recompute(mode);
    const auto again = gradients(*model_, rows());
    for (size_t i = 0; i < plain.size(); ++i)
      EXPECT_TRUE(at::equal(plain[i], again[i])) << model_->trainable_parameters()[i].name();
  }
}

TEST_P(EveryVariant, RecomputationRepeatsAdapterDropout) {
  weights::PeftConfig lora = settings::new_adapters();
  lora.rank = 4;
  lora.dropout = 0.3;
  add_lora(*model_, lora, 5);
  for (const Parameter& p : model_->adapter_parameters()) p.tensor.detach().normal_(0, 0.3);
  const at::Tensor keys = at::arange(13, at::TensorOptions(at::kLong));
  const auto run = [&](Recompute mode) {
    model_->memory().set_recompute(mode);
    return gradients(*model_, rows(), 1.0, keys);
  };
  const auto plain = run(Recompute::kNone);
  for (const Recompute mode : {Recompute::kSelective, Recompute::kFull}) {
    const auto again = run(mode);
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], again[i]));
  }
  EXPECT_FALSE(at::equal(plain[0], gradients(*model_, rows(), 1.0, keys + 100)[0]));
}

TEST_P(EveryVariant, LowPrecisionStaysNearFullPrecisionAndTrains) {
  const at::NoGradGuard no_grad;
  const at::Tensor exact = model_->logits(model_->forward_hidden(packed(rows())));
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const auto low = tiny(GetParam().family, GetParam().changes, type);
    const at::Tensor logits = low->logits(low->forward_hidden(packed(rows())));
    EXPECT_EQ(logits.scalar_type(), at::kFloat);
    EXPECT_LT((logits - exact).abs().max().item<double>(), 0.1 * exact.abs().max().item<double>())
        << c10::toString(type);
    const at::AutoGradMode grad(true);
    for (const at::Tensor& g : gradients(*low, rows())) {
      EXPECT_EQ(g.scalar_type(), type);
      EXPECT_TRUE(at::isfinite(g).all().item<bool>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EveryVariant, testing::ValuesIn(variants()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Layouts, InternLM2sFusedWeightsEqualLlamasSplitOnes) {
  // wqkv rows per KV group: its 2 query heads, its key, its value; head_dim 8, 2 groups.
  const auto fused = tiny("internlm2"), split = tiny("llama");
  std::map<std::string, at::Tensor> from, to;
  for (const Parameter& p : fused->parameters()) from[p.name()] = p.tensor.detach();
  for (const Parameter& p : split->parameters()) to[p.name()] = p.tensor.detach();
  to["model.embed_tokens.weight"].copy_(from["model.tok_embeddings.weight"]);
  to["model.norm.weight"].copy_(from["model.norm.weight"]);
  to["lm_head.weight"].copy_(from["output.weight"]);
  for (const std::string i : {"0", "1"}) {
    const std::string a = "model.layers." + i + ".", b = a;
    const at::Tensor wqkv = from[a + "attention.wqkv.weight"].view({2, 4, 8, 32});
    to[b + "self_attn.q_proj.weight"].copy_(wqkv.narrow(1, 0, 2).reshape({32, 32}));
    to[b + "self_attn.k_proj.weight"].copy_(wqkv.narrow(1, 2, 1).reshape({16, 32}));
    to[b + "self_attn.v_proj.weight"].copy_(wqkv.narrow(1, 3, 1).reshape({16, 32}));
    for (const auto& [theirs, ours] : std::vector<std::pair<std::string, std::string>>{
             {"attention.wo", "self_attn.o_proj"},
             {"feed_forward.w1", "mlp.gate_proj"},
             {"feed_forward.w3", "mlp.up_proj"},
             {"feed_forward.w2", "mlp.down_proj"},
             {"attention_norm", "input_layernorm"},
             {"ffn_norm", "post_attention_layernorm"}}) {
      to[b + ours + ".weight"].copy_(from[a + theirs + ".weight"]);
    }
  }
  const at::NoGradGuard no_grad;
  const at::Tensor difference = fused->logits(fused->forward_hidden(packed(rows()))) -
                                split->logits(split->forward_hidden(packed(rows())));
  // Another order of summation; a misplaced head changes logits by tenths.
  EXPECT_LT(difference.abs().max().item<double>(), 1e-5);
}

TEST(Layouts, InternLm1IsALlamaWithBiasesAroundAttention) {
  const auto first = tiny("internlm"),
             second = tiny("llama", {{"num_key_value_heads", 4}, {"attention_bias", true}});
  std::map<std::string, at::Tensor> to;
  for (const Parameter& p : second->parameters()) to[p.name()] = p.tensor.detach();
  ASSERT_EQ(to.size(), first->parameters().size());
  for (const Parameter& p : first->parameters()) {
    ASSERT_TRUE(to.count(p.name())) << p.name();
    to[p.name()].copy_(p.tensor.detach());
  }
  EXPECT_TRUE(to.count("model.layers.1.self_attn.o_proj.bias"));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(first->logits(first->forward_hidden(packed(rows())))
                  .equal(second->logits(second->forward_hidden(packed(rows())))));
}

TEST(Layouts, Qwen1IsQwen2UnderOtherNames) {
  const auto first = tiny("qwen"), second = tiny("qwen2", {{"num_key_value_heads", 4}});
  std::map<std::string, at::Tensor> from, to;
  for (const Parameter& p : first->parameters()) from[p.name()] = p.tensor.detach();
  for (const Parameter& p : second->parameters()) to[p.name()] = p.tensor.detach();
  to["model.embed_tokens.weight"].copy_(from["transformer.wte.weight"]);
  to["model.norm.weight"].copy_(from["transformer.ln_f.weight"]);
  to["lm_head.weight"].copy_(from["lm_head.weight"]);
  for (const std::string i : {"0", "1"}) {
    const std::string a = "transformer.h." + i + ".", b = "model.layers." + i + ".";
    for (const auto& [part, name] : {std::pair(0, "q"), std::pair(1, "k"), std::pair(2, "v")}) {
      for (const std::string kind : {".weight", ".bias"})
        to[b + "self_attn." + name + "_proj" + kind].copy_(
            from[a + "attn.c_attn" + kind].narrow(0, 32 * part, 32));
    }
    for (const auto& [theirs, ours] :
         std::vector<std::pair<std::string, std::string>>{{"attn.c_proj", "self_attn.o_proj"},
                                                          {"mlp.w2", "mlp.gate_proj"},
                                                          {"mlp.w1", "mlp.up_proj"},
                                                          {"mlp.c_proj", "mlp.down_proj"},
                                                          {"ln_1", "input_layernorm"},
                                                          {"ln_2", "post_attention_layernorm"}}) {
      to[b + ours + ".weight"].copy_(from[a + theirs + ".weight"]);
    }
  }
  const at::NoGradGuard no_grad;
  const at::Tensor difference = first->logits(first->forward_hidden(packed(rows()))) -
                                second->logits(second->forward_hidden(packed(rows())));
  // Another order of summation; a wrong part changes logits by tenths.
  EXPECT_LT(difference.abs().max().item<double>(), 1e-5);
}

/// Models computed the dense way by make_goldens.py: every pair of positions scored, then masked.
class DenseReference : public testing::TestWithParam<const char*> {};

TEST_P(DenseReference, LogitsLossAndGradientsAreEqual) {
  const std::filesystem::path directory =
      std::filesystem::path(DANLU_SOURCE_DIR) / "tests/models/goldens" / GetParam();
  const auto model = load_model(directory, parallel::Mesh::single(), at::kFloat, at::kCPU);
  const auto golden = weights::open_safetensors(directory / "golden.safetensors");
  const GoldenReport report = compare_with_golden(*model, *golden, 1e-4);
  for (const TensorDifference& d : report.differences) EXPECT_LE(d.judged, 2e-5) << d.name;
  EXPECT_EQ(report.differences.size(), 2 + model->parameters().size());
}
INSTANTIATE_TEST_SUITE_P(Models, DenseReference,
                         testing::Values("baichuan_alibi", "mistral_window"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Rope, EveryScalingFollowsItsFormula) {
  const Json cases =
      read_json_file(std::filesystem::path(DANLU_SOURCE_DIR) / "tests/models/goldens/rope.json");
  ASSERT_EQ(cases.size(), 8u);
  for (const Json& expected : cases) {
    Json changes = {{"rope_theta", expected["theta"]},
                    {"max_position_embeddings", expected["max"]},
                    {"head_dim", expected["dim"]}};
    if (!expected["rope_scaling"].is_null()) changes["rope_scaling"] = expected["rope_scaling"];
    const auto model = tiny("llama", changes);
    const std::vector<double> ours = rope_frequencies(model->config(), expected.value("length", 0));
    const auto theirs = expected["frequencies"].get<std::vector<double>>();
    ASSERT_EQ(ours.size(), theirs.size()) << expected["name"];
    for (size_t j = 0; j < ours.size(); ++j)
      EXPECT_NEAR(ours[j] / theirs[j], 1, 1e-12) << expected["name"] << " " << j;
    EXPECT_NEAR(rope_attention_factor(model->config()), expected.value("attention_factor", 1.0),
                1e-12)
        << expected["name"];
  }
}

// Hugging Face asks whether both are true, and 0 is not: 0.1 ln(40) + 1 then.
TEST(Rope, AnMscaleOfZeroCountsAsMissing) {
  const auto factor = [](Json mscale, Json all_dim) {
    const auto model = tiny("llama", {{"rope_scaling",
                                       {{"type", "yarn"},
                                        {"factor", 40.0},
                                        {"mscale", std::move(mscale)},
                                        {"mscale_all_dim", std::move(all_dim)},
                                        {"original_max_position_embeddings", 8}}}});
    return rope_attention_factor(model->config());
  };
  constexpr double kPlain = 1.3688879454113936;
  EXPECT_NEAR(factor(.707, 0), kPlain, 1e-12);
  EXPECT_NEAR(factor(0, .707), kPlain, 1e-12);
  EXPECT_NEAR(factor(0, 0), kPlain, 1e-12);
  EXPECT_NEAR(factor(.707, .707), 1, 1e-12);
}

TEST(LossScale, GradScaleLeavesGradientsRight) {
  const auto model = tiny("qwen2");
  const auto plain = gradients(*model, rows(), 1.0 / 11);
  std::vector<at::Tensor> leaves;
  for (const Parameter& p : model->trainable_parameters()) leaves.push_back(p.tensor);
  const LossSum loss = model->loss(packed(rows()), targets_of(rows()), 1.0 / 11);
  const auto scaled = torch::autograd::grad({loss.sum / 11.0}, leaves);
  for (size_t i = 0; i < plain.size(); ++i) {
    const double difference = (plain[i] - scaled[i]).abs().max().item<double>();
    EXPECT_LE(difference, 1e-5 * plain[i].abs().max().item<double>());
  }
}

TEST(HiddenStates, AreReportedBeforeEveryLayerAndAfterTheNorm) {
  const auto model = tiny("llama");
  ForwardInput input = packed(rows());
  std::vector<int64_t> seen;
  at::Tensor last;
  input.on_hidden = [&](int64_t index, const at::Tensor& hidden) {
    seen.push_back(index);
    last = hidden;
  };
  const at::NoGradGuard no_grad;
  const at::Tensor out = model->forward_hidden(input);
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(at::equal(last, out));
}

}  // namespace families_test
}  // namespace danlu::models
