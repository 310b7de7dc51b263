// Command lines of other systems become the configuration those systems would have run.
#include <gmock/gmock.h>

#include <fstream>

#include "base/file.h"
#include "settings/option_lines.h"
#include "settings/run_plan.h"

namespace danlu::settings::options_test {

using testing::HasSubstr;

TEST_F(TrainOptions, SftDefaultsAreTheCanonicalOnes) {
  const TrainConfig config = with("sft", {});
  EXPECT_EQ(config.tuner, Tuner::kLora);
  EXPECT_EQ(config.precision, Precision::kBF16);
  EXPECT_EQ(config.schedule.shape.lr, 1e-4);
  EXPECT_EQ(config.schedule.warmup_ratio, 0.05);
  EXPECT_EQ(config.lora.target_modules, std::vector<std::string>{"all-linear"});
  EXPECT_EQ(config.data.max_length, 128);  // the model's window is smaller than 2048
  EXPECT_EQ(config.data.validation_ratio, 0.01);
  EXPECT_EQ(accumulation_of(config.batch), 16);
  EXPECT_TRUE(config.output.versioned);
  EXPECT_EQ(with("sft", {"--tuner", "full"}).schedule.shape.lr, 1e-5);
}

TEST_F(TrainOptions, AutoIsBf16UnlessAFlagSaysOtherwise) {
  EXPECT_EQ(with("sft", {"--bf16", "false", "--fp16", "false"}).precision, Precision::kF32);
  EXPECT_EQ(with("sft", {"--bf16", "false", "--fp16"}).precision, Precision::kF16);
  for (const char* automatic : {"auto", "AUTO"}) {
    EXPECT_EQ(with("sft", {"--dtype", automatic}).precision, Precision::kBF16);
    EXPECT_EQ(with("sft", {"--dtype", automatic, "--fp16"}).precision, Precision::kF16);
    EXPECT_EQ(with("sft", {"--dtype", "bf16", "--bf16", "false"}).precision, Precision::kBF16);
  }
}

TEST_F(TrainOptions, ASystemMessageMayStandInAFile) {
  const std::string file = (directory_ / "prompt.txt").string();
  std::ofstream(file) << "Answer briefly.\n";
  for (const char* verb : {"sft", "train", "posttrain"}) {
    EXPECT_EQ(with(verb, {"--system", file}).data.system, "Answer briefly.\n");
    EXPECT_EQ(with(verb, {"--default_system", "Answer."}).data.system, "Answer.");
  }
  EXPECT_EQ(with("rlhf", {"--rlhf_type", "dpo", "--system", file}).data.system,
            "Answer briefly.\n");
  EXPECT_THAT(refusal("sft", {"--system", "nowhere.txt"}), HasSubstr("no such file"));
}

TEST_F(TrainOptions, AutomaticAccumulationReachesSixteenSamples) {
  EXPECT_EQ(accumulation_of(with("sft", {"--batch_size", "5"}).batch), 4);  // 20 ≥ 16
  EXPECT_EQ(accumulation_of(with("sft", {"--batch_size", "32"}).batch), 1);
  EXPECT_EQ(accumulation_of(with("sft", {"--batch_size", "4", "--global_batch_size", "64"}).batch),
            16);
}

TEST_F(TrainOptions, StanfordAlpacaCommandLine) {
  const TrainConfig config = with(
      "train", alpaca_line() + std::vector<std::string>{"--gradient_checkpointing", "True",
                                                        "--fsdp", "full_shard offload auto_wrap",
                                                        "--fsdp_transformer_layer_cls_to_wrap",
                                                        "Qwen2DecoderLayer"});
  EXPECT_EQ(config.tuner, Tuner::kFull);
  EXPECT_EQ(config.precision, Precision::kF16);
  EXPECT_EQ(config.recompute.granularity, "full");
  EXPECT_EQ(config.data.template_name, "stanford_alpaca");
  EXPECT_EQ(config.batch.micro_batch_size, 2);
  EXPECT_EQ(accumulation_of(config.batch), 8);
  EXPECT_EQ(config.adamw.beta2, 0.999);
  EXPECT_EQ(config.adamw.groups.weight_decay, 0.0);
  EXPECT_EQ(config.data.validation_ratio, 0.0);
  EXPECT_EQ(config.output.directory, "/o");
  EXPECT_FALSE(config.data.share_passes);
}

TEST_F(TrainOptions, SwiftProfileHasItsHiddenDefaults) {
  const TrainConfig config = with("sft", {"--profile", "swift24"});
  EXPECT_EQ(config.max_grad_norm, 1.0);
  EXPECT_EQ(config.schedule.shape.kind, ScheduleKind::kCosine);
  EXPECT_EQ(config.adamw.beta2, 0.95);
  EXPECT_EQ(config.output.save_steps, 50);
  EXPECT_EQ(with("sft", {"--profile", "swift24", "--max_grad_norm", "2"}).max_grad_norm, 2.0);
}

TEST_F(TrainOptions, MegatronFlagsThatAgreeWithTheConfigAreSilent) {
  const TrainConfig config = with("pretrain", {"--num-layers",
                                               "2",
                                               "--hidden-size",
                                               "32",
                                               "--ffn-hidden-size",
                                               "56",
                                               "--num-attention-heads",
                                               "4",
                                               "--group-query-attention",
                                               "--num-query-groups",
                                               "2",
                                               "--normalization",
                                               "RMSNorm",
                                               "--swiglu",
                                               "--position-embedding-type",
                                               "rope",
                                               "--untie-embeddings-and-output-weights",
                                               "--disable-bias-linear",
                                               "--attention-dropout",
                                               "0.0",
                                               "--seq-length",
                                               "64",
                                               "--micro-batch-size",
                                               "2",
                                               "--global-batch-size",
                                               "8",
                                               "--train-iters",
                                               "100",
                                               "--lr-warmup-fraction",
                                               "0.01",
                                               "--clip-grad",
                                               "1.0",
                                               "--min-lr",
                                               "1e-6",
                                               "--lr",
                                               "1e-4",
                                               "--tensor-model-parallel-size",
                                               "1",
                                               "--no-load-optim",
                                               "--bf16"});
  EXPECT_EQ(config.task, Task::kPretrain);
  EXPECT_EQ(config.data.max_length, 64);
  EXPECT_EQ(config.batch.max_steps, 100);
  // The flag is about what is loaded; scripts carry it, and are begun again with it.
  EXPECT_EQ(config.output.resume, "auto");
  EXPECT_FALSE(config.model.continues);
}

TEST_F(TrainOptions, MegatronFlagsThatDisagreeShowBothValues) {
  const std::string text =
      refusal("pretrain", {"--num-layers", "32", "--hidden-size", "32", "--add-qkv-bias"});
  EXPECT_NE(text.find("--num-layers 32 (config.json: 2)"), std::string::npos) << text;
  EXPECT_NE(text.find("--add-qkv-bias true (config.json: false)"), std::string::npos) << text;
  EXPECT_EQ(text.find("hidden_size"), std::string::npos) << text;
}

TEST_F(TrainOptions, ARankWithoutANumberIsRefused) {
  const ScopedVariable variable("WORLD_SIZE", "8");
  EXPECT_THAT(refusal("sft", {}), HasSubstr("[ranks] RANK is missing: WORLD_SIZE says"));
}

TEST_F(TrainOptions, RanksDivideAStep) {
  const ScopedVariable size("WORLD_SIZE", "4"), rank("RANK", "3"),
      address("MASTER_ADDR", "127.0.0.1"), port("MASTER_PORT", "29500");
  const auto step = [&](const std::vector<std::string>& more) {
    return plan_run(with("sft", more), 1000, data::LastBatch::kPartial).batch_arithmetic;
  };
  EXPECT_EQ(step({"--batch_size", "2", "--global_batch_size", "32"}),
            "2 samples × 4 accumulation × 4 processes = 32 samples a step");
  EXPECT_EQ(step({"--batch_size", "1"}),
            "1 sample × 4 accumulation × 4 processes = 16 samples a step");
  EXPECT_EQ(step({"--batch_size", "2", "--accum", "3"}),
            "2 samples × 3 accumulation × 4 processes = 24 samples a step");
  EXPECT_THAT(
      step({"--deepspeed", R"({"train_batch_size":64,"train_micro_batch_size_per_gpu":2})"}),
      HasSubstr("2 samples × 8 accumulation × 4 processes = 64"));
  EXPECT_THAT(refusal("sft", {"--batch_size", "2", "--global_batch_size", "12"}),
              HasSubstr("must be a multiple of --batch_size 2 × 4 processes = 8"));
  EXPECT_THAT(refusal("sft", {"--dp", "2"}),
              HasSubstr("--dp 2: 4 processes of 1 a copy of the model make 4"));
  EXPECT_EQ(with("sft", {}).place.rank, 3);
}

TEST_F(TrainOptions, HowRanksShareContext) {
  const ScopedVariable size("WORLD_SIZE", "4"), rank("RANK", "3"),
      address("MASTER_ADDR", "127.0.0.1"), port("MASTER_PORT", "29500");
  const std::vector<std::string> four = {"--cp", "4", "--context-parallel-algo"},
                                 degree = {"--ulysses-degree-in-cp", "2"};
  const auto shape = [&](const std::string& algorithm, const std::vector<std::string>& more) {
    const ContextShape found =
        with("sft", four + std::vector<std::string>{algorithm} + more).mesh.context;
    return std::vector<int64_t>{found.ulysses, found.ring, found.window};
  };
  EXPECT_EQ(shape("ulysses_cp_algo", {}), (std::vector<int64_t>{4, 1, 1}));
  EXPECT_EQ(shape("megatron_cp_algo", {}), (std::vector<int64_t>{1, 4, 4}));
  EXPECT_EQ(shape("megatron_cp_algo", {"--cp-window-size", "2"}), (std::vector<int64_t>{1, 4, 2}));
  EXPECT_EQ(shape("hybrid_cp_algo", degree), (std::vector<int64_t>{2, 2, 2}));
  EXPECT_THAT(refusal("sft", four + std::vector<std::string>{"megatron_cp_algo"} + degree),
              HasSubstr("--ulysses-degree-in-cp: it is of hybrid_cp_algo, and "
                        "--context-parallel-algo megatron_cp_algo was given"));
  EXPECT_THAT(refusal("sft", four + std::vector<std::string>{"hybrid_cp_algo"}),
              HasSubstr("how many processes exchange heads is not said"));
  // As a script of MindSpeed-LLM has it.
  EXPECT_EQ(shape("ulysses_cp_algo", degree), (std::vector<int64_t>{4, 1, 1}));
  EXPECT_THAT(notices("sft", four + std::vector<std::string>{"ulysses_cp_algo"} + degree),
              HasSubstr("--ulysses-degree-in-cp has no effect with --context-parallel-algo "
                        "ulysses_cp_algo: all 4 processes exchange heads"));
}

TEST_F(TrainOptions, ALineForSeveralProcessesIsNotTrainedInOne) {
  EXPECT_THAT(refusal("pretrain", {"--tensor-model-parallel-size", "2"}),
              HasSubstr("--tensor-model-parallel-size 2: for 2 processes, and one runs | add "
                        "--nproc_per_node 2 to the line"));
  EXPECT_THAT(refusal("sft", {"--tp", "2", "--dp", "3"}),
              HasSubstr("--tp 2, --dp 3: for 6 processes, and one runs"));
  EXPECT_THAT(refusal("pretrain", {"--cp", "2"}), HasSubstr("--cp 2: for 2 processes, and one"));
  EXPECT_THAT(
      refusal("sft",
              {"--deepspeed", R"({"train_batch_size":128,"train_micro_batch_size_per_gpu":2})",
               "--accum", "8"}),
      HasSubstr("128 ≠ --deepspeed's train_micro_batch_size_per_gpu 2 × --accum 8 × 1 process = 16 "
                "| write \"auto\", or name"));
  EXPECT_THAT(
      notices("sft", {"--nproc_per_node", "3"}),
      HasSubstr("--nproc_per_node 3: 1 processes run on this machine, as they were started"));
}

TEST_F(TrainOptions, APosttrainLineHasMindSpeedsDefaults) {
  const TrainConfig config = with("posttrain", {"--lora-target-modules", "linear_qkv", "--bf16"});
  EXPECT_EQ(config.profile.name, "mindspeed");
  EXPECT_EQ(config.tuner, Tuner::kLora) << "targets ask for adapters there";
  EXPECT_EQ(config.lora.rank, 16);
  EXPECT_EQ(config.lora.dropout, 0.0);
  EXPECT_EQ(config.schedule.warmup_ratio, 0.0);
  EXPECT_EQ(config.schedule.shape.kind, ScheduleKind::kLinear);
  EXPECT_EQ(config.adamw.groups.weight_decay, 0.01);
  EXPECT_EQ(config.precision, Precision::kBF16);
  EXPECT_EQ(with("posttrain", {}).precision, Precision::kF32);
  EXPECT_EQ(accumulation_of(with("posttrain", {"--global-batch-size", "8"}).batch), 8);
  EXPECT_EQ(accumulation_of(config.batch), 1);
  EXPECT_EQ(config.data.megatron_split, "969,30,1");
  EXPECT_EQ(with("posttrain", {"--val_ratio", "0.1"}).data.megatron_split, "");
  EXPECT_EQ(with("posttrain", {"--profile", "danlu"}).schedule.warmup_ratio, 0.05);
  EXPECT_EQ(config.settings.at("profile"), "mindspeed");
  EXPECT_EQ(with("sft", {}).settings.at("profile"), "danlu");
}

TEST_F(TrainOptions, DeepSpeedFileIsHonouredWhereOneProcessCan) {
  std::ofstream(directory_ / "ds.json")
      << "\n"
      << R"({"fp16":{"enabled":"auto","loss_scale":0,"loss_scale_window":500,"initial_scale_power":12},
    "optimizer":{"type":"AdamW","params":{"lr":"auto","betas":[0.8,0.9]}},
    "scheduler":{"type":"WarmupLR","params":{"warmup_min_lr":"auto","warmup_max_lr":"auto","warmup_num_steps":7}},
    "zero_optimization":{"stage":2,"allgather_bucket_size":2e8}, "train_batch_size":128, "gradient_accumulation_steps":8,
    "train_batch_size":"auto"})";
  const TrainConfig config = with("sft", {"--fp16", "True", "--lr_scheduler_type", "cosine",
                                          "--deepspeed", (directory_ / "ds.json").string()});
  EXPECT_EQ(config.schedule.shape.kind, ScheduleKind::kWarmupLr);
  EXPECT_EQ(config.schedule.shape.warmup_ramp, Ramp::kLog);
  EXPECT_EQ(config.schedule.warmup_steps, 7);
  EXPECT_EQ(config.adamw.beta1, 0.8);
  EXPECT_EQ(config.batch.accumulation, 8);
  EXPECT_EQ(config.loss_scale.window, 500);
  EXPECT_EQ(config.loss_scale.initial_scale, 4096);
}

TEST_F(TrainOptions, EveryEcosystemsNameOfSharding) {
  const auto sharding = [&](const std::vector<std::string>& line, int processes = 4) {
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"RANK", "0"},
                                            {"WORLD_SIZE", std::to_string(processes)},
                                            {"LOCAL_WORLD_SIZE", std::to_string(processes)},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"MASTER_PORT", "29500"}})
      ::setenv(name.c_str(), value.c_str(), 1);
    const auto found = with("sft", line).keeping.sharding;
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
      ::unsetenv(name);
    return found;
  };
  EXPECT_EQ(sharding({}), Sharding::kNone);
  EXPECT_EQ(sharding({"--shard", "zero2"}), Sharding::kGradients);
  EXPECT_EQ(sharding({"--use-distributed-optimizer"}), Sharding::kState);
  EXPECT_EQ(sharding({"--fsdp", "full_shard auto_wrap"}), Sharding::kParameters);
  EXPECT_EQ(sharding({"--fsdp", "shard_grad_op"}), Sharding::kGradients);
  EXPECT_EQ(sharding({"--fsdp", "no_shard"}), Sharding::kNone);
  EXPECT_EQ(sharding({"--deepspeed", "default-zero3"}), Sharding::kParameters);
  EXPECT_EQ(sharding({"--deepspeed", R"({"zero_optimization":{"stage":1}})"}), Sharding::kState);
  EXPECT_EQ(sharding({"--deepspeed", R"({"gradient_clipping":0.5})"}), Sharding::kNone);
  EXPECT_EQ(sharding({"--shard", "zero3", "--tp", "4"}), Sharding::kNone)
      << "one copy of the model";
  EXPECT_EQ(sharding({"--shard", "zero3", "--tp", "2"}), Sharding::kParameters);
  EXPECT_EQ(with("sft", {"--shard", "zero3"}).keeping.sharding, Sharding::kNone);
  EXPECT_THAT(refusal("sft", {"--shard", "zero1", "--deepspeed", "zero3"}),
              testing::HasSubstr("--shard zero1 means ZeRO-1, --deepspeed: stage 3 means ZeRO-3"));
  EXPECT_THAT(refusal("sft", {"--fsdp", "full_shard shard_grad_op"}),
              testing::HasSubstr("[train] --fsdp \"full_shard shard_grad_op\": full_shard and "
                                 "shard_grad_op are two ways"));
  EXPECT_THAT(refusal("sft", {"--fsdp", "auto_wrap full_shard hybrid_shard"}),
              testing::HasSubstr("full_shard and hybrid_shard are two ways"));
  EXPECT_EQ(sharding({"--fsdp", "full_shard offload auto_wrap full_shard"}), Sharding::kParameters);
  EXPECT_THAT(refusal("sft", {"--deepspeed", R"({"zero_optimization":{"stage":4}})"}),
              testing::HasSubstr("ZeRO has the stages 0 to 3, not 4"));
  EXPECT_THAT(refusal("sft", {"--offload", "everything"}),
              testing::HasSubstr("optimizer or params"));
  EXPECT_THAT(refusal("sft", {"--offload_dir", "/nowhere"}),
              testing::HasSubstr("no such directory"));
  const std::string here = directory_.path().string();
  const auto keeping =
      with("sft", {"--offload", "optimizer,params", "--offload_dir", here}).keeping;
  EXPECT_EQ(keeping.state_in, here);
  EXPECT_EQ(keeping.parameters_in, here);
  EXPECT_EQ(with("sft", {"--offload_dir", here}).keeping.parameters_in, "");
  const char* misspelt =
      R"({"zero_optimization":{"stage":3,"offload_optimizer":{"device":"nmve"}}})";
  EXPECT_THAT(refusal("sft", {"--deepspeed", misspelt}),
              testing::HasSubstr("offload_optimizer/device \"nmve\": expected none, cpu or nvme"));
  const std::string nvme =
      R"({"zero_optimization":{"stage":3,"offload_optimizer":{"device":"nvme","nvme_path":")" +
      here + R"("}}})";
  EXPECT_EQ(with("sft", {"--deepspeed", nvme}).keeping.state_in, here);
  EXPECT_EQ(with("sft", {"--deepspeed", nvme}).keeping.parameters_in, "");
}

TEST_F(TrainOptions, DeepSpeedMismatchShowsBothNumbers) {
  std::ofstream(directory_ / "ds.json")
      << R"({"gradient_accumulation_steps":8,"optimizer":{"type":"AdamW","params":{"lr":1e-3}}})";
  const std::string text = refusal(
      "sft", {"--accum", "4", "--lr", "1e-4", "--deepspeed", (directory_ / "ds.json").string()});
  EXPECT_NE(text.find("/gradient_accumulation_steps 8 vs --accum 4"), std::string::npos) << text;
  EXPECT_NE(text.find("/optimizer/params/lr 0.001 vs --lr 0.0001"), std::string::npos) << text;
  std::ofstream(directory_ / "ds2.json")
      << R"({"train_batch_size":128,"gradient_accumulation_steps":8,"train_micro_batch_size_per_gpu":2})";
  const std::string product = refusal("sft", {"--deepspeed", (directory_ / "ds2.json").string()});
  EXPECT_THAT(product, HasSubstr("train_batch_size 128 ≠ --deepspeed's "
                                 "train_micro_batch_size_per_gpu 2 × --deepspeed's "
                                 "gradient_accumulation_steps 8 × 1 process = 16"));
}

TEST_F(TrainOptions, ABatchThatDoesNotAddUpSaysWhereItsNumbersComeFrom) {
  const auto said = [&](const char* json, const std::vector<std::string>& more) {
    return refusal("sft", more + std::vector<std::string>{"--deepspeed", json});
  };
  EXPECT_THAT(
      said(R"({"gradient_accumulation_steps":8})", {"--global_batch_size", "64"}),
      HasSubstr("[train] --global_batch_size 64: differs from --batch_size 1 (by default) × "
                "--deepspeed's gradient_accumulation_steps 8 = 8"));
  EXPECT_THAT(said(R"({"train_batch_size":128})", {"--global_batch_size", "64"}),
              HasSubstr("/train_batch_size 128 vs --global_batch_size 64"));
  EXPECT_THAT(
      said(R"({"train_batch_size":9})", {"--batch_size", "2"}),
      HasSubstr("train_batch_size 9: must be a multiple of --batch_size 2 × 1 process = 2"));
  EXPECT_THAT(
      said(R"({"train_batch_size":9, "train_micro_batch_size_per_gpu":3})", {"--batch_size", "2"}),
      HasSubstr("/train_micro_batch_size_per_gpu 3 vs --batch_size 2"));
  const ScopedVariable size("WORLD_SIZE", "4"), rank("RANK", "3"),
      address("MASTER_ADDR", "127.0.0.1"), port("MASTER_PORT", "29500");
  EXPECT_THAT(said(R"({"train_batch_size":9})", {"--tp", "2"}),
              HasSubstr("must be a multiple of --batch_size 1 (by default) × 2 processes (4 / --tp "
                        "2) = 2"));
  EXPECT_EQ(with("sft", {"--deepspeed", R"({"train_batch_size":64})", "--global_batch_size", "64"})
                .batch.accumulation,
            16);
}

TEST_F(TrainOptions, DeepSpeedKeysThatNobodyKnowsAreNamed) {
  const auto said = [&](const char* json) { return refusal("sft", {"--deepspeed", json}); };
  EXPECT_THAT(said(R"({"zero_optimization":{"stag":2}})"),
              HasSubstr("[deepspeed] zero_optimization/stag: DeepSpeed has no such key | did you "
                        "mean 'stage'?"));
  EXPECT_THAT(said(R"({"gradient_acumulation_steps":2})"),
              HasSubstr("[deepspeed] gradient_acumulation_steps: DeepSpeed has no such key | did "
                        "you mean 'gradient_accumulation_steps'?"));
  EXPECT_THAT(said(R"({"optimizer":{"type":"AdamW","params":{"learning_rates":1,"wd":0.1}}})"),
              testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(
      said(
          R"({"zero_optimization":{"stage":2,"offload_optimizer":{"device":"cpu","pinmemory":1}}})"),
      HasSubstr("zero_optimization/offload_optimizer/pinmemory"));
  const std::string notice =
      notices("sft", {"--deepspeed", R"({"zero_optimization":{"stage":0,"overlap_comm":true,
          "zeropp_loco_param":{"err_beta":0.8}},"bfloat16":{"enabled":true,"kwyjibo":1}})"});
  EXPECT_THAT(notice, HasSubstr("unknown key \"bfloat16/kwyjibo\" is ignored"));
  EXPECT_THAT(notice, HasSubstr("ignored: zero_optimization/overlap_comm, "
                                "zero_optimization/zeropp_loco_param"));
  EXPECT_THAT(notice, HasSubstr("honoured: bf16"));
}

TEST_F(TrainOptions, DeepSpeedNumbersThatCannotBeAreRefused) {
  const auto text_of = [&](const std::string& json) {
    return refusal("sft", {"--deepspeed", json});
  };
  EXPECT_THAT(
      text_of(R"({"train_micro_batch_size_per_gpu":0,"train_batch_size":8})"),
      HasSubstr("/train_micro_batch_size_per_gpu must be a whole number of at least 1, got 0"));
  EXPECT_THAT(
      text_of(R"({"gradient_accumulation_steps":1.5})"),
      HasSubstr("/gradient_accumulation_steps must be a whole number of at least 1, got 1.5"));
  EXPECT_THAT(text_of(R"({"train_batch_size":-4})"), HasSubstr("at least 1, got -4"));
  EXPECT_THAT(text_of(R"({"scheduler":"WarmupLR"})"), HasSubstr("/scheduler must be an object"));
}

TEST_F(TrainOptions, DeepSpeedPartsThatAreNullAreAbsent) {
  const TrainConfig config = with("sft", {"--lr_scheduler", "cosine", "--deepspeed",
                                          R"({"scheduler":null,"optimizer":null,
                       "zero_optimization":{"stage":2,"offload_optimizer":null}})"});
  EXPECT_EQ(config.schedule.shape.kind, ScheduleKind::kCosine);
}

TEST_F(TrainOptions, ARankInAFileAsksForLoraAsItsFlagDoes) {
  std::ofstream(directory_ / "run.yaml") << "lora_rank: 8\n";
  EXPECT_EQ(with("posttrain", {"--lora_rank", "8"}).tuner, Tuner::kLora);
  EXPECT_EQ(with("posttrain", {(directory_ / "run.yaml").string()}).tuner, Tuner::kLora);
  EXPECT_EQ(with("posttrain", {}).tuner, Tuner::kFull);
}

TEST_F(TrainOptions, ARecomputeChoiceInAFileOutweighsGradientCheckpointing) {
  std::ofstream(directory_ / "run.yaml") << "recompute: selective\n";
  EXPECT_EQ(with("sft", {(directory_ / "run.yaml").string(), "--gradient_checkpointing", "True"})
                .recompute.granularity,
            "selective");
}

TEST_F(TrainOptions, TheBestModelNeedsCheckpointsAndEvaluations) {
  EXPECT_THAT(refusal("sft", {"--load_best_model_at_end", "true", "--save_strategy", "no"}),
              HasSubstr("needs checkpoints to load from"));
  EXPECT_THAT(refusal("sft", {"--load_best_model_at_end", "true", "--eval_strategy", "no"}),
              HasSubstr("needs evaluations"));
}

TEST_F(TrainOptions, MegatronsWarmupFractionIsOfTheDecay) {
  const std::vector<std::string> line = {"--train-iters", "20", "--lr-decay-iters", "10"};
  const auto warmup = [&](const char* flag) {
    return plan_run(with("pretrain", line + std::vector<std::string>{flag, "0.2"}), 100,
                    data::LastBatch::kWrap)
        .schedule.warmup_steps;
  };
  EXPECT_EQ(warmup("--lr-warmup-fraction"), 2);
  EXPECT_EQ(warmup("--warmup_ratio"), 4);
}

TEST_F(TrainOptions, WhatHasNoEffectIsSaid) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--save_dtype", "fp32"}, "--save_dtype has no effect with --tuner lora"},
      {{"--tuner", "full", "--lora_rank", "4"}, "--lora_rank has no effect with --tuner full"},
      {{"--warmup_steps", "1", "--warmup_ratio", "0.9"},
       "--warmup_ratio has no effect with --warmup_steps"},
      {{"--lr_power", "2"}, "--lr_power has no effect with --lr_scheduler cosine"},
      {{"--max_steps", "3", "--train_samples", "64"},
       "--train_samples has no effect with --max_steps"},
      {{"--save_strategy", "no", "--save_steps", "1"},
       "--save_steps has no effect with --save_strategy no"},
      {{"--hysteresis", "3"}, "--hysteresis has no effect in bf16"},
      {{"--eod_mask_loss", "true"}, "--eod_mask_loss has no effect in sft"},
      {{"--model_type", "qwen-7b"}, "--model_type has no effect where the model"}};
  for (const auto& [line, notice] : cases) EXPECT_THAT(notices("sft", line), HasSubstr(notice));
  EXPECT_THAT(notices("sft", {"--max_steps", "3", "--fp16", "true", "--hysteresis", "3"}),
              testing::Not(HasSubstr("no effect")));
}

TEST_F(TrainOptions, LoadNamesTheWeightsAndModelThenTheTokenizer) {
  fs::create_directories(directory_ / "weights");
  write_json_file(directory_ / "weights" / "config.json", test::tiny_config("llama"));
  fs::copy_file(directory_ / "model" / "model.safetensors",
                directory_ / "weights" / "model.safetensors");
  const TrainConfig config = with("sft", {"--load", (directory_ / "weights").string()});
  EXPECT_EQ(config.model.path, directory_ / "weights");
  EXPECT_EQ(config.model.tokenizer, directory_ / "model");
  EXPECT_THAT(refusal<ModelError>("sft", {"--load", "/nowhere/at/all"}), HasSubstr("/nowhere"));
}

TEST_F(TrainOptions, ShortModelNamesAreLookedUpInTheLocalCaches) {
  const fs::path snapshot =
      directory_ / "hub" / "models--Qwen--Qwen1.5-7B-Chat" / "snapshots" / "abc";
  fs::create_directories(snapshot);
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(directory_ / "model" / file, snapshot / file);
  const ScopedVariable cache("HF_HUB_CACHE", (directory_ / "hub").string());
  const std::vector<std::string> words = {"--model_type", "qwen1half-7b-chat", "--dataset",
                                          (directory_ / "data.json").string()};
  EXPECT_EQ(parse("sft", words).model.path, snapshot);
  try {
    parse("sft", {"--model_type", "qwen1half-7b-chatt", "--dataset", "x"});
    FAIL() << "must throw";
  } catch (const ModelError& error) {
    EXPECT_NE(error.hint().find("did you mean 'qwen1half-7b-chat'?"), std::string::npos)
        << error.hint();
  }
}

TEST_F(TrainOptions, BlossomMathRowsAreJoinedAsSwiftJoinsThem) {
  const fs::path snapshot =
      directory_ / "hub" / "datasets--Azure99--blossom-math-v2" / "snapshots" / "abc";
  fs::create_directories(snapshot);
  std::ofstream(snapshot / "rows.json")
      << R"([{"id":"1","input":"1+1?","output":"1 plus 1","answer":"2"}])";
  const ScopedVariable cache("HF_HUB_CACHE", (directory_ / "hub").string());
  const TrainConfig config =
      parse("sft", {"--model", (directory_ / "model").string(), "--dataset", "blossom-math-zh"});
  const Json row = Json::parse(read_file(config.data.train.front()));
  EXPECT_EQ(row.at("query"), "1+1?");
  EXPECT_EQ(row.at("response"), "1 plus 1\n\nAnswer: 2");
}

TEST_F(TrainOptions, ContradictionsNameTheFlags) {
  EXPECT_NE(refusal("sft", {"--bf16", "--fp16"}).find("--bf16 and --fp16"), std::string::npos);
  EXPECT_NE(refusal("sft", {"--dtype", "fp32", "--fp16", "true"}).find("--dtype fp32 disagrees"),
            std::string::npos);
  EXPECT_NE(refusal("sft", {"--batch_size", "3", "--global_batch_size", "16"})
                .find("must be a multiple of --batch_size 3"),
            std::string::npos);
  EXPECT_NE(refusal("posttrain", {"--stage", "gkd"})
                .find("--stage gkd: this version trains pretrain, sft, dpo,"),
            std::string::npos);
  EXPECT_NE(refusal("sft", {"--quantization_bit", "3"}).find("held in 4 bits (NF4)"),
            std::string::npos);
  EXPECT_NE(refusal("sft", {"--load_in_4bit", "--tuner", "full"}).find("--tuner full trains them"),
            std::string::npos);
  EXPECT_NE(refusal("sft", {"--fsdp", "full_shard autowrap"}).find("unknown word 'autowrap'"),
            std::string::npos);
}

TEST_F(TrainOptions, NumbersThatCannotBeMeantAreRefusedUnderTheNameTyped) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> lines = {
      {{"--max_steps", "0"}, "--max_steps: expected an integer of at least 1, or -1, got '0'"},
      {{"--train-iters", "-5"}, "--train-iters: expected an integer of at least 1, or -1"},
      {{"--gradient_accumulation_steps", "0"}, "--gradient_accumulation_steps: expected"},
      {{"--per_device_train_batch_size", "1000000000"},
       "--per_device_train_batch_size: expected an integer of at least 1 and up to 1000000"},
      {{"--batch_size", "0"}, "--batch_size: expected an integer of at least 1"},
      {{"--seed", "-1"}, "--seed: expected an integer of at least 0"},
      {{"--dataset_num_proc", "-2"}, "--dataset_num_proc: expected an integer of at least 0"},
      {{"--save_total_limit", "-2"},
       "--save_total_limit: expected an integer of at least 0, or -1"},
      {{"--max_samples", "0"}, "--max_samples: expected an integer of at least 1, or -1"},
      {{"--warmup_steps", "-1"}, "--warmup_steps: expected a number of at least 0"},
      {{"--warmup_ratio", "1.5"}, "--warmup_ratio: expected a number of at least 0 and up to 1"},
      {{"--weight_decay", "-0.1"}, "--weight_decay: expected a number of at least 0"},
      {{"--learning_rate", "0"}, "--learning_rate: expected a number above 0, got '0'"},
      {{"--lr=-1e-4"}, "--lr: expected a number above 0"},
      {{"--lr", "nan"}, "--lr: expected a number above 0, got 'nan'"},
      {{"--lr", "inf"}, "--lr: expected a finite number above 0, got 'inf'"},
      {{"--seq-length", "0"}, "--seq-length: expected an integer of at least 2"},
      {{"--lora_dropout_p", "1"}, "--lora_dropout_p: expected a number of at least 0 and below 1"},
      {{"--adam_beta2", "1"}, "--adam_beta2: expected a number of at least 0 and below 1"},
      {{"--num_train_epochs", "0"}, "--num_train_epochs: expected a number above 0"},
      {{"--val_size", "-0.1"}, "--val_size: expected a number of at least 0"},
      {{"--lora_rank", "0"}, "--lora_rank: expected an integer of at least 1"},
      {{"--logging_steps", "0"}, "--logging_steps: expected a number above 0"}};
  for (const auto& [words, rule] : lines)
    EXPECT_THAT(refusal("sft", words), HasSubstr(rule)) << words[0];
}

TEST_F(TrainOptions, NumbersWithAMeaningElsewhereKeepIt) {
  EXPECT_EQ(with("sft", {"--max_steps", "-1"}).batch.max_steps, -1);
  EXPECT_EQ(with("sft", {"--num_train_epochs", "0.5"}).batch.epochs, 0.5);
  EXPECT_EQ(with("sft", {"--save_total_limit", "-1"}).output.save_total_limit, 0);
  EXPECT_EQ(with("sft", {"--train_dataset_sample", "-1"}).data.max_rows, -1);
  EXPECT_EQ(with("sft", {"--weight_decay", "0."}).adamw.groups.weight_decay, 0.0);
  EXPECT_EQ(with("sft", {"--eval-iters", "0"}).output.evaluate, Interval::kNo);
  EXPECT_EQ(with("sft", {}).output.evaluate, Interval::kSteps);
  EXPECT_EQ(with("sft", {"--eval-iters", "0"}).data.validation_ratio, 0.0);
  EXPECT_EQ(with("sft", {"--do_eval", "false"}).output.evaluate, Interval::kNo);
  EXPECT_EQ(with("sft", {"--do_eval", "false", "--eval_strategy", "epoch"}).output.evaluate,
            Interval::kEpoch);
}

TEST_F(TrainOptions, RulesBetweenFlagsNameThemAsTyped) {
  EXPECT_THAT(refusal("sft", {"--per_device_train_batch_size", "3", "--global-batch-size", "16"}),
              HasSubstr("[train] --global-batch-size 16: must be a multiple of "
                        "--per_device_train_batch_size 3"));
  EXPECT_THAT(refusal("sft", {"--per_device_train_batch_size", "2", "--global_batch_size", "16",
                              "--gradient_accumulation_steps", "4"}),
              HasSubstr("differs from --per_device_train_batch_size 2 × "
                        "--gradient_accumulation_steps 4 = 8"));
  EXPECT_THAT(refusal("sft", {"--torch_dtype", "fp32", "--fp16", "true"}),
              HasSubstr("--torch_dtype fp32 disagrees with --fp16 true"));
  std::ofstream(directory_ / "run.yaml") << "global_batch_size: 5\nmicro_batch_size: 2\n";
  EXPECT_THAT(refusal("sft", {(directory_ / "run.yaml").string()}),
              HasSubstr("run.yaml:1: global_batch_size 5: must be a multiple of " +
                        (directory_ / "run.yaml").string() + ":2: micro_batch_size 2"));
}

TEST_F(TrainOptions, TrackersThatAreNotBuiltInAreNamed) {
  EXPECT_TRUE(with("sft", {"--report_to", "tensorboard"}).output.tensorboard);
  EXPECT_TRUE(with("sft", {"--report_to", "all"}).output.tensorboard);
  EXPECT_FALSE(with("sft", {"--report_to", "none"}).output.tensorboard);
  EXPECT_THAT(notices("sft", {"--report_to", "wandb"}),
              HasSubstr("--report_to wandb: nothing is sent anywhere"));
  EXPECT_TRUE(with("sft", {"--report_to", "tensorboard", "swanlab"}).output.tensorboard);
  EXPECT_THAT(refusal("sft", {"--report_to", "tensorbord"}),
              HasSubstr("expected tensorboard or none, got 'tensorbord' | did you mean "
                        "'tensorboard'?"));
}

}  // namespace danlu::settings::options_test
