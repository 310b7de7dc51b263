// What judges answers and steps, as a user types it: programs, reward models in their files, and
// lines that are refused before a model is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "cli/preference_lines.h"
#include "cli/tiny_models.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Judging : public PreferenceLines {
 protected:
  std::vector<std::string> grpo(const std::string& to, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"--num_generations", "2",   "--max_completion_length", "6",
                                      "--tuner",           "full"};
    words.insert(words.end(), more.begin(), more.end());
    return line({"rlhf", "--rlhf_type", "grpo"}, "pairs.jsonl", to, words);
  }
  /// As grpo(), with the last value of a flag that stands there already.
  std::vector<std::string> with(std::vector<std::string> words, const std::string& flag,
                                const std::string& value) const {
    *(std::find(words.begin(), words.end(), flag) + 1) = value;
    return words;
  }
  void reward_model(const std::string& to, const std::string& tuner,
                    const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"--tuner", tuner};
    words.insert(words.end(), more.begin(), more.end());
    ok(line({"rlhf", "--rlhf_type", "rm"}, "pairs.jsonl", to, words));
  }
};

TEST_F(Judging, WhatIsWrongWithALineIsSaidBeforeAModelIsRead) {
  const ProgramResult misspelt = run(grpo("x", {"--reward_funcs", "repetitoin"}));
  expect_error(misspelt, 2, {"did you mean repetition"});
  EXPECT_THAT(misspelt.err, Not(HasSubstr("trainable params")));
  const std::vector<std::string> repetition = {"--reward_funcs", "repetition"};
  expect_error(run(with(grpo("x", repetition), "--num_generations", "1")), 2,
               {"--num_generations 1", "one alone", "reinforce_plus_plus"});
  const std::vector<std::string> three = with(grpo("x", repetition), "--num_generations", "3");
  expect_error(run(three), 2, {"--num_generations 3", "4 answers of a rollout (1 × 4)"});
  std::vector<std::string> planned = three;
  planned.insert(planned.begin(), "plan");
  planned.insert(planned.end(), {"--devices", "1"});
  expect_error(run(planned), 2, {"--num_generations 3", "4 answers"});
  EXPECT_FALSE(fs::exists(*this / "x"));
  // One answer each is enough where answers to all prompts are compared.
  ok(with(grpo("plus", {"--reward_funcs", "repetition", "--advantage_estimator",
                        "reinforce_plus_plus_token"}),
          "--num_generations", "1"));
}

TEST_F(Judging, AdaptersOfARewardModelWhereTheyHaveNoPlace) {
  reward_model("whole", "full");
  reward_model("adapters", "lora");
  const auto ppo = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--max_completion_length", "4", "--tuner", "full"};
    words.insert(words.end(), more.begin(), more.end());
    return run(line({"rlhf", "--rlhf_type", "ppo"}, "pairs.jsonl", "x", words));
  };
  for (const ProgramResult& result :
       {ppo({"--reward_model", "adapters"}),
        ppo({"--reward_model", "whole", "--critic_model", "adapters"})}) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("[train] --adapters")));
    EXPECT_THAT(result.err, HasSubstr("danlu merge --adapters adapters"));
  }
  EXPECT_THAT(ppo({"--reward_model", "adapters"}).err, HasSubstr("--reward_model adapters"));
  expect_error(run({"chat", "--model", good("model").string(), "--compare", "adapters"}), 4,
               {"adapters of a reward model", "--reward_model"});
  expect_error(run({"convert", "--load-dir", "whole", "--save-dir", "x", "--model-type-hf",
                    "llama2", "--load-model-type", "hf", "--save-model-type", "mg", "--orm"}),
               2, {"[--orm]", "Megatron-core", "--use-mcore-models"});
}

TEST_F(Judging, AJudgesAdaptersMayBeNamedByThemselves) {
  reward_model("adapters", "lora");
  const auto first_reward = [&](const std::string& to, const std::vector<std::string>& judge) {
    ok(grpo(to, judge));
    return steps_of(*this / to).at(0).at("reward").get<double>();
  };
  const std::string base = good("model").string();
  EXPECT_EQ(first_reward("apart", {"--reward_model", base, "--reward_adapters", "adapters"}),
            first_reward("whole", {"--reward_model", "adapters"}));
  fs::copy(base, *this / "other", fs::copy_options::recursive);
  expect_error(run(grpo("x", {"--reward_model", "other", "--reward_adapters", "adapters"})), 2,
               {"--reward_adapters adapters: trained on", "not on other", "danlu merge"});
  expect_error(run(grpo("x", {"--reward_model", base, "--reward_adapters", "other"})), 2,
               {"--reward_adapters other: no adapters"});
  expect_error(
      run(grpo("x", {"--reward_model", base, "--reward_adapters", "adapters", "adapters"})), 2,
      {"--reward_adapters: adapters for 2 of 1 reward models"});
}

TEST_F(Judging, AProgramsCommasAreItsOwn) {
  write("judge.sh", "echo \"$2\" > told\nwhile read -r row; do echo 0.5; done\n");
  const ProgramResult result =
      ok(grpo("out", {"--reward_funcs", "repetition,program:sh judge.sh --words a,b"}));
  EXPECT_EQ(content_of(*this / "told"), "a,b\n");
  const auto step = steps_of(*this / "out").at(0);
  EXPECT_EQ(step.at("rewards/program:judge.sh/mean"), 0.5);
  EXPECT_TRUE(step.contains("rewards/repetition/mean"));
}

TEST_F(Judging, WhereNoAnswerCouldBeJudged) {
  // From the beginning: the run ends, and its answers wait for a better program.
  write("judge.sh", "cat > asked\n[ -e bad ] || awk '{ print length($0) % 7 }' asked\n");
  write("bad", "");
  const std::vector<std::string> words = grpo("out", {"--reward_funcs", "program:sh judge.sh"});
  expect_error(run(words), 3, {"program:judge.sh could judge none of the first 4 answers"});
  EXPECT_FALSE(fs::exists(*this / "out" / "DONE"));
  EXPECT_FALSE(fs::is_empty(*this / "out" / "rollouts"));
  // No further prompts are asked for before it is said.
  std::vector<std::string> further = grpo("further", {"--reward_funcs", "program:sh judge.sh"});
  further.insert(further.end(), {"--dynamic_sample", "true", "--max_resample_times", "9"});
  write("judge.sh",
        "cat > asked\necho x >> times\n[ -e bad ] || awk '{ print length($0) % 7 }' asked\n");
  expect_error(run(further), 3, {"program:judge.sh could judge none of the first 4 answers"});
  EXPECT_EQ(content_of(*this / "times"), "x\n");
  fs::remove(*this / "bad");
  ok(words);
  ok(grpo("whole", {"--reward_funcs", "program:sh judge.sh"}));
  expect_same_losses(*this / "out", *this / "whole", 4);
  // In between: nothing is learnt from them, and nothing untrue is shown.
  write("judge.sh",
        "echo x >> judged\n[ $(wc -l < judged) -ne 2 ] || exit 0\nawk '{ print NR % 2 }'\n");
  const ProgramResult result =
      ok(grpo("once", {"--reward_funcs", "program:sh judge.sh", "--beta", "0"}));
  EXPECT_THAT(result.err,
              HasSubstr("program:judge.sh could judge none of 4 answers: nothing is learnt"));
  EXPECT_THAT(result.err, Not(HasSubstr("got the same reward")));
  const auto steps = steps_of(*this / "once");
  EXPECT_FALSE(steps.at(1).contains("reward"));
  EXPECT_EQ(steps.at(1).at("grad_norm"), 0);
  EXPECT_TRUE(steps.at(2).contains("reward"));
}

TEST_F(Judging, WhereOneAnswerOfAGroupIsJudgedNoneAreCalledEqual) {
  write("judge.sh", "awk '{ print NR % 2 ? \"1\" : \"null\" }'\n");
  const ProgramResult result =
      ok(grpo("out", {"--reward_funcs", "program:sh judge.sh", "--beta", "0"}));
  EXPECT_EQ(steps_of(*this / "out").at(0).at("reward"), 1);
  EXPECT_THAT(result.err, Not(HasSubstr("got the same reward")));
}

TEST_F(Judging, RewardsThatAreAllEqualTeachNothing) {
  write("judge.sh", "while read -r row; do echo 1; done\n");
  const ProgramResult result =
      ok(grpo("out", {"--reward_funcs", "program:sh judge.sh", "--beta", "0", "--log_completions",
                      "true", "--weight_decay", "0"}));
  EXPECT_THAT(result.err, HasSubstr("all 2 answers to each prompt got the same reward"));
  for (const Json& step : steps_of(*this / "out")) {
    EXPECT_EQ(step.at("reward"), 1);
    EXPECT_EQ(step.at("frac_reward_zero_std"), 1);
    EXPECT_EQ(step.at("grad_norm"), 0);
  }
  std::ifstream samples(*this / "out" / "samples.jsonl");
  for (std::string text; std::getline(samples, text);)
    EXPECT_EQ(Json::parse(text).value("advantage", 0.0), 0);
  EXPECT_EQ(content_of(*this / "out" / "model.safetensors"),
            content_of(good("model") / "model.safetensors"));
}

TEST_F(Judging, PairsThatTeachNothingAreCountedByTheirReason) {
  std::string rows = content_of(*this / "pairs.jsonl");
  const auto add = [&](const char* prompt, const char* chosen, const char* rejected) {
    rows += Json{{"prompt", prompt}, {"chosen", chosen}, {"rejected", rejected}}.dump() + "\n";
  };
  add("a", "b", "b");
  add("a", "", "b");
  add("a", "b", "");
  add("", "b", "c");
  write("mixed.jsonl", rows);
  const std::vector<std::string> more = {"--tuner", "full", "--val_ratio", "0"};
  const ProgramResult result = ok(line({"rlhf"}, "mixed.jsonl", "mixed", more));
  EXPECT_THAT(result.err, HasSubstr("16 read, 12 kept, 4 dropped"));
  EXPECT_THAT(result.err, HasSubstr("1 chosen and rejected do not differ (mixed.jsonl:13)"));
  EXPECT_THAT(result.err, HasSubstr("2 empty answer (mixed.jsonl:14)"));
  EXPECT_THAT(result.err, HasSubstr("1 empty question (mixed.jsonl:16)"));
  ok(line({"rlhf"}, "pairs.jsonl", "good", more));
  expect_same_losses(*this / "mixed", *this / "good", 4);
}

TEST_F(Judging, AFileThatIsNotThereIsLookedForHereAlone) {
  fs::create_directories(*this / "data");
  const ProgramResult result = run(line({"rlhf", "--rlhf_type", "dpo"}, "data/nofile.jsonl", "x"));
  EXPECT_THAT(result.err, Not(HasSubstr("is in no cache here")));
  expect_error(result, 3, {"data/nofile.jsonl"});
}

TEST_F(Judging, ARunThatIsOverwrittenLeavesNoPicturesOrAnswersOfItsOwn) {
  ok(grpo("out",
          {"--reward_funcs", "repetition", "--log_completions", "true", "--plot_loss", "true"}));
  EXPECT_TRUE(fs::exists(*this / "out" / "images" / "train_reward.png"));
  EXPECT_TRUE(fs::exists(*this / "out" / "samples.jsonl"));
  write("out/images/mine.png", "mine");
  ok(line({"rlhf"}, "pairs.jsonl", "out",
          {"--tuner", "full", "--overwrite_output_dir", "--plot_loss", "true"}));
  EXPECT_FALSE(fs::exists(*this / "out" / "images" / "train_reward.png"));
  EXPECT_FALSE(fs::exists(*this / "out" / "samples.jsonl"));
  EXPECT_TRUE(fs::exists(*this / "out" / "images" / "train_logps_chosen.png"));
  EXPECT_EQ(content_of(*this / "out" / "images" / "mine.png"), "mine");
}

TEST_F(Judging, AReferenceOfAnotherVocabularyIsRefused) {
  Json config = Json::parse(content_of(good("model") / "config.json"));
  const auto size = config.at("vocab_size").get<int64_t>();
  config["vocab_size"] = size + 12;
  write("config.json", config.dump());
  ok({"init", "--config", "config.json", "--tokenizer", good("tokenizer").string(), "--output",
      "other"});
  for (const char* type : {"dpo", "grpo"}) {
    SCOPED_TRACE(type);
    std::vector<std::string> words = {"--ref_model", "other", "--tuner", "full"};
    if (std::string(type) == "grpo") words.insert(words.end(), {"--reward_funcs", "format"});
    expect_error(run(line({"rlhf", "--rlhf_type", type}, "pairs.jsonl", "x", words)), 4,
                 {"--ref_model other", std::to_string(size + 12), std::to_string(size)});
  }
  EXPECT_FALSE(fs::exists(*this / "x" / "DONE"));
}

TEST_F(Judging, ARewardThatIsNoNumberOrACrashIsNoScore) {
  const auto trained_with = [&](const std::string& to, const std::string& script) {
    write("judge.sh", script);
    return run(grpo(to, {"--reward_funcs", "program:sh judge.sh"}));
  };
  const ProgramResult nan = trained_with(
      "nan", "n=0\nwhile read -r row; do n=$((n + 1)); [ $n = 2 ] && echo NaN || echo $n; done\n");
  EXPECT_EQ(nan.exit_code, 0) << nan.err;
  EXPECT_THAT(nan.err, HasSubstr("[reward] sh: 1 of 4 answers without a score"));
  const Json step = steps_of(*this / "nan").at(0);
  EXPECT_NEAR(step.at("reward").get<double>(), (1 + 3 + 4) / 3.0, 1e-6) << "not zero";
  const ProgramResult crashed = trained_with(
      "crashed", "read -r row; echo 1; read -r row; echo 2; read -r row; echo 3; kill -SEGV $$\n");
  EXPECT_EQ(crashed.exit_code, 0) << crashed.err;
  EXPECT_THAT(crashed.err, HasSubstr("1 of 4 answers without a score (ended by signal 11)"));
  EXPECT_EQ(steps_of(*this / "crashed").at(0).at("reward"), 2);
  expect_error(trained_with("all", "while read -r row; do echo NaN; done\n"), 3,
               {"could judge none of the first 4 answers"});
}

TEST_F(Judging, ADistanceThatExplodesEndsTheRun) {
  for (const std::string type : {"grpo", "ppo"}) {
    SCOPED_TRACE(type);
    const ProgramResult result =
        run(line({"rlhf", "--rlhf_type", type}, "pairs.jsonl", type,
                 {"--num_generations", "2", "--max_completion_length", "6", "--tuner", "full",
                  "--reward_funcs", "soft_overlong", "--soft_cache_length", "4", "--lr", "0.1",
                  "--save_steps", "1", "--max_kl", "1e-6", "--num_iterations", "1"}));
    expect_error(result, 9, {"(KL)", "--max_kl allows 1e-06"});
    EXPECT_TRUE(fs::exists(*this / type / "checkpoint-1" / "DONE"));
    EXPECT_FALSE(fs::exists(*this / type / "model.safetensors"));
  }
}

TEST_F(Judging, AnswersThatAreCutByTheModelsPositionsAreNamed) {
  const auto drawn = [&](const std::string& tokens) {
    return ok(with(grpo("out" + tokens, {"--reward_funcs", "repetition"}),
                   "--max_completion_length", tokens))
        .err;
  };
  EXPECT_THAT(drawn("4096"), HasSubstr("--max_completion_length 4096: prompts have up to"));
  EXPECT_THAT(drawn("8"), Not(HasSubstr("prompts have up to")));
}

TEST_F(Judging, FilesThatWereTokenisedBeforehandAreNoNameOfAHub) {
  fs::create_directories(*this / "data");
  ok({"preprocess", "--input", "pairs.jsonl", "--tokenizer-name-or-path", good("model").string(),
      "--output-prefix", "data/pairs"});
  const std::vector<std::string> words = {"--tuner", "full", "--val_ratio", "0"};
  const ProgramResult result =
      ok(line({"rlhf", "--rlhf_type", "dpo"}, "data/pairs", "packed", words));
  EXPECT_THAT(result.err, HasSubstr("data/pairs: preprocessed, 12 samples"));
  ok(line({"rlhf", "--rlhf_type", "dpo"}, "pairs.jsonl", "rows", words));
  expect_same_losses(*this / "packed", *this / "rows", 4);
}

TEST_F(Judging, ARewardModelIsConvertedInItsOwnType) {
  reward_model("narrow", "full", {"--dtype", "bf16"});
  ok({"convert", "narrow", "mcore", "--to", "mcore", "--tp", "2", "--orm"});
  ok({"convert", "mcore", "back", "--to", "hf"});
  EXPECT_EQ(content_of(*this / "back" / "model.safetensors"),
            content_of(*this / "narrow" / "model.safetensors"));
}

TEST_F(Judging, WhatABasePredictsFurtherAheadIsNoPartOfARewardModel) {
  write("config.json", tiny_model("glm4_moe").dump());
  ok({"init", "--config", "config.json", "--tokenizer", good("tokenizer").string(), "--output",
      "begun"});
  std::vector<std::string> base =
      line({"sft"}, good("good.jsonl").string(), "base",
           {"--tuner", "full", "--mtp-num-layers", "1", "--from_scratch", "--val_ratio", "0"});
  ok(with(base, "--model", "begun"));
  ok(with(line({"rlhf", "--rlhf_type", "rm"}, "pairs.jsonl", "judge", {"--tuner", "full"}),
          "--model", "base"));
  const ProgramResult there = ok({"convert", "judge", "mcore", "--to", "mcore", "--orm"});
  EXPECT_THAT(there.err, HasSubstr("tensors of layers that predict further ahead (MTP) are left"));
  ok({"convert", "mcore", "back", "--to", "hf"});
  const auto reward_by = [&](const std::string& judge) {
    ok(grpo("by", {"--reward_model", judge, "--overwrite_output_dir"}));
    return steps_of(*this / "by")[0].at("reward").get<double>();
  };
  EXPECT_NEAR(reward_by("judge"), reward_by("back"), 1e-6);
}

/// A line of its scripts for one stage, on data that its own preprocessing makes.
class MindSpeedScripts : public PreferenceLines {
 protected:
  static std::vector<std::string> words_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    return words;
  }
  void preprocess(const std::string& rows, const std::string& to, const std::string& more) const {
    ok(words_of("preprocess --input " + rows + " --tokenizer-type PretrainedFromHF" +
                " --tokenizer-name-or-path " + good("model").string() + " --output-prefix " + to +
                " --workers 1 --log-interval 1000 " + more));
  }
  std::vector<Json> trained(const std::string& stage, const std::string& data,
                            const std::string& more) const {
    const std::string to = "run_" + stage;
    ok(words_of(
        "posttrain --use-mcore-models --tensor-model-parallel-size 1"
        " --pipeline-model-parallel-size 1 --num-layers 2 --hidden-size 32"
        " --ffn-hidden-size 48 --num-attention-heads 4 --group-query-attention"
        " --num-query-groups 2 --tokenizer-type PretrainedFromHF"
        " --tokenizer-name-or-path " +
        good("model").string() +
        " --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1"
        " --global-batch-size 4 --make-vocab-size-divisible-by 1 --lr 1e-3 --min-lr 1e-4"
        " --train-iters 3 --lr-decay-style cosine --lr-warmup-fraction 0.1"
        " --init-method-std 0.01 --attention-dropout 0.0 --hidden-dropout 0.0 --swiglu"
        " --use-fused-swiglu --normalization RMSNorm --use-fused-rmsnorm --norm-epsilon 1e-6"
        " --position-embedding-type rope --use-fused-rotary-pos-emb --rotary-base 10000"
        " --untie-embeddings-and-output-weights --add-qkv-bias --disable-bias-linear"
        " --use-flash-attn --no-masked-softmax-fusion --attention-softmax-in-fp32"
        " --no-gradient-accumulation-fusion --weight-decay 0.0 --clip-grad 1.0"
        " --adam-beta1 0.9 --adam-beta2 0.999 --initial-loss-scale 4096 --bf16 --seed 42"
        " --load " +
        good("model").string() + " --save " + to + " --data-path " + data +
        " --split 100,0,0 --log-interval 1 --save-interval 3 --eval-interval 3"
        " --eval-iters 0 --no-load-optim --no-load-rng --distributed-backend nccl"
        " --finetune --is-instruction-dataset --variable-seq-lengths --stage " +
        stage + " " + more));
    return steps_of(*this / to);
  }
};

TEST_F(MindSpeedScripts, OfEveryStageAreTakenAsTheyStand) {
  write("orca.jsonl", "");
  std::string pairs, steps, prompts;
  for (int i = 0; i < 12; ++i) {
    const std::string number = std::to_string(i);
    pairs += Json{{"system", "Be terse."},
                  {"question", "question " + number},
                  {"chosen", "yes " + number},
                  {"rejected", "no"}}
                 .dump() +
             "\n";
    steps += Json{{"input", "It is " + number + "#no#"}, {"value", {"+", "-"}}}.dump() + "\n";
    prompts +=
        Json{{"instruction", "question " + number}, {"input", ""}, {"output", ""}}.dump() + "\n";
  }
  write("orca.jsonl", pairs);
  write("steps.jsonl", steps);
  write("prompts.jsonl", prompts);
  preprocess("orca.jsonl", "data/orca",
             "--handler-name AlpacaStylePairwiseHandler --map-keys "
             "{\"prompt\":\"question\",\"query\":\"\",\"system\":\"system\"}");
  preprocess("steps.jsonl", "data/steps",
             "--handler-name AlpacaStyleProcessRewardHandler --placeholder-token # "
             "--reward-tokens + -");
  preprocess("prompts.jsonl", "data/prompts", "--handler-name PPOAlpacaStyleInstructionHandler");
  EXPECT_NEAR(
      trained("dpo", "data/orca", "--is-pairwise-dataset --dpo-loss-type sigmoid --dpo-beta 0.1")
          .at(0)
          .at("loss")
          .get<double>(),
      std::log(2.0), 1e-2);
  EXPECT_TRUE(trained("simpo", "data/orca",
                      "--is-pairwise-dataset --simpo-loss-type sigmoid --simpo-beta 2.5 "
                      "--gamma-beta-ratio 1.4")
                  .at(0)
                  .contains("rewards/accuracies"));
  EXPECT_TRUE(trained("orm", "data/orca", "--is-pairwise-dataset").at(0).contains("accuracy"));
  EXPECT_TRUE(trained("prm", "data/steps", "--placeholder-token # --reward-tokens + -")
                  .at(0)
                  .contains("acc"));
  EXPECT_TRUE(trained("trl_ppo", "data/prompts",
                      "--reward-model run_orm --max-new-tokens 4 --kl-coef 0.3 --gamma 1.0 "
                      "--lam 0.95 --clip-ratio 0.2 --cliprange-value 0.2")
                  .at(0)
                  .contains("objective/kl"));
}

class StepScoresLine : public PreferenceLines {
 protected:
  void SetUp() override {
    PreferenceLines::SetUp();
    std::string judged, open;
    for (int i = 0; i < 12; ++i) {
      const std::string question = "what is " + std::to_string(i) + "? ";
      const std::string right = "It is " + std::to_string(i),
                        wrong = "no it is " + std::to_string(i + 1);
      judged +=
          Json{{"input", question + right + "#" + wrong + "#"}, {"value", {"+", "-"}}}.dump() +
          "\n";
      open += Json{{"input", question + right + "#" + wrong + "#"}}.dump() + "\n";
    }
    write("judged.jsonl", judged);
    write("open.jsonl", open);
  }
  void train(const std::string& to, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"--placeholder-token",
                                      "#",
                                      "--reward-tokens",
                                      "+",
                                      "-",
                                      "--max_steps",
                                      "12",
                                      "--lr",
                                      "5e-3",
                                      "--lr_scheduler",
                                      "constant"};
    words.insert(words.end(), more.begin(), more.end());
    ok(line({"posttrain", "--stage", "prm"}, "judged.jsonl", to, words));
  }
  std::vector<Json> scores_of(const std::string& model, const std::string& data,
                              const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {
        "infer", "--model",  model,          "--dataset",   data,      "--placeholder_token",
        "#",     "--output", "scores.jsonl", "--overwrite", "--dtype", "fp32"};
    words.insert(words.end(), more.begin(), more.end());
    ok(words);
    std::ifstream file(*this / "scores.jsonl");
    std::vector<Json> rows;
    for (std::string text; std::getline(file, text);) rows.push_back(Json::parse(text));
    return rows;
  }
  void expect_right_and_wrong(const std::vector<Json>& rows) const {
    ASSERT_EQ(rows.size(), 12u);
    for (const Json& row : rows) {
      ASSERT_EQ(row.at("step_scores").size(), 2u) << row.dump();
      EXPECT_GT(row.at("step_scores")[0].get<double>(), 0.5) << row.dump();
      EXPECT_LT(row.at("step_scores")[1].get<double>(), 0.5) << row.dump();
    }
  }
};

TEST_F(StepScoresLine, OfModelsWithAHeadForStepsAndOfTokensThatJudge) {
  const std::vector<std::string> head = {"--step-head", "class"},
                                 tokens = {"--reward_tokens", "+", "-"};
  train("head", head);
  train("adapters", {"--step-head", "class", "--lora-r", "4"});
  train("tokens", {});
  const std::vector<Json> first = scores_of("head", "judged.jsonl");
  expect_right_and_wrong(first);
  EXPECT_EQ(first[0].at("labels"), Json({"+", "-"}));
  EXPECT_EQ(first[0].at("query"), "what is 0? It is 0#no it is 1#");
  const std::vector<Json> alone = scores_of("head", "open.jsonl", {"--batch_size", "1"});
  ASSERT_EQ(alone.size(), 12u);
  EXPECT_FALSE(alone[0].contains("labels"));
  for (size_t i = 0; i < alone.size(); ++i) {
    for (size_t step = 0; step < 2; ++step)
      EXPECT_NEAR(alone[i].at("step_scores")[step].get<double>(),
                  first[i].at("step_scores")[step].get<double>(), 1e-5);
  }
  expect_right_and_wrong(scores_of("tokens", "judged.jsonl", tokens));
  EXPECT_EQ(scores_of("adapters", "open.jsonl").size(), 12u);
  // Steps behind a prompt, a text that is typed, and rows that cannot be judged.
  write("steps.jsonl", R"({"prompt": "what is 3?", "completions": ["It is 3", "no it is 4"]})"
                       "\n");
  EXPECT_EQ(scores_of("head", "steps.jsonl").at(0).at("query"),
            "what is 3?\nIt is 3\n#\nno it is 4\n#");
  const ProgramResult typed =
      ok({"infer", "--model", "head", "--prompt", "It is 0#no it is 1#", "--placeholder_token", "#",
          "--quantization", "bitsandbytes", "--qlora"});
  EXPECT_THAT(typed.out, HasSubstr("[STEPS] 0."));
  EXPECT_THAT(typed.err,
              HasSubstr("--qlora, --quantization have no effect where steps are judged"));
  write("bad.jsonl", "{\"input\": \"no steps\"}\n{\"input\": \"It is 1#\"}\n{\"input\": \"" +
                         std::string(400, 'x') + "#\"}\n");
  const std::vector<Json> bad = scores_of("head", "bad.jsonl");
  EXPECT_THAT(bad.at(0).at("error").get<std::string>(), HasSubstr("0 placeholders"));
  EXPECT_EQ(bad.at(1).at("step_scores").size(), 1u);
  EXPECT_THAT(bad.at(2).at("error").get<std::string>(), HasSubstr("64 positions"));
  expect_error(run({"infer", "--model", "head"}), 2, {"does not chat", "--prompt"});
  expect_error(run({"infer", "--model", "head", "--prompt", "a", "--placeholder_token", "ab c"}), 4,
               {"no single token"});
  expect_error(run({"infer", "--model", "tokens", "--prompt", "a#", "--placeholder_token", "#",
                    "--reward_tokens", "+"}),
               2, {"--reward_tokens", "at least two"});
  expect_error(run({"infer", "--model", "head", "--prompt", "no", "--placeholder_token", "#"}), 3,
               {"no row has a step", "--placeholder_token"});
}

}  // namespace
}  // namespace danlu::test
