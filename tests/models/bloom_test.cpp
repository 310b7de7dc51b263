// BLOOM against a plain model in double precision: one token, one head, one number at a time, with
// the formulas of transformers' modeling_bloom.py.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "models/weight_files.h"
#include "support/tiny_model.h"

namespace danlu::models {
namespace bloom_test {

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;

Json bloom_config(bool tied, int64_t heads) {
  Json json = test::tiny_config("bloom");
  json.update({{"n_head", heads}, {"n_embed", 8 * heads}, {"tie_word_embeddings", tied}});
  for (const char* other : {"num_attention_heads", "hidden_size"}) json.erase(other);
  return json;
}

std::unique_ptr<CausalLM> model_of(const Json& json, const std::filesystem::path& directory) {
  test::write_tiny_model(directory, json, /*seed=*/7);
  return load_model(directory, parallel::Mesh::single(), at::kDouble, at::kCPU);
}

class PlainBloom {
 public:
  PlainBloom(const CausalLM& model, int64_t heads)
      : heads_(heads), layers_(model.config().num_layers), is_tied_(model.config().tie_embeddings) {
    for (const Parameter& parameter : model.parameters()) {
      const at::Tensor flat = parameter.tensor.detach().contiguous();
      weights_[parameter.name()] = {flat.data_ptr<double>(),
                                    flat.data_ptr<double>() + flat.numel()};
    }
  }

  Vector& weight(const std::string& name) { return weights_.at(name); }

  Rows logits(const std::vector<int64_t>& ids) const {
    const std::string top = "transformer.";
    const Vector& table = weights_.at(top + "word_embeddings.weight");
    const size_t hidden = weights_.at(top + "ln_f.weight").size();
    Rows states;
    for (const int64_t id : ids) {
      const auto begin = table.begin() + id * static_cast<int64_t>(hidden);
      states.push_back(
          normed({begin, begin + static_cast<int64_t>(hidden)}, top + "word_embeddings_layernorm"));
    }
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const std::string name = top + "h." + std::to_string(layer) + ".";
      const Rows seen = attention(states, name);
      for (size_t t = 0; t < states.size(); ++t) {
        add(states[t], seen[t]);
        Vector wide = product(normed(states[t], name + "post_attention_layernorm"),
                              name + "mlp.dense_h_to_4h");
        for (double& x : wide) x = gelu(x);
        add(states[t], product(wide, name + "mlp.dense_4h_to_h"));
      }
    }
    Rows all;
    for (const Vector& state : states) {
      const Vector last = normed(state, top + "ln_f");
      const Vector& head = is_tied_ ? table : weights_.at("lm_head.weight");
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
  static double gelu(double x) {
    return x * 0.5 * (1 + std::tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x)));
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
  Vector product(const Vector& x, const std::string& name) const {
    const Vector& matrix = weights_.at(name + ".weight");
    Vector y = weights_.at(name + ".bias");
    for (size_t row = 0; row < y.size(); ++row) {
      for (size_t i = 0; i < x.size(); ++i) y[row] += matrix[row * x.size() + i] * x[i];
    }
    return y;
  }
  /// The slope of a head, counted from 0: powers of 2^(-8/n) for the largest power of two n among
  /// the heads, then every other power of the slopes of 2 n.
  double slope(int64_t head) const {
    int64_t closest = 1;
    while (closest * 2 <= heads_) closest *= 2;
    const auto real = static_cast<double>(closest);
    if (head < closest) return std::pow(2.0, -8.0 / real * static_cast<double>(head + 1));
    return std::pow(2.0, -4.0 / real * static_cast<double>(2 * (head - closest) + 1));
  }
  /// query_key_value is, head by head, its query, its key, its value.
  Rows attention(const Rows& states, const std::string& name) const {
    Rows made, result;
    for (const Vector& state : states)
      made.push_back(product(normed(state, name + "input_layernorm"),
                             name + "self_attention.query_key_value"));
    const size_t size = states[0].size() / static_cast<size_t>(heads_);
    for (size_t t = 0; t < states.size(); ++t) {
      Vector seen(states[0].size(), 0.0);
      for (size_t head = 0; head < static_cast<size_t>(heads_); ++head) {
        Vector scores;
        double of_all = 0;
        for (size_t key = 0; key <= t; ++key) {
          double score = slope(static_cast<int64_t>(head)) * static_cast<double>(key);
          for (size_t d = 0; d < size; ++d) {
            score += made[t][3 * size * head + d] * made[key][3 * size * head + size + d] /
                     std::sqrt(static_cast<double>(size));
          }
          scores.push_back(std::exp(score));
          of_all += scores.back();
        }
        for (size_t key = 0; key <= t; ++key) {
          for (size_t d = 0; d < size; ++d)
            seen[size * head + d] +=
                scores[key] / of_all * made[key][3 * size * head + 2 * size + d];
        }
      }
      result.push_back(product(seen, name + "self_attention.dense"));
    }
    return result;
  }

  int64_t heads_, layers_;
  bool is_tied_;
  std::map<std::string, Vector> weights_;
};

ForwardInput one_row(const std::vector<int64_t>& ids) {
  const auto count = static_cast<int64_t>(ids.size());
  ForwardInput input;
  input.ids_N = at::tensor(ids, at::TensorOptions(at::kLong));
  input.positions_N = at::arange(count);
  input.segments = {{0, count}, {0, count}};
  return input;
}

const std::vector<int64_t> kIds = {5, 9, 2, 7, 31, 40, 3, 3, 90, 8, 1};

/// Heads: a power of two, and one whose slopes are of two kinds.
class Bloom : public testing::TestWithParam<std::pair<bool, int64_t>> {
 protected:
  test::TemporaryDirectory directory_;
  std::unique_ptr<CausalLM> model_ =
      model_of(bloom_config(GetParam().first, GetParam().second), directory_.path());
  PlainBloom plain_{*model_, GetParam().second};
};

TEST_P(Bloom, LogitsAreThoseOfAPlainModel) {
  const at::NoGradGuard no_grad;
  const at::Tensor ours = model_->logits(model_->forward_hidden(one_row(kIds)));
  const Rows theirs = plain_.logits(kIds);
  double largest = 0, apart = 0;
  for (size_t t = 0; t < kIds.size(); ++t) {
    for (size_t v = 0; v < theirs[t].size(); ++v) {
      const double own = ours[static_cast<int64_t>(t)][static_cast<int64_t>(v)].item<double>();
      largest = std::max(largest, std::abs(theirs[t][v]));
      apart = std::max(apart, std::abs(own - theirs[t][v]));
    }
  }
  EXPECT_LT(apart, 1e-9 * largest);
}

TEST_P(Bloom, GradientsAreThePlainModelsDifferences) {
  std::vector<at::Tensor> leaves;
  for (const Parameter& parameter : model_->parameters()) leaves.push_back(parameter.tensor);
  std::vector<int64_t> next(kIds.begin() + 1, kIds.end());
  next.push_back(-100);
  const LossSum loss =
      model_->loss(one_row(kIds), at::tensor(next, at::TensorOptions(at::kLong)), 1.0);
  EXPECT_NEAR(loss.sum.item<double>(), plain_.loss(kIds), 1e-9);
  const auto gradients = torch::autograd::grad({loss.sum}, leaves);
  constexpr double kStep = 1e-4;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const std::string name = model_->parameters()[i].name();
    Vector& weight = plain_.weight(name);
    for (const size_t at : {size_t{0}, weight.size() / 3, weight.size() / 2, weight.size() - 1}) {
      const double before = weight[at];
      weight[at] = before + kStep;
      const double above = plain_.loss(kIds);
      weight[at] = before - kStep;
      const double below = plain_.loss(kIds);
      weight[at] = before;
      const double ours =
          gradients[i].contiguous().view({-1})[static_cast<int64_t>(at)].item<double>();
      EXPECT_NEAR(ours, (above - below) / (2 * kStep), 1e-6) << name << " " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Bloom, testing::Values(std::pair(false, 4), std::pair(true, 4), std::pair(true, 6)),
    [](const auto& info) {
      return std::to_string(info.param.second) + "_heads" + (info.param.first ? "_tied" : "");
    });

// The hub's files were saved from the model without its head: "h.0.…", "word_embeddings.weight".
TEST(BloomFiles, NamesOfTheModelWithoutItsHeadAreTaken) {
  const test::TemporaryDirectory whole, bare;
  const Json json = bloom_config(/*tied=*/true, 4);
  const auto model = model_of(json, whole.path());
  const auto source = weights::open_weights(whole.path());
  std::vector<weights::TensorInfo> infos;
  for (const weights::TensorInfo& info : source->tensors()) {
    infos.push_back(info);
    infos.back().name = info.name.substr(std::string("transformer.").size());
  }
  std::vector<std::byte> bytes;
  write_json_file(bare.path() / "config.json", json);
  weights::save_safetensors(bare.path(), infos,
                            [&](size_t index) -> std::span<const std::byte> {
                              bytes.resize(infos[index].size_bytes());
                              source->read("transformer." + infos[index].name, bytes);
                              return bytes;
                            },
                            {});
  const auto again = load_model(bare.path(), parallel::Mesh::single(), at::kDouble, at::kCPU);
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_EQ(again->parameters()[i].name(), model->parameters()[i].name());
    EXPECT_TRUE(again->parameters()[i].tensor.equal(model->parameters()[i].tensor));
  }
}

}  // namespace bloom_test
}  // namespace danlu::models
