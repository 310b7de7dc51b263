// Preference training as a user types it: three systems' lines, their figures, resuming, bad input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/preference_lines.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST_F(PreferenceLines, DpoBeginsAtTheReferenceAndLeavesIt) {
  for (const char* tuner : {"full", "lora"}) {
    SCOPED_TRACE(tuner);
    const ProgramResult result =
        ok(line({"rlhf", "--rlhf_type", "dpo"}, "pairs.jsonl", tuner, {"--tuner", tuner}));
    EXPECT_THAT(result.err, HasSubstr("danlu rlhf · dpo · " + std::string(tuner)));
    const auto steps = steps_of(*this / tuner);
    ASSERT_EQ(steps.size(), 4u);
    EXPECT_NEAR(steps[0].at("loss").get<double>(), std::log(2.0), 1e-5);
    EXPECT_EQ(steps[0].at("rewards/margins"), 0);
    EXPECT_EQ(steps[0].at("rewards/accuracies"), 0) << "ties are no successes";
    EXPECT_GT(steps[3].at("rewards/margins").get<double>(), 0);
    const Json evaluation = evaluation_of(tuner);
    for (const char* name : {"eval_rewards/chosen", "eval_rewards/margins", "eval_logps/rejected"})
      EXPECT_TRUE(evaluation.contains(name)) << name << evaluation.dump();
  }
}

TEST_F(PreferenceLines, EveryObjectiveTrains) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> lines = {
      {{"rlhf", "--rlhf_type", "simpo"}, "nll_loss"},
      {{"rlhf", "--rlhf_type", "cpo"}, "nll_loss"},
      {{"rlhf", "--rlhf_type", "orpo"}, "log_odds_ratio"},
      {{"posttrain", "--stage", "dpo", "--dpo-beta", "0.2", "--pref-ftx", "0.1", "--lora-r", "4"},
       "sft_loss"},
      {{"posttrain", "--stage", "simpo", "--gamma-beta-ratio", "0.5"}, "rewards/accuracies"}};
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string to = "run" + std::to_string(i);
    ok(line(lines[i].first, "pairs.jsonl", to));
    const auto steps = steps_of(*this / to);
    ASSERT_EQ(steps.size(), 4u);
    EXPECT_TRUE(steps[3].contains(lines[i].second)) << lines[i].second << steps[3].dump();
  }
  ok(line({"rlhf", "--rlhf_type", "kto", "--tuner", "lora"}, "answers.jsonl", "kto"));
  const auto steps = steps_of(*this / "kto");
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_NEAR(steps[0].at("loss").get<double>(), 0.5, 1e-6) << "nothing has changed yet";
  EXPECT_TRUE(steps[0].contains("kl"));
  EXPECT_TRUE(evaluation_of("kto").contains("eval_kl"));
}

TEST_F(PreferenceLines, AnswersOfOneKindAreSaid) {
  for (const bool liked : {true, false}) {
    std::string rows;
    for (int i = 0; i < 10; ++i) {
      rows +=
          Json{{"prompt", "q"}, {"completion", "a" + std::to_string(i)}, {"label", liked}}.dump() +
          "\n";
    }
    write("one.jsonl", rows);
    const std::string to = liked ? "liked" : "disliked";
    const std::vector<std::string> kto = line({"rlhf", "--rlhf_type", "kto"}, "one.jsonl", to);
    EXPECT_THAT(ok(kto).err, HasSubstr("kto: all 8 rows are " + to + ", none is"));
    std::vector<std::string> weightless = kto;
    weightless.insert(weightless.end(),
                      {liked ? "--desirable_weight" : "--undesirable_weight", "0"});
    expect_error(run(weightless), 2, {"[train] kto: ", "nothing is learnt", "desirable_weight"});
  }
  EXPECT_THAT(ok(line({"rlhf", "--rlhf_type", "kto"}, "answers.jsonl", "both")).err,
              testing::Not(HasSubstr("none is")));
}

/// The last `accuracy` of a run, which 12 pairs of three lengths teach.
double accuracy_of(const std::vector<Json>& steps) {
  return steps.back().at("accuracy").get<double>();
}

TEST_F(PreferenceLines, RewardModelsOfThreeSystems) {
  const std::vector<std::string> longer = {"--max_steps", "12", "--lr", "5e-3"};
  const auto more = [&](std::vector<std::string> words) {
    words.insert(words.end(), longer.begin(), longer.end());
    return words;
  };
  const ProgramResult swift =
      ok(line({"rlhf", "--rlhf_type", "rm"}, "pairs.jsonl", "swift", more({"--tuner", "full"})));
  EXPECT_THAT(swift.err, HasSubstr("danlu rlhf · rm · full"));
  EXPECT_THAT(swift.err, HasSubstr("a new reward head: score is drawn with deviation 0.02"));
  EXPECT_THAT(swift.err, HasSubstr("--reward_model swift"));
  EXPECT_EQ(accuracy_of(steps_of(*this / "swift")), 1.0);
  const Json config = Json::parse(std::ifstream(*this / "swift" / "config.json"));
  EXPECT_EQ(config["architectures"], Json::array({"Qwen2ForSequenceClassification"}));
  EXPECT_EQ(config["id2label"].size(), 1u);
  EXPECT_TRUE(config["pad_token_id"].is_number_integer());
  for (const char* name : {"eval_accuracy", "eval_margin", "eval_rewards/chosen"})
    EXPECT_TRUE(evaluation_of("swift").contains(name)) << name;
  ok(line({"posttrain", "--stage", "orm", "--lora-r", "4"}, "pairs.jsonl", "mindspeed", more({})));
  EXPECT_EQ(
      Json::parse(std::ifstream(*this / "mindspeed" / "adapter_config.json"))["modules_to_save"],
      Json::array({"score"}));
  EXPECT_EQ(accuracy_of(steps_of(*this / "mindspeed")), 1.0);
  write("rm.yaml", "stage: rm\ndo_train: true\nfinetuning_type: lora\n");
  ok(line({"train", "rm.yaml"}, "pairs.jsonl", "factory", more({})));
  EXPECT_TRUE(fs::exists(*this / "factory" / "value_head.safetensors"));
  EXPECT_EQ(
      Json::parse(std::ifstream(*this / "factory" / "adapter_config.json"))["modules_to_save"],
      Json(nullptr));
  EXPECT_EQ(accuracy_of(steps_of(*this / "factory")), 1.0);
}

TEST_F(PreferenceLines, ARewardModelGoesOnAndIsTrainedFurther) {
  const std::vector<std::string> four = {"--lr_scheduler", "constant"};
  write("rm.yaml", "stage: rm\ndo_train: true\nfinetuning_type: full\n");
  const std::vector<std::vector<std::string>> lines = {
      {"rlhf", "--rlhf_type", "rm", "--tuner", "full"},
      {"rlhf", "--rlhf_type", "rm", "--tuner", "lora"},
      {"train", "rm.yaml"}};
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool goes_on = is_slow() || i == 2;
    const std::string once = "once" + std::to_string(i), twice = "twice" + std::to_string(i);
    ok(line(lines[i], "pairs.jsonl", once, four));
    if (!goes_on) continue;
    ok(line(lines[i], "pairs.jsonl", twice, four));
    fs::remove_all(*this / twice / "checkpoint-4");
    ok(line(lines[i], "pairs.jsonl", twice, four));
    EXPECT_EQ(steps_of(*this / twice).back().at("loss"), steps_of(*this / once).back().at("loss"));
  }
  // As a model that somebody trains further: its head is there, and no new one is drawn.
  for (const char* base : {"once0", "once2"}) {
    std::vector<std::string> words = line({"rlhf", "--rlhf_type", "rm", "--tuner", "full"},
                                          "pairs.jsonl", std::string("further_") + base);
    *(std::find(words.begin(), words.end(), "--model") + 1) = base;
    const ProgramResult further = ok(words);
    EXPECT_THAT(further.err, testing::Not(HasSubstr("a new reward head")));
    EXPECT_LT(steps_of(*this / (std::string("further_") + base))[0].at("loss").get<double>(),
              steps_of(*this / "once0")[0].at("loss").get<double>());
  }
  std::vector<std::string> adapters =
      line({"rlhf", "--rlhf_type", "rm", "--tuner", "lora"}, "pairs.jsonl", "further_adapters",
           {"--adapters", "once1"});
  EXPECT_THAT(ok(adapters).err, testing::Not(HasSubstr("a new reward head")));
}

TEST_F(PreferenceLines, ARewardModelIsNoModelThatTalks) {
  ok(line({"rlhf", "--rlhf_type", "rm", "--tuner", "full"}, "pairs.jsonl", "judge"));
  expect_error(run({"chat", "--model", "judge"}), 4,
               {"Qwen2ForSequenceClassification", "a reward model"});
}

TEST_F(PreferenceLines, RewardModelsJudgeAnswersThatAreDrawn) {
  ok(line({"rlhf", "--rlhf_type", "rm", "--tuner", "full"}, "pairs.jsonl", "whole"));
  ok(line({"rlhf", "--rlhf_type", "rm", "--tuner", "lora"}, "pairs.jsonl", "adapters"));
  const std::vector<std::string> drawing = {"--reward_model",
                                            "whole",
                                            "adapters",
                                            "--reward_funcs",
                                            "repetition",
                                            "--reward_weights",
                                            "0",
                                            "1",
                                            "0.5",
                                            "--num_generations",
                                            "2",
                                            "--max_completion_length",
                                            "8",
                                            "--tuner",
                                            "full"};
  ok(line({"rlhf", "--rlhf_type", "grpo"}, "pairs.jsonl", "drawn", drawing));
  const auto steps = steps_of(*this / "drawn");
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_NEAR(steps[0].at("reward").get<double>(),
              steps[0].at("rewards/whole/mean").get<double>() +
                  0.5 * steps[0].at("rewards/adapters/mean").get<double>(),
              1e-5);
  EXPECT_NE(steps[0].at("rewards/whole/mean"), 0);
  // A model without such a head, and one with other tokens.
  expect_error(run(line({"rlhf", "--rlhf_type", "grpo"}, "pairs.jsonl", "none",
                        {"--reward_model", good("model").string()})),
               4, {"no reward model", "danlu rlhf --rlhf_type rm"});
}

TEST_F(PreferenceLines, PpoTrainsACriticBesideThePolicyAndGoesOnWithBoth) {
  ok(line({"rlhf", "--rlhf_type", "rm", "--tuner", "full"}, "pairs.jsonl", "judge"));
  for (const char* tuner : {"full", "lora"}) {
    if (!is_slow() && tuner == std::string("lora")) continue;
    SCOPED_TRACE(tuner);
    const std::vector<std::string> drawing = {"--reward_model",
                                              "judge",
                                              "--max_completion_length",
                                              "6",
                                              "--num_ppo_epochs",
                                              "2",
                                              "--lr_scheduler",
                                              "constant",
                                              "--tuner",
                                              tuner,
                                              "--kl_coef",
                                              "0.1",
                                              "--critic_lr",
                                              "1e-2"};
    const std::string once = std::string("once_") + tuner, twice = std::string("twice_") + tuner;
    const auto ppo = [&](const std::string& to) {
      return ok(line({"rlhf", "--rlhf_type", "ppo"}, "pairs.jsonl", to, drawing));
    };
    const std::string said = ppo(once).err;
    EXPECT_THAT(said, HasSubstr("critic: judge"));
    const auto steps = steps_of(*this / once);
    ASSERT_EQ(steps.size(), 4u);
    for (const char* name : {"loss/value_avg", "val/clipfrac_avg", "critic/grad_norm", "entropy"})
      EXPECT_TRUE(steps[0].contains(name)) << name;
    EXPECT_EQ(steps[0].at("objective/kl"), 0) << "the policy is the reference still";
    EXPECT_NE(steps[2].at("objective/kl"), 0);
    EXPECT_NE(steps[0].at("loss/value_avg"), steps[1].at("loss/value_avg"))
        << "the critic has learnt from the same answers";
    ppo(twice);
    // A checkpoint is whole only with its critic.
    const bool has_policy = std::string(tuner) == "full";
    fs::remove_all(*this / twice / (has_policy ? "critic/checkpoint-4" : "checkpoint-4"));
    fs::remove(*this / twice / "DONE");
    const std::string resumed = ppo(twice).err;
    EXPECT_THAT(resumed, HasSubstr("checkpoint-2"));
    if (has_policy) EXPECT_THAT(resumed, HasSubstr("checkpoint-4: its critic, "));
    for (const char* name : {"loss", "loss/value_avg", "critic/grad_norm", "entropy"})
      EXPECT_EQ(steps_of(*this / twice).back().at(name), steps.back().at(name)) << name;
  }
  // The finished critic is a reward model.
  ok(line({"rlhf", "--rlhf_type", "grpo"}, "pairs.jsonl", "judged",
          {"--reward_model", "once_full/critic", "--num_generations", "2",
           "--max_completion_length", "4", "--tuner", "full"}));
  fs::remove_all(*this / "twice_full" / "checkpoint-4");
  fs::remove_all(*this / "twice_full" / "critic");
  fs::remove(*this / "twice_full" / "DONE");
  std::vector<std::string> again = line(
      {"rlhf", "--rlhf_type", "ppo"}, "pairs.jsonl", "twice_full",
      {"--reward_model", "judge", "--max_completion_length", "6", "--num_ppo_epochs", "2",
       "--lr_scheduler", "constant", "--tuner", "full", "--kl_coef", "0.1", "--critic_lr", "1e-2"});
  expect_error(run(again), 8, {"its critic", "is not there", "--model"});
}

TEST_F(PreferenceLines, PpoInTheWordsOfTheOtherSystems) {
  const std::vector<std::string> more = {"--reward-funcs", "repetition", "--max-completion-length",
                                         "4"};
  ok(line({"posttrain", "--stage", "trl_ppo", "--clip-ratio", "0.1", "--cliprange-value", "0.3"},
          "pairs.jsonl", "mindspeed", more));
  EXPECT_TRUE(steps_of(*this / "mindspeed").back().contains("loss/value_avg"));
  write("ppo.yaml",
        "stage: ppo\ndo_train: true\nfinetuning_type: lora\nppo_epochs: 1\n"
        "reward_funcs: repetition\nmax_new_tokens: 4\n");
  ok(line({"train", "ppo.yaml"}, "pairs.jsonl", "factory_ppo"));
  EXPECT_EQ(steps_of(*this / "factory_ppo").size(), 4u);
}

TEST_F(PreferenceLines, StepsAreJudgedByAHeadOfTwoClasses) {
  std::string rows;
  for (int i = 0; i < 12; ++i)
    rows += Json{{"input", "what is " + std::to_string(i) + "? It is " + std::to_string(i) +
                               "#no it is " + std::to_string(i + 1) + "#"},
                 {"value", {"+", "-"}}}
                .dump() +
            "\n";
  write("steps.jsonl", rows);
  const std::vector<std::string> steps = {
      "--placeholder-token", "#",     "--reward-tokens", "+",       "-",
      "--step-head",         "class", "--lr_scheduler",  "constant"};
  const auto prm = [&](const std::string& to, const std::vector<std::string>& more) {
    std::vector<std::string> words = steps;
    words.insert(words.end(), more.begin(), more.end());
    return line({"posttrain", "--stage", "prm"}, "steps.jsonl", to, words);
  };
  const ProgramResult first = ok(prm("judge", {"--max_steps", "12", "--lr", "5e-3"}));
  EXPECT_THAT(first.err, HasSubstr("a new reward head: score is drawn"));
  EXPECT_EQ(steps_of(*this / "judge").back().at("acc"), 1);
  const Json config = Json::parse(std::ifstream(*this / "judge" / "config.json"));
  EXPECT_EQ(config["architectures"], Json::array({"Qwen2ForTokenClassification"}));
  EXPECT_TRUE(evaluation_of("judge").contains("eval_acc"));
  // It goes on after a stop, and is trained further without a new head.
  ok(prm("once", {}));
  ok(prm("twice", {}));
  fs::remove_all(*this / "twice" / "checkpoint-4");
  fs::remove(*this / "twice" / "DONE");
  ok(prm("twice", {}));
  EXPECT_EQ(steps_of(*this / "twice").back().at("loss"),
            steps_of(*this / "once").back().at("loss"));
  std::vector<std::string> words = prm("further", {});
  *(std::find(words.begin(), words.end(), "--model") + 1) = "judge";
  EXPECT_THAT(ok(words).err, testing::Not(HasSubstr("a new reward head")));
  EXPECT_EQ(steps_of(*this / "further")[0].at("acc"), 1);
  ok(prm("adapters", {"--lora-r", "4"}));
  EXPECT_EQ(
      Json::parse(std::ifstream(*this / "adapters" / "adapter_config.json"))["modules_to_save"],
      Json::array({"score"}));
  EXPECT_EQ(Json::parse(std::ifstream(*this / "adapters" / "adapter_config.json"))["task_type"],
            "TOKEN_CLS");
  std::vector<std::string> one = prm("x", {});
  one.erase(std::find(one.begin(), one.end(), "-"));
  expect_error(run(one), 2, {"--step-head class", "--reward_tokens names two"});
}

TEST_F(PreferenceLines, LlamaFactorysFile) {
  write("dpo.yaml",
        "stage: dpo\ndo_train: true\nfinetuning_type: lora\npref_beta: 0.1\n"
        "pref_loss: sigmoid\n");
  ok(line({"train", "dpo.yaml"}, "pairs.jsonl", "factory"));
  EXPECT_EQ(steps_of(*this / "factory").size(), 4u);
}

TEST_F(PreferenceLines, ARunGoesOnWhereItWasAndNotAsAnother) {
  const std::vector<std::string> four = {"--lr_scheduler", "constant"};
  ok(line({"rlhf", "--tuner", "full"}, "pairs.jsonl", "once", four));
  ok(line({"rlhf", "--tuner", "full"}, "pairs.jsonl", "twice", four));
  fs::remove_all(*this / "twice" / "checkpoint-4");
  ok(line({"rlhf", "--tuner", "full"}, "pairs.jsonl", "twice", four));
  EXPECT_EQ(steps_of(*this / "twice").back().at("loss"),
            steps_of(*this / "once").back().at("loss"));
  const ProgramResult other = run(line({"rlhf", "--tuner", "full"}, "pairs.jsonl", "once",
                                       {"--lr_scheduler", "constant", "--beta", "0.5"}));
  EXPECT_NE(other.exit_code, 0);
  EXPECT_THAT(other.err, HasSubstr("objective"));
}

TEST_F(PreferenceLines, AReferenceByNameIsTheModelBeforeTheTraining) {
  ok(line({"rlhf", "--tuner", "full"}, "pairs.jsonl", "own"));
  ok(line({"rlhf", "--tuner", "full"}, "pairs.jsonl", "named",
          {"--ref_model", good("model").string()}));
  expect_same_losses(*this / "own", *this / "named", 4);
  ok(line({"rlhf", "--tuner", "lora"}, "pairs.jsonl", "from_trained",
          {"--ref_model", (*this / "own").string()}));
  EXPECT_GT(std::fabs(steps_of(*this / "from_trained")[0].at("rewards/margins").get<double>()),
            1e-6);
}

TEST_F(PreferenceLines, AReferenceThatIsAskedBeforehandGivesTheSameLosses) {
  const std::string flag = "--precompute_ref_log_probs";
  for (const char* tuner : {"full", "lora"}) {
    if (!is_slow() && tuner == std::string("lora")) continue;
    SCOPED_TRACE(tuner);
    const bool is_first = std::string(tuner) == "full";
    const auto dpo = [&](const std::string& to, const std::vector<std::string>& more) {
      std::vector<std::string> words = {"--tuner", tuner, "--cache_dir", "cache"};
      words.insert(words.end(), more.begin(), more.end());
      return ok(line({"rlhf"}, "pairs.jsonl", std::string(tuner) + to, words)).err;
    };
    dpo("-live", {});
    // The two runs measure against the model as it is: the second finds what the first has asked.
    const std::string said = dpo("-asked", {flag, "true"});
    EXPECT_THAT(said,
                HasSubstr(is_first ? "samples are computed" : "log-probabilities from cache"));
    EXPECT_THAT(dpo("-cached", {flag, "true"}), HasSubstr("log-probabilities from cache"));
    for (const char* to : {"-asked", "-cached"}) {
      const std::string run = std::string(tuner) + to;
      expect_same_losses(*this / (std::string(tuner) + "-live"), *this / run, 4);
      EXPECT_NEAR(evaluation_of(run).at("eval_loss").get<double>(),
                  evaluation_of(std::string(tuner) + "-live").at("eval_loss").get<double>(), 1e-5);
    }
    // Another reference is not mistaken for it.
    EXPECT_THAT(dpo("-other", {flag, "true", "--ref_model", (*this / "full-live").string()}),
                HasSubstr(is_first ? "samples are computed" : "log-probabilities from cache"));
    EXPECT_GT(std::fabs(steps_of(*this / (std::string(tuner) + "-other"))[0]
                            .at("rewards/margins")
                            .get<double>()),
              1e-6);
  }
  // Nor are the same adapters that count otherwise.
  const auto further = [&](const std::string& to) {
    return ok(line({"rlhf"}, "pairs.jsonl", to,
                   {"--tuner", "lora", "--cache_dir", "cache", flag, "true", "--adapters",
                    "lora-live"}))
        .err;
  };
  if (is_slow()) {
    EXPECT_THAT(further("further"), HasSubstr("samples are computed"));
    EXPECT_THAT(further("further-cached"), HasSubstr("log-probabilities from cache"));
    const fs::path described = *this / "lora-live" / "adapter_config.json";
    Json peft = Json::parse(std::ifstream(described));
    peft["lora_alpha"] = 3 * peft.at("lora_alpha").get<double>();
    write("lora-live/adapter_config.json", peft.dump());
    EXPECT_THAT(further("further-louder"), HasSubstr("samples are computed"));
  }
  ok(line({"rlhf", "--rlhf_type", "kto", "--tuner", "full"}, "answers.jsonl", "kto"));
  ok(line({"rlhf", "--rlhf_type", "kto", "--tuner", "full"}, "answers.jsonl", "kto-asked",
          {flag, "true"}));
  expect_same_losses(*this / "kto", *this / "kto-asked", 4);
  expect_error(run(line({"rlhf", "--rlhf_type", "simpo"}, "pairs.jsonl", "x", {flag, "true"})), 2,
               {flag, "simpo has no reference"});
  expect_error(run(line({"rlhf", "--rlhf_type", "grpo", "--reward_funcs", "repetition"},
                        "pairs.jsonl", "x", {flag, "true"})),
               2, {flag, "drawn in the run"});
}

TEST_F(PreferenceLines, HeldOutPromptsAreAnsweredAndJudged) {
  write("held.jsonl", R"({"prompt": "who?"}
{"prompt": "question 3 or 4"}
{"prompt": "so"}
)");
  for (const char* type : {"grpo", "ppo"}) {
    SCOPED_TRACE(type);
    const std::vector<std::string> more = {"--reward_funcs",
                                           "soft_overlong",
                                           "--soft_cache_length",
                                           "8",
                                           "--soft_max_length",
                                           "9",
                                           "--max_completion_length",
                                           "8",
                                           "--num_generations",
                                           "2",
                                           "--num_iterations",
                                           "2",
                                           "--eval_steps",
                                           "1",
                                           "--val_dataset",
                                           "held.jsonl",
                                           "--tuner",
                                           "full"};
    const ProgramResult result = ok(line({"rlhf", "--rlhf_type", type}, "pairs.jsonl", type, more));
    EXPECT_THAT(result.err,
                HasSubstr("--eval_steps 1: a rollout has 2 steps, whose end is waited"));
    EXPECT_THAT(result.err, testing::Not(HasSubstr("ppl")));
    std::ifstream file(*this / type / "logging.jsonl");
    std::vector<Json> evaluations;
    for (std::string text; std::getline(file, text);) {
      const Json record = Json::parse(text);
      if (record.contains("eval_reward")) evaluations.push_back(record);
    }
    ASSERT_EQ(evaluations.size(), 2u) << "behind each rollout";
    for (const Json& record : evaluations) {
      EXPECT_FALSE(record.contains("eval_loss"));
      // An answer of n of at most 8 tokens gets -(n - 1) / 8.
      EXPECT_NEAR(record.at("eval_reward").get<double>(),
                  (1 - record.at("eval_completions/mean_length").get<double>()) / 8, 1e-6);
      EXPECT_EQ(record.at("eval_reward"), record.at("eval_rewards/soft_overlong/mean"));
    }
    // As the model that is left answers: its likeliest tokens.
    const std::string rows = std::string(type) + ".jsonl";
    ok({"rollout", "--model", type, "--dataset", "held.jsonl", "--num_generations", "1",
        "--temperature", "0", "--max_new_tokens", "8", "--reward_funcs", "soft_overlong",
        "--soft_cache_length", "8", "--soft_max_length", "9", "--output", rows});
    std::ifstream drawn(*this / rows);
    double sum = 0, count = 0;
    for (std::string text; std::getline(drawn, text); ++count) {
      const Json row = Json::parse(text);
      // In training the token that ends an answer counts.
      sum += row.at("reward").get<double>() - (row.at("finish_reason") == "stop" ? 0.125 : 0);
    }
    ASSERT_EQ(count, 3);
    EXPECT_NEAR(evaluations.back().at("eval_reward").get<double>(), sum / count, 1e-6);
    EXPECT_TRUE(fs::exists(*this / type / "best"));
    EXPECT_THAT(result.err, HasSubstr("eval reward"));
  }
}

TEST_F(PreferenceLines, JudgesOfOneNameAreToldApart) {
  ok(line({"rlhf", "--rlhf_type", "rm", "--tuner", "full"}, "pairs.jsonl", "judge"));
  for (const char* folder : {"a", "b"}) {
    fs::create_directories(*this / folder);
    fs::copy(*this / "judge", *this / folder / "last", fs::copy_options::recursive);
  }
  const auto drawn_with = [&](const std::string& weight) {
    return line({"rlhf", "--rlhf_type", "grpo"}, "pairs.jsonl", "drawn",
                {"--reward_model", "a/last", "b/last", "--reward_weights", "1", weight,
                 "--num_generations", "2", "--max_completion_length", "4", "--tuner", "full"});
  };
  expect_error(run(drawn_with("nan")), 2, {"--reward_weights nan", "not a number"});
  ok(drawn_with("2"));
  const auto step = steps_of(*this / "drawn").at(0);
  EXPECT_EQ(step.at("rewards/a/last/mean"), step.at("rewards/b/last/mean"));
  EXPECT_FALSE(step.contains("rewards/last/mean"));
}

TEST_F(PreferenceLines, ACriticOfAdaptersIsGoneOnWith) {
  ok(line({"rlhf", "--rlhf_type", "rm", "--tuner", "full"}, "pairs.jsonl", "judge"));
  const auto ppo = [&](const std::string& to, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--max_completion_length", "4", "--tuner",        "lora",
                                      "--num_ppo_epochs",        "1", "--reward_model", "judge"};
    words.insert(words.end(), more.begin(), more.end());
    return line({"rlhf", "--rlhf_type", "ppo"}, "pairs.jsonl", to, words);
  };
  ok(ppo("first", {}));
  EXPECT_THAT(ok(ppo("second", {"--critic_model", "first"})).err,
              HasSubstr("--critic_model first: a run, of which first/critic is taken"));
}

TEST_F(PreferenceLines, ModelsBesideTheOneThatIsTrained) {
  ok(line({"rlhf", "--rlhf_type", "rm", "--tuner", "full"}, "pairs.jsonl", "judge"));
  const auto ppo = [&](const std::string& to, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--max_completion_length", "4", "--tuner", "full",
                                      "--num_ppo_epochs",        "1"};
    words.insert(words.end(), more.begin(), more.end());
    return line({"rlhf", "--rlhf_type", "ppo"}, "pairs.jsonl", to, words);
  };
  // A place on this machine is not looked for elsewhere.
  for (const char* missing :
       {"judge/checkpoint-7", "./judges", "nowhere/checkpoint-2", "judge/x"}) {
    expect_error(run(ppo("x", {"--reward_model", missing})), 4,
                 {std::string("--reward_model ") + missing + ": there is no such directory"});
    expect_error(run(ppo("x", {"--reward_model", "judge", "--critic_model", missing})), 4,
                 {std::string("--critic_model ") + missing});
    expect_error(run(line({"rlhf"}, "pairs.jsonl", "x", {"--ref_model", missing})), 4,
                 {std::string("--ref_model ") + missing});
  }
  ok(ppo("first", {"--reward_model", "judge"}));
  EXPECT_THAT(ok(ppo("second", {"--reward_model", "judge", "--critic_model", "first"})).err,
              HasSubstr("--critic_model first: a run, of which first/critic is taken"));
  // As of a run that is not over.
  for (const auto& entry : fs::directory_iterator(*this / "first" / "critic")) {
    if (!entry.is_directory()) fs::remove(entry.path());
  }
  EXPECT_THAT(ok(ppo("third", {"--reward_model", "judge", "--critic_model", "first"})).err,
              HasSubstr("first/critic/checkpoint-4 is taken"));
  for (size_t step = 0; step < 4; ++step) {
    EXPECT_EQ(steps_of(*this / "second")[step].at("loss/value_avg"),
              steps_of(*this / "third")[step].at("loss/value_avg"));
  }
  fs::remove_all(*this / "first" / "critic" / "checkpoint-4");
  fs::remove_all(*this / "first" / "critic" / "checkpoint-2");
  expect_error(run(ppo("x", {"--reward_model", "judge", "--critic_model", "first"})), 4,
               {"--critic_model first", "not saved yet"});
}

TEST_F(PreferenceLines, WhatIsWrongWithADataSetNamesItAmongSeveral) {
  write("other.jsonl", "{\"foo\": \"a\", \"bar\": \"b\"}\n");
  std::vector<std::string> two = line({"rlhf"}, "pairs.jsonl", "x");
  two.insert(std::find(two.begin(), two.end(), "pairs.jsonl") + 1, "other.jsonl");
  expect_error(run(two), 3, {"error: other.jsonl: [dataset] preference pairs have a column"});
  std::vector<std::string> tuned = line({"sft"}, good("good.jsonl").string(), "x");
  tuned.insert(std::find(tuned.begin(), tuned.end(), "--output_dir"), "other.jsonl");
  expect_error(run(tuned), 3, {"error: other.jsonl: [dataset] no known layout"});
  expect_error(run(line({"rlhf"}, "other.jsonl", "x")), 3,
               {"error: [dataset] preference pairs have a column"});
}

TEST_F(PreferenceLines, JudgedAnswersAreLearntAllWhereNobodyTellsThemApart) {
  const std::string warning =
      "warning: answers.jsonl: rows say of answers whether they are liked: all are learnt here";
  const ProgramResult tuned = ok(line({"sft", "--tuner", "lora"}, "answers.jsonl", "tuned"));
  const size_t at = tuned.err.find(warning);
  EXPECT_NE(at, std::string::npos) << tuned.err;
  EXPECT_EQ(tuned.err.find(warning, at + 1), std::string::npos) << "once";
  EXPECT_THAT(tuned.err, HasSubstr("rows: 12 read, 12 kept"));
  const ProgramResult told_apart = ok(line({"rlhf", "--rlhf_type", "kto"}, "answers.jsonl", "kto"));
  EXPECT_THAT(told_apart.err, testing::Not(HasSubstr("whether they are liked: all")));
  // A label that is a class says nothing of liking.
  write("classes.jsonl",
        "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": 3}\n"
        "{\"prompt\": \"c\", \"completion\": \"d\", \"label\": 0}\n");
  EXPECT_THAT(ok(line({"sft"}, "classes.jsonl", "classes", {"--val_ratio", "0"})).err,
              testing::Not(HasSubstr("whether they are liked")));
}

TEST_F(PreferenceLines, AClassifiersFlagIsNoWordForARewardModel) {
  for (const char* type : {"dpo", "kto"}) {
    expect_error(
        run(line({"rlhf", "--rlhf_type", type, "--task_type", "seq_cls"}, "pairs.jsonl", "x")), 2,
        {"--task_type seq_cls beside", "--rlhf_type rm (--stage rm) trains a reward"});
  }
  expect_error(
      run(line({"sft", "--task_type", "seq_cls", "--num_labels", "1"}, "pairs.jsonl", "x")), 3,
      {"texts with labels have a column \"label\"", "--rlhf_type rm makes a reward"});
}

TEST_F(PreferenceLines, ACriticOfAdaptersNamesWhatTheLineSays) {
  ok(line({"rlhf", "--rlhf_type", "rm", "--tuner", "lora"}, "pairs.jsonl", "judge"));
  const std::vector<std::string> ppo = {"--reward_model", "judge", "--max_completion_length", "6"};
  const auto with = [&](std::vector<std::string> begin, std::vector<std::string> more) {
    more.insert(more.end(), ppo.begin(), ppo.end());
    return run(line(begin, "pairs.jsonl", "x", more));
  };
  expect_error(with({"rlhf", "--rlhf_type", "ppo"}, {"--train_type", "full"}), 2,
               {"--reward_model judge: adapters, and with --train_type full the critic begins"});
  expect_error(with({"posttrain", "--stage", "trl_ppo"}, {}), 2,
               {"with --tuner full (by default) the critic begins as a whole model"});
}

TEST_F(PreferenceLines, BadInput) {
  // Rows without a second answer, and rows whose answers are the same.
  write("same.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "b"})"
                      "\n");
  for (const std::string& rows : {good("good.jsonl").string(), std::string("same.jsonl")}) {
    const ProgramResult result = run(line({"rlhf"}, rows, "bad"));
    EXPECT_THAT(result.exit_code, testing::AnyOf(2, 3)) << result.err;
    EXPECT_FALSE(fs::exists(*this / "bad" / "model.safetensors"));
  }
  expect_error(run(line({"sft"}, "pairs.jsonl", "sft")), 2, {"danlu rlhf --rlhf_type dpo"});
}

}  // namespace
}  // namespace danlu::test
