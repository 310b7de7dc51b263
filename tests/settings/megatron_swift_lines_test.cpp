// Lines of Megatron-SWIFT have ms-swift's defaults, MindSpeed-LLM's keep their own.
#include <gmock/gmock.h>

#include "option_lines.h"
#include "settings/run_plan.h"

namespace danlu::settings::options_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Line = std::vector<std::string>;

std::string profile_of(const OptionTable& table, Line line) {
  line.insert(line.end(), {"--model", "m", "--dataset", "d"});
  return table.parse(line, /*accepts_config=*/false).profile().name;
}

// The flags of lines of ms-swift's examples/megatron that say whose they are.
TEST(MegatronSwift, ItsExamplesAreKnownByTwoSystemsFlagsInOneLine) {
  const OptionTable sft = cli::sft_options(), rlhf = cli::rlhf_options(),
                    pt = cli::pretrain_options();
  const Line saved = {"--no_save_optim", "true", "--no_save_rng", "true"};
  EXPECT_EQ(profile_of(sft, Line{"--save_safetensors", "true", "--tensor_model_parallel_size", "2",
                                 "--recompute_granularity", "full", "--finetune", "true"} +
                                saved),
            "megatron-swift");
  EXPECT_EQ(profile_of(sft, Line{"--tuner_type", "lora", "--merge_lora", "false",
                                 "--expert_model_parallel_size", "2"}),
            "megatron-swift");
  EXPECT_EQ(profile_of(sft, Line{"--load_safetensors", "true", "--train_type", "lora",
                                 "--recompute_granularity", "selective"}),
            "megatron-swift")
      << "as version 3 wrote it";
  EXPECT_EQ(profile_of(pt, Line{"--save_safetensors", "true", "--pipeline_model_parallel_size", "2",
                                "--cross_entropy_loss_fusion", "true"}),
            "megatron-swift");
  EXPECT_EQ(profile_of(rlhf, Line{"--rlhf_type", "dpo", "--context_parallel_size", "2"} + saved),
            "megatron-swift");
  EXPECT_EQ(profile_of(rlhf, {"--rlhf_type", "dpo", "--save_safetensors", "true"}), "swift3");
  EXPECT_EQ(profile_of(sft, {"--tuner_type", "lora", "--save_safetensors", "true"}), "swift3");
  EXPECT_EQ(profile_of(sft, {"--save_safetensors", "true"}), "danlu");
}

TEST(MegatronSwift, MindSpeedsLinesStayMindSpeeds) {
  const OptionTable sft = cli::sft_options(), post = cli::posttrain_options();
  const Line megatron = {"--tensor-model-parallel-size", "2",    "--use-distributed-optimizer",
                         "--recompute-granularity",      "full", "--no-save-optim"};
  EXPECT_EQ(profile_of(sft, megatron), "mindspeed");
  EXPECT_EQ(profile_of(post, megatron), "mindspeed");
  EXPECT_EQ(profile_of(post, megatron + Line{"--split_dataset_ratio", "0"}), "mindspeed")
      << "danlu posttrain is MindSpeed-LLM's command";
}

TEST_F(TrainOptions, AMegatronSwiftLineTrainsAsMegatronSwiftDoes) {
  const Line line = {
      "--tensor_model_parallel_size", "1", "--save_safetensors", "true", "--lr", "1e-5"};
  const TrainConfig config = with("sft", line);
  EXPECT_EQ(config.profile.name, "megatron-swift");
  EXPECT_EQ(config.profile.by, "--save_safetensors beside --tensor_model_parallel_size");
  EXPECT_EQ(config.tuner, Tuner::kFull);
  EXPECT_EQ(config.schedule.shape.kind, ScheduleKind::kCosine);
  EXPECT_EQ(config.schedule.warmup_ratio, 0);
  EXPECT_EQ(config.schedule.shape.decay_ramp, Ramp::kExponential);
  EXPECT_EQ(config.adamw.groups.weight_decay, 0.1);
  EXPECT_EQ(config.adamw.beta2, 0.95);
  EXPECT_EQ(config.precision, Precision::kBF16);
  EXPECT_EQ(config.seed, 42u);
  EXPECT_EQ(config.data.validation_ratio, 0);
  EXPECT_EQ(config.data.megatron_split, "");
  EXPECT_EQ(config.data.truncation, "delete");
  EXPECT_FALSE(config.data.share_passes) << "a pass has the samples of a micro-batch";
  EXPECT_EQ(config.output.logging_steps, 5);
  EXPECT_EQ(config.output.save_steps, 500);
  EXPECT_EQ(config.output.save_total_limit, 0);
  EXPECT_TRUE(config.output.versioned);
  EXPECT_EQ(config.recompute.granularity, "selective");
  EXPECT_EQ(accumulation_of(config.batch), 16);
  const TrainConfig adapters = with("sft", line + Line{"--tuner_type", "lora"});
  EXPECT_EQ(adapters.lora.rank, 8);
  EXPECT_EQ(adapters.lora.alpha, 32);
  EXPECT_EQ(adapters.lora.dropout, 0.05);
}

TEST_F(TrainOptions, MegatronsEvaluationsCountSteps) {
  const auto output = [&](const Line& line) { return with("sft", line).output; };
  const Line megatron = {"--tensor_model_parallel_size", "1"};
  EXPECT_EQ(output(megatron).eval_batches, 100);
  EXPECT_TRUE(output(megatron).eval_counts_steps);
  EXPECT_EQ(output(megatron + Line{"--eval_iters", "-1"}).eval_batches, 0) << "all";
  EXPECT_NE(output(megatron + Line{"--eval_iters", "-1"}).evaluate, Interval::kNo);
  EXPECT_EQ(output(megatron + Line{"--eval_iters", "0"}).evaluate, Interval::kNo);
  const Line swift = megatron + Line{"--save_safetensors", "true", "--eval_iters", "3"};
  EXPECT_TRUE(output(swift).eval_counts_steps);
  EXPECT_FALSE(output({"--eval_iters", "3"}).eval_counts_steps);
}

TEST_F(TrainOptions, MegatronsLastPhaseFallsExponentially) {
  const auto ramp = [&](const Line& line) {
    return with("sft", Line{"--lr-decay-style", "WSD"} + line).schedule.shape.decay_ramp;
  };
  const Line megatron = {"--tensor_model_parallel_size", "1"};
  EXPECT_EQ(ramp(megatron), Ramp::kExponential);
  EXPECT_EQ(ramp(megatron + Line{"--save_safetensors", "true"}), Ramp::kExponential);
  EXPECT_EQ(ramp(megatron + Line{"--lr-wsd-decay-style", "linear"}), Ramp::kLinear);
  EXPECT_EQ(ramp({}), Ramp::kLinear);
}

TEST_F(TrainOptions, PacksAreSamplesWhereMsSwiftAndLlamaFactoryCountThem) {
  const auto packs = [&](const Line& line) {
    const DataConfig data = with("sft", line).data;
    return std::string(data.pack_sequences ? "samples" : data.share_passes ? "passes" : "none");
  };
  for (const Line& mark : {Line{"--train_type", "full"}, Line{"--sft_type", "full"},
                           Line{"--save_safetensors", "true", "--recompute_granularity", "full"},
                           Line{"--profile", "llamafactory"}}) {
    EXPECT_EQ(packs(mark + Line{"--packing", "true"}), "samples") << mark[0];
    EXPECT_EQ(packs(mark + Line{"--packing", "true", "--pack_sequences", "false"}), "passes");
    EXPECT_EQ(packs(mark + Line{"--packing", "false"}), "none");
    EXPECT_EQ(packs(mark + Line{"--padding_free", "true"}), "none");
    EXPECT_EQ(packs(mark + Line{"--packing", "true", "--padding_free", "false"}), "samples");
  }
  EXPECT_EQ(packs({"--neat_packing", "true"}), "samples") << "LLaMA-Factory's own flag";
  EXPECT_EQ(packs({"--train_type", "full"}), "none");
  EXPECT_EQ(packs({"--packing", "true"}), "passes") << "Danlu's own line";
  EXPECT_EQ(packs({"--padding_free", "false"}), "none");
  EXPECT_EQ(packs({"--tensor_model_parallel_size", "1", "--pack", "true"}), "passes");
  EXPECT_THAT(notices("sft", {"--train_type", "full", "--packing", "true"}),
              AllOf(HasSubstr("--packing: packs of"), HasSubstr("count as samples, as in swift3"),
                    HasSubstr("--pack_sequences false leaves each row a sample")));
  const Line pt = {"--train_type", "full", "--packing", "true"};
  EXPECT_TRUE(with("pretrain", pt).data.pack_sequences) << "texts are samples";
  EXPECT_FALSE(with("pretrain", {"--packing", "true"}).data.pack_sequences)
      << "windows are full as they are";
  EXPECT_FALSE(
      with("rlhf", {"--rlhf_type", "grpo", "--reward_funcs", "accuracy", "--packing", "true"})
          .data.pack_sequences)
      << "prompts are answered one by one";
}

// megatron_args.py, init_iters: epochs decide where both are given, but of a stream.
TEST_F(TrainOptions, MegatronSwiftsEpochsOutweighItsIterations) {
  const Line both = {"--train_iters", "50", "--num_train_epochs", "2"};
  const Line swift = {"--tensor_model_parallel_size", "1", "--save_safetensors", "true"};
  const auto steps = [&](const Line& line) {
    return plan_run(with("sft", line), 100, data::LastBatch::kWrap).total_steps;
  };
  EXPECT_EQ(steps(swift + both), 12) << "200 samples, 16 to a step";
  EXPECT_EQ(steps(swift + both + Line{"--streaming", "true"}), 50);
  EXPECT_EQ(steps(swift + Line{"--train_iters", "50"}), 50);
  EXPECT_EQ(steps(both), 50) << "Danlu's own line";
  EXPECT_EQ(steps(Line{"--tensor_model_parallel_size", "1"} + both), 50) << "MindSpeed-LLM's";
  EXPECT_THAT(notices("sft", swift + both),
              HasSubstr("--train_iters has no effect with --num_train_epochs"));
}

// init_iters again: epochs of whole micro-batches of all ranks, of which steps are made.
TEST_F(TrainOptions, MegatronSwiftsStepsRunOnOverWholeMicroBatches) {
  const Line swift = {"--tensor_model_parallel_size", "1", "--save_safetensors", "true"};
  const auto steps = [&](const Line& line, int64_t samples) {
    return plan_run(with("sft", swift + line), samples, data::LastBatch::kWrap).total_steps;
  };
  EXPECT_TRUE(with("sft", swift).data.runs_on);
  EXPECT_TRUE(with("sft", swift).data.drops_last);
  EXPECT_EQ(steps({"--num_train_epochs", "3"}, 100), 18);
  EXPECT_EQ(steps({"--num_train_epochs", "3"}, 17), 3);
  // 102 rows in micro-batches of 8 are 96, and 3·96 fill 18 steps; 3·102 would fill 19.
  EXPECT_EQ(
      steps({"--num_train_epochs", "3", "--micro_batch_size", "8", "--global_batch_size", "16"},
            102),
      18);
  const DataConfig told = with("sft", swift + Line{"--dataloader_drop_last", "false"}).data;
  EXPECT_FALSE(told.runs_on || told.drops_last);
  EXPECT_TRUE(with("rlhf", swift + Line{"--rlhf_type", "dpo"}).data.runs_on);
  EXPECT_FALSE(with("sft", {"--train_type", "full"}).data.runs_on);
}

TEST_F(TrainOptions, TextsOfMsSwiftsPtAreSamples) {
  const Line megatron = {"--tensor_model_parallel_size", "1", "--save_safetensors", "true"};
  for (const Line& mark : {Line{"--train_type", "full"}, Line{"--sft_type", "full"}, megatron})
    EXPECT_FALSE(with("pretrain", mark).data.uses_template) << mark[0];
  EXPECT_TRUE(with("pretrain", megatron).data.runs_on);
  for (const Line& mark :
       {Line{}, Line{"--profile", "llamafactory"}, Line{"--tensor_model_parallel_size", "1"}})
    EXPECT_TRUE(with("pretrain", mark).data.uses_template);
  // Files of tokens are Megatron's, whoever's line it is.
  std::ofstream(directory_ / "tokens.idx");
  EXPECT_TRUE(parse("pretrain", {"--train_type", "full", "--model", (directory_ / "model").string(),
                                 "--dataset", (directory_ / "tokens").string()})
                  .data.uses_template);
  EXPECT_THAT(notices("pretrain", {"--train_type", "full", "--system", "s"}),
              AllOf(HasSubstr("each text is a sample, as in swift3"),
                    HasSubstr("--system has no effect in pretrain")));
  EXPECT_EQ(
      with("pretrain", {"--train_type", "full", "--split_dataset_ratio", "5"}).data.validation_rows,
      5);
}

TEST_F(TrainOptions, TheTrainersConstantRateHasNoWarmUp) {
  const std::vector<std::string> ratio = {"--warmup_ratio", "0.1"};
  const auto warmup = [&](const char* system, const char* schedule) {
    return with("sft",
                std::vector<std::string>{"--profile", system, "--lr_scheduler_type", schedule} +
                    ratio)
        .schedule.warmup_ratio;
  };
  for (const char* system : {"swift24", "swift3", "alpaca", "llamafactory"}) {
    EXPECT_EQ(warmup(system, "constant"), 0.0) << system;
    EXPECT_EQ(warmup(system, "constant_with_warmup"), 0.1) << system;
  }
  EXPECT_EQ(warmup("danlu", "constant"), 0.1);
  EXPECT_EQ(warmup("mindspeed", "constant"), 0.1);
  EXPECT_EQ(
      with("sft", {"--sft_type", "lora", "--lr_scheduler_type", "constant"}).schedule.warmup_ratio,
      0.0)
      << "nor has it the profile's";
  EXPECT_THAT(notices("sft", {"--train_type", "full", "--lr_scheduler_type", "constant",
                              "--warmup_ratio", "0.1"}),
              HasSubstr("--warmup_ratio has no effect with --lr_scheduler_type constant: "
                        "constant_with_warmup has a warm-up"));
}

TEST_F(TrainOptions, SchedulesEndWhereTheirSystemsEndThem) {
  const auto choice = [&](const Line& line) { return with("sft", line).schedule; };
  const Line polynomial = {"--lr_scheduler_type", "polynomial"};
  EXPECT_EQ(choice({}).shape.min_lr, 0);
  EXPECT_EQ(choice(polynomial).shape.min_lr, 0);
  EXPECT_EQ(choice(polynomial + Line{"--train_type", "full"}).shape.min_lr, 1e-7);
  EXPECT_EQ(choice(polynomial + Line{"--train_type", "full", "--min_lr", "0"}).shape.min_lr, 0);
  EXPECT_TRUE(choice({"--lr-decay-style", "inverse-square-root"}).scales_by_sample);
  EXPECT_FALSE(choice({"--lr_scheduler_type", "inverse_sqrt"}).scales_by_sample);
}

TEST_F(TrainOptions, LossScalesGrowAsTheirSystemsLetThem) {
  const auto scale = [&](const Line& line) {
    const LossScaleConfig config = with("sft", Line{"--fp16", "true"} + line).loss_scale;
    return std::pair(config.window, config.hysteresis);
  };
  const std::pair<int64_t, int64_t> torchs = {2000, 1}, deepspeeds = {1000, 2};
  EXPECT_EQ(scale({}), deepspeeds);
  for (const char* system : {"swift24", "swift3", "alpaca", "llamafactory"}) {
    EXPECT_EQ(scale({"--profile", system}), torchs) << system;
    const Line file = {"--profile", system, "--deepspeed", R"({"fp16": {"enabled": true}})"};
    EXPECT_EQ(scale(file), deepspeeds) << system;
    EXPECT_EQ(scale(file + Line{"--hysteresis", "5"}).second, 5);
  }
  EXPECT_EQ(scale({"--profile", "megatron-swift"}), deepspeeds);
}

TEST_F(TrainOptions, RowsAreChosenAsTheLinesSystemChoosesThem) {
  using data::RowChoice;
  const auto chosen = [&](const Line& line) {
    const DataConfig data = with("sft", line).data;
    return std::pair(data.choice, data.choice_by_info);
  };
  const std::pair first(RowChoice::kFirst, RowChoice::kFirst);
  EXPECT_EQ(chosen({}), first);
  EXPECT_EQ(chosen({"--profile", "mindspeed"}), first);
  EXPECT_EQ(chosen({"--train_type", "full"}).first, RowChoice::kDrawn);
  EXPECT_EQ(chosen({"--profile", "megatron-swift"}).first, RowChoice::kDrawn);
  EXPECT_EQ(chosen({"--train_type", "full", "--dataset_shuffle", "false"}).first,
            RowChoice::kRepeated);
  EXPECT_EQ(chosen({"--profile", "llamafactory"}), std::pair(RowChoice::kFirst, RowChoice::kDrawn));
  EXPECT_TRUE(with("sft", {"--profile", "llamafactory"}).data.limits_validation);
  EXPECT_FALSE(with("sft", {}).data.limits_validation);
}

}  // namespace
}  // namespace danlu::settings::options_test
