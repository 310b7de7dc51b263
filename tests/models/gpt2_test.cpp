// GPT-2 against PyTorch (goldens/gpt2.safetensors, make_gpt2_golden.py), and against a plain model
// in double precision: one token, one head, one number at a time, with the formulas of
// transformers' modeling_gpt2.py, out of matrices as its files hold them.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/adapters.h"
#include "models/merge.h"
#include "models/weight_files.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/convert/checkpoint_source.h"

namespace danlu::models {
namespace gpt2_test {

using testing::HasSubstr;
using Vector = std::vector<double>;
using Rows = std::vector<Vector>;

std::unique_ptr<CausalLM> model_of(const Json& json, const std::filesystem::path& directory) {
  test::write_tiny_model(directory, json, /*seed=*/7);
  return load_model(directory, parallel::Mesh::single(), at::kDouble, at::kCPU);
}

/// Its weights are a file's, so that a matrix is [in, out].
class PlainGpt2 {
 public:
  PlainGpt2(const std::filesystem::path& directory, const Json& config)
      : heads_(config["n_head"]),
        layers_(config["n_layer"]),
        is_scaled_(config.value("scale_attn_weights", true)),
        is_exact_(config.value("activation_function", "gelu_new") == "gelu") {
    const auto source = weights::open_weights(directory);
    for (const weights::TensorInfo& info : source->tensors()) {
      std::vector<float> values(static_cast<size_t>(info.num_elements()));
      source->read(info.name, std::as_writable_bytes(std::span(values)));
      weights_[info.name] = {values.begin(), values.end()};
    }
  }

  Vector& weight(const std::string& name) { return weights_.at(name); }

  Rows logits(const std::vector<int64_t>& ids) const {
    const std::string top = "transformer.";
    const Vector &table = weights_.at(top + "wte.weight"),
                 &places = weights_.at(top + "wpe.weight");
    const size_t hidden = weights_.at(top + "ln_f.weight").size();
    Rows states;
    for (size_t t = 0; t < ids.size(); ++t) {
      Vector row(hidden);
      for (size_t i = 0; i < hidden; ++i)
        row[i] = table[static_cast<size_t>(ids[t]) * hidden + i] + places[t * hidden + i];
      states.push_back(row);
    }
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const std::string name = top + "h." + std::to_string(layer) + ".";
      const Rows seen = attention(states, name);
      for (size_t t = 0; t < states.size(); ++t) {
        add(states[t], seen[t]);
        Vector wide = product(normed(states[t], name + "ln_2"), name + "mlp.c_fc");
        for (double& x : wide) x = gelu(x);
        add(states[t], product(wide, name + "mlp.c_proj"));
      }
    }
    Rows all;
    const auto own = weights_.find("lm_head.weight");
    const Vector& head = own == weights_.end() ? table : own->second;
    for (const Vector& state : states) {
      const Vector last = normed(state, top + "ln_f");
      Vector row(head.size() / hidden, 0.0);
      for (size_t v = 0; v < row.size(); ++v) {
        for (size_t i = 0; i < hidden; ++i) row[v] += head[v * hidden + i] * last[i];
      }
      all.push_back(row);
    }
    return all;
  }

  /// The loss of every next token, summed.
  double loss(const std::vector<int64_t>& ids) const {
    const Rows rows = logits(ids);
    double sum = 0;
    for (size_t t = 0; t + 1 < ids.size(); ++t) {
      double of_all = 0;
      for (const double logit : rows[t]) of_all += std::exp(logit);
      sum += std::log(of_all) - rows[t][static_cast<size_t>(ids[t + 1])];
    }
    return sum;
  }

 private:
  static void add(Vector& to, const Vector& more) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += more[i];
  }
  double gelu(double x) const {
    if (is_exact_) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    return x * 0.5 * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  }
  Vector normed(const Vector& x, const std::string& name) const {
    double mean = 0, variance = 0;
    for (const double value : x) mean += value / static_cast<double>(x.size());
    for (const double value : x)
      variance += (value - mean) * (value - mean) / static_cast<double>(x.size());
    Vector y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      y[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * weights_.at(name + ".weight")[i] +
             weights_.at(name + ".bias")[i];
    }
    return y;
  }
  /// Conv1D: bias + x · weight.
  Vector product(const Vector& x, const std::string& name) const {
    const Vector& matrix = weights_.at(name + ".weight");
    Vector y = weights_.at(name + ".bias");
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t column = 0; column < y.size(); ++column)
        y[column] += x[i] * matrix[i * y.size() + column];
    }
    return y;
  }
  /// c_attn gives all queries, all keys, all values.
  Rows attention(const Rows& states, const std::string& name) const {
    Rows made, result;
    for (const Vector& state : states)
      made.push_back(product(normed(state, name + "ln_1"), name + "attn.c_attn"));
    const size_t hidden = states[0].size(), size = hidden / static_cast<size_t>(heads_);
    const double scale = is_scaled_ ? std::sqrt(static_cast<double>(size)) : 1.0;
    for (size_t t = 0; t < states.size(); ++t) {
      Vector seen(hidden, 0.0);
      for (size_t head = 0; head < static_cast<size_t>(heads_); ++head) {
        const size_t at = head * size;
        Vector scores;
        double of_all = 0;
        for (size_t key = 0; key <= t; ++key) {
          double score = 0;
          for (size_t d = 0; d < size; ++d)
            score += made[t][at + d] * made[key][hidden + at + d] / scale;
          scores.push_back(std::exp(score));
          of_all += scores.back();
        }
        for (size_t key = 0; key <= t; ++key) {
          for (size_t d = 0; d < size; ++d)
            seen[at + d] += scores[key] / of_all * made[key][2 * hidden + at + d];
        }
      }
      result.push_back(product(seen, name + "attn.c_proj"));
    }
    return result;
  }

  int64_t heads_, layers_;
  bool is_scaled_, is_exact_;
  std::map<std::string, Vector> weights_;
};

/// Texts one behind the other; the positions of each begin at 0.
ForwardInput packed(const std::vector<std::vector<int64_t>>& texts) {
  std::vector<int64_t> ids, positions;
  ops::Segments segments{{0}, {0}};
  for (const std::vector<int64_t>& text : texts) {
    for (size_t t = 0; t < text.size(); ++t) {
      ids.push_back(text[t]);
      positions.push_back(static_cast<int64_t>(t));
    }
    segments.q_starts.push_back(static_cast<int64_t>(ids.size()));
    segments.k_starts.push_back(static_cast<int64_t>(ids.size()));
  }
  ForwardInput input;
  input.ids_N = at::tensor(ids, at::TensorOptions(at::kLong));
  input.positions_N = at::tensor(positions, at::TensorOptions(at::kLong));
  input.segments = segments;
  return input;
}

const std::vector<std::vector<int64_t>> kTexts = {
    {5, 9, 2, 7, 31, 40, 3, 3, 90, 8, 1}, {8, 60}, {4, 4, 4, 17, 2}};

Json with(const Json& more) {
  Json json = test::tiny_config("gpt2");
  // The keys of its files.
  for (const auto& [usual, theirs] :
       {std::pair("hidden_size", "n_embd"), std::pair("num_hidden_layers", "n_layer"),
        std::pair("num_attention_heads", "n_head"), std::pair("intermediate_size", "n_inner"),
        std::pair("max_position_embeddings", "n_positions")}) {
    json[theirs] = json[usual];
    json.erase(usual);
  }
  json.update(more);
  return json;
}

class Gpt2 : public testing::TestWithParam<Json> {
 protected:
  test::TemporaryDirectory directory_;
  Json json_ = with(GetParam());
  std::unique_ptr<CausalLM> model_ = model_of(json_, directory_.path());
  PlainGpt2 plain_{directory_.path(), json_};
};

TEST_P(Gpt2, LogitsOfPackedTextsAreThoseOfAPlainModel) {
  const at::NoGradGuard no_grad;
  const at::Tensor ours = model_->logits(model_->forward_hidden(packed(kTexts)));
  int64_t row = 0;
  for (const std::vector<int64_t>& text : kTexts) {
    for (const Vector& theirs : plain_.logits(text)) {
      for (size_t v = 0; v < theirs.size(); ++v)
        ASSERT_NEAR(ours[row][static_cast<int64_t>(v)].item<double>(), theirs[v], 1e-9)
            << row << " " << v;
      ++row;
    }
  }
}

TEST_P(Gpt2, GradientsAreThePlainModelsDifferences) {
  std::vector<at::Tensor> leaves;
  for (const Parameter& parameter : model_->parameters()) leaves.push_back(parameter.tensor);
  std::vector<int64_t> next;
  for (const std::vector<int64_t>& text : kTexts) {
    next.insert(next.end(), text.begin() + 1, text.end());
    next.push_back(-100);
  }
  const auto of_all = [&] {
    double sum = 0;
    for (const std::vector<int64_t>& text : kTexts) sum += plain_.loss(text);
    return sum;
  };
  const LossSum loss =
      model_->loss(packed(kTexts), at::tensor(next, at::TensorOptions(at::kLong)), 1.0);
  EXPECT_NEAR(loss.sum.item<double>(), of_all(), 1e-9);
  const auto gradients = torch::autograd::grad({loss.sum}, leaves);
  constexpr double kStep = 1e-4;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const std::string name = model_->parameters()[i].name();
    Vector& weight = plain_.weight(name);
    const bool is_turned = name.find(".h.") != std::string::npos && leaves[i].dim() == 2;
    const at::Tensor as_stored = is_turned ? gradients[i].t().contiguous() : gradients[i];
    const auto width = static_cast<size_t>(as_stored.size(-1));
    // Rows of the table of positions that were looked up, and one that was not.
    for (const size_t at : {size_t{0}, 3 * (width / 2) + 1, weight.size() / 3, weight.size() - 1}) {
      if (at >= weight.size()) continue;
      const double before = weight[at];
      weight[at] = before + kStep;
      const double above = of_all();
      weight[at] = before - kStep;
      const double below = of_all();
      weight[at] = before;
      const double ours =
          as_stored.contiguous().view({-1})[static_cast<int64_t>(at)].item<double>();
      EXPECT_NEAR(ours, (above - below) / (2 * kStep), 2e-6) << name << " " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Gpt2,
                         testing::Values(Json{{"tie_word_embeddings", true}},
                                         Json{{"n_inner", nullptr},
                                              {"scale_attn_weights", false},
                                              {"activation_function", "gelu"}}),
                         [](const auto& info) { return info.index == 0 ? "tied" : "untied"; });

std::vector<double> doubles(const weights::TensorSource& source, const std::string& name) {
  std::vector<double> values(static_cast<size_t>(source.find(name)->num_elements()));
  source.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}
std::vector<int64_t> whole_numbers(const weights::TensorSource& source, const std::string& name) {
  std::vector<int64_t> values(static_cast<size_t>(source.find(name)->num_elements()));
  source.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}
void expect_near(const at::Tensor& ours, const std::vector<double>& theirs,
                 const std::string& name) {
  ASSERT_EQ(ours.numel(), static_cast<int64_t>(theirs.size())) << name;
  const at::Tensor flat = ours.contiguous().view({-1});
  for (size_t i = 0; i < theirs.size(); ++i)
    ASSERT_NEAR(flat[static_cast<int64_t>(i)].item<double>(), theirs[i], 1e-9) << name << " " << i;
}

TEST(Gpt2Golden, LogitsLossAndGradientsArePyTorchs) {
  const auto golden = weights::open_weights(std::filesystem::path(DANLU_SOURCE_DIR) /
                                            "tests/models/goldens/gpt2.safetensors");
  const std::string weight = "weight/";
  std::vector<weights::TensorInfo> infos;
  for (const weights::TensorInfo& info : golden->tensors()) {
    if (info.name.starts_with(weight))
      infos.push_back({info.name.substr(weight.size()), info.dtype, info.shape});
  }
  const test::TemporaryDirectory directory;
  write_json_file(directory / "config.json", {{"model_type", "gpt2"},
                                              {"vocab_size", 31},
                                              {"n_embd", 16},
                                              {"n_layer", 2},
                                              {"n_head", 4},
                                              {"n_inner", 40},
                                              {"n_positions", 12}});
  std::vector<std::byte> bytes;
  weights::save_safetensors(directory.path(), infos,
                            [&](size_t index) -> std::span<const std::byte> {
                              bytes.resize(infos[index].size_bytes());
                              golden->read(weight + infos[index].name, bytes);
                              return bytes;
                            },
                            {});
  const auto model = load_model(directory.path(), parallel::Mesh::single(), at::kDouble, at::kCPU);
  std::vector<std::vector<int64_t>> texts;
  std::vector<int64_t> next, rest = whole_numbers(*golden, "ids");
  for (const int64_t length : whole_numbers(*golden, "lengths")) {
    texts.emplace_back(rest.begin(), rest.begin() + length);
    rest.erase(rest.begin(), rest.begin() + length);
    next.insert(next.end(), texts.back().begin() + 1, texts.back().end());
    next.push_back(-100);
  }
  {
    const at::NoGradGuard no_grad;
    expect_near(model->logits(model->forward_hidden(packed(texts))), doubles(*golden, "logits"),
                "logits");
  }
  std::vector<at::Tensor> leaves;
  for (const Parameter& parameter : model->parameters()) leaves.push_back(parameter.tensor);
  const LossSum loss =
      model->loss(packed(texts), at::tensor(next, at::TensorOptions(at::kLong)), 1.0);
  EXPECT_NEAR(loss.sum.item<double>(), doubles(*golden, "loss")[0], 1e-9);
  const auto gradients = torch::autograd::grad({loss.sum}, leaves);
  ASSERT_EQ(leaves.size(), infos.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    const std::string name = model->parameters()[i].name();
    const bool is_turned = name.find(".h.") != std::string::npos && leaves[i].dim() == 2;
    expect_near(is_turned ? gradients[i].t() : gradients[i], doubles(*golden, "grad/" + name),
                name);
  }
}

/// The model's files with other names and further tensors.
void write_like(const std::filesystem::path& from, const std::filesystem::path& to,
                const std::string& without, const std::vector<weights::TensorInfo>& more) {
  const auto source = weights::open_weights(from);
  std::vector<weights::TensorInfo> infos;
  std::vector<std::string> names;
  for (const weights::TensorInfo& info : source->tensors()) {
    infos.push_back(info);
    names.push_back(info.name);
    if (info.name.starts_with(without)) infos.back().name = info.name.substr(without.size());
  }
  for (const weights::TensorInfo& info : more) infos.push_back(info);
  std::vector<std::byte> bytes;
  std::filesystem::create_directories(to);
  std::filesystem::copy_file(from / "config.json", to / "config.json");
  weights::save_safetensors(to, infos,
                            [&](size_t index) -> std::span<const std::byte> {
                              bytes.assign(infos[index].size_bytes(), std::byte{0});
                              if (index < names.size()) source->read(names[index], bytes);
                              return bytes;
                            },
                            {});
}

// The hub's gpt2 was saved without its head's class, with the masks of its attention.
TEST(Gpt2Files, BareNamesAndMasksAreTaken) {
  const test::TemporaryDirectory whole, hub;
  const auto model = model_of(with({{"tie_word_embeddings", true}}), whole.path());
  write_like(whole.path(), hub.path(), "transformer.",
             {{"h.0.attn.bias", DType::kF32, {1, 1, 128, 128}},
              {"h.1.attn.bias", DType::kF32, {1, 1, 128, 128}},
              {"h.1.attn.masked_bias", DType::kF32, {}}});
  const auto again = load_model(hub.path(), parallel::Mesh::single(), at::kDouble, at::kCPU);
  ASSERT_EQ(again->parameters().size(), model->parameters().size());
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_EQ(again->parameters()[i].name(), model->parameters()[i].name());
    EXPECT_TRUE(again->parameters()[i].tensor.equal(model->parameters()[i].tensor));
  }
  write_like(whole.path(), hub.path() / "other", "transformer.",
             {{"h.0.attn.other", DType::kF32, {2}}});
  EXPECT_THAT(test::error_of<ModelError>([&] {
                load_model(hub.path() / "other", parallel::Mesh::single(), at::kFloat, at::kCPU);
              }),
              HasSubstr("h.0.attn.other"));
}

TEST(Gpt2Files, SavedMatricesLieAsTheyWereRead) {
  const test::TemporaryDirectory directory;
  test::write_tiny_model(directory.path() / "a", with({{"tie_word_embeddings", true}}), 7);
  const auto model =
      load_model(directory.path() / "a", parallel::Mesh::single(), at::kFloat, at::kCPU);
  save(*model, directory.path() / "b", DType::kF32, {});
  const auto a = weights::open_weights(directory.path() / "a"),
             b = weights::open_weights(directory.path() / "b");
  ASSERT_EQ(a->tensors().size(), b->tensors().size());
  // Hidden 32: c_attn makes 96 of it.
  EXPECT_THAT(b->find("transformer.h.0.attn.c_attn.weight")->shape, testing::ElementsAre(32, 96));
  for (const weights::TensorInfo& info : a->tensors()) {
    ASSERT_NE(b->find(info.name), nullptr) << info.name;
    ASSERT_EQ(b->find(info.name)->shape, info.shape) << info.name;
    std::vector<std::byte> one(info.size_bytes()), two(info.size_bytes());
    a->read(info.name, one);
    b->read(info.name, two);
    EXPECT_EQ(one, two) << info.name;
  }
}

TEST(Gpt2Files, APositionWithoutARowIsAnErrorThatNamesIt) {
  const test::TemporaryDirectory directory;
  const auto model = model_of(with({{"n_positions", 4}}), directory.path());
  const at::NoGradGuard no_grad;
  model->forward_hidden(packed({{1, 2, 3, 4}, {5, 6, 7, 8}}));
  EXPECT_THAT(test::error_of<ModelError>(
                  [&] { model->forward_hidden(packed({{1, 2, 3}, {1, 2, 3, 4, 5}})); }),
              HasSubstr("a token at position 4, but the model has embeddings of 4 positions"));
}

TEST(Gpt2Files, AdaptersSayThatMatricesAreTurned) {
  const test::TemporaryDirectory directory;
  const auto model = model_of(with(Json::object()), directory.path() / "m");
  weights::PeftConfig peft;
  weights::set_targets(peft, {"all-linear"});
  add_lora(*model, peft, /*seed=*/1);
  for (const Parameter& parameter : model->adapter_parameters()) {
    EXPECT_EQ(parameter.name().find("wpe"), std::string::npos) << parameter.name();
    EXPECT_EQ(parameter.name().find("wte"), std::string::npos) << parameter.name();
  }
  save_adapter(*model, directory.path() / "a", "m");
  EXPECT_EQ(read_json_file(directory.path() / "a" / "adapter_config.json")["fan_in_fan_out"], true);
}

/// What PEFT writes for GPT-2: A and B of `lora`, whole Conv1D matrices of `whole` as [in, out].
/// Rank 2, alpha 6. Values are normal numbers.
void write_peft(const std::filesystem::path& directory, const weights::TensorSource& base,
                const std::string& lora, const std::vector<std::string>& whole) {
  std::vector<weights::TensorInfo> infos;
  for (const weights::TensorInfo& info : base.tensors()) {
    const std::string module = info.name.substr(0, info.name.rfind('.'));
    if (info.shape.size() != 2 || info.name.find(".h.") == std::string::npos) continue;
    if (module.ends_with(lora)) {
      infos.push_back(
          {"base_model.model." + module + ".lora_A.weight", DType::kF32, {2, info.shape[0]}});
      infos.push_back(
          {"base_model.model." + module + ".lora_B.weight", DType::kF32, {info.shape[1], 2}});
    }
    for (const std::string& name : whole) {
      if (!module.ends_with(name)) continue;
      infos.push_back({"base_model.model." + info.name, DType::kF32, info.shape});
      // A bias of the module is saved with it.
      infos.push_back({"base_model.model." + module + ".bias", DType::kF32, {info.shape[1]}});
    }
  }
  std::filesystem::create_directories(directory);
  std::vector<float> values;
  weights::SaveOptions options;
  options.base_name = "adapter_model";
  weights::save_safetensors(
      directory, infos,
      [&](size_t index) -> std::span<const std::byte> {
        values.clear();
        for (int64_t i = 0; i < infos[index].num_elements(); ++i)
          values.push_back(0.2f * test::tiny_normal(77 + index, static_cast<uint64_t>(i)));
        return std::as_bytes(std::span(values));
      },
      options);
  write_json_file(directory / "adapter_config.json", {{"peft_type", "LORA"},
                                                      {"task_type", "CAUSAL_LM"},
                                                      {"base_model_name_or_path", "m"},
                                                      {"r", 2},
                                                      {"lora_alpha", 6},
                                                      {"fan_in_fan_out", true},
                                                      {"target_modules", {lora}},
                                                      {"modules_to_save", whole}});
}

/// The adapter's numbers put into the plain model's: what is whole in place of them, else
/// W[in, out] + alpha / rank · (B A) turned over.
void put_into(PlainGpt2& plain, const weights::TensorSource& adapter) {
  const std::string prefix = "base_model.model.", ending = ".lora_A.weight";
  const auto values = [&](const std::string& name) {
    std::vector<float> read(static_cast<size_t>(adapter.find(name)->num_elements()));
    adapter.read(name, std::as_writable_bytes(std::span(read)));
    return Vector(read.begin(), read.end());
  };
  for (const weights::TensorInfo& info : adapter.tensors()) {
    const std::string name = info.name.substr(prefix.size());
    if (name.find(".lora_") == std::string::npos) {
      plain.weight(name) = values(info.name);
    } else if (name.ends_with(ending)) {
      const std::string module = name.substr(0, name.size() - ending.size());
      const Vector a = values(info.name), b = values(prefix + module + ".lora_B.weight");
      const size_t in = a.size() / 2, out = b.size() / 2;
      Vector& weight = plain.weight(module + ".weight");
      for (size_t i = 0; i < in; ++i) {
        for (size_t o = 0; o < out; ++o) {
          for (size_t r = 0; r < 2; ++r) weight[i * out + o] += 3 * b[o * 2 + r] * a[r * in + i];
        }
      }
    }
  }
}

void expect_logits(const CausalLM& model, const PlainGpt2& plain, double within) {
  const at::NoGradGuard no_grad;
  const at::Tensor ours = model.logits(model.forward_hidden(packed(kTexts)));
  int64_t row = 0;
  for (const std::vector<int64_t>& text : kTexts) {
    for (const Vector& theirs : plain.logits(text)) {
      for (size_t v = 0; v < theirs.size(); ++v)
        ASSERT_NEAR(ours[row][static_cast<int64_t>(v)].item<double>(), theirs[v], within)
            << row << " " << v;
      ++row;
    }
  }
}

void expect_saved_whole(const std::vector<std::string>& whole) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path m = directory.path() / "m", a = directory.path() / "a",
                              b = directory.path() / "b";
  const Json json = with({{"tie_word_embeddings", true}});
  const auto model = model_of(json, m);
  write_peft(a, *weights::open_weights(m), "mlp.c_proj", whole);
  const auto files = weights::open_weights(a);
  PlainGpt2 plain(m, json);
  put_into(plain, *files);

  load_adapter(*model, a);
  expect_logits(*model, plain, 1e-9);
  const auto base = weights::open_checkpoint_source(m);
  const auto adapter = weights::open_adapter_source(a, base.config);
  const weights::MergedModel merged =
      weights::merge_adapters(base.model, adapter.tensors, adapter.peft, base.config, DType::kF32);
  expect_logits(*load_merged(merged, parallel::Mesh::single(), at::kDouble, at::kCPU), plain, 1e-4);

  const auto again = load_model(m, parallel::Mesh::single(), at::kFloat, at::kCPU);
  load_adapter(*again, a);
  save_adapter(*again, b, "m");
  const auto saved = weights::open_weights(b);
  EXPECT_EQ(saved->tensors().size(), files->tensors().size());
  for (const weights::TensorInfo& info : files->tensors()) {
    ASSERT_NE(saved->find(info.name), nullptr) << info.name;
    ASSERT_EQ(saved->find(info.name)->shape, info.shape) << info.name;
    std::vector<std::byte> one(info.size_bytes()), two(info.size_bytes());
    files->read(info.name, one);
    saved->read(info.name, two);
    EXPECT_EQ(one, two) << info.name;
  }
}

// No shape tells how it lies.
TEST(Gpt2Files, ASquareMatrixSavedWholeLiesAsPeftHasIt) { expect_saved_whole({"attn.c_proj"}); }

TEST(Gpt2Files, OtherMatricesSavedWholeLieAsPeftHasThem) {
  expect_saved_whole({"attn.c_attn", "mlp.c_fc"});
}

}  // namespace gpt2_test
}  // namespace danlu::models
