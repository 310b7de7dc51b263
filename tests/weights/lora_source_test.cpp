// Merging adapters as a lazy view: against dense arithmetic in f64, against PEFT's own merge, and
// the same bits however it is read.
#include "weights/lora/lora_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/shared_data.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"
#include "weights/small_tensors.h"

namespace danlu::weights {
namespace {

using test::error_of;
using test::numbers_of;
using test::SmallTensor;
using test::SmallTensors;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kQ = "model.layers.0.self_attn.q_proj";
constexpr const char* kDown = "model.layers.1.mlp.down_proj";
constexpr const char* kEmbedding = "model.embed_tokens";
constexpr const char* kPrefix = "base_model.model.";

/// A tiny model, an adapter of which tests say the tensors, and both merged.
class Merge : public ::testing::Test {
 protected:
  void make_base(Json json = test::tiny_config(), DType dtype = DType::kF32) {
    config_ = test::write_tiny_model(folder_ / "base", json, 7, dtype);
    base_ = open_weights(folder_ / "base");
  }
  const std::vector<int64_t>& shape_of(const std::string& module) {
    for (const arch::ParamSpec& spec : specs_ = arch::parameters_of(config_)) {
      if (spec.name == module + ".weight") return spec.shape;
    }
    throw std::runtime_error("no " + module);
  }
  SmallTensor random(std::vector<int64_t> shape, double size = 0.3) {
    SmallTensor tensor{std::move(shape), {}};
    int64_t count = 1;
    for (const int64_t d : tensor.shape) count *= d;
    for (int64_t i = 0; i < count; ++i)
      tensor.values.push_back(size * test::tiny_normal(seed_, static_cast<uint64_t>(i)));
    ++seed_;
    return tensor;
  }
  /// Adds A and B of this rank.
  void adapt(const std::string& module, int64_t rank) {
    const auto& shape = shape_of(module);
    adapter_[kPrefix + module + ".lora_A.weight"] = random({rank, shape[1]});
    adapter_[kPrefix + module + ".lora_B.weight"] = random({shape[0], rank});
  }
  void adapt_embedding(int64_t rank) {
    adapter_[std::string(kPrefix) + kEmbedding + ".lora_embedding_A"] =
        random({rank, config_.vocab_size});
    adapter_[std::string(kPrefix) + kEmbedding + ".lora_embedding_B"] =
        random({config_.hidden_size, rank});
  }
  MergedModel merge(Json peft, std::optional<DType> changed = {}) {
    peft["peft_type"] = "LORA";
    const auto directory = folder_ / ("adapter" + std::to_string(seed_++));
    std::filesystem::create_directories(directory);
    test::save_small(directory, adapter_, {.base_name = "adapter_model"});
    const auto source = open_weights(directory / "adapter_model.safetensors");
    return merge_adapters(base_, source, parse_peft_config(peft, "adapter_config.json"), config_,
                          changed);
  }
  std::string refusal(const Json& peft) {
    return error_of<ModelError>([&] { merge(peft); });
  }

  /// What an adapter tensor holds, element by element, after its dtype rounded it.
  std::vector<double> adapter_values(const std::string& name) {
    std::vector<double> values = adapter_.at(kPrefix + name).values;
    for (double& value : values) value = static_cast<float>(value);
    return values;
  }
  /// W + scale · B·A in f64, from its definition; with m also DoRA's rows.
  std::vector<double> dense(const std::string& module, double scale,
                            const std::vector<double>& m = {}) {
    std::vector<double> w = numbers_of(*base_, module + ".weight");
    const auto a = adapter_values(module + ".lora_A.weight");
    const auto b = adapter_values(module + ".lora_B.weight");
    const int64_t out = shape_of(module)[0], in = shape_of(module)[1];
    const int64_t rank = static_cast<int64_t>(a.size()) / in;
    for (int64_t o = 0; o < out; ++o) {
      double square = 0;
      for (int64_t i = 0; i < in; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < rank; ++k) sum += b[o * rank + k] * a[k * in + i];
        w[o * in + i] += scale * sum;
        square += w[o * in + i] * w[o * in + i];
      }
      for (int64_t i = 0; !m.empty() && i < in; ++i) w[o * in + i] *= m[o] / std::sqrt(square);
    }
    return w;
  }
  static void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                          double tolerance) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << i;
  }
  /// Every tensor other than `changed` is the base's, byte for byte.
  void expect_rest_kept(const TensorSource& merged, const std::vector<std::string>& changed) {
    for (const TensorInfo& info : base_->tensors()) {
      if (std::count(changed.begin(), changed.end(), info.name)) continue;
      EXPECT_EQ(test::read_tensor(merged, info.name), test::read_tensor(*base_, info.name));
      EXPECT_FALSE(merged.mapped(info.name).empty()) << info.name;
    }
  }

  test::TemporaryDirectory folder_;
  arch::ModelConfig config_;
  std::vector<arch::ParamSpec> specs_;
  std::shared_ptr<const TensorSource> base_;
  SmallTensors adapter_;
  uint64_t seed_ = 1000;
};

TEST_F(Merge, AddsTheScaledProduct) {
  make_base();
  adapt(kDown, 4);
  const MergedModel merged =
      merge({{"r", 4}, {"lora_alpha", 6}, {"target_modules", Json::array({kDown})}});
  const std::string weight = std::string(kDown) + ".weight";
  expect_near(numbers_of(*merged.source, weight), dense(kDown, 1.5), 2e-6);
  expect_rest_kept(*merged.source, {weight});
  EXPECT_TRUE(merged.source->mapped(weight).empty());
  EXPECT_EQ(merged.source->file_of(weight), folder_ / "base/model.safetensors");
  EXPECT_EQ(merged.source->tensors().size(), base_->tensors().size());
  EXPECT_FALSE(merged.config.tie_embeddings);
}

TEST_F(Merge, RankAndAlphaPatternsAndRsLora) {
  make_base();
  adapt(kQ, 5);
  adapt(kDown, 16);
  const MergedModel merged = merge({{"r", 16},
                                    {"lora_alpha", 8},
                                    {"use_rslora", true},
                                    {"rank_pattern", {{"q_proj", 5}}},
                                    {"alpha_pattern", {{"layers.0.self_attn.q_proj", 3}}},
                                    {"target_modules", Json::array({kQ, kDown})}});
  expect_near(numbers_of(*merged.source, std::string(kQ) + ".weight"),
              dense(kQ, 3 / std::sqrt(5.0)), 3e-6);
  expect_near(numbers_of(*merged.source, std::string(kDown) + ".weight"), dense(kDown, 8 / 4.0),
              8e-6);
}

TEST_F(Merge, DoraStretchesEachRowToItsMagnitude) {
  make_base();
  adapt(kDown, 3);
  SmallTensor magnitude = random({32});
  for (double& m : magnitude.values) m = static_cast<float>(1 + std::abs(m));
  adapter_[std::string(kPrefix) + kDown + ".lora_magnitude_vector"] = magnitude;
  const MergedModel merged = merge(
      {{"r", 3}, {"lora_alpha", 3}, {"use_dora", true}, {"target_modules", Json::array({kDown})}});
  const std::string weight = std::string(kDown) + ".weight";
  const auto expected = dense(kDown, 1, magnitude.values);
  expect_near(numbers_of(*merged.source, weight), expected, 2e-6);
  // A column is stretched by the lengths of whole rows, not of what is read of them.
  std::vector<float> column(32);
  merged.source->read_rect(weight, {0, 32, 5, 1}, reinterpret_cast<std::byte*>(column.data()), 1);
  for (size_t r = 0; r < column.size(); ++r) EXPECT_NEAR(column[r], expected[r * 56 + 5], 2e-6);
}

TEST_F(Merge, ARowOfZerosHasNoDirectionAndStaysZero) {
  make_base();
  adapter_[std::string(kPrefix) + kQ + ".lora_A.weight"] = {{1, 32}, std::vector<double>(32, 1)};
  SmallTensor b{{32, 1}, std::vector<double>(32, 0)}, m{{32}, std::vector<double>(32, 1)};
  // The base's first row is taken away by its adapter: possible if it is constant.
  SmallTensors base;
  for (const TensorInfo& info : base_->tensors())
    base[info.name] = {info.shape, numbers_of(*base_, info.name)};
  for (size_t i = 0; i < 32; ++i) base[std::string(kQ) + ".weight"].values[i] = 0.5;
  b.values[0] = -0.5;
  base_ = test::make_source(folder_ / "zeroed", base);
  adapter_[std::string(kPrefix) + kQ + ".lora_B.weight"] = b;
  adapter_[std::string(kPrefix) + kQ + ".lora_magnitude_vector"] = m;
  const MergedModel merged = merge(
      {{"r", 1}, {"lora_alpha", 1}, {"use_dora", true}, {"target_modules", Json::array({kQ})}});
  const auto values = numbers_of(*merged.source, std::string(kQ) + ".weight");
  double square = 0;
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(values[i], 0);
    square += values[32 + i] * values[32 + i];
  }
  EXPECT_NEAR(square, 1, 1e-6);
}

TEST_F(Merge, AnEmbeddingIsStoredTheOtherWayRound) {
  make_base();
  adapt_embedding(4);
  const MergedModel merged =
      merge({{"r", 4}, {"lora_alpha", 8}, {"target_modules", {"embed_tokens"}}});
  std::vector<double> expected = numbers_of(*base_, "model.embed_tokens.weight");
  const auto a = adapter_values(std::string(kEmbedding) + ".lora_embedding_A");
  const auto b = adapter_values(std::string(kEmbedding) + ".lora_embedding_B");
  for (int64_t v = 0; v < 97; ++v) {
    for (int64_t h = 0; h < 32; ++h) {
      for (int64_t k = 0; k < 4; ++k) expected[v * 32 + h] += 2 * a[k * 97 + v] * b[h * 4 + k];
    }
  }
  expect_near(numbers_of(*merged.source, "model.embed_tokens.weight"), expected, 3e-6);
  expect_rest_kept(*merged.source, {"model.embed_tokens.weight"});
}

// With small whole numbers f32 holds every sum exactly, so the only rounding is bf16's.
TEST_F(Merge, SixteenBitWeightsAreRoundedOnce) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    make_base(test::tiny_config(), dtype);
    adapt(kQ, 6);
    for (const char* part : {".lora_A.weight", ".lora_B.weight"}) {
      for (double& value : adapter_.at(std::string(kPrefix) + kQ + part).values)
        value = std::round(40 * value) / 64;
    }
    const MergedModel merged =
        merge({{"r", 6}, {"lora_alpha", 3}, {"target_modules", Json::array({kQ})}});
    const std::string weight = std::string(kQ) + ".weight";
    EXPECT_EQ(merged.source->find(weight)->dtype, dtype);
    std::string expected;
    // W has 8 or 11 significant bits below 2; multiples of 2^-13 added to it fit f32's 24 where |W|
    // is at least 2^-11.
    const auto w = numbers_of(*base_, weight);
    const auto sums = dense(kQ, 0.5);
    const std::string got = test::read_tensor(*merged.source, weight);
    size_t checked = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      if (static_cast<double>(static_cast<float>(sums[i])) != sums[i]) continue;
      expected.clear();
      test::append_number(expected, sums[i], dtype);
      ASSERT_EQ(got.substr(2 * i, 2), expected) << i << ": " << w[i] << " becomes " << sums[i];
      ++checked;
    }
    EXPECT_GT(checked, sums.size() * 9 / 10);
  }
}

// An update far below bf16's last digit of the base is there in f32, so nothing was bf16 on the
// way.
TEST_F(Merge, ATypeToStoreIsRoundedToOnceToo) {
  make_base(test::tiny_config(), DType::kBF16);
  adapt(kQ, 4);
  for (double& value : adapter_.at(std::string(kPrefix) + kQ + ".lora_B.weight").values)
    value *= 1e-3;
  adapter_[std::string(kPrefix) + "model.norm.weight"] = random({32});
  const Json peft = {{"r", 4},
                     {"lora_alpha", 4},
                     {"modules_to_save", {"norm"}},
                     {"target_modules", Json::array({kQ})}};
  const std::string weight = std::string(kQ) + ".weight";
  const MergedModel wide = merge(peft, DType::kF32), as_base = merge(peft);
  EXPECT_EQ(wide.source->find(weight)->dtype, DType::kF32);
  const auto expected = dense(kQ, 1), base = numbers_of(*base_, weight);
  expect_near(numbers_of(*wide.source, weight), expected, 1e-7);
  double moved = 0;
  for (size_t i = 0; i < base.size(); ++i) moved = std::max(moved, std::abs(expected[i] - base[i]));
  EXPECT_GT(moved, 1e-4);  // and less than what bf16 keeps of 0.2
  EXPECT_LT(moved, 2e-3);
  EXPECT_EQ(numbers_of(*wide.source, "model.norm.weight"), adapter_values("model.norm.weight"));
  expect_rest_kept(*wide.source, {weight, "model.norm.weight"});
  // What is stored as the base stores it are those numbers, rounded.
  for (const std::string& name : {weight, std::string("model.norm.weight")}) {
    std::string rounded;
    for (const double value : numbers_of(*wide.source, name))
      test::append_number(rounded, value, DType::kBF16);
    EXPECT_EQ(test::read_tensor(*as_base.source, name), rounded) << name;
  }
  EXPECT_EQ(merge(peft, DType::kF16).source->find(weight)->dtype, DType::kF16);
}

TEST_F(Merge, SavedModulesAndBiasesReplaceTheBases) {
  make_base(test::tiny_config(), DType::kBF16);
  adapt(kQ, 2);
  adapter_[std::string(kPrefix) + "lm_head.weight"] = random({97, 32});
  adapter_[std::string(kPrefix) + "model.norm.weight"] = random({32});
  adapter_[std::string(kPrefix) + kQ + ".base_layer.bias"] = random({32});
  const Json peft = {{"r", 2},
                     {"bias", "lora_only"},
                     {"modules_to_save", {"lm_head", "norm"}},
                     {"target_modules", Json::array({kQ})}};
  const MergedModel merged = merge(peft);
  for (const auto& [name, from] : std::map<std::string, std::string>{
           {"lm_head.weight", "lm_head.weight"},
           {"model.norm.weight", "model.norm.weight"},
           {std::string(kQ) + ".bias", std::string(kQ) + ".base_layer.bias"}}) {
    std::string expected;
    for (const double value : adapter_.at(kPrefix + from).values)
      test::append_number(expected, value, DType::kBF16);
    EXPECT_EQ(test::read_tensor(*merged.source, name), expected) << name;
    EXPECT_EQ(merged.source->file_of(name).filename(), "adapter_model.safetensors");
    EXPECT_EQ(test::read_tensor_range(*merged.source, name, 3, 9), expected.substr(6, 12));
  }
  expect_rest_kept(*merged.source, {"lm_head.weight", "model.norm.weight",
                                    std::string(kQ) + ".bias", std::string(kQ) + ".weight"});
}

TEST_F(Merge, ATiedHeadThatChangesBecomesATensorOfItsOwn) {
  Json json = test::tiny_config();
  json["tie_word_embeddings"] = true;
  make_base(json);
  ASSERT_FALSE(base_->find("lm_head.weight"));
  const std::string embedding = test::read_tensor(*base_, "model.embed_tokens.weight");

  adapter_[std::string(kPrefix) + "lm_head.lora_A.weight"] = random({2, 32});
  adapter_[std::string(kPrefix) + "lm_head.lora_B.weight"] = random({97, 2});
  // PEFT stores what lies under an adapter on the head, too.
  adapter_[std::string(kPrefix) + "lm_head.base_layer.weight"] = {
      {97, 32}, numbers_of(*base_, "model.embed_tokens.weight")};
  MergedModel merged = merge({{"r", 2}, {"target_modules", {"lm_head"}}});
  EXPECT_FALSE(merged.config.tie_embeddings);
  EXPECT_EQ(merged.config.raw["tie_word_embeddings"], false);
  EXPECT_EQ(test::read_tensor(*merged.source, "model.embed_tokens.weight"), embedding);
  const auto a = adapter_values("lm_head.lora_A.weight");
  const auto b = adapter_values("lm_head.lora_B.weight");
  auto expected = numbers_of(*base_, "model.embed_tokens.weight");
  for (size_t v = 0; v < 97; ++v) {
    for (size_t h = 0; h < 32; ++h)
      expected[v * 32 + h] += 4 * (b[v * 2] * a[h] + b[v * 2 + 1] * a[32 + h]);
  }
  expect_near(numbers_of(*merged.source, "lm_head.weight"), expected, 4e-6);

  adapter_.clear();
  adapt_embedding(2);
  merged = merge({{"r", 2}, {"target_modules", {"embed_tokens"}}});
  EXPECT_FALSE(merged.config.tie_embeddings);
  EXPECT_EQ(test::read_tensor(*merged.source, "lm_head.weight"), embedding);
  EXPECT_NE(test::read_tensor(*merged.source, "model.embed_tokens.weight"), embedding);

  adapter_.clear();
  adapt(kQ, 2);
  merged = merge({{"r", 2}, {"target_modules", Json::array({kQ})}});
  EXPECT_TRUE(merged.config.tie_embeddings);
  EXPECT_FALSE(merged.source->find("lm_head.weight"));
}

TEST_F(Merge, IsWhatPeftsMergeAndUnloadGives) {
  DANLU_REQUIRES_SHARED();
  const auto golden = test::shared_dir() / "golden";
  const auto base = open_weights(golden / "llama");
  const MergedModel merged = merge_adapters(
      base, open_weights(golden / "lora_llama/adapter_model.safetensors"),
      load_peft_config(golden / "lora_llama"), arch::load_model_config(golden / "llama"));
  const auto expected = open_weights(golden / "lora_llama/merged_model.safetensors");
  ASSERT_EQ(merged.source->tensors().size(), expected->tensors().size());
  size_t moved = 0;
  for (const TensorInfo& info : expected->tensors()) {
    expect_near(numbers_of(*merged.source, info.name), numbers_of(*expected, info.name), 1e-6);
    moved += merged.source->mapped(info.name).empty();
  }
  EXPECT_EQ(moved, 21u);  // 7 projections in 3 layers
}

TEST_F(Merge, FanInFanOutHasNoEffectOnLinearLayers) {
  make_base();
  adapt(kDown, 4);
  const Json peft = {{"r", 4}, {"target_modules", Json::array({kDown})}};
  Json transposed = peft;
  transposed["fan_in_fan_out"] = true;
  const std::string weight = std::string(kDown) + ".weight";
  EXPECT_EQ(test::read_tensor(*merge(transposed).source, weight),
            test::read_tensor(*merge(peft).source, weight));
}

// Any family, any shapes, every way to read: the bits of reading whole, near dense arithmetic.
TEST_F(Merge, EveryWayToReadGivesTheSameBits) {
  for (uint64_t round = 0; round < 24; ++round) {
    uint64_t index = 0;
    const auto draw = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(mix64(500 + round, index++) %
                                        static_cast<uint64_t>(high - low + 1));
    };
    const bool dora = draw(0, 1), rslora = draw(0, 1), embedding = !dora && draw(0, 1);
    Json json = test::tiny_config(draw(0, 1) ? "llama" : "qwen3");
    json["intermediate_size"] = draw(1, 700);
    const DType dtype = draw(0, 1) ? DType::kBF16 : DType::kF32;
    make_base(json, dtype);
    const int64_t rank = draw(1, 9), other = draw(1, 9);
    adapter_.clear();
    adapt(kQ, other);
    adapt(kDown, rank);
    if (embedding) adapt_embedding(rank);
    Json targets = {kQ, kDown};
    if (embedding) targets.push_back("embed_tokens");
    if (dora) {
      for (const char* module : {kQ, kDown}) {
        adapter_[std::string(kPrefix) + module + ".lora_magnitude_vector"] =
            random({shape_of(module)[0]}, 2);
      }
    }
    const MergedModel merged = merge({{"r", rank},
                                      {"lora_alpha", 4},
                                      {"use_dora", dora},
                                      {"use_rslora", rslora},
                                      {"rank_pattern", {{"q_proj", other}}},
                                      {"target_modules", targets}});
    for (const std::string module : {kQ, kDown, embedding ? kEmbedding : kQ}) {
      const std::string name = module + ".weight";
      const TensorInfo& info = *merged.source->find(name);
      const std::string whole = test::read_tensor(*merged.source, name);
      if (module != kEmbedding) {
        const double r = static_cast<double>(module == kQ ? other : rank);
        const auto expected =
            dense(module, 4 / (rslora ? std::sqrt(r) : r),
                  dora ? adapter_values(module + ".lora_magnitude_vector") : std::vector<double>{});
        const auto got = numbers_of(*merged.source, name);
        for (size_t i = 0; i < got.size(); ++i) {
          const double rounding = dtype == DType::kBF16 ? std::abs(expected[i]) * 0x1.01p-8 : 0;
          ASSERT_NEAR(got[i], expected[i], rounding + 2e-5) << round << " " << name << " " << i;
        }
      }
      const Rect all = matrix_of(info.shape);
      const size_t item = dtype_size_bytes(dtype);
      for (int read = 0; read < 8; ++read) {
        const int64_t begin = draw(0, info.num_elements());
        const int64_t end = draw(begin, info.num_elements());
        ASSERT_EQ(test::read_tensor_range(*merged.source, name, begin, end),
                  whole.substr(static_cast<size_t>(begin) * item,
                               static_cast<size_t>(end - begin) * item));
        const int64_t row = draw(0, all.rows - 1), col = draw(0, all.cols - 1);
        const Rect rect{row, draw(0, all.rows - row), col, draw(0, all.cols - col)};
        const int64_t stride = rect.cols + draw(0, 3);
        std::string part(static_cast<size_t>(rect.rows * stride) * item, '\0');
        merged.source->read_rect(name, rect, reinterpret_cast<std::byte*>(part.data()), stride);
        for (int64_t r = 0; r < rect.rows; ++r) {
          ASSERT_EQ(part.substr(static_cast<size_t>(r * stride) * item,
                                static_cast<size_t>(rect.cols) * item),
                    whole.substr(static_cast<size_t>((row + r) * all.cols + col) * item,
                                 static_cast<size_t>(rect.cols) * item))
              << round << " " << name << " row " << row + r;
        }
      }
    }
  }
}

TEST_F(Merge, RefusesWhatFitsNoModule) {
  make_base();
  adapt(kQ, 4);
  const Json peft = {
      {"r", 4}, {"base_model_name_or_path", "org/m"}, {"target_modules", {"q_proj"}}};
  adapt("model.layers.1.self_attn.q_proj", 4);
  merge(peft);

  SmallTensors good = adapter_;
  adapter_[std::string(kPrefix) + "model.layers.2.self_attn.q_proj.lora_A.weight"] =
      random({4, 32});
  EXPECT_THAT(refusal(peft),
              AllOf(HasSubstr("adapter_model.safetensors: base_model.model.model.layers.2"),
                    HasSubstr("which this qwen2 model of 2 layers does not have"),
                    HasSubstr("merge it into the base model it was trained on: org/m")));
  adapter_ = good;
  adapter_["model.layers.0.self_attn.q_proj.lora_A.weight"] = random({4, 32});
  EXPECT_THAT(refusal(peft), HasSubstr("is no name that PEFT gives"));
  adapter_ = good;
  adapt("model.layers.0.self_attn.k_proj", 4);
  EXPECT_THAT(refusal(peft),
              HasSubstr("is for model.layers.0.self_attn.k_proj, which target_modules of "
                        "adapter_config.json does not choose"));
  adapter_ = good;
  adapter_[std::string(kPrefix) + kQ + ".lora_embedding_A"] = random({4, 32});
  EXPECT_THAT(refusal(peft), HasSubstr("q_proj, which is a linear layer"));
  adapter_ = good;
  adapter_[std::string(kPrefix) + kQ + ".lora_magnitude_vector"] = random({32});
  EXPECT_THAT(refusal(peft), HasSubstr("does not say use_dora"));
  adapter_ = good;
  adapter_[std::string(kPrefix) + "model.norm.lora_A.weight"] = random({4, 32});
  EXPECT_THAT(refusal(peft), HasSubstr("is for model.norm, which is no linear layer"));
  adapter_ = good;
  adapter_[std::string(kPrefix) + "model.layers.0.mlp.up_proj.bias"] = random({56});
  EXPECT_THAT(refusal(peft), HasSubstr("which has no bias"));
  adapter_ = good;
  adapter_.begin()->second.dtype = DType::kI64;
  EXPECT_THAT(refusal(peft), HasSubstr("is I64; adapters are floating"));
}

TEST_F(Merge, RefusesWhatIsMissingOrOfTheWrongShape) {
  make_base();
  adapt(kQ, 4);
  const Json peft = {{"r", 4}, {"target_modules", Json::array({kQ})}};
  const SmallTensors good = adapter_;
  const std::string a = std::string(kPrefix) + kQ + ".lora_A.weight";
  const std::string b = std::string(kPrefix) + kQ + ".lora_B.weight";

  adapter_.erase(b);
  EXPECT_THAT(refusal(peft), HasSubstr(b + " is missing, though there is " + a));
  adapter_ = good;
  Json rank8 = peft;
  rank8["r"] = 8;
  EXPECT_THAT(refusal(rank8), HasSubstr("lora_A.weight is [4, 32], it must be [8, 32]: rank 8 by "
                                        "adapter_config.json, and " +
                                        std::string(kQ) + ".weight is [32, 32]"));
  adapter_[b] = random({33, 4});
  EXPECT_THAT(refusal(peft), HasSubstr("lora_B.weight is [33, 4], it must be [32, 4]"));
  adapter_ = good;
  Json both = peft;
  both["target_modules"].push_back(kDown);
  EXPECT_THAT(refusal(both), HasSubstr("no adapter for model.layers.1.mlp.down_proj, which "
                                       "target_modules of adapter_config.json chooses"));
  Json saved = peft;
  saved["modules_to_save"] = {"lm_head"};
  EXPECT_THAT(refusal(saved),
              HasSubstr("base_model.model.lm_head.weight is missing, which modules_to_save"));
  saved["modules_to_save"] = {"score"};
  EXPECT_THAT(refusal(saved), HasSubstr("names score, which this qwen2 model does not have"));
  Json dora = peft;
  dora["use_dora"] = true;
  EXPECT_THAT(refusal(dora), HasSubstr("lora_magnitude_vector is missing"));
  adapter_[std::string(kPrefix) + kQ + ".weight"] = random({32, 32});
  EXPECT_THAT(refusal(peft), AllOf(HasSubstr("differs from the base model's"),
                                   HasSubstr("does not list it in modules_to_save")));
  saved["modules_to_save"] = {"q_proj"};
  EXPECT_THAT(refusal(saved), HasSubstr("is in modules_to_save, and"));
  adapter_.clear();
  EXPECT_THAT(refusal(peft), HasSubstr("the adapter holds no tensors"));
}

}  // namespace
}  // namespace danlu::weights
