// Every flag of the guides' command lines, and the well-known ones of HF's Trainer, ms-swift,
// LLaMA-Factory and MindSpeed-LLM: each is taken, taken with a notice, or refused on purpose.
#include <gmock/gmock.h>

#include "settings/option_lines.h"

namespace danlu::settings::options_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(TrainOptions, GuideOnAlpacaParses) {
  for (const std::string sharding : {"full_shard auto_wrap", "full_shard offload auto_wrap"}) {
    const TrainConfig config = with(
        "train", alpaca_line() + std::vector<std::string>{
                                     "--gradient_checkpointing", "True", "--fsdp", sharding,
                                     "--fsdp_transformer_layer_cls_to_wrap", "Qwen2DecoderLayer"});
    EXPECT_EQ(config.tuner, Tuner::kFull);
    EXPECT_EQ(config.batch.accumulation, 8);
  }
  std::ofstream(directory_ / "zero2.json") << R"({"zero_optimization":{"stage":2}})";
  EXPECT_EQ(with("train",
                 alpaca_line() + std::vector<std::string>{"--deepspeed", directory_ / "zero2.json"})
                .precision,
            Precision::kF16);
}

TEST_F(TrainOptions, GuideOnSwiftParses) {
  const std::vector<std::string> line = {"--num_train_epochs", "5",     "--sft_type", "lora",
                                         "--output_dir",       "output"};
  EXPECT_EQ(with("sft", line).tuner, Tuner::kLora);
  EXPECT_EQ(with("sft", {"--sft_type", "full"}).tuner, Tuner::kFull);
  for (const char* preset : {"default-zero2", "default-zero3"})
    EXPECT_EQ(
        with("sft", line + std::vector<std::string>{"--deepspeed", preset}).schedule.shape.kind,
        ScheduleKind::kWarmupDecayLr);
}

TEST_F(TrainOptions, MegatronScriptsParse) {
  // The switches that nearly every script of MindSpeed-LLM carries beside the architecture.
  const std::vector<std::string> line = {"--use-mcore-models",
                                         "--tensor-model-parallel-size",
                                         "1",
                                         "--pipeline-model-parallel-size",
                                         "1",
                                         "--sequence-parallel",
                                         "--use-fused-rmsnorm",
                                         "--use-fused-swiglu",
                                         "--use-fused-rotary-pos-emb",
                                         "--use-rotary-position-embeddings",
                                         "--no-masked-softmax-fusion",
                                         "--attention-softmax-in-fp32",
                                         "--use-flash-attn",
                                         "--use-distributed-optimizer",
                                         "--overlap-grad-reduce",
                                         "--no-gradient-accumulation-fusion",
                                         "--tokenizer-type",
                                         "PretrainedFromHF",
                                         "--make-vocab-size-divisible-by",
                                         "1",
                                         "--init-method-std",
                                         "0.01",
                                         "--no-load-optim",
                                         "--no-load-rng",
                                         "--no-save-optim",
                                         "--no-save-rng",
                                         "--seed",
                                         "42",
                                         "--initial-loss-scale",
                                         "65536",
                                         "--distributed-backend",
                                         "nccl",
                                         "--log-throughput",
                                         "--transformer-impl",
                                         "local",
                                         "--manual-gc-interval",
                                         "10",
                                         "--recompute-granularity",
                                         "full",
                                         "--recompute-method",
                                         "block",
                                         "--recompute-num-layers",
                                         "2",
                                         "--recompute-activation-function",
                                         "--context-parallel-size",
                                         "1",
                                         "--context-parallel-algo",
                                         "megatron_cp_algo",
                                         "--cp-attention-mask-type",
                                         "causal",
                                         "--use-cp-send-recv-overlap",
                                         "--reset-position-ids",
                                         "--eval-interval",
                                         "1000",
                                         "--eval-iters",
                                         "0",
                                         "--log-interval",
                                         "1",
                                         "--save-interval",
                                         "1000",
                                         "--variable-seq-lengths",
                                         "--pad-to-multiple-of",
                                         "8",
                                         "--is-instruction-dataset",
                                         "--finetune",
                                         "--stage",
                                         "sft",
                                         "--prompt-type",
                                         "qwen",
                                         "--spec",
                                         "some.module",
                                         "layer_spec",
                                         "--sparse-mode",
                                         "2",
                                         "--lora-r",
                                         "8",
                                         "--lora-alpha",
                                         "16",
                                         "--lora-fusion",
                                         "--lora-target-modules",
                                         "q_proj",
                                         "v_proj",
                                         "--bf16",
                                         "--micro-batch-size",
                                         "1",
                                         "--global-batch-size",
                                         "4"};
  const TrainConfig config = with("posttrain", line);
  EXPECT_EQ(
      config.recompute,
      (RecomputeFlags{
          .granularity = "full", .method = "block", .num_layers = 2, .activation_function = true}));
  EXPECT_EQ(config.output.evaluate, Interval::kNo);
  EXPECT_EQ(config.lora.target_modules, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_THAT(notices("posttrain", line),
              AllOf(HasSubstr("--make-vocab-size-divisible-by, --transformer-impl have no effect"),
                    HasSubstr("--manual-gc-interval, --sparse-mode have no effect")));
}

TEST_F(TrainOptions, TrainerFlagsWithoutInfluenceAreTakenWithANotice) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> lines = {
      {{"--tf32", "True"}, "--tf32"},
      {{"--lora_dtype", "fp32"}, "--lora_dtype"},
      {{"--use_fast_tokenizer", "true"}, "--use_fast_tokenizer"},
      {{"--gradient_checkpointing_kwargs", R"({"use_reentrant": false})"},
       "--gradient_checkpointing_kwargs"},
      {{"--ignore_args_error", "true"}, "unknown flags are always errors"},
      {{"--remove_unused_columns", "False"}, "--remove_unused_columns"},
      {{"--ddp_timeout", "180000000", "--ddp_backend", "hccl"}, "--ddp_backend"},
      {{"--ddp_find_unused_parameters", "false"}, "--ddp_find_unused_parameters"},
      {{"--dataloader_pin_memory", "true"}, "--dataloader_pin_memory"},
      {{"--dataloader_prefetch_factor", "4"}, "--dataloader_prefetch_factor"},
      {{"--push_to_hub"}, "nothing is sent to a hub"},
      {{"--hub_model_id", "me/mine", "--hub_token", "none"}, "--hub_model_id, --hub_token"},
      {{"--logging_dir", "logs"}, "--logging_dir has no effect here: logs lie in the run"},
      {{"--logging_strategy", "steps"}, "--logging_strategy"},
      {{"--torch_compile", "false"}, "--torch_compile"},
      {{"--flash_attn", "fa2", "--enable_liger_kernel", "true"}, "--flash_attn"}};
  for (const auto& [words, notice] : lines)
    EXPECT_THAT(notices("sft", words), HasSubstr(notice)) << words[0];
}

TEST_F(TrainOptions, FlagsThatWouldChangeTheResultAreRefused) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--self_cognition_sample", "500"},
                                             {"--add-bos-token"},
                                             {"--label_smoothing_factor", "0.1"},
                                             {"--galore_quantization", "true"},
                                             {"--fp8", "true"},
                                             {"--lora_bias", "all"}}) {
    EXPECT_THAT(refusal("sft", words), HasSubstr("[sft] " + words[0] + " is not available: "))
        << words[0];
  }
  const std::string off = notices(
      "sft", {"--neftune_noise_alpha", "None", "--self_cognition_sample", "0", "--lora_bias",
              "none", "--task_type", "CAUSAL_LM", "--add_bos_token", "none", "--init_weights",
              "true", "--label_smoothing_factor", "0.0", "--do_train", "--do_eval", "true"});
  EXPECT_EQ(with("sft", {"--neftune_alpha", "null"}).noise_alpha, 0);
  EXPECT_EQ(with("sft", {"--neftune_alpha", "5"}).noise_alpha, 5);
  EXPECT_THAT(off, Not(HasSubstr("notice")));
  EXPECT_THAT(refusal("sft", {"--do_train", "false"}),
              HasSubstr("--do_train false: this command trains"));
}

TEST_F(TrainOptions, KeysOfDeepSpeedThatWouldTrainOtherwiseAreRefused) {
  const auto refusal_of = [&](const std::string& json) -> std::string {
    try {
      with("sft", {"--deepspeed", json});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  for (const auto& [json, key] : std::map<std::string, std::string>{
           {R"({"optimizer":{"type":"Adam","params":{"adam_w_mode":false}}})",
            "optimizer/params/adam_w_mode false"},
           {R"({"curriculum_learning":{"enabled":true}})", "curriculum_learning/enabled true"},
           {R"({"sparse_attention":{"mode":"fixed"}})", "sparse_attention"},
           {R"({"tensor_parallel":{"autotp_size":2}})", "tensor_parallel/autotp_size 2"},
           {R"({"pipeline":{"stages":2}})", "pipeline/stages 2"}})
    EXPECT_THAT(refusal_of(json), HasSubstr(key));
  for (const char* harmless :
       {R"({"optimizer":{"type":"Adam","params":{"adam_w_mode":true}}})",
        R"({"curriculum_learning":{"enabled":false}})", R"({"tensor_parallel":{"autotp_size":1}})",
        R"({"pipeline":{"stages":"auto"}})"})
    EXPECT_EQ(refusal_of(harmless), "") << harmless;
}

TEST_F(TrainOptions, ARunNameIsTensorBoardsFolder) {
  EXPECT_EQ(with("sft", {"--run_name", "first"}).output.run_name, "first");
  EXPECT_EQ(with("sft", {"--run_name", "/tmp/x"}).output.run_name, "_tmp_x");
}

// ms-swift's flags at the values that they have there where nothing is said.
TEST_F(TrainOptions, FlagsOfMsSwiftAtTheirDefaultsAreTaken) {
  const auto taken = [&](const char* flag, const char* value) {
    return refusal("sft", {"--train_type", "full", flag, value});
  };
  const std::vector<std::vector<const char*>> flags = {
      {"--stopping_strategy", "first_exhausted", "all_exhausted"},
      {"--val_dataset_shuffle", "false", "true"},
      {"--disable_auto_column_mapping", "false", "true"},
      {"--download_mode", "reuse_dataset_if_exists", "force_redownload"},
      {"--data_sharding", "false", "true"},
      {"--packing_strategy", "binpack", "sequential"},
      {"--callbacks", "early_stop", "mine"},
      {"--eval_metric", "acc", "nlg"},
      {"--early_stopping_threshold", "0.0", "0.1"}};
  for (const auto& flag : flags) {
    EXPECT_EQ(taken(flag[0], flag[1]), "(accepted)") << flag[0];
    EXPECT_THAT(taken(flag[0], flag[2]), HasSubstr(flag[0])) << flag[2];
  }
  EXPECT_EQ(taken("--eval_limit", "10"), "(accepted)");
}

}  // namespace danlu::settings::options_test
