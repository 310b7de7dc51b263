// Losses, gradients and curves of preference training against TRL, LLaMA-Factory and MindSpeed-LLM
// (shared/golden/rl/preference, kto), whatever the cut of the step.
#include "train/objectives/preference.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "models/weight_files.h"
#include "train/batch_input.h"
#include "train/evaluate.h"
#include "train/golden_step.h"
#include "train/objectives/process_reward.h"
#include "train/objectives/unpaired.h"
#include "train/support.h"

namespace danlu::train {
namespace preference_test {

using settings::LikelihoodTerm, settings::PairLoss, settings::PreferenceConfig,
    settings::UnpairedConfig;
using test::read_tensor;

std::unique_ptr<models::CausalLM> model_of(const char* name) {
  return models::load_model(golden_dir() / "preference" / name, parallel::Mesh::single(),
                            at::kFloat, at::Device(at::kCPU));
}

std::shared_ptr<const FrozenModel> frozen(const char* name) {
  auto model = model_of(name);
  model->freeze({"."});
  return std::make_shared<FrozenModel>(std::move(model));
}

std::vector<data::Sample> golden_pairs(const weights::TensorSource& golden) {
  const at::Tensor ids = read_tensor(golden, "input_ids"),
                   mask = read_tensor(golden, "attention_mask"),
                   learnt = read_tensor(golden, "completion_mask");
  std::vector<data::Sample> samples(static_cast<size_t>(ids.size(0) / 2));
  for (size_t i = 0; i < samples.size(); ++i) {
    for (const size_t row : {i, i + samples.size()}) {
      const auto r = static_cast<int64_t>(row);
      append_row(ids[r], mask[r], learnt[r], samples[i]);
    }
  }
  return samples;
}

std::vector<data::Sample> golden_answers(const weights::TensorSource& golden,
                                         const std::vector<bool>& liked) {
  std::vector<data::Sample> samples(liked.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    for (const std::string prefix : {"", "KL_"}) {
      append_row(read_tensor(golden, prefix + "input_ids")[row],
                 read_tensor(golden, prefix + "attention_mask")[row],
                 read_tensor(golden, prefix + "completion_mask")[row], samples[i]);
    }
    samples[i].segment_values = {liked[i] ? 1.0F : 0.0F, 0.0F};
  }
  return samples;
}

struct Variant {
  std::string name;
  PreferenceConfig config;
  std::map<std::string, double> metrics = {};
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

PreferenceConfig dpo(double beta) { return {.beta = beta}; }

std::vector<Variant> variants() {
  const std::map<std::string, double> of_dpo = {
      {"rewards/chosen", 0.66712999}, {"rewards/rejected", -0.20250678},
      {"rewards/accuracies", 0.75},   {"rewards/margins", 0.86963677},
      {"logps/chosen", -41.9669037},  {"logps/rejected", -49.9693680}};
  std::vector<Variant> list = {{"dpo_sigmoid", dpo(0.25), of_dpo},
                               {"dpo_hinge", dpo(0.7)},
                               {"dpo_ipo", dpo(0.6), {{"rewards/margins", 2.0871284}}},
                               {"dpo_robust", dpo(0.25), of_dpo},
                               {"dpo_cdpo", dpo(0.25)},
                               {"dpo_ftx", dpo(0.25)},
                               {"dpo_rpo", dpo(0.25)}};
  list[1].config.loss = PairLoss::kHinge;
  list[2].config.loss = PairLoss::kSquare;
  list[2].config.averages = true;
  list[3].config.label_smoothing = list[4].config.label_smoothing = 0.1;
  list[3].config.robust = true;
  list[5].config.likelihood = LikelihoodTerm::kAnswerMeans;
  list[6].config.likelihood = LikelihoodTerm::kAnswerTokens;
  list[5].config.likelihood_weight = list[6].config.likelihood_weight = 0.5;
  const PreferenceConfig simpo{.has_reference = false, .averages = true, .beta = 2.3, .gamma = 0.9};
  list.push_back({"simpo",
                  simpo,
                  {{"rewards/chosen", -13.426058},
                   {"rewards/margins", 1.0715},
                   {"logps/chosen", -5.8374171}}});
  list.push_back({"simpo_nll", simpo, {{"nll_loss", 5.788538}}});
  list.back().config.likelihood = LikelihoodTerm::kAnswerTokens;
  list.back().config.likelihood_weight = 1;
  PreferenceConfig cpo = list.back().config;
  cpo.averages = false;
  cpo.gamma = 0;
  cpo.beta = 0.25;
  list.push_back({"cpo",
                  cpo,
                  {{"rewards/chosen", -10.491726},
                   {"rewards/accuracies", 0.5},
                   {"rewards/margins", 2.0006156},
                   {"logps/rejected", -49.969368},
                   {"nll_loss", 5.788538}}});
  PreferenceConfig orpo = list.back().config;
  orpo.loss = PairLoss::kOdds;
  orpo.averages = true;
  orpo.beta = 0.35;
  orpo.likelihood = LikelihoodTerm::kAllTokens;
  list.push_back({"orpo",
                  orpo,
                  {{"rewards/chosen", -2.0430961},
                   {"rewards/margins", 0.16305441},
                   {"logps/chosen", -5.8374171},
                   {"nll_loss", 5.791657},
                   {"log_odds_ratio", -0.49992067},
                   {"log_odds_chosen", 0.46711922}}});
  orpo.likelihood = LikelihoodTerm::kAnswerMeans;
  list.push_back({"orpo_completion", orpo});
  return list;
}

class PreferenceGolden : public testing::TestWithParam<Variant> {};

TEST_P(PreferenceGolden, LossesMetricsAndGradients) {
  DANLU_REQUIRES_SHARED();
  const Variant& variant = GetParam();
  const auto golden = weights::open_safetensors(golden_dir() / "preference" / "golden.safetensors");
  const std::vector<data::Sample> samples = golden_pairs(*golden);
  const double expected = read_tensor(*golden, variant.name + ".loss").item<double>();
  const auto reference = frozen("reference");
  // A mean over the batch's tokens, or over pairs, does not know how the step was cut.
  for (const std::vector<size_t>& cut :
       std::vector<std::vector<size_t>>{{4}, {1, 3}, {1, 1, 1, 1}}) {
    const auto policy = model_of("policy");
    const Found found = step_of(*policy, *preference_objective(variant.config, reference),
                                in_batches(samples, cut));
    EXPECT_NEAR(found.loss, expected, 2e-5) << cut.size();
    expect_gradients(*policy, *golden, variant.name);
    for (const auto& [name, value] : variant.metrics)
      EXPECT_NEAR(found.metrics.at(name), value, 1e-4) << name;
  }
  PreferenceConfig pairs_alone = variant.config;
  if (variant.name != "dpo_ftx" && variant.name != "orpo_completion")
    pairs_alone.likelihood = LikelihoodTerm::kNone;
  const auto policy = model_of("policy");
  const Found each = step_of(*policy, *preference_objective(pairs_alone, reference),
                             in_batches(samples, {1, 1, 1, 1}));
  const at::Tensor losses = read_tensor(*golden, variant.name + ".losses");
  // The golden adds the batch's likelihood term to each of that variant's.
  const double common = variant.name == "dpo_rpo" ? 0.5 * 5.788537979125977 : 0;
  for (size_t i = 0; i < samples.size(); ++i)
    EXPECT_NEAR(each.sums[i] + common, losses[static_cast<int64_t>(i)].item<double>(), 2e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Golden, PreferenceGolden, testing::ValuesIn(variants()),
                         [](const auto& info) { return info.param.name; });

// Tokens of the prompt cancel out in most losses: the sums show them.
TEST(PreferenceGolden, SumsOfAnswersAreTheReferences) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir() / "preference" / "golden.safetensors");
  const data::Batch batch = data::make_batch(golden_pairs(*golden));
  for (const char* who : {"policy", "reference"}) {
    const auto model = model_of(who);
    const at::NoGradGuard no_grad;
    const models::ForwardInput input = evaluation_input(*model, batch);
    const at::Tensor sums_S = segment_logprobs(*model, model->forward(input), input, batch);
    const at::Tensor chosen = read_tensor(*golden, std::string(who) + "_chosen_logps"),
                     rejected = read_tensor(*golden, std::string(who) + "_rejected_logps");
    for (int64_t i = 0; i < chosen.size(0); ++i) {
      EXPECT_NEAR(sums_S[2 * i].item<double>(), chosen[i].item<double>(), 1e-4);
      EXPECT_NEAR(sums_S[2 * i + 1].item<double>(), rejected[i].item<double>(), 1e-4);
    }
  }
}

TEST(PreferenceGolden, FiveStepsOfDpoEqualTheReferences) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir() / "preference" / "golden.safetensors");
  TrainConfig config = test::golden_recipe(5e-4);
  config.adamw.groups.weight_decay = 0;
  TrainState state = test::make_state(model_of("policy"), config);
  state.objective = preference_objective(dpo(0.25), frozen("reference"));
  const auto source = std::make_shared<data::VectorSource>(golden_pairs(*golden));
  const at::Tensor losses = read_tensor(*golden, "train.losses"),
                   norms = read_tensor(*golden, "train.grad_norms");
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const StepResult result =
        run_step(state, test::step_of(source, 2, 2, 0), config, config.schedule.shape);
    EXPECT_NEAR(result.loss, losses[step].item<double>(), 1e-4) << step;
    EXPECT_NEAR(result.grad_norm, norms[step].item<double>(), 1e-3 * norms[step].item<double>());
  }
  const Evaluation evaluation = evaluate(*state.model, *state.objective, source, {.batch_size = 3});
  EXPECT_NEAR(evaluation.loss, read_tensor(*golden, "train.final_loss").item<double>(), 1e-4);
  EXPECT_EQ(evaluation.metrics.at("rewards/accuracies"), 1.0);
}

// As the loss over all held-out pairs, whatever the batches of the evaluation.
TEST(PreferenceEvaluation, DoesNotDependOnItsBatches) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir() / "preference" / "golden.safetensors");
  const auto source = std::make_shared<data::VectorSource>(golden_pairs(*golden));
  const auto policy = model_of("policy");
  for (const Variant& variant : variants()) {
    const auto objective = preference_objective(variant.config, frozen("reference"));
    const double expected = read_tensor(*golden, variant.name + ".loss").item<double>();
    for (const int64_t size : {1, 3, 4}) {
      EXPECT_NEAR(evaluate(*policy, *objective, source, {.batch_size = size}).loss, expected, 2e-5)
          << variant.name << " " << size;
    }
  }
}

TEST(Preference, PacksHoldSeveralPairs) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir() / "preference" / "golden.safetensors");
  const std::vector<data::Sample> samples = golden_pairs(*golden);
  data::Sample pack = samples[0];
  for (size_t i = 1; i < samples.size(); ++i) {
    const auto begin = static_cast<int32_t>(pack.ids.size());
    for (const int32_t start : samples[i].segments) pack.segments.push_back(begin + start);
    pack.ids.insert(pack.ids.end(), samples[i].ids.begin(), samples[i].ids.end());
    pack.labels.insert(pack.labels.end(), samples[i].labels.begin(), samples[i].labels.end());
  }
  const auto policy = model_of("policy");
  const auto objective = preference_objective(dpo(0.25), frozen("reference"));
  EXPECT_NEAR(step_of(*policy, *objective, {data::make_batch({pack})}).loss,
              read_tensor(*golden, "dpo_sigmoid.loss").item<double>(), 2e-5);
}

TEST(Preference, SamplesThatAreNoPairsAreRefused) {
  DANLU_REQUIRES_SHARED();
  const auto policy = model_of("policy");
  const auto objective = preference_objective(dpo(0.1), frozen("reference"));
  data::Sample alone{.ids = {1, 2, 3}, .labels = {-100, 2, 3}};
  EXPECT_THROW(step_of(*policy, *objective, {data::make_batch({alone})}), DataError);
  data::Sample mute{.ids = {1, 2, 3, 1, 2}, .labels = {-100, 2, 3, -100, -100}, .segments = {0, 3}};
  EXPECT_THROW(step_of(*policy, *objective, {data::make_batch({mute})}), DataError);
}

std::vector<bool> liked_of(const weights::TensorSource& golden) {
  const weights::TensorInfo* info = golden.find("label");
  std::vector<uint8_t> bytes(static_cast<size_t>(info->shape[0]));
  golden.read("label", {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
  return {bytes.begin(), bytes.end()};
}

struct UnpairedVariant {
  const char* name;
  UnpairedConfig config;
  const char *policy = "policy", *reference = "reference";
  bool has_gradients = true;
};

/// The margin of answers that were judged one by one lies between two means over the whole step.
void expect_margin(const std::map<std::string, double>& metrics) {
  EXPECT_NEAR(metrics.at("rewards/margins"),
              metrics.at("rewards/chosen") - metrics.at("rewards/rejected"), 1e-6);
}

TEST(UnpairedGolden, LossesDriftAndGradients) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir() / "kto" / "golden.safetensors");
  const std::vector<bool> liked = liked_of(*golden);
  const std::vector<data::Sample> samples = golden_answers(*golden, liked);
  const UnpairedConfig kto{.beta = 0.4, .liked_weight = 1, .disliked_weight = 1.33};
  UnpairedConfig apo = kto;
  apo.measures_drift = false;
  for (const UnpairedVariant& variant :
       {UnpairedVariant{"kto", kto},
        UnpairedVariant{"kto_clamped", kto, "reference", "policy", false},
        UnpairedVariant{"apo_zero_unpaired", apo}}) {
    SCOPED_TRACE(variant.name);
    const std::string name = variant.name;
    const auto objective = unpaired_objective(variant.config, frozen(variant.reference));
    for (const std::vector<size_t>& cut :
         std::vector<std::vector<size_t>>{{5}, {2, 3}, {1, 1, 1, 1, 1}}) {
      const auto policy = model_of(variant.policy);
      const Found found = step_of(*policy, *objective, in_batches(samples, cut));
      EXPECT_NEAR(found.loss, read_tensor(*golden, name + ".loss").item<double>(), 2e-5);
      EXPECT_NEAR(found.metrics.at("kl"), read_tensor(*golden, name + ".kl").item<double>(), 1e-4);
      expect_margin(found.metrics);
      if (variant.has_gradients) expect_gradients(*policy, *golden, name);
      if (cut.size() < samples.size()) continue;
      for (size_t i = 0; i < samples.size(); ++i) {
        EXPECT_NEAR(found.sums[i],
                    read_tensor(*golden, name + ".losses")[static_cast<int64_t>(i)].item<double>(),
                    2e-5);
      }
    }
    const auto source = std::make_shared<data::VectorSource>(samples);
    const Evaluation held_out =
        evaluate(*model_of(variant.policy), *objective, source, {.batch_size = 2});
    EXPECT_NEAR(held_out.loss, read_tensor(*golden, name + ".loss").item<double>(), 2e-5);
    expect_margin(held_out.metrics);
  }
}

// The answers of other rows measure the drift, and take no part in what is trained.
TEST(Unpaired, OtherRowsAnswersAreNoPartOfTheTraining) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir() / "kto" / "golden.safetensors");
  const std::vector<data::Sample> samples = golden_answers(*golden, liked_of(*golden));
  const data::Batch whole = data::make_batch(samples);
  const auto objective = unpaired_objective({.beta = 0.4}, frozen("reference"));
  const auto part = objective->trained_part(whole);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->segment_starts.size(), samples.size() + 1);
  size_t tokens = 0;
  for (const data::Sample& sample : samples) tokens += static_cast<size_t>(sample.segments[1]);
  EXPECT_EQ(part->ids.size(), tokens);
  EXPECT_EQ(part->num_samples, whole.num_samples);
  for (size_t s = 0; s < samples.size(); ++s) {
    const auto begin = static_cast<size_t>(part->segment_starts[s]);
    EXPECT_EQ(part->positions[begin], 0);
    EXPECT_EQ(part->ids[begin], samples[s].ids[0]);
    EXPECT_EQ(part->segment_values[s], samples[s].segment_values[0]);
  }
}

struct StepVariant {
  const char* name;
  std::vector<int64_t> reward_ids;
};

// The logits AT a placeholder predict the label there.
TEST(ProcessRewardGolden, LossesAndGradients) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir() / "prm" / "golden.safetensors");
  const at::Tensor ids = read_tensor(*golden, "input_ids"),
                   mask = read_tensor(*golden, "attention_mask"),
                   labels = read_tensor(*golden, "labels");
  std::vector<data::Sample> samples(static_cast<size_t>(ids.size(0)));
  for (int64_t row = 0; row < ids.size(0); ++row) {
    data::Sample& sample = samples[static_cast<size_t>(row)];
    sample.labels_are_targets = true;
    for (int64_t t = 0; t < ids.size(1); ++t) {
      if (mask[row][t].item<int64_t>() == 0) continue;
      sample.ids.push_back(static_cast<int32_t>(ids[row][t].item<int64_t>()));
      sample.labels.push_back(static_cast<int32_t>(labels[row][t].item<int64_t>()));
    }
  }
  for (const StepVariant& variant :
       {StepVariant{"reward_tokens", {208, 11}}, StepVariant{"whole_vocab", {}}}) {
    SCOPED_TRACE(variant.name);
    const std::string name = variant.name;
    const auto objective = process_reward_objective(variant.reward_ids);
    for (const std::vector<size_t>& cut : std::vector<std::vector<size_t>>{{2}, {1, 1}}) {
      const auto policy = model_of("policy");
      const Found found = step_of(*policy, *objective, in_batches(samples, cut));
      EXPECT_NEAR(found.loss, read_tensor(*golden, name + ".loss").item<double>(), 2e-5);
      EXPECT_NEAR(found.metrics.at("acc"), read_tensor(*golden, name + ".acc").item<double>(),
                  1e-6);
      expect_gradients(*policy, *golden, name);
    }
  }
  const auto policy = model_of("policy");
  EXPECT_THROW(step_of(*policy, *process_reward_objective({208, 12}), in_batches(samples, {2})),
               DataError);
}

}  // namespace preference_test
}  // namespace danlu::train
