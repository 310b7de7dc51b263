// What the flags of three systems say about preference training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "settings/model_source.h"
#include "settings/objective_difference.h"
#include "settings/option_lines.h"
#include "settings/ranking_tokens.h"
#include "text/template_record.h"

namespace danlu::settings::options_test {

using testing::HasSubstr;

class ObjectiveOptions : public TrainOptions {
 protected:
  ObjectiveConfig objective(const std::string& verb, const std::vector<std::string>& words) const {
    return with(verb, words).objective;
  }
  PreferenceConfig pairs(const std::string& verb, const std::vector<std::string>& words) const {
    const ObjectiveConfig config = objective(verb, words);
    EXPECT_EQ(config.kind, ObjectiveKind::kPreference);
    return config.preference;
  }
};

TEST_F(ObjectiveOptions, WithoutAStageItIsLanguageModelling) {
  for (const char* verb : {"sft", "pretrain", "posttrain"})
    EXPECT_EQ(objective(verb, {}).kind, ObjectiveKind::kLanguage) << verb;
  EXPECT_TRUE(objective_identity(objective("sft", {})).is_null());
}

TEST_F(ObjectiveOptions, MindSpeedsLines) {
  const PreferenceConfig dpo = pairs(
      "posttrain", {"--stage", "dpo", "--dpo-beta", "0.3", "--dpo-loss-type", "sigmoid",
                    "--dpo-label-smoothing", "0.1", "--pref-ftx", "0.5", "--is-pairwise-dataset"});
  EXPECT_TRUE(dpo.has_reference);
  EXPECT_EQ(dpo.beta, 0.3);
  EXPECT_EQ(dpo.label_smoothing, 0.1);
  EXPECT_EQ(dpo.likelihood, LikelihoodTerm::kAnswerMeans);
  EXPECT_EQ(dpo.likelihood_weight, 0.5);
  // Its defaults: beta 2.5, and gamma as a multiple of it.
  const PreferenceConfig simpo = pairs("posttrain", {"--stage", "simpo"});
  EXPECT_FALSE(simpo.has_reference);
  EXPECT_TRUE(simpo.averages);
  EXPECT_EQ(simpo.beta, 2.5);
  EXPECT_DOUBLE_EQ(simpo.gamma, 3.5);
  EXPECT_EQ(simpo.likelihood, LikelihoodTerm::kNone);
  const PreferenceConfig other =
      pairs("posttrain", {"--stage", "simpo", "--simpo-beta", "2", "--gamma-beta-ratio", "0.5",
                          "--simpo-loss-type", "hinge"});
  EXPECT_EQ(other.gamma, 1.0);
  EXPECT_EQ(other.loss, PairLoss::kHinge);
  const ObjectiveConfig prm = objective(
      "posttrain", {"--stage", "prm", "--reward-tokens", "+", "-", "--placeholder-token", "#"});
  EXPECT_EQ(prm.kind, ObjectiveKind::kProcessReward);
  EXPECT_EQ(prm.process.placeholder, "#");
  EXPECT_EQ(prm.process.reward_tokens, (std::vector<std::string>{"+", "-"}));
}

TEST_F(ObjectiveOptions, RewardModelsOfThreeSystems) {
  const TrainConfig swift =
      with("rlhf", {"--rlhf_type", "rm", "--center_rewards_coefficient", "0.01", "--seed", "9"});
  EXPECT_EQ(swift.objective.kind, ObjectiveKind::kReward);
  EXPECT_EQ(swift.objective.reward.centring, 0.01);
  ASSERT_TRUE(swift.model.score);
  EXPECT_EQ(swift.model.score->form, arch::ScoreForm::kSequence);
  EXPECT_EQ(swift.model.score->seed, 9u);
  // The head goes with the adapters, as PEFT has it.
  EXPECT_EQ(swift.lora.modules_to_save, std::vector<std::string>{"score"});
  EXPECT_EQ(swift.lora.task_type, "SEQ_CLS");
  EXPECT_EQ(swift.longest_sample(), 2 * swift.data.max_length);
  const TrainConfig mindspeed = with("posttrain", {"--stage", "orm", "--no-post-layer-norm"});
  EXPECT_EQ(mindspeed.objective.kind, ObjectiveKind::kReward);
  EXPECT_EQ(mindspeed.model.score->form, arch::ScoreForm::kSequence);
  const TrainConfig factory = with("train", {"--stage", "rm", "--finetuning_type", "lora"});
  EXPECT_EQ(factory.objective.kind, ObjectiveKind::kReward);
  EXPECT_EQ(factory.model.score->form, arch::ScoreForm::kBeside);
  EXPECT_EQ(factory.lora.modules_to_save, std::vector<std::string>{"v_head.summary"});
  EXPECT_EQ(factory.lora.task_type, "CAUSAL_LM");
  EXPECT_FALSE(with("rlhf", {}).model.score);
}

TEST_F(ObjectiveOptions, ModelsThatSortTexts) {
  const TrainConfig one = with("sft", {"--task_type", "seq_cls", "--num_labels", "3"});
  EXPECT_EQ(one.objective.kind, ObjectiveKind::kClasses);
  EXPECT_EQ(one.objective.name, "seq_cls");
  EXPECT_EQ(one.objective.classes.problem, arch::LabelProblem::kOneClass);
  EXPECT_EQ(one.objective.classes.labels, 3);
  ASSERT_TRUE(one.model.score);
  EXPECT_EQ(one.model.score->labels, 3);
  EXPECT_EQ(one.lora.modules_to_save, std::vector<std::string>{"score"});
  EXPECT_EQ(one.lora.task_type, "SEQ_CLS");
  EXPECT_TRUE(one.data.uses_template);
  const TrainConfig number =
      with("sft", {"--task_type", "SEQ_CLS", "--num_labels", "1", "--use_chat_template", "false"});
  EXPECT_EQ(number.objective.classes.problem, arch::LabelProblem::kNumbers);
  EXPECT_FALSE(number.data.uses_template);
  EXPECT_EQ(objective("sft", {"--task_type", "seq_cls", "--num_labels", "5", "--problem_type",
                              "multi_label_classification"})
                .classes.problem,
            arch::LabelProblem::kClasses);
  EXPECT_EQ(objective("sft", {"--task_type", "causal_lm"}).kind, ObjectiveKind::kLanguage);
  // ms-swift's reward models are classifiers of one label.
  EXPECT_EQ(objective("rlhf", {"--rlhf_type", "rm", "--task_type", "seq_cls"}).kind,
            ObjectiveKind::kReward);
}

TEST_F(ObjectiveOptions, VectorsOfTexts) {
  const TrainConfig plain = with("sft", {"--task_type", "embedding"});
  EXPECT_EQ(plain.objective.kind, ObjectiveKind::kEmbedding);
  EXPECT_EQ(plain.objective.name, "embedding");
  EXPECT_EQ(plain.objective.embedding.loss, EmbeddingConfig::Loss::kContrast);
  EXPECT_EQ(plain.objective.embedding.temperature, 0.1);
  EXPECT_TRUE(plain.objective.embedding.in_batch);
  EXPECT_FALSE(plain.model.score);
  EXPECT_TRUE(plain.data.uses_template);
  EXPECT_EQ(plain.longest_sample(), 2 * plain.data.max_length);
  // Rows of a micro-batch are compared with each other: it stays one pass.
  EXPECT_FALSE(with("sft", {"--task_type", "embedding", "--packing"}).data.share_passes);
  EXPECT_TRUE(with("sft", {"--task_type", "embedding", "--packing", "--loss_type", "contrastive"})
                  .data.share_passes);
  const EmbeddingConfig all =
      objective("sft",
                {"--task_type", "embedding", "--infonce_temperature", "0.02", "--infonce_use_batch",
                 "false", "--infonce_hard_negatives", "3", "--infonce_mask_fake_negative", "true",
                 "--infonce_fake_neg_margin", "0.2", "--infonce_include_qq", "true",
                 "--infonce_include_dd", "true", "--mrl_dims", R"({"16": 1, "8": 0.5})"})
          .embedding;
  EXPECT_EQ(all.temperature, 0.02);
  EXPECT_FALSE(all.in_batch);
  EXPECT_EQ(all.hard_negatives, 3);
  EXPECT_TRUE(all.masks_fakes && all.among_anchors && all.among_positives);
  EXPECT_EQ(all.fake_margin, 0.2);
  ASSERT_EQ(all.prefixes.size(), 2u);
  EXPECT_EQ(all.prefixes[0].size, 8);
  EXPECT_EQ(all.prefixes[0].weight, 0.5);
  // Decay would change a head that vectors know nothing of.
  const TrainConfig full = with("sft", {"--task_type", "embedding", "--tuner", "full"});
  const bool has_head = !open_model(full.model).config.tie_embeddings;
  EXPECT_EQ(full.freeze.size(), has_head ? 1u : 0u);
}

TEST_F(ObjectiveOptions, AHeadThatVectorsKnowNothingOfIsNotTrained) {
  const std::vector<std::string> embedding = {"--task_type", "embedding"};
  const bool has_head = !open_model(with("sft", embedding).model).config.tie_embeddings;
  ASSERT_TRUE(has_head);
  EXPECT_THAT(refusal("sft", embedding + std::vector<std::string>{"--modules_to_save", "lm_head"}),
              HasSubstr("--modules_to_save lm_head: vectors of texts have no part"));
  const TrainConfig freeze =
      with("sft", embedding + std::vector<std::string>{"--tuner", "freeze",
                                                       "--freeze_trainable_"
                                                       "layers",
                                                       "1", "--freeze_extra_modules", "lm_head"});
  EXPECT_EQ(freeze.freeze.back(), "^lm_head\\.weight$") << "the last rule counts";
  EXPECT_FALSE(with("sft", embedding + std::vector<std::string>{"--tuner", "lora"})
                   .lora.modules_to_save.size());
}

TEST_F(ObjectiveOptions, SwiftsTemplateOfVectorsIsNone) {
  const TrainConfig plain = with("sft", {"--task_type", "embedding", "--template", "qwen3_emb"});
  EXPECT_FALSE(plain.data.uses_template);
  EXPECT_EQ(plain.data.template_name, "auto");
  EXPECT_EQ(plain.args.at("use_chat_template"), false);
  // A run of ms-swift is gone on with as it began.
  write_json_file(
      directory_ / "model" / "args.json",
      {{"task_type", "embedding"}, {"template", "qwen3_emb"}, {"use_chat_template", true}});
  EXPECT_FALSE(with("sft", {"--task_type", "embedding"}).data.uses_template);
  const text::RecordedTemplate recorded =
      text::recorded_template(text::read_record(directory_ / "model"), directory_ / "model");
  EXPECT_FALSE(recorded.is_named());
}

TEST_F(ObjectiveOptions, InfonceIsSaidByTheEnvironmentToo) {
  ::setenv("INFONCE_TEMPERATURE", "0.5", 1);
  ::setenv("INFONCE_USE_BATCH", "False", 1);
  ::setenv("INFONCE_HARD_NEGATIVES", "2", 1);
  const EmbeddingConfig told = objective("sft", {"--task_type", "embedding"}).embedding;
  EXPECT_EQ(objective("sft", {"--task_type", "embedding", "--infonce_temperature", "0.2"})
                .embedding.temperature,
            0.2);
  for (const char* name : {"INFONCE_TEMPERATURE", "INFONCE_USE_BATCH", "INFONCE_HARD_NEGATIVES"})
    ::unsetenv(name);
  EXPECT_EQ(told.temperature, 0.5);
  EXPECT_FALSE(told.in_batch);
  EXPECT_EQ(told.hard_negatives, 2);
}

TEST_F(ObjectiveOptions, ModelsThatRankDocuments) {
  const TrainConfig tokens = with("sft", {"--task_type", "generative_reranker"});
  EXPECT_EQ(tokens.objective.kind, ObjectiveKind::kRanking);
  EXPECT_EQ(tokens.objective.name, "generative_reranker");
  EXPECT_TRUE(tokens.objective.ranking.by_tokens);
  EXPECT_EQ(tokens.objective.ranking.loss, RankingLoss::kPointwise);
  EXPECT_EQ(tokens.objective.ranking.tokens.positive, "yes");
  EXPECT_EQ(tokens.objective.ranking.tokens.negative, "no");
  EXPECT_EQ(tokens.objective.ranking.most_positives, 1);
  EXPECT_EQ(tokens.objective.ranking.most_negatives, 7);
  EXPECT_FALSE(tokens.model.score);
  EXPECT_EQ(tokens.lora.task_type, "CAUSAL_LM");
  const TrainConfig head = with("sft", {"--task_type", "reranker", "--use_chat_template", "false"});
  EXPECT_FALSE(head.objective.ranking.by_tokens);
  ASSERT_TRUE(head.model.score);
  EXPECT_EQ(head.model.score->labels, 1);
  EXPECT_FALSE(head.model.score->problem);
  EXPECT_EQ(head.lora.modules_to_save, std::vector<std::string>{"score"});
  EXPECT_EQ(head.lora.task_type, "SEQ_CLS");
  EXPECT_FALSE(head.data.uses_template);
  EXPECT_NE(objective_identity(tokens.objective), objective_identity(head.objective));
}

TEST_F(ObjectiveOptions, RankingFollowsSwiftsVariables) {
  const std::vector<std::pair<const char*, const char*>> variables = {
      {"LISTWISE_RERANKER_TEMPERATURE", "0.5"},
      {"LISTWISE_RERANKER_MIN_GROUP_SIZE", "4"},
      {"MAX_POSITIVE_SAMPLES", "2"},
      {"MAX_NEGATIVE_SAMPLES", "15"},
      {"GENERATIVE_RERANKER_POSITIVE_TOKEN", "Yes"},
      {"GENERATIVE_RERANKER_NEGATIVE_TOKEN", "No"}};
  for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  const RankingConfig config =
      objective("sft", {"--task_type", "generative_reranker", "--loss_type", "listwise_reranker"})
          .ranking;
  for (const auto& [name, value] : variables) ::unsetenv(name);
  EXPECT_EQ(config.loss, RankingLoss::kListwise);
  EXPECT_EQ(config.temperature, 0.5);
  EXPECT_EQ(config.least_texts, 4);
  EXPECT_EQ(config.most_positives, 2);
  EXPECT_EQ(config.most_negatives, 15);
  EXPECT_EQ(config.tokens.positive, "Yes");
  EXPECT_EQ(config.tokens.negative, "No");
  // Lists of one document teach nothing, and every row would be dropped.
  ::setenv("MAX_NEGATIVE_SAMPLES", "0", 1);
  EXPECT_THAT(refusal("sft", {"--task_type", "reranker", "--loss_type", "listwise_reranker"}),
              HasSubstr("MAX_NEGATIVE_SAMPLES"));
  EXPECT_EQ(objective("sft", {"--task_type", "reranker"}).ranking.most_negatives, 0);
  ::unsetenv("MAX_NEGATIVE_SAMPLES");
}

TEST_F(ObjectiveOptions, SwiftsLines) {
  EXPECT_EQ(pairs("rlhf", {}).beta, 0.1);
  EXPECT_EQ(objective("rlhf", {}).name, "dpo");
  const PreferenceConfig rpo = pairs("rlhf", {"--rlhf_type", "dpo", "--rpo_alpha", "0.1"});
  EXPECT_EQ(rpo.likelihood, LikelihoodTerm::kAnswerTokens);
  EXPECT_EQ(rpo.likelihood_weight, 0.1);
  const PreferenceConfig simpo = pairs("rlhf", {"--rlhf_type", "simpo"});
  EXPECT_EQ(simpo.beta, 2.0);
  EXPECT_EQ(simpo.gamma, 1.0);
  EXPECT_EQ(simpo.likelihood_weight, 1.0) << "ms-swift adds the cross-entropy";
  EXPECT_EQ(pairs("rlhf", {"--rlhf_type", "simpo", "--beta", "5"}).beta, 5.0);
  EXPECT_EQ(pairs("rlhf", {"--rlhf_type", "cpo", "--cpo_alpha", "0.5"}).likelihood_weight, 0.5);
  const PreferenceConfig orpo = pairs("rlhf", {"--rlhf_type", "orpo"});
  EXPECT_EQ(orpo.loss, PairLoss::kOdds);
  EXPECT_EQ(orpo.likelihood, LikelihoodTerm::kAnswerTokens);
  const ObjectiveConfig kto = objective("rlhf", {"--rlhf_type", "kto", "--undesirable_weight",
                                                 "1.5", "--loss_type", "apo_zero_unpaired"});
  EXPECT_EQ(kto.kind, ObjectiveKind::kUnpaired);
  EXPECT_EQ(kto.unpaired.disliked_weight, 1.5);
  EXPECT_FALSE(kto.unpaired.measures_drift);
  EXPECT_EQ(pairs("rlhf", {"--loss_type", "ipo"}).averages, true);
  EXPECT_TRUE(pairs("rlhf", {"--loss_type", "robust", "--label_smoothing", "0.1"}).robust);
}

TEST_F(ObjectiveOptions, AdaptersDropNothingWhereLogProbabilitiesAreCompared) {
  EXPECT_TRUE(objective("sft", {"--lora_dropout", "0.1"}).drops);
  for (const char* type : {"dpo", "orpo", "simpo", "cpo", "kto", "rm"}) {
    const std::vector<std::string> line = {"--rlhf_type", type};
    EXPECT_FALSE(objective("rlhf", line).drops) << type;
    EXPECT_TRUE(
        objective("rlhf", line + std::vector<std::string>{"--disable_dropout", "false"}).drops)
        << type;
  }
}

TEST_F(ObjectiveOptions, LlamaFactorysFiles) {
  const auto from_file = [&](const std::string& text) {
    std::ofstream(directory_ / "run.yaml") << "finetuning_type: lora\n" << text;
    return objective("train", {(directory_ / "run.yaml").string()});
  };
  const ObjectiveConfig dpo = from_file("stage: dpo\npref_beta: 0.2\npref_loss: sigmoid\n");
  EXPECT_EQ(dpo.name, "dpo");
  EXPECT_EQ(dpo.preference.beta, 0.2);
  const ObjectiveConfig simpo = from_file("stage: dpo\npref_loss: simpo\n");
  EXPECT_EQ(simpo.name, "simpo");
  EXPECT_EQ(simpo.preference.beta, 0.1);
  EXPECT_EQ(simpo.preference.gamma, 0.5);
  EXPECT_EQ(from_file("stage: dpo\npref_loss: orpo\n").preference.likelihood,
            LikelihoodTerm::kAnswerMeans);
  const ObjectiveConfig kto = from_file("stage: kto\nkto_rejected_weight: 1.2\n");
  EXPECT_EQ(kto.kind, ObjectiveKind::kUnpaired);
  EXPECT_EQ(kto.unpaired.disliked_weight, 1.2);
}

TEST_F(ObjectiveOptions, ContradictionsNameTheFlags) {
  EXPECT_THAT(refusal("rlhf", {"--rlhf_type", "kto", "--loss_type", "hinge"}),
              HasSubstr("--loss_type hinge: kto has no such loss"));
  EXPECT_THAT(refusal("rlhf", {"--rpo_alpha", "1", "--pref_ftx", "1"}),
              HasSubstr("--rpo_alpha and --pref_ftx are one term"));
  EXPECT_THAT(refusal("train", {"--stage", "dpo", "--pref_loss", "kto_pair"}),
              AllOf(HasSubstr("--pref_loss kto_pair: dpo has no such loss"),
                    HasSubstr("it has sigmoid, hinge, ipo"), HasSubstr("stage: kto")));
  EXPECT_EQ(pairs("rlhf", {"--loss_type", "IPO"}).averages, true);
  EXPECT_THAT(refusal("rlhf", {"--rlhf_type", "cpo", "--loss_type", "simpo"}),
              HasSubstr("--rlhf_type simpo is that objective"));
  EXPECT_THAT(refusal("rlhf", {"--loss_type", "ipo", "--label_smoothing", "0.1"}),
              HasSubstr("--label_smoothing: only sigmoid"));
  EXPECT_THAT(refusal("sft", {"--rlhf_type", "dpo"}), HasSubstr("of danlu rlhf alone"));
  EXPECT_THAT(refusal("rlhf", {"--stage", "dpo"}), HasSubstr("beside danlu rlhf"));
}

TEST_F(ObjectiveOptions, AReferenceOfAnotherVocabularyIsRefused) {
  fs::create_directories(directory_ / "other");
  Json config = test::tiny_config("llama");
  config["vocab_size"] = config["vocab_size"].get<int64_t>() + 8;
  write_json_file(directory_ / "other" / "config.json", config);
  std::ofstream(directory_ / "other" / "model.safetensors")
      << std::string("\x02\0\0\0\0\0\0\0{}", 10);
  const std::string other = (directory_ / "other").string();
  EXPECT_THAT(refusal<ModelError>("rlhf", {"--ref_model", other}), HasSubstr("a vocabulary of"));
  EXPECT_EQ(objective("rlhf", {"--ref_model", (directory_ / "model").string()}).reference,
            directory_ / "model");
}

TEST_F(ObjectiveOptions, ATeacherIsAReferenceThatIsAlwaysHeld) {
  fs::create_directories(directory_ / "teacher");
  Json other = test::tiny_config("llama");
  other["vocab_size"] = other["vocab_size"].get<int64_t>() + 8;  // rows beyond the tokenizer's
  write_json_file(directory_ / "teacher" / "config.json", other);
  std::ofstream(directory_ / "teacher" / "model.safetensors")
      << std::string("\x02\0\0\0\0\0\0\0{}", 10);
  const std::vector<std::string> line = {"--rlhf_type", "gkd", "--teacher_model",
                                         (directory_ / "teacher").string()};
  const TrainConfig config = with("rlhf", line + std::vector<std::string>{"--tuner", "lora"});
  EXPECT_EQ(config.objective.kind, ObjectiveKind::kDistillation);
  EXPECT_EQ(config.objective.reference, directory_ / "teacher");
  EXPECT_TRUE(config.holds_reference());
  const DistillationConfig& told = config.objective.distillation;
  EXPECT_EQ(told.beta, 0.5) << "of gkd, not of preferences";
  EXPECT_EQ(told.lmbda, 0.5);
  EXPECT_EQ(told.topk, 0);
  EXPECT_TRUE(config.objective.draws());
  EXPECT_FALSE(config.objective.is_rewarded());
  EXPECT_EQ(config.data.learnt, text::trained_part_from_name("last_round", "")) << "as in ms-swift";
  const auto more = [&](const std::vector<std::string>& words) {
    return with("rlhf", line + words);
  };
  EXPECT_EQ(more({"--beta", "1"}).objective.distillation.beta, 1);
  EXPECT_EQ(more({"--loss_scale", "default"}).data.learnt, text::TrainedPart());
  EXPECT_FALSE(more({"--lmbda", "0"}).objective.draws());
  EXPECT_EQ(more({"--max_completion_length", "9"}).longest_sample(),
            more({"--lmbda", "0"}).longest_sample() + 9);
  EXPECT_THAT(notices("rlhf", line + std::vector<std::string>{"--lmbda", "0", "--top_p", "0.5"}),
              HasSubstr("--top_p has no effect in gkd"));
  EXPECT_THAT(refusal("rlhf", {"--rlhf_type", "gkd"}), HasSubstr("gkd without a teacher"));
  EXPECT_THAT(refusal("rlhf", {"--rlhf_type", "grpo", "--reward_funcs", "accuracy",
                               "--teacher_model", (directory_ / "teacher").string()}),
              HasSubstr("--teacher_model: grpo learns from rewards"));
  EXPECT_THAT(refusal("rlhf", line + std::vector<std::string>{"--beta", "1.5"}),
              HasSubstr("--beta 1.5: of gkd"));
}

class GkdOptions : public ObjectiveOptions {
 protected:
  std::string teacher() const { return (directory_ / "teacher").string(); }
  std::vector<std::string> line(const std::vector<std::string>& more) const {
    return std::vector<std::string>{"--rlhf_type", "gkd", "--teacher_model", teacher()} + more;
  }
  void SetUp() override {
    ObjectiveOptions::SetUp();
    fs::copy(directory_ / "model", teacher());
  }
  void change_teacher(const Json& changes) const {
    Json config = test::tiny_config("llama");
    config.update(changes);
    write_json_file(fs::path(teacher()) / "config.json", config);
  }
};

TEST_F(GkdOptions, AReferenceIsNoTeacher) {
  const std::vector<std::string> words =
      line({"--ref_model", (directory_ / "model").string(), "--ref_adapters", "nowhere"});
  EXPECT_EQ(objective("rlhf", words).reference, fs::path(teacher()));
  EXPECT_THAT(notices("rlhf", words), HasSubstr("--ref_model"));
  for (const char* lmbda : {"0", "1"})
    EXPECT_THAT(refusal("rlhf", line({"--lmbda", lmbda, "--precompute_ref_log_probs", "true"})),
                HasSubstr("--precompute_ref_log_probs: a teacher's distributions"));
}

TEST_F(GkdOptions, TheTemperatureIsMsSwiftsUnlessALineSaysAnother) {
  for (const char* profile : {"swift24", "danlu"}) {
    SCOPED_TRACE(profile);
    const ObjectiveConfig silent = objective("rlhf", line({"--profile", profile}));
    EXPECT_EQ(silent.distillation.temperature, 0.9);
    EXPECT_EQ(silent.policy.loss.temperature, 0.9) << "of answers too";
    const ObjectiveConfig said =
        objective("rlhf", line({"--profile", profile, "--temperature", "0.5"}));
    EXPECT_EQ(said.distillation.temperature, 0.5);
    EXPECT_EQ(said.policy.loss.temperature, 0.5);
  }
}

TEST_F(GkdOptions, TheLastAnswerIsLearntUnlessAWordSaysOtherwise) {
  const auto learnt = [&](const std::vector<std::string>& more) {
    return with("rlhf", line(more)).data.learnt.name();
  };
  EXPECT_EQ(learnt({}), "last_round");
  EXPECT_EQ(learnt({"--dtype", "fp16", "--loss_scale", "1024"}), "last_round");
  EXPECT_EQ(learnt({"--train_on_prompt", "false"}), "last_round");
  EXPECT_EQ(learnt({"--mask_history", "false"}), "last_round");
  EXPECT_EQ(learnt({"--loss_scale", "default"}), "default");
  EXPECT_EQ(learnt({"--loss_scale", "all", "--lmbda", "0"}), "all");
  EXPECT_EQ(learnt({"--train_on_prompt", "true", "--lmbda", "0"}), "all");
  EXPECT_THAT(refusal("rlhf", line({"--loss_scale", "all"})),
              HasSubstr("--loss_scale: the model answers what stands before"));
  EXPECT_THAT(refusal("rlhf", line({"--train_on_prompt", "true"})),
              HasSubstr("--train_on_prompt: the model answers what stands before"));
  EXPECT_THAT(refusal("rlhf", line({"--loss_scale", "last_round+ignore_empty_think"})),
              HasSubstr("--loss_scale: empty thoughts would stand"));
}

TEST_F(GkdOptions, ATeacherThatProcessesCannotCutIsNamed) {
  const ScopedVariable size("WORLD_SIZE", "2"), rank("RANK", "0"), local("LOCAL_RANK", "0"),
      port("MASTER_PORT", "1"), address("MASTER_ADDR", "localhost");
  change_teacher({{"num_hidden_layers", 3}});
  EXPECT_EQ(refusal("rlhf", line({"--pp", "2"})), "(accepted)");
  EXPECT_EQ(refusal("rlhf", line({"--pp", "2", "--num_layer_list", "1,1"})), "(accepted)");
  change_teacher({{"num_hidden_layers", 1}});
  EXPECT_THAT(refusal("rlhf", line({"--pp", "2"})),
              HasSubstr("--teacher_model " + teacher() + ": 1 layers"));
  change_teacher({{"num_attention_heads", 1}, {"num_key_value_heads", 1}});
  EXPECT_THAT(refusal("rlhf", line({"--tp", "2"})),
              HasSubstr("--teacher_model " + teacher() +
                        " cannot be cut: [parallel] 2 tensor-parallel ranks"));
  fs::remove(fs::path(teacher()) / "config.json");
  EXPECT_NE(refusal<Error>("rlhf", line({})), "(accepted)");
}

TEST_F(ObjectiveOptions, DifferencesOfObjectivesNameTheFlags) {
  const Json gkd = {
      {"name", "gkd"}, {"distillation", {{"beta", 0.5}, {"lmbda", 0}}}, {"reference", "one"}};
  Json other = gkd;
  other["reference"] = "two";
  other["distillation"]["beta"] = 1;
  EXPECT_EQ(objective_difference(gkd, other),
            "objective.distillation.beta: 0.5 then, 1 now (--beta); objective.reference: \"one\" "
            "then, \"two\" now (--teacher_model)");
  Json dpo = {{"name", "dpo"}, {"reference", "one"}}, changed = dpo;
  changed["reference"] = "two";
  EXPECT_THAT(objective_difference(dpo, changed), HasSubstr("(--ref_model)"));
  const Json dft = {{"name", "dft"}};
  EXPECT_EQ(objective_difference(nullptr, dft),
            "objective: null then, {\"name\":\"dft\"} now (--enable_dft_loss)");
  EXPECT_THAT(objective_difference(dft, nullptr), HasSubstr("(--enable_dft_loss)"));
}

TEST_F(ObjectiveOptions, ARunHoldsAReferenceWhereAdaptersDoNotGiveIt) {
  EXPECT_FALSE(with("sft", {}).holds_reference());
  EXPECT_FALSE(with("rlhf", {"--tuner", "lora"}).holds_reference());
  EXPECT_TRUE(with("rlhf", {"--tuner", "full"}).holds_reference());
  EXPECT_FALSE(with("rlhf", {"--tuner", "full", "--rlhf_type", "simpo"}).holds_reference());
  EXPECT_TRUE(with("rlhf", {"--tuner", "lora", "--ref_model", (directory_ / "model").string()})
                  .holds_reference());
}

TEST(RankingTokens, AModelIsCalledByItsOwnNameAndNotByWhereItLies) {
  for (const char* model :
       {"Qwen3-Reranker-0.6B", "/models/qwen3-reranker-4b/", "/models/Qwen/Qwen3-Reranker-0___6B",
        "/hub/models--Qwen--Qwen3-Reranker-0.6B/snapshots/6e9e69", "/m/Qwen3-Reranker-Q8_0.gguf"})
    EXPECT_TRUE(is_called_qwen3_reranker(model)) << model;
  for (const char* model :
       {"/qwen3-reranker-lab/Qwen3-8B", "/qwen3-reranker-lab/models--Qwen--Qwen3-8B/snapshots/6e9",
        "out/checkpoint-10"})
    EXPECT_FALSE(is_called_qwen3_reranker(model)) << model;
}

}  // namespace danlu::settings::options_test
