// DeepSpeed's configuration file: schedules and the loss scale mean what they mean there.
#include <gmock/gmock.h>

#include <fstream>

#include "base/error.h"
#include "settings/option_lines.h"
#include "settings/run_plan.h"

namespace danlu::settings::options_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class DeepSpeedFile : public TrainOptions {
 protected:
  using Words = std::vector<std::string>;
  Words line(const std::string& content, const Words& more = {}) const {
    std::ofstream(directory_ / "ds.json") << content;
    Words words = {"--deepspeed", (directory_ / "ds.json").string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words scheduler(const std::string& type, const std::string& params,
                  const Words& more = {}) const {
    return line(R"({"scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}}", more);
  }
};

TEST_F(DeepSpeedFile, WarmupCosineTakesItsRatiosOfTheOptimizersRate) {
  const TrainConfig config = with(
      "sft", scheduler("WarmupCosineLR",
                       R"("warmup_min_ratio": 0.1, "cos_min_ratio": 0.01, "warmup_num_steps": 5,
                               "total_num_steps": 40, "warmup_type": "linear")",
                       {"--lr", "2e-4", "--lr_scheduler_type", "cosine"}));
  const ScheduleConfig& shape = config.schedule.shape;
  EXPECT_EQ(shape.kind, ScheduleKind::kWarmupCosineLr);
  EXPECT_EQ(shape.warmup_ramp, Ramp::kLinear);
  EXPECT_DOUBLE_EQ(shape.lr, 2e-4);
  EXPECT_DOUBLE_EQ(shape.start_lr, 2e-5);
  EXPECT_DOUBLE_EQ(shape.min_lr, 2e-6);
  EXPECT_EQ(config.schedule.warmup_steps, 5);
  EXPECT_EQ(config.schedule.decay_total_steps, 40);
}

TEST_F(DeepSpeedFile, WhatItLeavesOutAndDeepSpeedWouldDoOtherwiseIsSaid) {
  const std::string clips =
      "the file has no gradient_clipping: gradients are scaled down to norm 1";
  EXPECT_THAT(notices("sft", line("{}")), HasSubstr(clips));
  EXPECT_THAT(notices("sft", line(R"({"gradient_clipping": "auto"})")), Not(HasSubstr(clips)));
  EXPECT_THAT(notices("sft", line("{}", {"--max_grad_norm", "0"})), Not(HasSubstr(clips)));
  const std::string rises = "WarmupLR has no warmup_max_lr: the rate rises to 0.0001 here";
  EXPECT_THAT(notices("sft", scheduler("WarmupLR", "")), HasSubstr(rises));
  EXPECT_THAT(notices("sft", scheduler("WarmupLR", R"("warmup_max_lr": "auto")")),
              Not(HasSubstr(rises)));
}

TEST_F(DeepSpeedFile, WarmupCosinesOwnDefaults) {
  const TrainConfig config =
      with("sft", line(R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
                      "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": "auto"}}})"));
  EXPECT_DOUBLE_EQ(config.schedule.shape.lr, 1e-3);
  EXPECT_EQ(config.schedule.shape.start_lr, 0.0);
  EXPECT_DOUBLE_EQ(config.schedule.shape.min_lr, 1e-7);
  EXPECT_EQ(config.schedule.shape.warmup_ramp, Ramp::kLog);
  EXPECT_EQ(config.schedule.warmup_steps, 1000);
  // "auto" is what the flags say, as the Trainer fills it in.
  const TrainConfig flags = with(
      "sft", scheduler("WarmupCosineLR", R"("warmup_num_steps": "auto")", {"--warmup_steps", "7"}));
  EXPECT_EQ(flags.schedule.warmup_steps, 7);
  EXPECT_DOUBLE_EQ(
      with("sft", {"--lr_scheduler", "WarmupCosineLR", "--lr", "1e-3"}).schedule.shape.min_lr,
      1e-7);
}

TEST_F(DeepSpeedFile, ARatioIsAPartOfTheRate) {
  EXPECT_THAT(refusal("sft", scheduler("WarmupCosineLR", R"("cos_min_ratio": 1.5)")),
              HasSubstr("/scheduler/params/cos_min_ratio must be a number from 0 to 1, got 1.5"));
  EXPECT_THAT(refusal("sft", scheduler("WarmupCosineLR", R"("cos_min_ratio": 0.5)",
                                       {"--lr", "1e-4", "--min_lr", "1e-5"})),
              HasSubstr("the file disagrees with the flags: /scheduler/params/cos_min_ratio 0.5 "
                        "(5e-05) vs --min_lr 1e-05"));
}

TEST_F(DeepSpeedFile, OtherSchedulersSayWhatToUse) {
  // Its keys are none of the others', and are not what is wrong.
  EXPECT_THAT(
      refusal("sft", scheduler("OneCycle", R"("cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3)")),
      AllOf(HasSubstr("scheduler 'OneCycle': WarmupLR, WarmupDecayLR and WarmupCosineLR"),
            HasSubstr("| a rise and a fall: \"WarmupCosineLR\" in the file"),
            HasSubstr("--lr_scheduler cosine")));
  EXPECT_THAT(refusal("sft", scheduler("LRRangeTest", R"("lr_range_test_min_lr": 1e-5)")),
              AllOf(HasSubstr("scheduler 'LRRangeTest'"), HasSubstr("--lr_scheduler constant")));
}

TEST_F(DeepSpeedFile, ArgsNameWhatTheFileSaid) {
  const Json args = with("sft", line(R"({"fp16": {"enabled": true, "initial_scale_power": 20},
                    "optimizer": {"type": "AdamW", "params": {"weight_decay": 0.25}},
                    "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 3}}})",
                                     {"--lr_scheduler_type", "linear", "--lr", "1e-3"}))
                        .args;
  EXPECT_EQ(args.at("lr_scheduler"), "WarmupCosineLR");
  EXPECT_EQ(args.at("warmup_steps"), 3);
  EXPECT_DOUBLE_EQ(args.at("min_lr").get<double>(), 1e-7);
  EXPECT_EQ(args.at("weight_decay"), 0.25);
  EXPECT_EQ(args.at("initial_loss_scale"), 1048576.0);
  EXPECT_EQ(args.at("dtype"), "fp16");
  EXPECT_EQ(with("sft", {"--deepspeed", "default-zero2"}).args.at("lr_scheduler"), "WarmupDecayLR");
}

TEST_F(DeepSpeedFile, RatesOfPartsAreMultiplesOfTheFilesRate) {
  const TrainConfig config = with(
      "sft",
      line(R"({"optimizer": {"type": "AdamW", "params": {"lr": 2e-5}}})", {"--vit_lr", "1e-6"}));
  EXPECT_DOUBLE_EQ(config.schedule.shape.lr, 2e-5);
  EXPECT_DOUBLE_EQ(config.adamw.groups.rules.at(0).lr_scale, 0.05);
}

TEST_F(DeepSpeedFile, NoRateIsAMultipleOfNone) {
  const std::string file = R"({"optimizer": {"type": "AdamW", "params": {"lr": 0}}})";
  EXPECT_THAT(
      refusal("sft", line(file, {"--vit_lr", "1e-5"})),
      AllOf(HasSubstr("--vit_lr 1e-05: the run's rate is 0"), HasSubstr("--lr 1e-05, and freeze")));
  EXPECT_EQ(with("sft", line(file, {"--vit_lr", "0"})).adamw.groups.rules.at(0).lr_scale, 1);
}

TEST_F(DeepSpeedFile, TheLossScaleStandsInTheHonouredList) {
  const Words words = line(R"({"fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 500,
                               "initial_scale_power": 32, "hysteresis": 3, "min_loss_scale": 2}})");
  const std::string said = notices("sft", words);
  EXPECT_THAT(said, AllOf(HasSubstr("honoured: fp16, "), HasSubstr("fp16/loss_scale_window 500"),
                          HasSubstr("fp16/hysteresis 3"), HasSubstr("fp16/min_loss_scale 2"),
                          HasSubstr("fp16/initial_scale_power 32 (2^32 = 4.29497e+09)")));
  EXPECT_THAT(said, HasSubstr("the loss scale begins at 4.29497e+09 (--deepspeed's "
                              "fp16/initial_scale_power), above 2^24"));
  const LossScaleConfig scale = with("sft", words).loss_scale;
  EXPECT_EQ(scale.initial_scale, 4294967296.0);
  EXPECT_EQ(scale.hysteresis, 3);
  EXPECT_EQ(scale.min_scale, 2);
}

TEST_F(DeepSpeedFile, AScaleAbove2To24IsNamedWhereverItComesFrom) {
  const auto named = HasSubstr("above 2^24");
  EXPECT_THAT(notices("sft", {"--fp16", "true", "--initial_loss_scale", "16777217"}), named);
  EXPECT_THAT(notices("sft", {"--fp16", "true", "--initial_loss_scale", "16777216"}), Not(named));
  EXPECT_THAT(notices("sft", {"--fp16", "true", "--loss_scale", "33554432"}),
              HasSubstr("--loss_scale 3.35544e+07 is above 2^24, and fixed"));
  EXPECT_THAT(notices("sft", {"--initial_loss_scale", "1e9"}), Not(named));  // bf16
}

TEST_F(DeepSpeedFile, AScaleThatTheFileAndAFlagSayMustBeOne) {
  const std::string file = R"({"fp16": {"enabled": true, "initial_scale_power": 16}})";
  EXPECT_THAT(
      refusal("sft", line(file, {"--initial_loss_scale", "1024"})),
      HasSubstr("/fp16/initial_scale_power 16 (2^16 = 65536) vs --initial_loss_scale 1024"));
  EXPECT_EQ(with("sft", line(file, {"--initial_loss_scale", "65536"})).loss_scale.initial_scale,
            65536);
  for (const char* power : {"-1", "128", "1e6"}) {
    EXPECT_THAT(refusal("sft", line(R"({"fp16": {"enabled": true, "initial_scale_power": )" +
                                    std::string(power) + "}}")),
                HasSubstr("/fp16/initial_scale_power must be a number from 0 to 127, got "));
  }
}

}  // namespace danlu::settings::options_test
