// What a terminal shows: few lines before the first step, and one language.
#include <regex>
#include <sstream>

#include "cli/bad_input.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    // A progress bar: the last of what was written over one another.
    lines.push_back(line.substr(line.rfind('\r') + 1));
  }
  return lines;
}

/// The longest run of English words that are no flags, names or paths, whatever numbers are among
/// them; names of figures are the same in every language.
std::string english_in(const std::string& line) {
  static const std::regex word("[A-Za-z][a-z']*[,;:.]?"),
      number("[-+]?[0-9][0-9.e/%-]*[a-z]*[,;]?"), figure("loss|acc|lr|norm|tp|pp|dp|cp");
  std::istringstream in(line);
  std::string token, run, longest;
  size_t count = 0, most = 0;
  while (in >> token) {
    if (count > 0 && std::regex_match(token, number)) continue;
    if (!std::regex_match(token, word) || std::regex_match(token, figure)) {
      run.clear();
      count = 0;
      continue;
    }
    run += (count++ ? " " : "") + token;
    if (count > most) {
      most = count;
      longest = run;
    }
  }
  return most < 3 ? "" : longest;
}

class TerminalLines : public BadInput {
 protected:
  void SetUp() override {
    BadInput::SetUp();
    replace_in_file(copy_model() / "config.json", "\"max_position_embeddings\": 64",
                    "\"max_position_embeddings\": 1024");
    std::string rows;
    for (int i = 0; i < 16; ++i) {
      rows +=
          R"({"instruction": "one\ntwo\nthree\nfour\nfive\nsix\nseven", "input": "eight\nnine\nten",)"
          R"( "output": "a\nb\nc\nd\ne\nf\ng )" +
          std::to_string(i) + "\"}\n";
    }
    write("rows.jsonl", rows);
    write("zero3.json", R"({"fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000,
        "initial_scale_power": 32, "hysteresis": 2, "min_loss_scale": 1},
        "zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true,
        "stage3_prefetch_bucket_size": "auto"}, "gradient_accumulation_steps": "auto",
        "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false})");
  }
  ProgramResult say(const std::string& language, const Words& words) const {
    return run_danlu(words, {.environment = {{"OMP_NUM_THREADS", "1"},
                                             {"DANLU_LANG", language},
                                             {"XDG_CACHE_HOME", ((*this) / "cache").string()}},
                             .directory = (*this) / ""});
  }
  std::string config() const { return content_of((*this) / "model/config.json"); }

  /// As the systems' own scripts and guides type them, each with its name.
  std::vector<std::pair<std::string, Words>> runs() const {
    const Words alpaca = {"train",      "--model_name_or_path",
                          "model",      "--data_path",
                          "rows.jsonl", "--fp16",
                          "True",       "--num_train_epochs",
                          "1",          "--per_device_train_batch_size",
                          "2",          "--per_device_eval_batch_size",
                          "4",          "--gradient_accumulation_steps",
                          "8",          "--eval_strategy",
                          "no",         "--save_strategy",
                          "steps",      "--save_steps",
                          "2000",       "--save_total_limit",
                          "1",          "--learning_rate",
                          "2e-5",       "--weight_decay",
                          "0.",         "--warmup_ratio",
                          "0.03",       "--lr_scheduler_type",
                          "cosine",     "--logging_steps",
                          "1"};
    const auto with = [](Words words, const Words& more) {
      words.insert(words.end(), more.begin(), more.end());
      return words;
    };
    return {{"swift", {"sft",        "--model_id_or_path",
                       "model",      "--sft_type",
                       "lora",       "--dataset",
                       "rows.jsonl", "--num_train_epochs",
                       "1",          "--output_dir",
                       "swift",      "--template_type",
                       "qwen",       "--dtype",
                       "AUTO",       "--max_length",
                       "512",        "--check_dataset_strategy",
                       "warning",    "--lora_rank",
                       "8",          "--lora_alpha",
                       "32",         "--lora_dropout_p",
                       "0.05",       "--lora_target_modules",
                       "DEFAULT",    "--gradient_checkpointing",
                       "true",       "--batch_size",
                       "1",          "--weight_decay",
                       "0.1",        "--learning_rate",
                       "1e-4",       "--gradient_accumulation_steps",
                       "16",         "--max_grad_norm",
                       "0.5",        "--warmup_ratio",
                       "0.03",       "--eval_steps",
                       "100",        "--save_steps",
                       "100",        "--save_total_limit",
                       "2",          "--logging_steps",
                       "1",          "--use_flash_attn",
                       "false",      "--max_steps",
                       "1"}},
            {"alpaca", with(alpaca, {"--output_dir", "alpaca", "--fsdp", "full_shard auto_wrap",
                                     "--fsdp_transformer_layer_cls_to_wrap", "Qwen2DecoderLayer"})},
            {"deepspeed", with(alpaca, {"--output_dir", "deepspeed", "--deepspeed", "zero3.json",
                                        "--tf32", "True"})},
            {"mindspeed",
             {"posttrain",
              "--use-mcore-models",
              "--tensor-model-parallel-size",
              "1",
              "--pipeline-model-parallel-size",
              "1",
              "--sequence-parallel",
              "--noop-layers",
              "1",
              "--num-layers-per-virtual-pipeline-stage",
              "1",
              "--enable-zero-bubble",
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
              "--tokenizer-name-or-path",
              "model",
              "--load",
              "model",
              "--save",
              "mindspeed",
              "--data-path",
              "rows.jsonl",
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
              "64",
              "--num-layers",
              "2",
              "--hidden-size",
              "32",
              "--num-attention-heads",
              "4",
              "--group-query-attention",
              "--num-query-groups",
              "2",
              "--ffn-hidden-size",
              "48",
              "--seq-length",
              "512",
              "--max-position-embeddings",
              "1024",
              "--micro-batch-size",
              "1",
              "--global-batch-size",
              "4",
              "--train-iters",
              "1",
              "--lr",
              "1.25e-6",
              "--min-lr",
              "1.25e-7",
              "--lr-decay-style",
              "cosine",
              "--lr-warmup-fraction",
              "0.01",
              "--weight-decay",
              "1e-1",
              "--clip-grad",
              "1.0",
              "--adam-beta1",
              "0.9",
              "--adam-beta2",
              "0.95",
              "--attention-dropout",
              "0.0",
              "--hidden-dropout",
              "0.0",
              "--log-interval",
              "1",
              "--save-interval",
              "1000",
              "--eval-interval",
              "1000",
              "--eval-iters",
              "0",
              "--stage",
              "sft",
              "--finetune",
              "--is-instruction-dataset",
              "--prompt-type",
              "qwen",
              "--variable-seq-lengths",
              "--bf16",
              "--lora-r",
              "8",
              "--lora-alpha",
              "16",
              "--lora-fusion",
              "--lora-target-modules",
              "linear_qkv",
              "linear_proj"}},
            {"resumed", with(alpaca, {"--output_dir", "alpaca", "--resume", "alpaca/checkpoint-1",
                                      "--max_steps", "2"})}};
  }
};

TEST_F(TerminalLines, BeforeTheFirstStepAreFew) {
  for (const std::string language : {"en", "zh"}) {
    for (const auto& [name, words] : runs()) {
      const bool is_alpacas = name == "alpaca" || name == "resumed";
      if (!is_slow() && is_alpacas != (language == "en")) continue;
      SCOPED_TRACE(language + " " + name);
      const ProgramResult result = say(language, words);
      ASSERT_EQ(result.exit_code, 0) << result.err;
      std::vector<std::string> before;
      size_t heading = 0, memory = 0;
      const bool english = language == "en";
      for (const std::string& line : lines_in(result.err)) {
        if (line.starts_with(english ? "step 1" : "步 1") || line.starts_with("第 1 步") ||
            line.starts_with(english ? "memory: the first step" : "内存：第一步"))
          break;
        before.push_back(line);
        if (line.starts_with(english ? "one sample, as" : "一个训练样本")) heading = before.size();
        if (line.starts_with(english ? "memory: weights" : "内存：权重")) memory = before.size();
      }
      EXPECT_LE(before.size(), 25u) << result.err;
      ASSERT_GT(heading, 0u) << result.err;
      ASSERT_GT(memory, heading) << result.err;
      EXPECT_LE(memory - heading, 12u) << result.err;  // the sample, its heading
      EXPECT_THAT(result.err, HasSubstr("-v"));
    }
    for (const char* run : {"swift", "alpaca", "deepspeed", "mindspeed"})
      fs::remove_all((*this) / run);
  }
}

TEST_F(TerminalLines, WithVEverythingIsShownAndTheLogHasItAnyway) {
  Words words = runs()[3].second;
  const ProgramResult few = say("en", words);
  ASSERT_EQ(few.exit_code, 0) << few.err;
  EXPECT_THAT(few.err, AllOf(Not(HasSubstr("  output  ")), Not(HasSubstr("\nfour\n")),
                             HasSubstr("more lines; -v shows all"), HasSubstr("output mindspeed")));
  // What was asked for and is not to be had is not hidden among the rest.
  EXPECT_THAT(few.err,
              AllOf(HasSubstr("notice: --noop-layers, "
                              "--num-layers-per-virtual-pipeline-stage, "
                              "--enable-zero-bubble have no effect with "),
                    HasSubstr("there is no pipeline"),
                    HasSubstr("notice: --recompute-num-layers 64: no stage has more than 2 "
                              "layers")));
  const std::string log = content_of((*this) / "mindspeed/train.log");
  EXPECT_THAT(log, AllOf(HasSubstr("     output  mindspeed\n"), HasSubstr("\nfour\n")));
  fs::remove_all((*this) / "mindspeed");
  words.push_back("-v");
  const ProgramResult all = say("en", words);
  ASSERT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.err, AllOf(HasSubstr("     output  mindspeed\n"), HasSubstr("\nfour\n"),
                             HasSubstr("  processor  "), Not(HasSubstr("-v shows"))));
}

TEST_F(TerminalLines, ChineseOnesHoldNoEnglishSentence) {
  ASSERT_EQ(english_in("错误：it was not there"), "was not there");
  ASSERT_EQ(english_in("完成：finished 2 steps in 1.5s, all"), "steps in all");
  ASSERT_EQ(english_in("步 1/4  loss 5.77  acc 0.000 danlu chat --model run"), "");
  write("broken.json", "{\"fp16\": {\"enabled\": true, }");
  write("broken.jsonl", "{\"instruction\": \"a\", \"output\": \"b\"}\n{\"instruction\": }\n");
  write("cycle.json", R"({"scheduler": {"type": "OneCycle", "params": {}}})");
  const Words sft = {
      "sft", "--model",          "model",       "--dataset", "rows.jsonl",   "--output_dir",
      "run", "--no-version-dir", "--max_steps", "2",         "--batch_size", "2"};
  const auto with = [&](const Words& more) {
    Words words = sft;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::vector<std::pair<int, Words>> lines = {
      {0, with({"--val_ratio", "0.2", "--eval_steps", "1", "--save_steps", "1"})},
      {0, with({"--val_ratio", "0.2", "--eval_steps", "1", "--save_steps", "1"})},  // is complete
      {0, with({"--output_dir", "full", "--tuner", "full", "--dtype", "fp16", "--lora_rank", "4",
                "--initial_loss_scale", "4294967296"})},
      {0, with({"--output_dir", "dry", "--dry_run", "--deepspeed", "default-zero2"})},
      {0,
       {"infer", "--model", "model", "--prompt", "hi", "--max_new_tokens", "2", "--iteration",
        "5"}},
      {0,
       {"infer", "--model", "model", "--adapters", "run", "--prompt", "hi", "--max_new_tokens",
        "2"}},
      {0, {"merge", "--adapters", "run", "--output", "merged"}},
      {0, {"convert", "model", "mg", "--to", "mcore"}},
      {0, {"inspect", "model"}},
      {0, {"tokenize", "--model", "model", "hi"}},
      {0, {"plan", "--model", "model", "--nproc", "2"}},
      {-1, {"doctor"}},
      {2, {"chta"}},
      {2, {"sft", "--modle", "x"}},
      {2, with({"--output_dir", "x", "--lr", "abc"})},
      {2, with({"--output_dir", "x", "--tp", "3", "--nproc", "3"})},
      {2, with({"--output_dir", "x", "--deepspeed", "broken.json"})},
      {2, with({"--output_dir", "x", "--deepspeed", "cycle.json"})},
      {3, {"sft", "--model", "model", "--dataset", "broken.jsonl", "--output_dir", "x"}},
      {-1, {"sft", "--model", "nowhere", "--dataset", "rows.jsonl", "--output_dir", "x"}},
      {-1, {"infer", "--model", "model", "--adapters", "model", "--prompt", "hi"}},
      {-1, {"convert", "nowhere", "out", "--to", "hf"}},
      {-1, {"serve"}},
  };
  for (const auto& [code, words] : lines) {
    const ProgramResult result = say("zh", words);
    std::string line;
    for (const std::string& word : words) line += word + " ";
    SCOPED_TRACE(line);
    if (code >= 0) {
      EXPECT_EQ(result.exit_code, code) << result.err;
    }
    if (result.exit_code > 0) {
      EXPECT_THAT(result.err, HasSubstr("失败（退出码 "));
    }
    // Results that scripts read are in English.
    const bool is_report = words[0] == "doctor" || words[0] == "plan";
    for (const std::string& text : {is_report ? result.out : "", result.err}) {
      bool in_sample = false;  // what the rows say is theirs
      for (const std::string& said : lines_in(text)) {
        if (said.starts_with("内存：")) in_sample = false;
        if (!in_sample) {
          EXPECT_EQ(english_in(said), "") << said;
        }
        if (said.starts_with("一个训练样本")) in_sample = true;
      }
    }
  }
}

}  // namespace
}  // namespace danlu::test
