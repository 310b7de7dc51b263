// Lines of LLaMA-Factory, the Trainer, MindSpeed-LLM and Megatron-LM mean here what they mean
// there.
#include <gmock/gmock.h>

#include <cmath>

#include "data/indexed_test_support.h"
#include "data/megatron/instruction_dataset.h"
#include "settings/option_lines.h"
#include "settings/run_plan.h"
#include "settings/schedule.h"

namespace danlu::settings::options_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TrainerLines : public TrainOptions {
 protected:
  using Line = std::vector<std::string>;
  std::string profile_of(const std::string& verb, const Line& more) const {
    return with(verb, more).profile.name;
  }
  /// A file of `text`, which a line names.
  std::string file(const std::string& text) const {
    std::ofstream(directory_ / "run.yaml") << text;
    return (directory_ / "run.yaml").string();
  }
  /// The prefix of samples that were tokenised before.
  std::string prefix_of_samples() const {
    for (const char* field : {"input_ids", "attention_mask", "labels"})
      data::write_documents(data::instruction_field_prefix((directory_ / "packs").string(), field),
                            {{1, 2, 3}});
    return (directory_ / "packs").string();
  }
};

TEST_F(TrainerLines, LlamaFactorysFilesAreKnownWithoutTheirTuner) {
  const std::string own = file("stage: sft\ndo_train: true\ntemplate: qwen\nmax_samples: 100\n");
  const TrainConfig config = with("train", {own});
  EXPECT_EQ(config.profile.name, "llamafactory");
  EXPECT_EQ(config.profile.by, "danlu train");
  EXPECT_EQ(config.tuner, Tuner::kLora);
  EXPECT_EQ(config.schedule.shape.lr, 5e-5);
  EXPECT_EQ(config.batch.epochs, 3);
  EXPECT_EQ(config.data.truncation, "shares");
  for (const char* mark : {"cutoff_len", "freeze_trainable_layers", "preprocessing_num_workers"})
    EXPECT_EQ(profile_of("sft", {"--" + std::string(mark), "16"}), "llamafactory") << mark;
  EXPECT_EQ(profile_of("sft", {"--disable_gradient_checkpointing"}), "llamafactory");
  EXPECT_EQ(profile_of("sft", {"--upcast_layernorm", "true"}), "llamafactory");
  EXPECT_EQ(profile_of("train", {"--stage", "sft", "--use-mcore-models"}), "mindspeed");
  EXPECT_EQ(profile_of("train", {"--stage", "sft", "--profile", "danlu"}), "danlu");
  EXPECT_EQ(profile_of("posttrain", {"--stage", "sft"}), "mindspeed");
  EXPECT_EQ(profile_of("sft", {"--stage", "sft"}), "danlu");
}

TEST_F(TrainerLines, LongRowsAreCutAsMindSpeedCutsThem) {
  const auto cut = [&](const Line& more) { return with("posttrain", more).data.truncation; };
  EXPECT_EQ(cut({}), "shares");
  EXPECT_EQ(cut({"--stage", "dpo"}), "shares");
  EXPECT_EQ(cut({"--reset-attention-mask"}), "right");
  EXPECT_EQ(cut({"--cut-max-seqlen"}), "right");
  EXPECT_EQ(cut({"--stage", "prm"}), "right");
  EXPECT_EQ(cut({"--reset-attention-mask", "--truncation", "delete"}), "delete");
  EXPECT_EQ(with("sft", {"--cut-max-seqlen"}).data.truncation, "right");
  EXPECT_THAT(refusal("sft", {"--cut-max-seqlen", "--truncation", "left"}),
              HasSubstr("--cut-max-seqlen means --truncation right, beside --truncation left"));
  // A file of the run's settings cuts as the line did.
  EXPECT_EQ(with("posttrain", {"--reset-attention-mask"}).settings.at("truncation"), "right");
}

TEST_F(TrainerLines, MeansOfMicroBatchesAreMindSpeedsOfSft) {
  const auto averages = [&](const std::string& verb, const Line& more) {
    return with(verb, more).objective.averages_micro_batches;
  };
  EXPECT_TRUE(averages("posttrain", {}));
  EXPECT_FALSE(averages("posttrain", {"--calculate-per-token-loss"}));
  EXPECT_FALSE(averages("posttrain", {"--stage", "dpo"}));
  EXPECT_FALSE(averages("pretrain", {"--use-mcore-models"}));
  EXPECT_FALSE(averages("posttrain", {"--enable_dft_loss"}));
  EXPECT_FALSE(averages("sft", {}));
  EXPECT_TRUE(averages("sft", {"--loss_average", "micro_batches"}));
  const TrainConfig config = with("posttrain", {});
  EXPECT_TRUE(config.data.share_passes);
  EXPECT_FALSE(config.shares_passes()) << "a pass is a micro-batch";
  EXPECT_EQ(config.settings.at("loss_average"), "micro_batches");
  EXPECT_FALSE(with("posttrain", {"--calculate-per-token-loss"}).settings.contains("loss_average"));
  EXPECT_THAT(refusal("sft", {"--loss_average", "micro_batches", "--calculate-per-token-loss"}),
              HasSubstr("--calculate-per-token-loss asks for the mean over targets"));
  EXPECT_THAT(refusal("sft", {"--loss_average", "micro_batches", "--enable_dft_loss"}),
              HasSubstr("beside --enable_dft_loss the mean is over targets"));
  EXPECT_THAT(notices("pretrain", {"--loss_average", "micro_batches"}),
              HasSubstr("--loss_average has no effect in pretrain"));
}

TEST_F(TrainerLines, StepsRunOnIntoTheNextEpochAsMegatronsDo) {
  EXPECT_TRUE(with("posttrain", {}).data.runs_on);
  EXPECT_TRUE(with("posttrain", {"--stage", "dpo"}).data.runs_on);
  EXPECT_FALSE(with("posttrain", {"--dataloader_drop_last", "true"}).data.runs_on);
  EXPECT_FALSE(with("sft", {}).data.runs_on);
  EXPECT_THAT(notices("posttrain", {"--padded-samples"}),
              AllOf(HasSubstr("goes on into the next epoch"), Not(HasSubstr("no padding"))));
  EXPECT_THAT(notices("posttrain", {"--full-shuffle-instruction-dataset"}),
              HasSubstr("each epoch has an order of its own"));
}

TEST_F(TrainerLines, AWarmUpOfNoStepsGivesWayToAFraction) {
  const Line line = {"--train-iters", "100", "--lr-warmup-iters", "0"};
  const auto warmup = [&](const Line& more) {
    return plan_run(with("pretrain", line + more), 100, data::LastBatch::kWrap)
        .schedule.warmup_steps;
  };
  for (const char* profile : {"mindspeed", "danlu"})
    EXPECT_EQ(warmup({"--profile", profile, "--lr-warmup-fraction", "0.1"}), 10) << profile;
  EXPECT_EQ(warmup({"--profile", "mindspeed"}), 0);
}

TEST_F(TrainerLines, AWarmUpBelowOneStepIsAPart) {
  const ScheduleChoice part = with("sft", {"--warmup_steps", "0.1"}).schedule;
  EXPECT_EQ(part.warmup_ratio, 0.1);
  EXPECT_FALSE(part.warmup_steps);
  EXPECT_EQ(with("sft", {"--warmup_steps", "12"}).schedule.warmup_steps, 12);
  EXPECT_THAT(refusal("sft", {"--warmup_steps", "1.5"}), HasSubstr("expected whole steps"));
}

TEST_F(TrainerLines, TargetsAskForAdaptersInPretrainToo) {
  const Line mark = {"--use-mcore-models"};
  EXPECT_EQ(with("pretrain", mark + Line{"--lora-target-modules", "q_proj"}).tuner, Tuner::kLora);
  EXPECT_EQ(with("pretrain", mark + Line{"--lora-r", "8"}).tuner, Tuner::kFull);
  EXPECT_EQ(
      with("pretrain", mark + Line{"--lora-target-modules", "q_proj", "--tuner", "full"}).tuner,
      Tuner::kFull);
  const auto told = HasSubstr("MindSpeed-LLM trains all weights unless --lora-target-modules");
  EXPECT_THAT(notices("posttrain", {"--lora-r", "8"}), told);
  EXPECT_THAT(notices("posttrain", {"--lora-r", "8", "--lora-target-modules", "q_proj"}),
              Not(told));
  EXPECT_THAT(notices("sft", {"--lora_rank", "8"}), Not(told));
}

TEST_F(TrainerLines, TheTrainerEvaluatesWhereItIsToldToAndAsOftenAsItLogs) {
  const auto output = [&](const Line& more) {
    return with("train",
                Line{"--stage", "sft", "--finetuning_type", "lora", "--val_size", "0.1"} + more)
        .output;
  };
  EXPECT_EQ(output({}).evaluate, Interval::kNo);
  const OutputConfig steps = output({"--eval_strategy", "steps", "--logging_steps", "7"});
  EXPECT_EQ(steps.evaluate, Interval::kSteps);
  EXPECT_EQ(steps.eval_steps, 7);
  EXPECT_EQ(output({"--eval_strategy", "steps", "--eval_steps", "9"}).eval_steps, 9);
  EXPECT_EQ(output({"--eval_strategy", "epoch"}).evaluate, Interval::kEpoch);
  EXPECT_EQ(output({"--do_eval", "true"}).evaluate, Interval::kEnd) << "of the finished model";
  EXPECT_EQ(output({"--do_eval", "true", "--early_stopping_steps", "2"}).evaluate,
            Interval::kSteps);
  EXPECT_EQ(output({"--load_best_model_at_end", "true"}).evaluate, Interval::kSteps);
  EXPECT_EQ(output({"--early_stopping_steps", "2"}).evaluate, Interval::kSteps);
  EXPECT_EQ(with("train", {}).output.evaluate, Interval::kNo) << "Alpaca's";
  EXPECT_EQ(with("sft", {}).output.evaluate, Interval::kSteps) << "Danlu's own";
  const Line asked = {"--stage", "sft", "--do_eval", "true"};
  const TrainConfig once = with("train", asked);
  EXPECT_FALSE(once.settings.contains("eval_strategy")) << "the record's do_eval says it";
  EXPECT_EQ(once.settings.at("do_eval"), true);
  const Line best = asked + Line{"--load_best_model_at_end", "true"};
  EXPECT_EQ(with("train", best).settings.at("eval_strategy"), "steps");
}

TEST_F(TrainerLines, TextsThatAreNotToBePackedAreSamplesOfTheirOwn) {
  const Line pt = {"--stage", "pt", "--finetuning_type", "full"};
  const TrainConfig apart = with("train", pt + Line{"--packing", "false"});
  EXPECT_EQ(apart.task, Task::kSft);
  EXPECT_FALSE(apart.data.uses_template);
  EXPECT_FALSE(apart.data.pack_sequences);
  EXPECT_EQ(apart.data.truncation, "right");
  EXPECT_EQ(with("train", pt).task, Task::kPretrain);
  EXPECT_EQ(with("train", pt + Line{"--packing", "true"}).task, Task::kPretrain);
  EXPECT_TRUE(with("train", pt).data.texts_end_epochs);
  EXPECT_FALSE(with("pretrain", {}).data.texts_end_epochs);
}

TEST_F(TrainerLines, EitherNameOfPackingAsksForPacks) {
  const auto packs = [&](const std::string& text) {
    return with("train", {file("stage: sft\n" + text)}).data.pack_sequences;
  };
  EXPECT_TRUE(packs("packing: true\nneat_packing: false\n"));
  EXPECT_TRUE(packs("packing: false\nneat_packing: true\n"));
  EXPECT_TRUE(packs("neat_packing: true\n"));
  EXPECT_FALSE(packs("packing: false\nneat_packing: false\n"));
  EXPECT_FALSE(packs("neat_packing: false\n"));
}

TEST_F(TrainerLines, ANumberOfRowsMayBeHeldOut) {
  const DataConfig data = with("sft", {"--val_size", "100"}).data;
  EXPECT_EQ(data.validation_rows, 100);
  EXPECT_EQ(data.validation_ratio, 0);
  EXPECT_EQ(with("sft", {"--val_size", "0.25"}).data.validation_ratio, 0.25);
  for (const char* none : {"1", "1.5"})
    EXPECT_THAT(refusal("sft", {"--val_size", none}),
                HasSubstr("expected a part below 1, or a number of rows above 1"));
  EXPECT_THAT(refusal("pretrain", {"--val_size", "100"}), HasSubstr("held out as a part"));
}

TEST_F(TrainerLines, DropoutInsideModelsIsNotThereAndThatIsSaid) {
  const auto told = HasSubstr("Megatron's default dropout of 0.1 is not here");
  const Line megatron = {"--use-mcore-models"};
  EXPECT_THAT(notices("pretrain", megatron), told);
  EXPECT_THAT(notices("pretrain", megatron + Line{"--attention-dropout", "0.0"}), Not(told));
  EXPECT_THAT(notices("pretrain", {}), Not(told));
  EXPECT_THAT(refusal("pretrain", megatron + Line{"--hidden-dropout", "0.1"}),
              AllOf(HasSubstr("--hidden-dropout 0.1: models are trained without dropout inside"),
                    HasSubstr("--hidden-dropout 0")));
}

TEST_F(TrainerLines, PacksOfFilesEndAtTheirTokensWhereMasksAreReset) {
  const Line reset = {"--reset-attention-mask", "--reset-position-ids", "--dataset",
                      prefix_of_samples()};
  const auto said = [&](const Line& more) {
    log::set_verbose(true);
    testing::internal::CaptureStderr();
    parse("posttrain", Line{"--model", (directory_ / "model").string()} + more);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(reset), Not(HasSubstr("no effect")));
  EXPECT_THAT(said({"--reset-position-ids", "--dataset", prefix_of_samples()}),
              HasSubstr("--reset-position-ids has no effect in sft without"));
  EXPECT_THAT(notices("posttrain", {"--reset-attention-mask"}),
              HasSubstr("--reset-attention-mask has no effect in sft: samples are apart"));
}

TEST_F(TrainerLines, SchedulesThatCountSamples) {
  const Line line = {"--train-samples", "640", "--global-batch-size", "8", "--use-mcore-models"};
  const auto plan = [&](const Line& more) {
    return plan_run(with("pretrain", line + more), 1000, data::LastBatch::kWrap).schedule;
  };
  EXPECT_EQ(plan({"--lr-warmup-samples", "36"}).warmup_steps, 4.5);
  EXPECT_EQ(plan({}).total_steps, 80);
  EXPECT_EQ(plan({"--lr-decay-samples", "320"}).total_steps, 40);
  EXPECT_EQ(plan({"--lr-decay-style", "WSD", "--lr-wsd-decay-samples", "160"}).decay_steps, 20);
  EXPECT_THROW(plan({"--lr-decay-samples", "321"}), UsageError);
}

TEST_F(TrainerLines, ArgumentsOfTheTrainersSchedules) {
  const auto shape = [&](const std::string& kind, const std::string& told) {
    return with("sft", {"--profile", "llamafactory", "--lr_scheduler_type", kind,
                        "--lr_scheduler_kwargs", told})
        .schedule.shape;
  };
  EXPECT_EQ(shape("cosine_with_min_lr", R"({"min_lr": 1e-6})").min_lr, 1e-6);
  EXPECT_DOUBLE_EQ(shape("cosine_with_min_lr", R"({"min_lr_rate": 0.1})").min_lr, 5e-6);
  EXPECT_EQ(shape("cosine_with_restarts", R"({"num_cycles": 3})").num_cycles, 3);
  EXPECT_EQ(shape("polynomial", R"({"power": 2, "lr_end": 1e-8})").power, 2);
  EXPECT_EQ(shape("polynomial", R"({"lr_end": 1e-8})").min_lr, 1e-8);
  EXPECT_EQ(shape("cosine", R"({"num_cycles": 0.5})").min_lr, 0);
  const auto refused = [&](const Line& more) {
    return refusal("sft", Line{"--profile", "llamafactory"} + more);
  };
  EXPECT_THAT(refused({"--lr_scheduler_kwargs", R"({"num_cycles": 2})"}),
              HasSubstr("linear has no 'num_cycles' here"));
  EXPECT_THAT(refused({"--lr_scheduler_type", "cosine_with_restarts", "--lr_scheduler_kwargs",
                       R"({"num_cycles": 0.5})"}),
              HasSubstr("'num_cycles' must be a whole number of at least 1, got 0.5"));
  EXPECT_THAT(refused({"--lr_scheduler_type", "cosine", "--min_lr", "1e-7", "--lr_scheduler_kwargs",
                       R"({"min_lr": 1e-6})"}),
              HasSubstr("--min_lr says 'min_lr' too"));
  EXPECT_THAT(refused({"--lr_scheduler_type", "cosine_with_min_lr"}),
              HasSubstr("where it ends is not said"));
}

// 60 updates, 6 of which warm up, leave 54: 18 at the peak, and half a cosine over 36, as
// LLaMA-Factory's create_custom_scheduler counts and transformers' get_wsd_schedule falls.
TEST_F(TrainerLines, TheTrainersStableDecayFallsByACosine) {
  const Line line = {"--max_steps", "60", "--warmup_steps",      "6",
                     "--lr",        "1",  "--lr_scheduler_type", "warmup_stable_decay"};
  const auto schedule = [&](const char* profile, const Line& more) {
    return plan_run(with("sft", line + Line{"--profile", profile} + more), 1000,
                    data::LastBatch::kPartial)
        .schedule;
  };
  const ScheduleConfig factory = schedule("llamafactory", {});
  EXPECT_EQ(factory.decay_steps, 36);
  EXPECT_EQ(learning_rate_at(factory, 24), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(factory, 42), 0.5);
  EXPECT_NEAR(learning_rate_at(factory, 33), 0.5 * (1 + std::sqrt(0.5)), 1e-12);
  const ScheduleConfig swift = schedule(
      "swift3", {"--lr_scheduler_kwargs",
                 R"({"num_decay_steps": 20, "min_lr_ratio": 0.1, "decay_type": "1-sqrt"})"});
  EXPECT_EQ(learning_rate_at(swift, 40), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(swift, 45), 0.5 * 0.9 + 0.1);
  EXPECT_THAT(refusal("sft", line + Line{"--profile", "swift3"}),
              HasSubstr("how long it decays is not said"));
  EXPECT_THAT(refusal("sft", line + Line{"--profile", "swift3", "--lr_scheduler_kwargs",
                                         R"({"num_decay_steps": 20, "decay_type": "log"})"}),
              HasSubstr("'decay_type' must be linear | cosine | 1-sqrt, got \"log\""));
  EXPECT_EQ(schedule("danlu", {}).decay_steps, 6);
}

TEST_F(TrainerLines, ScaleOfTheInverseSquareRoot) {
  const auto rate = [&](const char* told, int64_t step) {
    return learning_rate_at(
        plan_run(with("sft", {"--profile", "llamafactory", "--max_steps", "100", "--warmup_steps",
                              "4", "--lr", "1", "--lr_scheduler_type", "inverse_sqrt",
                              "--lr_scheduler_kwargs", told}),
                 1000, data::LastBatch::kPartial)
            .schedule,
        step);
  };
  EXPECT_DOUBLE_EQ(rate("{}", 16), 0.5);
  EXPECT_DOUBLE_EQ(rate(R"({"timescale": 9})", 4), 1);
  EXPECT_DOUBLE_EQ(rate(R"({"timescale": 9})", 11), 0.75);
}

TEST_F(TrainerLines, NamesThatSayWhatDanluDoesAreTaken) {
  for (const Line& words : std::vector<Line>{{"--ai-framework", "mindspore"},
                                             {"--use-ascend-mc2"},
                                             {"--npu-deterministic"},
                                             {"--topk-softmax-in-fp32"},
                                             {"--use-cpu-initialization"},
                                             {"--async-save"},
                                             {"--test-data-path", "a", "b"},
                                             {"--lr-warmup-init", "0.0"},
                                             {"--weight-decay-incr-style", "constant"},
                                             {"--disable_shuffling", "true"},
                                             {"--train_from_scratch", "false"},
                                             {"--quantization_type", "nf4"},
                                             {"--hf_hub_token", "x"},
                                             {"--low_cpu_mem_usage", "true"},
                                             {"--preserve_thinking", "false"},
                                             {"--shift_attn", "false"},
                                             {"--use_galore", "false", "--galore_rank", "16"},
                                             {"--pissa_init", "false", "--pissa_iter", "16"},
                                             {"--optim", "adamw_torch_npu_fused"},
                                             {"--use_cpu", "false"},
                                             {"--average_tokens_across_devices", "true"},
                                             {"--past_index", "-1"},
                                             {"--ppo_buffer_size", "1"}})
    EXPECT_EQ(refusal("sft", words), "(accepted)") << words[0];
  EXPECT_TRUE(with("sft", {"--use_wandb"}).output.tensorboard);
  EXPECT_FALSE(with("sft", {"--disable_shuffling", "true"}).data.shuffle);
  for (const Line& words : std::vector<Line>{{"--use_cpu", "true"},
                                             {"--exit-interval", "5"},
                                             {"--rampup-batch-size", "2", "2", "10"},
                                             {"--mock-data"},
                                             {"--shift_attn", "true"},
                                             {"--lr-warmup-init", "0.1"}})
    EXPECT_THAT(refusal("sft", words), HasSubstr(words[0] + " is not available")) << words[0];
  EXPECT_THAT(refusal("sft", {"--adapter_name_or_path", "a,b"}),
              HasSubstr("one adapter is trained further"));
}

TEST_F(TrainerLines, ABufferOfPromptsIsStepsOfARollout) {
  const TrainConfig config =
      with("train", {"--stage", "ppo", "--finetuning_type", "lora", "--reward_funcs", "accuracy",
                     "--ppo_buffer_size", "4"});
  EXPECT_EQ(config.objective.policy.steps, 4);
}

TEST_F(TrainerLines, ALengthBeyondTheWindowIsLlamaFactorysMatterOfRows) {
  const std::string beyond = "100000";
  EXPECT_EQ(with("sft", {"--cutoff_len", beyond}).data.max_length, 100000);
  EXPECT_THAT(refusal("sft", {"--max_length", beyond}), HasSubstr("exceeds the model's"));
}

}  // namespace danlu::settings::options_test
