// Reward models against TRL and LLaMA-Factory (shared/golden/rl/reward), whatever the cut of the
// step; their heads in files.
#include "train/objectives/reward.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "base/file.h"
#include "models/adapters.h"
#include "models/weight_files.h"
#include "settings/model_source.h"
#include "support/throws.h"
#include "train/batch_input.h"
#include "train/evaluate.h"
#include "train/golden_step.h"
#include "train/lone_judge.h"
#include "train/objectives/process_reward.h"
#include "train/objectives/step_scores.h"
#include "train/rollouts/model_reward.h"
#include "weights/hf/value_head.h"

namespace danlu::train {
namespace preference_test {

std::filesystem::path rewards_dir() { return golden_dir() / "reward"; }

std::shared_ptr<const weights::TensorSource> reward_golden() {
  return weights::open_safetensors(rewards_dir() / "golden.safetensors");
}

/// A model as a run opens it that trains a reward model.
weights::CheckpointSource open_scorer(const std::filesystem::path& path,
                                      arch::ScoreForm form = arch::ScoreForm::kSequence) {
  settings::ModelSource source;
  source.path = path;
  source.score = arch::ScoreHead{.form = form, .seed = 3};
  return settings::open_model(source);
}

std::unique_ptr<models::CausalLM> scorer(const std::filesystem::path& path,
                                         arch::ScoreForm form = arch::ScoreForm::kSequence) {
  return models::load_model(open_scorer(path, form), parallel::Mesh::single(), at::kFloat,
                            at::Device(at::kCPU));
}

/// Chosen rows and then rejected ones, of which the last token is learnt, so that pairs count.
std::vector<data::Sample> reward_pairs(const weights::TensorSource& golden, bool has_margin) {
  const at::Tensor ids = read_tensor(golden, "input_ids"),
                   mask = read_tensor(golden, "attention_mask"),
                   margin = read_tensor(golden, "margin");
  const int64_t pairs = ids.size(0) / 2;
  std::vector<data::Sample> samples(static_cast<size_t>(pairs));
  for (int64_t i = 0; i < pairs; ++i) {
    data::Sample& pair = samples[static_cast<size_t>(i)];
    for (const int64_t row : {i, i + pairs}) append_row(ids[row], mask[row], mask[row], pair);
    if (has_margin) pair.segment_values = {margin[i].item<float>(), 0.0F};
  }
  return samples;
}

/// The golden's decoder under LLaMA-Factory's description, with its head beside it.
void write_with_value_head(const std::filesystem::path& directory) {
  Json config = read_json_file(rewards_dir() / "model" / "config.json");
  config["architectures"] = {"LlamaForCausalLM"};
  config.erase("id2label");
  config.erase("label2id");
  write_json_file(directory / "config.json", config);
  std::filesystem::copy_file(rewards_dir() / "value_head.safetensors",
                             directory / "value_head.safetensors");
  const auto model = weights::open_weights(rewards_dir() / "model");
  std::vector<weights::TensorInfo> decoder;
  for (const weights::TensorInfo& info : model->tensors()) {
    if (info.name != "score.weight") decoder.push_back(info);
  }
  at::Tensor now;
  weights::save_safetensors(directory, decoder, [&](size_t i) -> std::span<const std::byte> {
    now = read_tensor(*model, decoder[i].name);
    return {static_cast<const std::byte*>(now.data_ptr()), now.nbytes()};
  });
}

struct RewardVariant {
  std::string name;
  settings::RewardConfig config = {};
  bool has_margin = false;
};

TEST(RewardGolden, LossesMetricsAndGradients) {
  DANLU_REQUIRES_SHARED();
  const auto golden = reward_golden();
  const std::vector<RewardVariant> variants = {
      {"bt"}, {"bt_margin", {}, true}, {"bt_center", {.centring = 0.02}}};
  for (const RewardVariant& variant : variants) {
    SCOPED_TRACE(variant.name);
    const std::vector<data::Sample> samples = reward_pairs(*golden, variant.has_margin);
    for (const std::vector<size_t>& cut :
         std::vector<std::vector<size_t>>{{4}, {1, 3}, {1, 1, 1, 1}}) {
      const auto model = scorer(rewards_dir() / "model");
      const Found found =
          step_of(*model, *reward_objective(variant.config), in_batches(samples, cut));
      EXPECT_NEAR(found.loss, read_tensor(*golden, variant.name + ".loss").item<double>(), 2e-5);
      expect_gradients(*model, *golden, variant.name);
      EXPECT_EQ(found.metrics.at("accuracy"), 0.75);
      EXPECT_NEAR(found.metrics.at("margin"), 0.029731199145317078, 2e-5);
      EXPECT_NEAR(found.metrics.at("mean_reward"), 1.1811085939407349, 2e-5);
      if (variant.name == "bt_center" || cut.size() < samples.size()) continue;
      const at::Tensor losses = read_tensor(*golden, variant.name + ".losses");
      for (size_t i = 0; i < samples.size(); ++i) {
        EXPECT_NEAR(found.sums[i], losses[static_cast<int64_t>(i)].item<double>(), 2e-5) << i;
      }
    }
  }
}

TEST(RewardGolden, ScoresOfEveryToken) {
  DANLU_REQUIRES_SHARED();
  const auto golden = reward_golden();
  const auto model = scorer(rewards_dir() / "model");
  const data::Batch batch = data::make_batch(reward_pairs(*golden, false));
  const at::NoGradGuard no_grad;
  const models::ForwardInput input = evaluation_input(*model, batch);
  const at::Tensor scores_S = segment_scores(*model, model->forward(input), input, batch);
  const at::Tensor expected = read_tensor(*golden, "scores");
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(scores_S[2 * i].item<double>(), expected[i].item<double>(), 2e-5);
    EXPECT_NEAR(scores_S[2 * i + 1].item<double>(), expected[i + 4].item<double>(), 2e-5);
  }
}

TEST(RewardGolden, ValueHeadBesideTheDecoder) {
  DANLU_REQUIRES_SHARED();
  const auto golden = reward_golden();
  const danlu::test::TemporaryDirectory directory;
  write_with_value_head(directory.path());
  const std::vector<data::Sample> samples = reward_pairs(*golden, false);
  const auto model = scorer(directory.path());
  const Found found = step_of(*model, *reward_objective({}), in_batches(samples, {1, 3}));
  EXPECT_NEAR(found.loss, read_tensor(*golden, "value_head.loss").item<double>(), 2e-5);
  expect_gradients(*model, *golden, "value_head");
}

TEST(RewardEvaluation, DoesNotDependOnItsBatches) {
  DANLU_REQUIRES_SHARED();
  const auto golden = reward_golden();
  const auto source = std::make_shared<data::VectorSource>(reward_pairs(*golden, false));
  const auto model = scorer(rewards_dir() / "model");
  for (const int64_t size : {1, 3, 4}) {
    const Evaluation found = evaluate(*model, *reward_objective({}), source, {.batch_size = size});
    EXPECT_NEAR(found.loss, read_tensor(*golden, "bt.loss").item<double>(), 2e-5);
    EXPECT_EQ(found.metrics.at("accuracy"), 0.75);
  }
}

TEST(RewardModel, JudgesAnswersAsTheReferenceDoes) {
  DANLU_REQUIRES_SHARED();
  const auto golden = reward_golden();
  auto model = scorer(rewards_dir() / "model");
  model->freeze({"."});
  const auto judge = std::make_shared<FrozenModel>(std::move(model));
  const auto policy = models::load_model(golden_dir() / "preference" / "policy",
                                         parallel::Mesh::single(), at::kFloat, at::kCPU);
  StageLinks links(*policy);
  const auto reward = model_reward("judge", judge, *policy, links);
  const at::Tensor ids = read_tensor(*golden, "input_ids"),
                   mask = read_tensor(*golden, "attention_mask"),
                   expected = read_tensor(*golden, "scores");
  std::vector<eval::Completion> completions;
  for (int64_t row = 0; row < ids.size(0); ++row) {
    eval::Completion& answer = completions.emplace_back();
    for (int64_t t = 0; t < ids.size(1); ++t) {
      if (mask[row][t].item<int64_t>() == 0) continue;
      auto& part = t < 3 ? answer.prompt_ids : answer.ids;
      part.push_back(static_cast<int32_t>(ids[row][t].item<int64_t>()));
    }
  }
  const std::vector<eval::Score> scores = reward->scores(completions);
  ASSERT_EQ(scores.size(), completions.size());
  for (size_t i = 0; i < scores.size(); ++i)
    EXPECT_NEAR(scores[i].value(), expected[static_cast<int64_t>(i)].item<double>(), 2e-5) << i;
  EXPECT_TRUE(reward->scores({}).empty());
  // The judge was taught to look behind what the template adds to an answer that is ended.
  const std::vector<int32_t> tail = {completions[0].ids.back()};
  completions[0].ids.pop_back();
  std::vector<eval::Completion> cut = {completions[0]};
  cut[0].is_ended = false;
  const auto looks_behind = model_reward("judge", judge, *policy, links, tail);
  EXPECT_NEAR(looks_behind->scores({completions.data(), 1})[0].value(), scores[0].value(), 1e-6);
  EXPECT_GT(std::fabs(looks_behind->scores(cut)[0].value() - scores[0].value()), 1e-3);
  // What a word ended gets the token that ends answers before it.
  std::vector<eval::Completion> by_word = {completions[0]};
  by_word[0].missing_end = by_word[0].ids.back();
  by_word[0].ids.pop_back();
  EXPECT_NEAR(looks_behind->scores(by_word)[0].value(), scores[0].value(), 1e-6);
  // So does what the limit cut, where it is to be judged with an end.
  by_word[0].is_ended = false;
  EXPECT_NEAR(looks_behind->scores(by_word)[0].value(), scores[0].value(), 1e-6);
}

/// Whether both hold the same tensors, name by name.
void expect_same_tensors(const std::filesystem::path& one, const std::filesystem::path& other) {
  const auto a = weights::open_weights(one), b = weights::open_weights(other);
  ASSERT_EQ(a->tensors().size(), b->tensors().size());
  for (const weights::TensorInfo& info : a->tensors()) {
    ASSERT_TRUE(b->find(info.name)) << info.name;
    EXPECT_TRUE(at::equal(read_tensor(*a, info.name), read_tensor(*b, info.name))) << info.name;
  }
}

TEST(RewardFiles, SequenceClassifiersAreWrittenAsTheyAreRead) {
  DANLU_REQUIRES_SHARED();
  const danlu::test::TemporaryDirectory directory;
  const auto from = rewards_dir() / "model";
  models::save(*scorer(from), directory.path(), DType::kF32, from);
  expect_same_tensors(from, directory.path());
  EXPECT_EQ(read_json_file(directory / "config.json"), read_json_file(from / "config.json"));
}

TEST(RewardFiles, AHeadBesideLeavesTheDecodersFilesAsTheyAre) {
  DANLU_REQUIRES_SHARED();
  const danlu::test::TemporaryDirectory from, to;
  // A decoder with a vocabulary's head of its own, which a reward model has no use for.
  const auto policy = golden_dir() / "preference" / "policy";
  const auto model = scorer(policy, arch::ScoreForm::kBeside);
  models::save(*model, to.path(), DType::kF32, policy);
  expect_same_tensors(policy, to.path());
  EXPECT_EQ(read_json_file(to / "config.json")["architectures"],
            read_json_file(policy / "config.json")["architectures"]);
  ASSERT_TRUE(weights::has_value_head(to.path()));
  const auto again = scorer(to.path());
  const auto head = [](const models::CausalLM& of) {
    for (const parallel::Parameter& parameter : of.parameters())
      if (parameter.name() == "v_head.summary.weight") return parameter.tensor;
    return at::Tensor();
  };
  EXPECT_TRUE(at::equal(head(*model), head(*again)));
  EXPECT_FALSE(again->config().score->seed);
}

TEST(RewardFiles, ANewHeadIsAFunctionOfTheSeedAndSavesAsAClassifier) {
  DANLU_REQUIRES_SHARED();
  const danlu::test::TemporaryDirectory directory;
  const auto policy = golden_dir() / "preference" / "policy";
  const auto model = scorer(policy), twin = scorer(policy);
  const auto head = [](const models::CausalLM& of) { return of.parameters().back(); };
  EXPECT_EQ(head(*model).name(), "score.weight");
  EXPECT_TRUE(at::equal(head(*model).tensor, head(*twin).tensor));
  EXPECT_GT(head(*model).tensor.abs().max().item<double>(), 0);
  models::save(*model, directory.path(), DType::kF32, policy);
  const Json config = read_json_file(directory / "config.json");
  EXPECT_EQ(config["architectures"], Json::array({"LlamaForSequenceClassification"}));
  EXPECT_EQ(config["id2label"], (Json{{"0", "LABEL_0"}}));
  EXPECT_EQ(config["pad_token_id"], 0);
  EXPECT_TRUE(at::equal(head(*scorer(directory.path())).tensor, head(*model).tensor));
}

TEST(RewardFiles, AdaptersCarryTheHead) {
  DANLU_REQUIRES_SHARED();
  const auto policy = golden_dir() / "preference" / "policy";
  for (const arch::ScoreForm form : {arch::ScoreForm::kSequence, arch::ScoreForm::kBeside}) {
    const danlu::test::TemporaryDirectory directory;
    const auto model = scorer(policy, form);
    weights::PeftConfig lora = settings::new_adapters();
    lora.modules_to_save = {model->config().score->module()};
    models::add_lora(*model, lora, 5);
    const at::NoGradGuard no_grad;
    for (const parallel::Parameter& parameter : model->adapter_parameters())
      at::Tensor(parameter.tensor).add_(0.25);
    models::save_adapter(*model, directory.path(), policy.string());
    EXPECT_EQ(weights::has_value_head(directory.path()), form == arch::ScoreForm::kBeside);
    const auto again = scorer(policy, form);
    models::load_adapter(*again, directory.path());
    const auto saved = model->adapter_parameters(), read = again->adapter_parameters();
    ASSERT_EQ(read.size(), saved.size());
    for (size_t i = 0; i < read.size(); ++i)
      EXPECT_TRUE(at::equal(read[i].tensor, saved[i].tensor)) << read[i].name();
  }
}

TEST(RewardFiles, AdaptersWithoutAHeadAreRefused) {
  DANLU_REQUIRES_SHARED();
  const auto policy = golden_dir() / "preference" / "policy";
  const danlu::test::TemporaryDirectory directory;
  const auto usual = models::load_model(policy, parallel::Mesh::single(), at::kFloat, at::kCPU);
  models::add_lora(*usual, settings::new_adapters(), 5);
  models::save_adapter(*usual, directory.path(), policy.string());
  const auto model = scorer(policy);
  EXPECT_THROW(models::load_adapter(*model, directory.path()), ModelError);
}

TEST(RewardFiles, ClassifiersOfSeveralLabelsAreNoRewardModels) {
  DANLU_REQUIRES_SHARED();
  const danlu::test::TemporaryDirectory directory;
  Json config = read_json_file(rewards_dir() / "model" / "config.json");
  config["id2label"]["1"] = "LABEL_1";
  write_json_file(directory / "config.json", config);
  std::filesystem::copy_file(rewards_dir() / "model" / "model.safetensors",
                             directory / "model.safetensors");
  EXPECT_THROW(open_scorer(directory.path()), ModelError);
  // And nobody who has not asked for one is given a reward model.
  EXPECT_THROW(
      models::load_model(rewards_dir() / "model", parallel::Mesh::single(), at::kFloat, at::kCPU),
      ModelError);
}

weights::CheckpointSource open_judge_of_steps(const std::filesystem::path& path) {
  settings::ModelSource source;
  source.path = path;
  source.score = arch::ScoreHead{.form = arch::ScoreForm::kTokens, .labels = 2, .seed = 3};
  return settings::open_model(source);
}

std::unique_ptr<models::CausalLM> judge_of_steps(const std::filesystem::path& path) {
  return models::load_model(open_judge_of_steps(path), parallel::Mesh::single(), at::kFloat,
                            at::Device(at::kCPU));
}

std::filesystem::path steps_dir() { return golden_dir() / "prm"; }

/// Rows whose steps are labelled with 208, right, or 11.
std::vector<data::Sample> rows_of_steps(const weights::TensorSource& golden) {
  const at::Tensor ids = read_tensor(golden, "input_ids"),
                   mask = read_tensor(golden, "attention_mask"),
                   labels = read_tensor(golden, "token_cls.labels");
  std::vector<data::Sample> samples(static_cast<size_t>(ids.size(0)));
  for (int64_t row = 0; row < ids.size(0); ++row) {
    data::Sample& sample = samples[static_cast<size_t>(row)];
    sample.labels_are_targets = true;
    for (int64_t t = 0; t < ids.size(1); ++t) {
      if (mask[row][t].item<int64_t>() == 0) continue;
      const int64_t label = labels[row][t].item<int64_t>();
      sample.ids.push_back(static_cast<int32_t>(ids[row][t].item<int64_t>()));
      sample.labels.push_back(label == 1 ? 208 : label == 0 ? 11 : -100);
    }
  }
  return samples;
}

TEST(StepClassesGolden, LossAndGradients) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(steps_dir() / "golden.safetensors");
  const std::vector<data::Sample> samples = rows_of_steps(*golden);
  const auto objective = step_class_objective(208, 11);
  for (const std::vector<size_t>& cut : std::vector<std::vector<size_t>>{{2}, {1, 1}}) {
    const auto model = judge_of_steps(steps_dir() / "token_model");
    const Found found = step_of(*model, *objective, in_batches(samples, cut));
    EXPECT_NEAR(found.loss, read_tensor(*golden, "token_cls.loss").item<double>(), 2e-5);
    expect_gradients(*model, *golden, "token_cls");
  }
  const auto model = judge_of_steps(steps_dir() / "token_model");
  EXPECT_THROW(step_of(*model, *step_class_objective(208, 12), in_batches(samples, {2})),
               DataError);
}

/// Where the steps of rows end, and what TRL's two logits or MindSpeed-LLM's losses make of them.
TEST(StepScores, AreTheReferencesProbabilities) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(steps_dir() / "golden.safetensors");
  const at::Tensor logits = read_tensor(*golden, "token_cls.logits"),
                   mask = read_tensor(*golden, "attention_mask"),
                   losses = read_tensor(*golden, "reward_tokens.losses");
  std::vector<JudgedText> texts;
  std::vector<std::vector<double>> of_classes, of_tokens;
  int64_t step = 0, row = 0;
  for (const data::Sample& sample : rows_of_steps(*golden)) {
    JudgedText& text = texts.emplace_back();
    text.ids = sample.ids;
    const int64_t padding = mask.size(1) - std::ssize(sample.ids);
    const int64_t begin = mask[row][0].item<int64_t>() == 0 ? padding : 0;
    of_classes.emplace_back();
    of_tokens.emplace_back();
    for (size_t t = 0; t < sample.ids.size(); ++t) {
      if (sample.labels[t] == -100) continue;
      text.places.push_back(t);
      const at::Tensor two = logits[row][begin + static_cast<int64_t>(t)];
      const double lead = two[1].item<double>() - two[0].item<double>();
      of_classes.back().push_back(1 / (1 + std::exp(-lead)));
      const double deserved = std::exp(-losses[step++].item<double>());
      of_tokens.back().push_back(sample.labels[t] == 208 ? deserved : 1 - deserved);
    }
    ++row;
  }
  ASSERT_EQ(step, losses.size(0));
  const auto expect = [&](const FrozenModel& judge, const std::vector<int64_t>& ids,
                          const std::vector<std::vector<double>>& expected) {
    for (const size_t together : {size_t{1}, texts.size()}) {
      for (size_t begin = 0; begin < texts.size(); begin += together) {
        const auto found = step_scores(judge, std::span(texts).subspan(begin, together), ids);
        for (size_t i = 0; i < found.size(); ++i) {
          ASSERT_EQ(found[i].size(), expected[begin + i].size());
          for (size_t s = 0; s < found[i].size(); ++s)
            EXPECT_NEAR(found[i][s], expected[begin + i][s], 1e-5);
        }
      }
    }
  };
  expect(*lone_judge(open_judge_of_steps(steps_dir() / "token_model"), {}, at::kFloat, at::kCPU),
         {}, of_classes);
  settings::ModelSource source;
  source.path = golden_dir() / "preference" / "policy";
  expect(*lone_judge(settings::open_model(source), {}, at::kFloat, at::kCPU), {208, 11}, of_tokens);
}

TEST(StepClassesGolden, BothNumbersOfEveryToken) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(steps_dir() / "golden.safetensors");
  const at::Tensor logits = read_tensor(*golden, "token_cls.logits"),
                   mask = read_tensor(*golden, "attention_mask");
  const auto model = judge_of_steps(steps_dir() / "token_model");
  const std::vector<data::Sample> samples = rows_of_steps(*golden);
  for (size_t row = 0; row < samples.size(); ++row) {
    const at::NoGradGuard no_grad;
    const data::Batch batch = data::make_batch({samples[row]});
    const models::ForwardInput input = evaluation_input(*model, batch);
    std::vector<int64_t> rows;
    for (size_t i = 0; i < batch.ids.size(); ++i) rows.push_back(static_cast<int64_t>(i));
    const at::Tensor found =
        model->scores(model->forward(input), input, at::tensor(rows, at::TensorOptions(at::kLong)));
    int64_t token = 0;
    for (int64_t t = 0; t < mask.size(1); ++t) {
      if (mask[static_cast<int64_t>(row)][t].item<int64_t>() == 0) continue;
      for (int64_t label = 0; label < 2; ++label)
        EXPECT_NEAR(found[token][label].item<double>(),
                    logits[static_cast<int64_t>(row)][t][label].item<double>(), 2e-5);
      ++token;
    }
  }
}

TEST(StepFiles, AHeadOfTwoClassesIsWrittenAndReadAgain) {
  DANLU_REQUIRES_SHARED();
  const danlu::test::TemporaryDirectory directory;
  const auto model = judge_of_steps(golden_dir() / "preference" / "policy");
  models::save(*model, directory.path(), DType::kF32, golden_dir() / "preference" / "policy");
  const Json config = read_json_file(directory / "config.json");
  EXPECT_TRUE(config["architectures"][0].get<std::string>().ends_with("ForTokenClassification"));
  EXPECT_EQ(config["id2label"].size(), 2u);
  const auto again = judge_of_steps(directory.path());
  for (const parallel::Parameter& parameter : model->parameters()) {
    bool is_found = false;
    for (const parallel::Parameter& other : again->parameters()) {
      if (other.name() != parameter.name()) continue;
      is_found = true;
      EXPECT_TRUE(at::equal(other.tensor, parameter.tensor)) << parameter.name();
    }
    EXPECT_TRUE(is_found) << parameter.name();
  }
  // One judges steps, the other texts.
  EXPECT_THROW(open_scorer(directory.path()), ModelError);
  EXPECT_THROW(open_judge_of_steps(rewards_dir() / "model"), ModelError);
}

}  // namespace preference_test
}  // namespace danlu::train
