// Flags of ms-swift's and LLaMA-Factory's lines that say something of Danlu's in other words.
#include <gmock/gmock.h>

#include "settings/option_lines.h"
#include "settings/options/processes.h"
#include "settings/run_plan.h"

namespace danlu::settings::options_test {

using testing::ElementsAre;
using testing::HasSubstr;

// ms-swift 2 has a folder for each model below the directory that a line names, ms-swift 3 has
// none.
TEST_F(TrainOptions, VersionsLieWhereTheLinesSystemPutsThem) {
  const auto place = [&](const std::vector<std::string>& more) {
    const OutputConfig output = with("sft", more).output;
    EXPECT_TRUE(output.versioned);
    return output.directory.string();
  };
  EXPECT_EQ(place({"--train_type", "lora", "--output_dir", "runs"}), "runs");
  EXPECT_EQ(place({"--version_dir", "true", "--output_dir", "runs"}), "runs");
  EXPECT_EQ(place({"--sft_type", "lora", "--output_dir", "runs"}), "runs/model");
  EXPECT_EQ(place({"--train_type", "lora"}), "output/model");
}

TEST_F(TrainOptions, NamesOfSelfCognitionAreOneOrTwo) {
  const data::SelfNames one =
      with("sft", {"--model_name", "robot", "--model_author", "swift"}).data.names;
  EXPECT_EQ(one, (data::SelfNames{"robot", "robot", "swift", "swift"}));
  const data::SelfNames two = with("sft", {"--model_name", "小黄", "Xiao Huang"}).data.names;
  EXPECT_EQ(two, (data::SelfNames{"小黄", "Xiao Huang", "", ""}));
  EXPECT_THAT(refusal("sft", {"--model_name", "a", "b", "c"}), HasSubstr("got 3"));
}

TEST_F(TrainOptions, PartsThatAreLearntGoByLlamaFactorysSwitchesToo) {
  const auto learnt = [&](const std::vector<std::string>& line) {
    return with("sft", line).data.learnt;
  };
  EXPECT_EQ(learnt({"--train_on_prompt", "true"}), learnt({"--loss_scale", "all"}));
  EXPECT_EQ(learnt({"--mask_history", "true"}), learnt({"--loss_scale", "last_answer"}));
  EXPECT_EQ(learnt({"--mask_history", "false"}), text::TrainedPart());
  EXPECT_THAT(refusal("sft", {"--mask_history", "true", "--train_on_prompt", "true"}),
              HasSubstr("both say what is learnt"));
  EXPECT_THAT(refusal("sft", {"--mask_history", "true", "--loss_scale", "all"}),
              HasSubstr("--loss_scale and --mask_history both say"));
}

TEST_F(TrainOptions, ThinkingIsAVariableOfTheTemplate) {
  EXPECT_TRUE(with("sft", {}).data.template_variables.is_null());
  EXPECT_EQ(with("sft", {"--enable_thinking", "false"}).data.template_variables,
            (Json{{"enable_thinking", false}}));
  // LLaMA-Factory's lines have thoughts unless they say otherwise, where the template knows them.
  const auto line = with("sft", {"--finetuning_type", "lora"}).data;
  EXPECT_TRUE(line.variables_are_assumed);
  EXPECT_EQ(line.template_variables, (Json{{"enable_thinking", true}}));
  const auto without =
      with("sft", {"--finetuning_type", "lora", "--enable_thinking", "false"}).data;
  EXPECT_FALSE(without.variables_are_assumed);
  EXPECT_EQ(without.template_variables, (Json{{"enable_thinking", false}}));
}

TEST_F(TrainOptions, TheLastSamplesAreLeftOutWhereThatIsAskedFor) {
  EXPECT_FALSE(with("sft", {}).data.drops_last);
  EXPECT_TRUE(with("sft", {"--dataloader_drop_last", "true"}).data.drops_last);
}

TEST_F(TrainOptions, EndStagesHaveLayersOfTheirOwn) {
  const auto list = [](std::vector<std::string> line, int64_t layers,
                       std::vector<int64_t> noop = {}) {
    line.insert(line.end(), {"--model", "m", "--dataset", "d", "--pp", "4"});
    arch::PipelineLayers split{.stages = 4, .noop_layers = std::move(noop)};
    put_end_stages(cli::sft_options().parse(line, /*accepts_config=*/false), layers, split);
    return split.layer_list;
  };
  EXPECT_THAT(list({}, 10), testing::IsEmpty());
  EXPECT_THAT(list({"--decoder_first_pipeline_num_layers", "1"}, 10), ElementsAre(1, 3, 3, 3));
  EXPECT_THAT(list({"--decoder-last-pipeline-num-layers", "1"}, 10), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(
      list({"--decoder_first_pipeline_num_layers", "1", "--decoder_last_pipeline_num_layers", "3"},
           10),
      ElementsAre(1, 3, 3, 3));
  EXPECT_THAT(list({"--decoder_first_pipeline_num_layers", "0"}, 8, {0}), ElementsAre(0, 3, 3, 3));
  try {
    list({"--decoder_first_pipeline_num_layers", "2"}, 10);
    FAIL() << "8 layers are shared by 3 stages";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("8 are left, which the other 3 stages of 4 cannot share"));
  }
}

TEST_F(TrainOptions, RecomputationIsSwitchedOffByLlamaFactorysName) {
  const std::vector<std::string> factory = {"--stage", "sft", "--finetuning_type", "lora"};
  EXPECT_EQ(with("train", factory).recompute.granularity, "full") << "its own default";
  EXPECT_EQ(with("train", factory + std::vector<std::string>{"--disable_gradient_checkpointing"})
                .recompute.granularity,
            "none");
  EXPECT_THAT(refusal("sft", {"--disable_gradient_checkpointing", "--gradient_checkpointing"}),
              HasSubstr("means --recompute none, beside --gradient_checkpointing; give one"));
  EXPECT_THAT(refusal("sft", {"--disable_gradient_checkpointing", "--recompute", "full"}),
              HasSubstr("beside --recompute full"));
}

TEST_F(TrainOptions, RowsAreShuffledWhereMsSwiftShufflesThem) {
  const auto order = [&](const std::vector<std::string>& line) {
    const DataConfig data = with("sft", line).data;
    return !data.shuffle ? "file" : data.shuffles_once ? "once" : "every epoch";
  };
  EXPECT_STREQ(order({}), "every epoch");
  EXPECT_STREQ(order({"--train_dataloader_shuffle", "false"}), "once");
  EXPECT_STREQ(order({"--train_dataloader_shuffle", "false", "--dataset_shuffle", "false"}),
               "file");
  EXPECT_STREQ(order({"--train_dataloader_shuffle", "true", "--dataset_shuffle", "false"}),
               "every epoch");
  EXPECT_STREQ(order({"--dataset_shuffle", "false"}), "every epoch")
      << "the second of its two shuffles is left";
  EXPECT_STREQ(order({"--shuffle", "false"}), "file") << "Danlu's own flag means both";
  EXPECT_STREQ(order({"--no_shuffle"}), "file");
  const std::vector<std::string> stream = {"--train_type", "lora", "--streaming", "true"};
  EXPECT_STREQ(order(stream), "once") << "a stream is read in order, after the first shuffle";
  EXPECT_STREQ(order(stream + std::vector<std::string>{"--dataset_shuffle", "false"}), "file");
  EXPECT_STREQ(order({"--streaming", "true"}), "every epoch") << "no line of ms-swift";
  EXPECT_THAT(notices("sft", {"--streaming", "true"}), HasSubstr("--streaming has no effect here"));
  EXPECT_THAT(notices("sft", stream), testing::Not(HasSubstr("--streaming has no effect")));
  const auto of_prompts = [&](std::vector<std::string> line) {
    line.insert(line.end(), {"--rlhf_type", "grpo", "--reward_funcs", "accuracy"});
    return with("rlhf", line).data.shuffle;
  };
  EXPECT_FALSE(of_prompts({"--dataset_shuffle", "false"})) << "prompts are shuffled once there";
  EXPECT_TRUE(of_prompts({"--train_dataloader_shuffle", "false"}));
}

TEST_F(TrainOptions, AStreamGivesItsFirstRowsAndHoldsNoneOut) {
  const std::vector<std::string> swift = {"--train_type", "lora", "--split_dataset_ratio", "0.1"};
  EXPECT_EQ(with("sft", swift).data.choice, data::RowChoice::kDrawn);
  EXPECT_EQ(with("sft", swift).data.validation_ratio, 0.1);
  const DataConfig stream =
      with("sft", swift + std::vector<std::string>{"--streaming", "true"}).data;
  EXPECT_EQ(stream.choice, data::RowChoice::kFirst);
  EXPECT_EQ(stream.validation_ratio, 0);
  EXPECT_THAT(notices("sft", swift + std::vector<std::string>{"--streaming", "true"}),
              HasSubstr("--split_dataset_ratio 0.1: nothing is held out of streams"));
}

TEST_F(TrainOptions, MsSwift3EvaluatesWhereItSaves) {
  const std::vector<std::string> swift = {"--train_type", "lora", "--split_dataset_ratio", "0.1"};
  const auto of = [&](const std::vector<std::string>& more) { return with("sft", swift + more); };
  EXPECT_EQ(of({}).output.evaluate, Interval::kSteps);
  EXPECT_EQ(of({"--save_strategy", "epoch"}).output.evaluate, Interval::kEpoch);
  EXPECT_EQ(of({"--save_strategy", "epoch", "--eval_strategy", "steps"}).output.evaluate,
            Interval::kSteps);
  // Nothing is held out where nothing is evaluated.
  for (const char* flag : {"--save_strategy", "--eval_strategy"}) {
    EXPECT_EQ(of({flag, "no"}).output.evaluate, Interval::kNo) << flag;
    EXPECT_EQ(of({flag, "no"}).data.validation_ratio, 0) << flag;
    EXPECT_THAT(notices("sft", swift + std::vector<std::string>{flag, "no"}),
                HasSubstr("--split_dataset_ratio 0.1: nothing is held out, as in ms-swift"));
  }
  EXPECT_EQ(of({"--save_strategy", "no", "--eval_strategy", "steps"}).data.validation_ratio, 0.1);
  // In nobody's lines but these.
  const std::vector<std::string> own = {"--val_ratio", "0.1", "--save_strategy", "epoch"};
  EXPECT_EQ(with("sft", own).output.evaluate, Interval::kSteps);
  const std::vector<std::string> idle = {"--val_ratio", "0.1", "--eval_strategy", "no"};
  EXPECT_EQ(with("sft", idle).data.validation_ratio, 0.1);
  EXPECT_THAT(notices("sft", idle),
              HasSubstr("--val_ratio 0.1: rows are held out, and nothing evaluates them"));
}

TEST_F(TrainOptions, RowsOfMsSwift3AreDrawnByASeedOfTheirOwn) {
  const auto seed = [&](std::vector<std::string> line) {
    line.insert(line.end(), {"--seed", "7"});
    return with("sft", line).data.seed;
  };
  EXPECT_EQ(seed({}), 7u);
  EXPECT_EQ(seed({"--train_type", "lora"}), 42u);
  EXPECT_EQ(seed({"--profile", "megatron-swift"}), 42u);
  EXPECT_EQ(seed({"--train_type", "lora", "--data_seed", "3"}), 3u);
}

TEST_F(TrainOptions, TheBestIsSavedAndCheckpointsAreCountedAsTheLinesSystemDoes) {
  const auto output = [&](const std::vector<std::string>& line) {
    return with("sft", line + std::vector<std::string>{"--val_ratio", "0.1"}).output;
  };
  EXPECT_TRUE(output({}).saves_best);
  EXPECT_FALSE(output({}).stops_at_saves);
  for (const char* system :
       {"mindspeed", "swift24", "swift3", "megatron-swift", "alpaca", "llamafactory"}) {
    EXPECT_FALSE(output({"--profile", system}).saves_best) << system;
    EXPECT_TRUE(output({"--profile", system, "--load_best_model_at_end", "true"}).saves_best)
        << system;
  }
  EXPECT_TRUE(output({"--train_type", "lora"}).stops_at_saves);
  EXPECT_FALSE(output({"--profile", "llamafactory"}).stops_at_saves);
}

TEST_F(TrainOptions, ACheckpointIsNotGoneOnFromWithItsWeightsAlone) {
  const std::vector<std::string> pair = {
      "--train_type",    "lora", "--resume_only_model", "true", "--resume_from_checkpoint",
      "run/checkpoint-6"};
  const std::string refused = refusal("sft", pair);
  EXPECT_THAT(refused, HasSubstr("--resume_only_model beside --resume_from_checkpoint "
                                 "run/checkpoint-6: a checkpoint is gone on from"));
  EXPECT_THAT(refused, HasSubstr("as --adapters; to go on with the run, leave out"));
  EXPECT_EQ(with("sft", {"--finetune", "--resume", "run/checkpoint-6"}).output.resume,
            "run/checkpoint-6")
      << "Megatron's flag is no word of it";
  EXPECT_EQ(with("sft", {"--resume_only_model", "true"}).output.resume, "none");
}

TEST_F(TrainOptions, ARegularExpressionOfWholeNamesNamesTargets) {
  const weights::PeftConfig lora =
      with("sft", {"--target_modules", "k_proj", "--target_regex", R"(model\..*\.(q|v)_proj)"})
          .lora;
  EXPECT_THAT(lora.target_modules, ElementsAre(R"(model\..*\.(q|v)_proj)"));
  EXPECT_TRUE(lora.targets_are_pattern);
  EXPECT_THAT(refusal("sft", {"--target_regex", "q_proj"}),
              HasSubstr("--target_regex: target 'q_proj' matches no linear layer"))
      << "it must match the whole name";
  EXPECT_THAT(notices("sft", {"--target_modules", "k_proj", "--target_regex", ".*q_proj"}),
              HasSubstr("--target_modules has no effect with --target_regex"));
  EXPECT_THAT(notices("sft", {"--tuner", "full", "--target_regex", ".*q_proj"}),
              HasSubstr("--target_regex has no effect with --tuner full"));
}

TEST_F(TrainOptions, PartsAreFrozenAndTrainedByOtherSystemsNames) {
  const auto frozen = [&](std::vector<std::string> line) {
    line.insert(line.end(), {"--tuner", "full"});
    return with("sft", line).freeze;
  };
  EXPECT_THAT(frozen({"--freeze_parameters_ratio", "1", "--trainable_parameters", "model.norm",
                      "--trainable_parameters_regex", "q_proj"}),
              ElementsAre(".", "!^model\\.norm", "!q_proj"));
  EXPECT_THAT(frozen({"--freeze_parameters", "embed", "--freeze_parameters_regex", "q_proj"}),
              ElementsAre("embed", "q_proj"));
  // The tiny Llama's embedding is less than a third of it and comes first.
  const auto third = frozen({"--freeze_parameters_ratio", "0.33"});
  ASSERT_FALSE(third.empty());
  EXPECT_EQ(third.front(), "^model\\.embed_tokens\\.weight$");
  EXPECT_THAT(third, testing::Not(testing::Contains(testing::HasSubstr("lm_head"))));
  // The part is 9305 of 23264 numbers; transformers' layer has its norms behind its matrices.
  const std::string layer = "^model\\.layers\\.0\\.";
  EXPECT_THAT(
      frozen({"--freeze_parameters_ratio", "0.4"}),
      ElementsAre("^model\\.embed_tokens\\.weight$", layer + "self_attn\\.q_proj\\.weight$",
                  layer + "self_attn\\.k_proj\\.weight$", layer + "self_attn\\.v_proj\\.weight$",
                  layer + "self_attn\\.o_proj\\.weight$", layer + "mlp\\.gate_proj\\.weight$"));
  const auto unfound = [&](const char* flag, const char* word) {
    return refusal("sft", {"--tuner", "full", "--freeze_parameters_ratio", "1", flag, word});
  };
  for (const char* flag : {"--freeze_parameters", "--freeze_parameters_regex",
                           "--trainable_parameters", "--trainable_parameters_regex"}) {
    EXPECT_THAT(unfound(flag, "model.foo"),
                HasSubstr(std::string("[freeze] ") + flag + " 'model.foo' matches no parameter"));
  }
  EXPECT_THAT(unfound("--trainable_parameters_regex", "("),
              HasSubstr("[freeze] --trainable_parameters_regex: '('"));
  EXPECT_THAT(refusal("sft", {"--trainable_parameters", "model.norm"}),
              HasSubstr("--modules_to_save NAME"));
}

TEST_F(TrainOptions, LlamaFactorysFreezeTunerTrainsLayers) {
  const auto frozen = [&](std::vector<std::string> line) {
    line.insert(line.end(), {"--stage", "sft", "--finetuning_type", "freeze"});
    std::vector<std::string> names;
    const auto patterns = with("train", line).freeze;
    EXPECT_EQ(patterns.front(), ".");
    for (size_t i = 1; i < patterns.size(); ++i) names.push_back(patterns[i]);
    return names;
  };
  using testing::Each;
  const auto last = frozen({"--freeze_trainable_layers", "1"});
  EXPECT_THAT(last, Each(HasSubstr("\\.layers\\.1\\.")));
  EXPECT_THAT(frozen({"--freeze_trainable_layers", "-1"}), Each(HasSubstr("\\.layers\\.0\\.")));
  EXPECT_EQ(frozen({}).size(), 2 * last.size()) << "two where nothing says how many";
  EXPECT_THAT(
      frozen({"--freeze_trainable_layers", "1", "--freeze_trainable_modules", "mlp",
              "--freeze_extra_modules", "norm"}),
      ElementsAre("!^model\\.layers\\.1\\.mlp\\.gate_proj\\.weight$",
                  "!^model\\.layers\\.1\\.mlp\\.up_proj\\.weight$",
                  "!^model\\.layers\\.1\\.mlp\\.down_proj\\.weight$", "!^model\\.norm\\.weight$"));
  // The second of two layers is new, where a model of one was expanded.
  EXPECT_EQ(frozen({"--freeze_trainable_layers", "1", "--use_llama_pro", "true"}), last);
  EXPECT_THAT(
      with("sft", {"--tuner", "freeze", "--freeze", "embed", "--use_llama_pro", "false"}).freeze,
      ElementsAre("embed"));
  const std::vector<std::string> factory = {"--stage", "sft", "--finetuning_type", "freeze"};
  EXPECT_THAT(
      refusal("train", factory + std::vector<std::string>{"--freeze_trainable_layers", "3"}),
      HasSubstr("--freeze_trainable_layers 3: the model has 2 layers"));
  EXPECT_THAT(
      refusal("train", factory + std::vector<std::string>{"--freeze_trainable_modules", "moe"}),
      HasSubstr("--freeze_trainable_modules moe: no parameter there"));
}

TEST_F(TrainOptions, MegatronsOptimizerOnTheHostIsOffload) {
  const auto in_host = [&](const std::vector<std::string>& line) {
    return with("sft", line).wants_state_in_host;
  };
  EXPECT_TRUE(in_host({"--optimizer_cpu_offload", "true"}));
  EXPECT_TRUE(in_host({"--optimizer_cpu_offload", "true", "--optimizer_offload_fraction", "0.4"}));
  EXPECT_FALSE(in_host({"--optimizer_cpu_offload", "true", "--optimizer_offload_fraction", "0"}));
  EXPECT_FALSE(in_host({"--optimizer_cpu_offload", "false"}));
  EXPECT_THAT(
      notices("sft", {"--optimizer_cpu_offload", "true", "--optimizer_offload_fraction", "0.4"}),
      HasSubstr("--optimizer_offload_fraction 0.4: the whole state"));
  EXPECT_THAT(notices("sft", {"--optimizer_offload_fraction", "0.4"}),
              HasSubstr("--optimizer_offload_fraction has no effect without"));
  EXPECT_THAT(notices("sft", {"--optimizer_cpu_offload", "true"}),
              HasSubstr("the optimizer's state is in host memory"));
}

TEST_F(TrainOptions, ARunMayStopEarly) {
  EXPECT_EQ(with("sft", {"--early_stop_interval", "3"}).output.early_stop, 3);
  EXPECT_EQ(with("sft", {"--early_stopping_steps", "2"}).output.early_stop, 2);
  EXPECT_THAT(refusal("sft", {"--early_stop_interval", "3", "--eval_strategy", "no"}),
              HasSubstr("--early_stop_interval 3: needs evaluations"));
}

TEST_F(TrainOptions, EpochsEndARunOfManySteps) {
  const TrainConfig config =
      with("sft", {"--max_steps", "1000", "--max_epochs", "5", "--global_batch_size", "4"});
  const RunPlan plan = plan_run(config, 10, data::LastBatch::kPartial);
  EXPECT_EQ(plan.total_steps, 15);
  EXPECT_EQ(plan.schedule.total_steps, 1000) << "the rate falls as if it went on";
  const TrainConfig few =
      with("sft", {"--max_steps", "7", "--max_epochs", "5", "--global_batch_size", "4"});
  EXPECT_EQ(plan_run(few, 10, data::LastBatch::kPartial).total_steps, 7);
}

TEST_F(TrainOptions, TrackersElsewhereAreNamed) {
  EXPECT_THAT(notices("sft", {"--use_swanlab", "true"}), HasSubstr("nothing is sent anywhere"));
  EXPECT_EQ(refusal("sft", {"--use_swanlab", "false"}), "(accepted)") << "off is off";
  EXPECT_THAT(notices("sft", {"--compute_accuracy", "true", "--gc_collect_after_offload", "true",
                              "--create_checkpoint_symlink", "true"}),
              testing::AllOf(HasSubstr("accuracy of tokens"), HasSubstr("best and last")));
}

}  // namespace danlu::settings::options_test
