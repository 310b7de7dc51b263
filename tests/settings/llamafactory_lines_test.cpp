// Lines of LLaMA-Factory have its templates, and say so in what a run writes down.
#include <gmock/gmock.h>

#include "option_lines.h"
#include "settings/options/data_options.h"

namespace danlu::settings::options_test {
namespace {

class LlamaFactoryLines : public TrainOptions {
 protected:
  TrainConfig of_file(const std::string& text) const {
    std::ofstream(directory_ / "run.yaml") << text;
    return with("train", {(directory_ / "run.yaml").string()});
  }
};

TEST_F(LlamaFactoryLines, ATemplatesNameIsLlamaFactorysAndRecordedAsSuch) {
  const std::string lora = "finetuning_type: lora\nstage: sft\n";
  const TrainConfig theirs = of_file(lora + "template: qwen\n");
  EXPECT_EQ(theirs.profile.name, "llamafactory");
  EXPECT_EQ(theirs.data.template_name, "llamafactory:qwen");
  EXPECT_EQ(theirs.args.at("template"), "llamafactory:qwen");
  EXPECT_EQ(theirs.settings.at("template"), "qwen") << "config.yaml says it as it was typed";
  for (const char* name : {"auto", "qwen2.5", "mine"})
    EXPECT_EQ(of_file(lora + "template: " + name + "\n").data.template_name, name);
}

// mask_history and train_on_prompt are Danlu's own names too.
TEST_F(LlamaFactoryLines, NamesThatDanluHasTooChooseNothingAlone) {
  for (const char* flag : {"--mask_history", "--train_on_prompt"}) {
    EXPECT_EQ(with("sft", {flag, "true"}).profile.name, "danlu");
    EXPECT_EQ(with("train", {flag, "true", "--data_path", "x.json"}).profile.name, "alpaca");
    EXPECT_EQ(with("train", {flag, "true", "--stage", "sft"}).profile.name, "llamafactory");
  }
}

// mcore_adapter's and Megatron Bridge's flags stand in its files beside its own.
TEST_F(LlamaFactoryLines, FlagsOfMegatronDoNotChangeWhoseDefaultsHold) {
  const TrainConfig config = of_file(
      "stage: sft\nfinetuning_type: full\ncutoff_len: 4096\ntensor_model_parallel_size: 1\n"
      "pipeline_model_parallel_size: 1\nuse_distributed_optimizer: true\n"
      "bias_activation_fusion: true\nmixed_precision: bf16_mixed\nexport_hf_on_finish: false\n"
      "use_packed_sequences: false\n");
  EXPECT_EQ(config.profile.name, "llamafactory");
  EXPECT_EQ(config.schedule.shape.lr, 5e-5);
  EXPECT_FALSE(config.objective.averages_micro_batches);
  EXPECT_THAT(
      refusal("train", {"--stage", "sft", "--cutoff_len", "64", "--mixed_precision", "fp8"}),
      testing::HasSubstr("--mixed_precision is not available"));
}

TEST_F(LlamaFactoryLines, StepsBelowOneAreAPartOfAllRoundedUp) {
  OutputConfig output = of_file(
                            "stage: sft\nfinetuning_type: lora\nsave_steps: 0.25\neval_steps: 0.1\n"
                            "eval_strategy: steps\nlogging_steps: 0.001\n")
                            .output;
  EXPECT_EQ(output.shares.save, 0.25);
  output.count_shares(30);
  EXPECT_EQ(output.save_steps, 8);
  EXPECT_EQ(output.eval_steps, 3);
  EXPECT_EQ(output.logging_steps, 1);
  OutputConfig whole = with("sft", {"--save_steps", "20.0", "--logging_steps", "3"}).output;
  whole.count_shares(30);
  EXPECT_EQ(whole.save_steps, 20);
  EXPECT_EQ(whole.logging_steps, 3);
  EXPECT_THAT(refusal("sft", {"--save_steps", "2.5"}), testing::HasSubstr("--save_steps 2.5"));
}

TEST_F(LlamaFactoryLines, BestCheckpointsNeedEvaluations) {
  EXPECT_EQ(with("sft", {"--save_strategy", "best", "--val_ratio", "0.1"}).output.save,
            Interval::kBest);
  EXPECT_THAT(refusal("sft", {"--save_strategy", "best", "--eval_strategy", "no"}),
              testing::HasSubstr("--save_strategy"));
}

TEST_F(LlamaFactoryLines, TokensCountByEntropiesOrBesideTheModelAsItWas) {
  const std::string full = "stage: sft\nfinetuning_type: full\n";
  const ObjectiveConfig eaft = of_file(full + "use_eaft_loss: true\n").objective;
  EXPECT_EQ(eaft.entropy_power, 1.0);
  EXPECT_FALSE(eaft.has_reference());
  const TrainConfig asft = of_file(full + "use_asft_loss: true\nasft_alpha: 0.05\n");
  EXPECT_EQ(asft.objective.anchor_weight, 0.05);
  EXPECT_TRUE(asft.objective.weighs_by_probability);
  EXPECT_TRUE(asft.holds_reference());
  EXPECT_NE(objective_identity(eaft), objective_identity(asft.objective));
  for (const std::vector<std::string>& tuner :
       std::vector<std::vector<std::string>>{{}, {"--tuner", "lora"}})
    EXPECT_THAT(refusal("sft", tuner + std::vector<std::string>{"--use_asft_loss"}),
                testing::HasSubstr("a whole model as it was"));
  EXPECT_THAT(refusal("sft", {"--use_asft_loss", "--use_eaft_loss", "--tuner", "full"}),
              testing::HasSubstr("are two losses"));
  EXPECT_THAT(refusal("rlhf", {"--use_eaft_loss"}), testing::HasSubstr("dpo has no such loss"));
  EXPECT_THAT(notices("sft", {"--eaft_alpha", "2"}), testing::HasSubstr("--eaft_alpha"));
}

TEST_F(LlamaFactoryLines, ATokenizedPathIsWrittenOnceAndThenTrainedOn) {
  const fs::path place = directory_ / "tokens";
  const std::string line =
      "stage: sft\nfinetuning_type: lora\ntokenized_path: " + place.string() + "\n";
  EXPECT_EQ(of_file(line).data.write_to, place);
  fs::create_directories(place / "train");
  std::ofstream(place / "strange.arrow") << "x";
  EXPECT_THAT(refusal("sft", {"--tokenized_path", place.string()}),
              testing::HasSubstr("holds no samples that danlu wrote"));
  std::ofstream(place / "train" / "rows.jsonl") << "{\"input_ids\":[1,2],\"labels\":[-100,2]}\n";
  const TrainConfig later = of_file(line);
  EXPECT_TRUE(later.data.write_to.empty());
  EXPECT_EQ(later.data.train, std::vector<std::string>{(place / "train").string()});
  EXPECT_TRUE(later.data.validation.empty());
}

TEST_F(LlamaFactoryLines, ElsewhereItIsMindSpeeds) {
  const TrainConfig ours = with("sft", {"--template", "qwen"});
  EXPECT_EQ(ours.data.template_name, "qwen");
  EXPECT_EQ(ours.args.at("template"), "qwen");
  const TrainConfig named = with("sft", {"--template", "llamafactory:qwen"});
  EXPECT_EQ(named.data.template_name, "llamafactory:qwen");
}

}  // namespace
}  // namespace danlu::settings::options_test
