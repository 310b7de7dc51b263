// The guides' lines have the defaults of the system they were written for, and say so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/bad_input.h"
#include "support/alpaca_line.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Profiles : public BadInput {
 protected:
  std::string config(std::vector<std::string> line) const {
    line.push_back("--print_config");
    const ProgramResult result = run(line);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  static std::string value(const std::string& config, const std::string& option) {
    const size_t commented = config.find("\n# " + option + ": ");
    if (commented != std::string::npos) return value(config.substr(commented + 3), option);
    const size_t at = ("\n" + config).find("\n" + option + ": ");
    if (at == std::string::npos) return "(no such option)";
    const size_t end = config.find('\n', at);
    std::string line = config.substr(at + option.size() + 2, end - at - option.size() - 2);
    const size_t gap = line.find("  ");
    const size_t mark = line.find('#');
    return line.substr(0, std::min(gap, line.find(" #"))) + " " + line.substr(mark);
  }
};

TEST_F(Profiles, GuideOnAlpaca) {
  std::vector<std::string> line = alpaca_line();
  line.insert(line.begin(), {"train", "--model_name_or_path", "m", "--data_path", "d.json"});
  line.insert(line.end(), {"--fsdp", "full_shard auto_wrap", "--fsdp_transformer_layer_cls_to_wrap",
                           "Qwen2DecoderLayer"});
  const std::string all = config(line);
  EXPECT_EQ(value(all, "profile"), "\"alpaca\" # profile by danlu train");
  EXPECT_EQ(value(all, "max_length"), "512 # profile alpaca");
  EXPECT_EQ(value(all, "template"), "\"stanford_alpaca\" # profile alpaca");
  EXPECT_EQ(value(all, "adam_beta2"), "0.999 # profile alpaca");
  EXPECT_EQ(value(all, "seed"), "42 # profile alpaca");
  EXPECT_EQ(value(all, "tuner"), "\"full\" # profile alpaca");
  EXPECT_EQ(value(all, "warmup_ratio"), "0.03 # flag --warmup_ratio");
}

TEST_F(Profiles, GuideOnSwift) {
  const std::vector<std::string> line = {"sft",
                                         "--model_type",
                                         "qwen1half-7b-chat",
                                         "--dataset",
                                         "blossom-math-zh",
                                         "--num_train_epochs",
                                         "5",
                                         "--sft_type",
                                         "lora",
                                         "--output_dir",
                                         "output"};
  const std::string all = config(line);
  EXPECT_THAT(value(all, "profile"), HasSubstr("\"swift24\" # profile by --"));
  const std::vector<std::pair<const char*, const char*>> hidden = {{"max_length", "2048"},
                                                                   {"truncation", "\"delete\""},
                                                                   {"val_ratio", "0.01"},
                                                                   {"lora_rank", "8"},
                                                                   {"lora_alpha", "32.0"},
                                                                   {"lora_dropout", "0.05"},
                                                                   {"lora_target", "[\"DEFAULT\"]"},
                                                                   {"adam_beta2", "0.95"},
                                                                   {"weight_decay", "0.1"},
                                                                   {"max_grad_norm", "1.0"},
                                                                   {"lr_scheduler", "\"cosine\""},
                                                                   {"warmup_ratio", "0.05"},
                                                                   {"batch_size", "1"},
                                                                   {"recompute", "\"full\""},
                                                                   {"eval_steps", "50.0"},
                                                                   {"save_steps", "50.0"},
                                                                   {"save_total_limit", "2"},
                                                                   {"logging_steps", "5.0"},
                                                                   {"version_dir", "true"}};
  for (const auto& [option, expected] : hidden)
    EXPECT_EQ(value(all, option), std::string(expected) + " # profile swift24") << option;
  EXPECT_EQ(value(all, "epochs"), "5.0 # flag --num_train_epochs");
  std::vector<std::string> full = line;
  *std::find(full.begin(), full.end(), "lora") = "full";
  EXPECT_EQ(value(config(full), "eval_steps"), "200.0 # profile swift24");
  EXPECT_EQ(value(config(full), "save_steps"), "200.0 # profile swift24");
  std::vector<std::string> ours = line;
  ours.insert(ours.end(), {"--profile", "danlu"});
  EXPECT_THAT(config(ours), Not(HasSubstr("# profile")));
}

/// ms-swift 3 renamed its flags and takes other values where a line is silent.
TEST_F(Profiles, LinesOfSwift3HaveItsDefaults) {
  const std::vector<std::pair<const char*, const char*>> hidden = {
      {"tuner", "\"lora\""},    {"lora_target", "[\"all-linear\"]"},
      {"lora_rank", "8"},       {"lora_alpha", "32.0"},
      {"lora_dropout", "0.05"}, {"epochs", "3.0"},
      {"warmup_ratio", "0.0"},  {"val_ratio", "0.0"},
      {"weight_decay", "0.1"},  {"adam_beta2", "0.95"},
      {"max_grad_norm", "1.0"}, {"lr_scheduler", "\"cosine\""},
      {"batch_size", "1"},      {"recompute", "\"full\""},
      {"save_steps", "500.0"},  {"save_total_limit", "0"},
      {"logging_steps", "5.0"}, {"packing", "false"},
      {"version_dir", "true"},  {"temperature", "0.9"}};
  const auto check = [&](const std::vector<std::string>& line, const std::string& by) {
    SCOPED_TRACE(by);
    const std::string all = config(line);
    EXPECT_EQ(value(all, "profile"), "\"swift3\" # profile by " + by);
    for (const auto& [option, expected] : hidden) {
      if (by == "--train_type" && option == std::string("tuner")) continue;
      if (by == "--split_dataset_ratio" && option == std::string("val_ratio")) continue;
      EXPECT_EQ(value(all, option), std::string(expected) + " # profile swift3") << option;
    }
  };
  const std::vector<std::string> rest = {"--model", "m", "--dataset", "d"};
  const auto with = [&](std::vector<std::string> line) {
    line.insert(line.end(), rest.begin(), rest.end());
    return line;
  };
  check(with({"sft", "--train_type", "lora"}), "--train_type");
  check(with({"sft", "--split_dataset_ratio", "0.1"}), "--split_dataset_ratio");
  check(with({"rlhf", "--rlhf_type", "dpo"}), "danlu rlhf");
  check(with({"rlhf", "--rlhf_type", "grpo", "--reward_funcs", "format"}), "danlu rlhf");
  // Flags of 2.4 say that the line is older.
  EXPECT_THAT(value(config({"rlhf", "--model_type", "qwen1half-7b-chat", "--sft_type", "lora",
                            "--dataset", "d"}),
                    "profile"),
              HasSubstr("\"swift24\" # profile by --"));
  EXPECT_EQ(value(config({"rlhf", "--model_id_or_path", "m", "--dataset", "d"}), "lora_target"),
            "[\"DEFAULT\"] # profile swift24");
  expect_error(run(with({"sft", "--sft_type", "lora", "--train_type", "full"})), 2,
               {"--profile swift24 or --profile swift3"});
}

/// Its samples may be as long as the model's window, which 2.4 and Danlu cut at 2048 tokens.
TEST_F(Profiles, SamplesOfSwift3AreAsLongAsTheWindow) {
  const auto limit = [&](const std::string& profile) {
    return train(good("good.jsonl"), {"--dry_run", "--max_steps", "1", "--profile", profile}).err;
  };
  EXPECT_THAT(limit("swift3"), HasSubstr("limit 64"));
  Json config = Json::parse(content_of(good("model") / "config.json"));
  config["max_position_embeddings"] = 4096;
  const fs::path model = copy_model("wide");
  write("wide/config.json", config.dump());
  const auto of_wide = [&](const std::string& profile) {
    return train(good("good.jsonl"),
                 {"--dry_run", "--max_steps", "1", "--profile", profile, "--model", model.string()})
        .err;
  };
  EXPECT_THAT(of_wide("swift3"), HasSubstr("limit 4096"));
  EXPECT_THAT(of_wide("swift24"), HasSubstr("limit 2048"));
}

/// ms-swift's pt is its sft without a template: each text is a sample, also a row of one answer,
/// and a question with its answer.
TEST_F(Profiles, TextsOfMsSwiftsPtAreSamples) {
  std::string lone, asked, plain;
  for (const char* text : {"hello fox", "the dog", "brown"}) {
    const std::string word = text;
    lone += R"({"messages":[{"role":"assistant","content":")" + word + "\"}]}\n";
    asked += R"({"query":")" + word.substr(0, 2) + R"(","response":")" + word.substr(2) + "\"}\n";
    plain += R"({"text":")" + word + "\"}\n";
  }
  const auto samples = [&](const std::string& name, const std::string& rows) {
    const ProgramResult result =
        run({"pt", "--train_type", "full", "--model", good("model").string(), "--dataset",
             write(name + ".jsonl", rows).string(), "--write_samples", name});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("3 samples: "));
    EXPECT_THAT(result.err, HasSubstr("each text is a sample, as in swift3"));
    return content_of((*this) / (name + "/train/rows.jsonl"));
  };
  const std::string of_plain = samples("plain", plain);
  EXPECT_EQ(samples("lone", lone), of_plain);
  EXPECT_EQ(samples("asked", asked), of_plain);
  const ProgramResult rounds = run(
      {"pt", "--train_type", "full", "--model", good("model").string(), "--dataset",
       write("rounds.jsonl", R"({"messages":[{"role":"user","content":"a"},{"role":"assistant",)"
                             R"("content":"b"},{"role":"user","content":"c"},)"
                             R"({"role":"assistant","content":"d"}]})")
           .string(),
       "--dry_run"});
  EXPECT_NE(rounds.exit_code, 0);
  EXPECT_THAT(rounds.err, HasSubstr("several rounds, which plain texts have not"));
}

/// 10 rows in micro-batches of 3: 9 of each epoch, other ones in each.
TEST_F(Profiles, MegatronSwiftLeavesOutWhatFillsNoMicroBatch) {
  std::string rows;
  for (int i = 0; i < 10; ++i)
    rows += R"({"query":"q","response":"a)" + std::to_string(i) + "\"}\n";
  const ProgramResult result =
      run({"sft", "--train_type", "full", "--recompute_granularity", "selective", "--model",
           good("model").string(), "--dataset", write("rows.jsonl", rows).string(),
           "--micro_batch_size", "3", "--global_batch_size", "6", "--num_train_epochs", "3",
           "--max_steps", "50", "--dry_run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("of each epoch 1 samples are left out, as in megatron-swift"));
  EXPECT_THAT(result.err, HasSubstr("4 (1.5 an epoch")) << "27 samples, 6 to a step";
}

TEST_F(Profiles, MindSpeedsTuneAndPretrainLines) {
  const std::vector<std::string> script = {"--tensor-model-parallel-size",
                                           "1",
                                           "--use-mcore-models",
                                           "--num-layers",
                                           "2",
                                           "--tokenizer-type",
                                           "PretrainedFromHF",
                                           "--seq-length",
                                           "16",
                                           "--lr",
                                           "1.25e-6",
                                           "--bf16",
                                           "--train-iters",
                                           "2"};
  for (const char* verb : {"posttrain", "pretrain"}) {
    std::vector<std::string> line = script;
    line.insert(line.begin(), verb);
    const std::string all = config(line);
    EXPECT_THAT(value(all, "profile"), HasSubstr("\"mindspeed\" # profile by --")) << verb;
    const std::vector<std::pair<const char*, const char*>> hidden = {
        {"warmup_ratio", "0.0"},
        {"lora_dropout", "0.0"},
        {"lora_rank", "16"},
        {"lora_alpha", "32.0"},
        {"weight_decay", "0.01"},
        {"adam_beta2", "0.999"},
        {"lr_scheduler", "\"linear\""},
        {"seed", "1234"},
        {"split", "\"969,30,1\""},
        {"eval_steps", "1000.0"},
        {"eval_iters", "100"},
        {"logging_steps", "100.0"},
        {"accum", "1"},
        {"dtype", "\"fp32\""},
        {"save_total_limit", "0"},
        {"initial_loss_scale", "4294967296.0"}};
    for (const auto& [option, expected] : hidden)
      EXPECT_EQ(value(all, option), std::string(expected) + " # profile mindspeed") << option;
  }
  EXPECT_EQ(value(config({"posttrain", "--stage", "sft"}), "profile"),
            "\"mindspeed\" # profile by danlu posttrain");
}

TEST_F(Profiles, FlagsThatSeveralSystemsHaveDecideNothing) {
  for (const char* verb : {"sft", "pretrain"}) {
    const std::string all =
        config({verb,     "--model_name_or_path", "m",      "--data-path",
                "d",      "--learning-rate",      "1e-4",   "--per_device_train_batch_size",
                "2",      "--train-iters",        "5",      "--seq-length",
                "64",     "--micro-batch-size",   "2",      "--lora-target-modules",
                "q_proj", "--lr-decay-style",     "cosine", "--model_type",
                "qwen2"});
    EXPECT_EQ(value(all, "profile"), "\"danlu\" # default") << verb;
    EXPECT_THAT(all, Not(HasSubstr("# profile")));
  }
  expect_error(run({"sft", "--sft_type", "lora", "--use-mcore-models"}), 2,
               {"--use-mcore-models is a flag of MindSpeed-LLM", "--sft_type one of ms-swift 2.4",
                "say --profile mindspeed or --profile swift24"});
}

/// What a profile says and the line or the model outweighs (a precision, a rank without LoRA, a
/// length beyond the window) must not come back from the record as if it had been typed.
TEST_F(Profiles, ARecordRepeatsTheRunUnderEveryProfile) {
  const std::vector<std::vector<std::string>> lines = {
      {"posttrain", "--bf16", "--train-iters", "2", "--seq-length", "64"},
      {"train", "--fp16", "True", "--max_steps", "2", "--template", "chatml"},
      {"sft", "--sft_type", "lora", "--gradient_checkpointing", "false", "--max_steps", "2",
       "--add_output_dir_suffix", "false"}};
  for (std::vector<std::string> line : lines) {
    const std::string name = line[0] + line[1];
    for (const std::string& word : std::vector<std::string>{
             "--model_name_or_path", good("model").string(), "--dataset",
             good("good.jsonl").string(), "--output_dir", name, "--save_strategy", "no"})
      line.push_back(word);
    const ProgramResult first = run(line);
    ASSERT_EQ(first.exit_code, 0) << name << "\n" << first.err;
    const ProgramResult again =
        run({line[0], name + "/config.yaml", "--output_dir", name + "-again"});
    ASSERT_EQ(again.exit_code, 0) << name << "\n" << again.err;
    for (const char* file : {"model.safetensors", "adapter_model.safetensors"}) {
      ASSERT_EQ(fs::exists(*this / name / file), fs::exists(*this / (name + "-again") / file));
      if (fs::exists(*this / name / file)) {
        EXPECT_TRUE(content_of(*this / name / file) == content_of(*this / (name + "-again") / file))
            << name;
      }
    }
  }
}

/// name: value, without where each came from.
std::string values_of(const std::string& config) {
  std::istringstream lines(config);
  std::string values;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# ")) line.erase(0, 2);
    values += line.substr(0, line.rfind(" # ")) + "\n";
  }
  return values;
}

TEST_F(Profiles, APrintedConfigurationIsTheSameRunUnderEveryProfile) {
  const std::string model = good("model").string(), rows = good("good.jsonl").string();
  const auto check = [&](const std::vector<std::string>& line, bool trains) {
    const std::string printed = config(line);
    write("x.yaml", printed);
    EXPECT_EQ(values_of(config({line[0], "x.yaml"})), values_of(printed)) << printed;
    if (!trains) return;
    const ProgramResult dry = run({line[0], "x.yaml", "--dry_run"});
    EXPECT_EQ(dry.exit_code, 0) << dry.err << printed;
  };
  for (const char* profile :
       {"danlu", "mindspeed", "swift24", "swift3", "megatron-swift", "alpaca", "llamafactory"}) {
    for (const char* verb : {"sft", "pretrain", "train", "posttrain"})
      check(
          {verb, "--model", model, "--dataset", rows, "--bf16", "true", "--gradient_checkpointing",
           "false", "--tuner", "full", "--template", "default", "--profile", profile},
          verb == std::string("sft"));
  }
  check({"sft", "--sft_type", "lora", "--model_id_or_path", model, "--dataset", rows}, true);
  for (const char* profile : {"danlu", "mindspeed", "swift24"})
    check({"infer", "--model", model, "--dataset", rows, "--profile", profile}, false);
}

TEST_F(Profiles, SuccessiveLinesOfSwiftDoNotMeetAndNoLineLosesItsBatch) {
  const auto line = [&](const std::string& tuner) {
    return run({"sft", "--model_id_or_path", good("model").string(), "--dataset",
                good("good.jsonl").string(), "--sft_type", tuner, "--output_dir", "output",
                "--max_steps", "1", "--dtype", "fp32", "--nproc_per_node", "4",
                "--gradient_accumulation_steps", "2", "--report_to", "none"});
  };
  const ProgramResult lora = line("lora");
  ASSERT_EQ(lora.exit_code, 0) << lora.err;
  EXPECT_THAT(lora.err, AllOf(HasSubstr("defaults  swift24, chosen by --"),
                              HasSubstr("1 sample × 2 accumulation × 4 processes = 8 samples")));
  const ProgramResult full = line("full");
  ASSERT_EQ(full.exit_code, 0) << full.err;
  size_t first = 0, second = 0;
  for (const auto& entry : fs::directory_iterator(*this / "output/model")) {
    first += entry.path().filename().string().starts_with("v0-");
    second += entry.path().filename().string().starts_with("v1-");
  }
  EXPECT_EQ(first, 1u);
  EXPECT_EQ(second, 1u);
}

TEST_F(Profiles, AWarmUpOfNoStepsIsTheTrainersDefault) {
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--dry_run", "--max_steps", "100", "--warmup_steps", "0"};
    words.insert(words.end(), more.begin(), more.end());
    return train(good("good.jsonl"), words).err;
  };
  EXPECT_THAT(plan({"--profile", "swift24"}), HasSubstr("warm-up 5 steps"));
  EXPECT_THAT(plan({}), HasSubstr("warm-up 0 steps"));
}

TEST_F(Profiles, AnswersAreDrawnAsTheLinesSystemDrawsThem) {
  const std::string swift =
      config({"infer", "--ckpt_dir", "xxx/checkpoint-xxx", "--load_dataset_config", "true"});
  EXPECT_EQ(value(swift, "profile"), "\"swift24\" # profile by --ckpt_dir");
  EXPECT_EQ(value(swift, "max_new_tokens"), "2048 # profile swift24");
  EXPECT_EQ(value(swift, "temperature"), "null # default");
  EXPECT_EQ(value(config({"infer", "--model_type", "qwen1half-7b-chat"}), "max_new_tokens"),
            "2048 # profile swift24");
  const std::string mindspeed =
      config({"chat", "--use-mcore-models", "--tensor-model-parallel-size", "2", "--load", "m"});
  EXPECT_EQ(value(mindspeed, "max_new_tokens"), "128 # profile mindspeed");
  EXPECT_EQ(value(mindspeed, "top_p"), "0.95 # profile mindspeed");
  EXPECT_EQ(value(mindspeed, "history_turns"), "3 # profile mindspeed");
  const std::string factory =
      config({"chat", "--model_name_or_path", "m", "--infer_backend", "huggingface"});
  EXPECT_EQ(value(factory, "temperature"), "0.95 # profile llamafactory");
  EXPECT_EQ(value(factory, "do_sample"), "true # profile llamafactory");
  EXPECT_EQ(value(factory, "max_new_tokens"), "1024 # profile llamafactory");
  for (const std::vector<std::string>& nobodys :
       {std::vector<std::string>{"infer", "--model", "m", "--adapters", "a",
                                 "--load_dataset_config"},
        {"infer", "--model", "m", "--infer_backend", "pt"}})
    EXPECT_THAT(config(nobodys), Not(HasSubstr("# profile")));

  // MindSpeed-LLM's numbers alone draw nothing: its --task does.
  const std::string model = good("model").string();
  const auto answer = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = {"infer", "--prompt",         "fox?", "--no-stream", "--load",
                                     model,   "--max-new-tokens", "6"};
    line.insert(line.end(), more.begin(), more.end());
    return run(line);
  };
  const ProgramResult plain = answer({}), of_script = answer({"--use-mcore-models"});
  ASSERT_EQ(of_script.exit_code, 0) << of_script.err;
  EXPECT_EQ(of_script.out, plain.out);
  EXPECT_THAT(of_script.err,
              HasSubstr("notice: defaults of --profile mindspeed, chosen by --use-mcore-models: "
                        "history_turns 3, temperature 0.7, top_k 50, top_p 0.95; --profile danlu"));
  EXPECT_THAT(plain.err, Not(HasSubstr("defaults of --profile")));
}

TEST_F(Profiles, ARunThatBeganUnderAnotherProfileIsNamed) {
  const std::vector<std::string> line = {"posttrain",
                                         "--model",
                                         good("model").string(),
                                         "--dataset",
                                         good("good.jsonl").string(),
                                         "--save",
                                         "run",
                                         "--max_steps",
                                         "2",
                                         "--save_steps",
                                         "1",
                                         "--report_to",
                                         "none",
                                         "--split",
                                         "100,0,0"};
  std::vector<std::string> ours = line;
  ours.insert(ours.end(), {"--profile", "danlu"});
  ASSERT_EQ(run(ours).exit_code, 0);
  expect_error(run(line), 2,
               {"weight_decay: 0.1 then, 0.01 now",
                "it began with the defaults of --profile danlu, this line has those of mindspeed"});
  const std::string yaml = content_of(*this / "run/config.yaml");
  EXPECT_THAT(yaml, HasSubstr("profile: \"danlu\"\n"));
}

}  // namespace
}  // namespace danlu::test
