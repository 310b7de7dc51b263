// Encoders against PyTorch (goldens/{bert,xlm_roberta}.safetensors, make_bert_golden.py), and the
// names of their files.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/token_type.h"
#include "models/adapters.h"
#include "models/read_head.h"
#include "models/weight_files.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/convert/checkpoint_source.h"

namespace danlu::models {
namespace encoder_test {

using testing::HasSubstr;

template <typename Number>
std::vector<Number> numbers_in(const weights::TensorSource& source, const std::string& name) {
  std::vector<Number> values(static_cast<size_t>(source.find(name)->num_elements()));
  source.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

void expect_near(const at::Tensor& ours, const std::vector<double>& theirs,
                 const std::string& name) {
  ASSERT_EQ(ours.numel(), static_cast<int64_t>(theirs.size())) << name;
  const at::Tensor flat = ours.to(at::kDouble).contiguous().view({-1});
  for (size_t i = 0; i < theirs.size(); ++i)
    ASSERT_NEAR(flat[static_cast<int64_t>(i)].item<double>(), theirs[i], 1e-9) << name << " " << i;
}

struct Kind {
  const char *type, *golden, *architecture, *body;
};

class Encoder : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    golden_ = weights::open_weights(std::filesystem::path(DANLU_SOURCE_DIR) /
                                    "tests/models/goldens" / GetParam().golden);
    write(directory_.path(), [](const std::string& name) { return name; });
  }
  bool is_bert() const { return std::string(GetParam().type) == "bert"; }
  Json config() const {
    Json json = {{"model_type", GetParam().type},
                 {"architectures", {GetParam().architecture}},
                 {"vocab_size", 13},
                 {"hidden_size", 8},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 2},
                 {"intermediate_size", 12},
                 {"max_position_embeddings", 11},
                 {"type_vocab_size", is_bert() ? 2 : 1},
                 {"hidden_act", "gelu"},
                 {"id2label", {{"0", "a"}, {"1", "b"}, {"2", "c"}}}};
    // Files may leave out what is usual.
    if (!is_bert()) json["layer_norm_eps"] = 1e-5;
    json["pad_token_id"] = is_bert() ? 0 : 1;
    return json;
  }
  /// The golden's weights under other names; a name that `named` makes empty is left out.
  void write(const std::filesystem::path& to,
             const std::function<std::string(const std::string&)>& named) const {
    const std::string weight = "weight/";
    std::vector<weights::TensorInfo> infos;
    std::vector<std::string> from;
    for (const weights::TensorInfo& info : golden_->tensors()) {
      if (!info.name.starts_with(weight)) continue;
      const std::string name = named(info.name.substr(weight.size()));
      if (name.empty()) continue;
      infos.push_back({name, info.dtype, info.shape});
      from.push_back(info.name);
    }
    std::vector<std::byte> bytes;
    std::filesystem::create_directories(to);
    weights::save_safetensors(to, infos,
                              [&](size_t index) -> std::span<const std::byte> {
                                bytes.resize(infos[index].size_bytes());
                                golden_->read(from[index], bytes);
                                return bytes;
                              },
                              {});
    write_json_file(to / "config.json", config());
  }
  static std::unique_ptr<CausalLM> opened(const std::filesystem::path& path) {
    return load_model(weights::open_checkpoint_source(path, {.all_tensors = true, .scores = true}),
                      parallel::Mesh::single(), at::kDouble, at::kCPU);
  }
  ForwardInput input() const {
    std::vector<int64_t> ids = numbers_in<int64_t>(*golden_, "ids"), positions;
    const std::vector<int64_t> types = numbers_in<int64_t>(*golden_, "types");
    for (size_t i = 0; i < ids.size(); ++i) ids[i] += types[i] > 0 ? kSecondText : 0;
    ops::Segments segments{{0}, {0}};
    for (const int64_t length : numbers_in<int64_t>(*golden_, "lengths")) {
      for (int64_t t = 0; t < length; ++t) positions.push_back(t);
      segments.q_starts.push_back(std::ssize(positions));
    }
    segments.k_starts = segments.q_starts;
    ForwardInput input;
    input.ids_N = at::tensor(ids, at::TensorOptions(at::kLong));
    input.positions_N = at::tensor(positions, at::TensorOptions(at::kLong));
    input.segments = segments;
    return input;
  }
  static at::Tensor first_rows(const ForwardInput& input) {
    std::vector<int64_t> rows(input.segments.q_starts.begin(), input.segments.q_starts.end() - 1);
    return at::tensor(rows, at::TensorOptions(at::kLong));
  }

  test::TemporaryDirectory directory_;
  std::shared_ptr<const weights::TensorSource> golden_;
};

TEST_P(Encoder, HiddenStatesNumbersAndGradientsArePyTorchs) {
  const auto model = opened(directory_.path());
  const ForwardInput given = input();
  {
    const at::NoGradGuard no_grad;
    const at::Tensor hidden_NH = model->forward_hidden(given);
    expect_near(hidden_NH, numbers_in<double>(*golden_, "hidden"), "hidden");
    const ReadHead head = read_head(*model, {});
    const at::Tensor first_H = hidden_NH[0].to(at::kFloat).contiguous();
    const std::vector<double> read =
        numbers_of(head, {first_H.data_ptr<float>(), first_H.data_ptr<float>() + 8});
    const std::vector<double> theirs = numbers_in<double>(*golden_, "numbers");
    for (size_t label = 0; label < 3; ++label) EXPECT_NEAR(read[label], theirs[label], 1e-5);
  }
  std::vector<at::Tensor> leaves;
  for (const Parameter& parameter : model->parameters()) leaves.push_back(parameter.tensor);
  const at::Tensor numbers_SL = model->scores(model->forward(given), given, first_rows(given));
  expect_near(numbers_SL, numbers_in<double>(*golden_, "numbers"), "numbers");
  const at::Tensor factors_SL = at::arange(1, 10, at::TensorOptions(at::kDouble)).view({3, 3});
  const auto gradients = torch::autograd::grad({(numbers_SL * factors_SL).sum()}, leaves);
  size_t found = 0;
  for (const weights::TensorInfo& info : golden_->tensors())
    found += info.name.starts_with("grad/");
  ASSERT_EQ(leaves.size(), found);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const std::string name = model->parameters()[i].name();
    expect_near(gradients[i], numbers_in<double>(*golden_, "grad/" + name), name);
  }
}

TEST_P(Encoder, FilesOfTheBodyAndOldNamesAreTheSameModel) {
  const std::filesystem::path other = directory_ / "other", again = directory_ / "again";
  const std::string body = GetParam().body;
  write(other, [&](std::string name) {
    if (name.starts_with(body)) name = name.substr(body.size());
    for (const auto& [now, old] : {std::pair(".LayerNorm.weight", ".LayerNorm.gamma"),
                                   std::pair(".LayerNorm.bias", ".LayerNorm.beta")}) {
      if (name.ends_with(now)) name = name.substr(0, name.size() - std::string(now).size()) + old;
    }
    return name;
  });
  const auto model = opened(directory_.path()), same = opened(other);
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(model->forward_hidden(input()).equal(same->forward_hidden(input())));
  save(*same, again, DType::kF32, other);
  const auto saved = weights::open_weights(again),
             before = weights::open_weights(directory_.path());
  ASSERT_EQ(saved->tensors().size(), before->tensors().size());
  for (const weights::TensorInfo& info : before->tensors()) {
    ASSERT_NE(saved->find(info.name), nullptr) << info.name;
    EXPECT_EQ(numbers_in<float>(*saved, info.name), numbers_in<float>(*before, info.name));
  }
  EXPECT_EQ(read_json_file(again / "config.json")["architectures"][0], GetParam().architecture);
}

TEST_P(Encoder, PositionsEndWhereTheTableDoes) {
  const auto model = opened(directory_.path());
  const at::NoGradGuard no_grad;
  ForwardInput given = input();
  EXPECT_EQ(model->config().max_positions, is_bert() ? 11 : 9);
  given.positions_N = given.positions_N + (is_bert() ? 5 : 3);
  EXPECT_THAT(test::error_of<ModelError>([&] { model->forward_hidden(given); }),
              HasSubstr(is_bert() ? "a token at position 11, but the model has embeddings of 11"
                                  : "a token at position 9, but the model has embeddings of 9"));
}

TEST_P(Encoder, AdaptersStandOnAllLinearLayersOfTheBody) {
  const auto model = opened(directory_.path());
  weights::PeftConfig peft;
  weights::set_targets(peft, {"all-linear"});
  peft.task_type = "SEQ_CLS";
  peft.modules_to_save = {model->config().encoder->dense, model->config().encoder->score};
  add_lora(*model, peft, /*seed=*/1);
  EXPECT_EQ(model->adapter_parameters().size(), 2u * 2 * 6 + 4);
  const at::NoGradGuard no_grad;
  for (const Parameter& parameter : model->adapter_parameters()) parameter.tensor.add_(0.1);
  save_adapter(*model, directory_ / "adapter", "m");
  const Json saved = read_json_file(directory_ / "adapter" / "adapter_config.json");
  EXPECT_THAT(
      saved["target_modules"].get<std::vector<std::string>>(),
      testing::UnorderedElementsAre("query", "key", "value", "output.dense", "intermediate.dense"));
  // As PEFT names it, which adds what other classes have.
  Json whole = {"classifier"};
  if (is_bert()) whole = {"bert.pooler.dense", "classifier"};
  EXPECT_EQ(saved["modules_to_save"], whole);
  Json theirs = saved;
  theirs["modules_to_save"].push_back("score");
  write_json_file(directory_ / "adapter" / "adapter_config.json", theirs);
  const auto again = opened(directory_.path());
  load_adapter(*again, directory_ / "adapter");
  const at::Tensor rows = first_rows(input());
  EXPECT_TRUE(at::allclose(model->scores(model->forward_hidden(input()), input(), rows),
                           again->scores(again->forward_hidden(input()), input(), rows), 1e-6,
                           1e-6));
}

INSTANTIATE_TEST_SUITE_P(Models, Encoder,
                         testing::Values(Kind{"bert", "bert.safetensors",
                                              "BertForSequenceClassification", "bert."},
                                         Kind{"xlm-roberta", "xlm_roberta.safetensors",
                                              "XLMRobertaForSequenceClassification", "roberta."},
                                         Kind{"roberta", "xlm_roberta.safetensors",
                                              "RobertaForSequenceClassification", "roberta."}),
                         [](const auto& info) {
                           std::string name = info.param.type;
                           std::erase(name, '-');
                           return name;
                         });

TEST(EncoderConfig, WhatItsLayersCannotDoIsRefused) {
  const Json good = {
      {"model_type", "bert"},        {"vocab_size", 13},         {"hidden_size", 8},
      {"num_hidden_layers", 1},      {"num_attention_heads", 2}, {"intermediate_size", 12},
      {"max_position_embeddings", 9}};
  for (const auto& [key, value, said] :
       {std::tuple("is_decoder", Json(true), "is_decoder must be false"),
        std::tuple("position_embedding_type", Json("relative_key"), "must be absolute"),
        std::tuple("hidden_act", Json("relu"), "hidden_act must be")}) {
    Json other = good;
    other[key] = value;
    EXPECT_THAT(test::error_of<ModelError>([&] { arch::parse_model_config(other, "here"); }),
                HasSubstr(said));
  }
  const arch::ModelConfig config = arch::parse_model_config(good, "here");
  EXPECT_DOUBLE_EQ(config.norm_eps, 1e-12);
  EXPECT_THAT(test::error_of<ModelError>([&] { arch::require_answers(config); }),
              HasSubstr("an encoder gives vectors"));
  EXPECT_THAT(test::error_of<ModelError>(
                  [&] { arch::with_score(config, {.form = arch::ScoreForm::kTokens}); }),
              HasSubstr("says something of a text"));
}

TEST(EncoderConfig, PoolingIsThatOfSentenceTransformersFile) {
  const test::TemporaryDirectory directory;
  const auto pooling = [&](const Json& json) {
    write_json_file(directory / "1_Pooling" / "config.json", json);
    return arch::pooling_in(directory.path());
  };
  EXPECT_EQ(arch::pooling_in(directory.path()), arch::Pooling::kFirst);
  std::filesystem::create_directories(directory / "1_Pooling");
  EXPECT_EQ(pooling({{"pooling_mode_cls_token", true}}), arch::Pooling::kFirst);
  EXPECT_EQ(pooling({{"pooling_mode_cls_token", false}, {"pooling_mode_mean_tokens", true}}),
            arch::Pooling::kMean);
  EXPECT_EQ(pooling({{"pooling_mode_lasttoken", true}}), arch::Pooling::kLast);
  EXPECT_THAT(test::error_of<ModelError>([&] { pooling({{"pooling_mode_max_tokens", true}}); }),
              HasSubstr("must be one of"));
  EXPECT_THAT(test::error_of<ModelError>([&] {
                pooling({{"pooling_mode_cls_token", true}, {"pooling_mode_mean_tokens", true}});
              }),
              HasSubstr("must be one of"));
}

}  // namespace encoder_test
}  // namespace danlu::models
