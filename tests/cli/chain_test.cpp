// The guides' chain: a trained model converted to Megatron's files with a split, trained further,
// tuned, asked; every link held against the same link from the Hugging Face directory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/free_port.h"
#include "cli/bad_input.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Chain : public BadInput {
 protected:
  /// run/: the good model after six steps, far from where it began.
  void train_base() const {
    const ProgramResult trained =
        train(good("good.jsonl"), {"--max_steps", "6", "--lr", "0.01", "--save_steps", "6"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  /// The convert line of guide (c).
  void convert_base(const std::string& to, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> line = {"convert",
                                     "--use-mcore-models",
                                     "--model-type",
                                     "GPT",
                                     "--load-model-type",
                                     "hf",
                                     "--save-model-type",
                                     "mg",
                                     "--target-tensor-parallel-size",
                                     "2",
                                     "--target-pipeline-parallel-size",
                                     "2",
                                     "--add-qkv-bias",
                                     "--load-dir",
                                     "run",
                                     "--save-dir",
                                     to,
                                     "--tokenizer-model",
                                     "run/tokenizer.json",
                                     "--model-type-hf",
                                     "llama2",
                                     "--params-dtype",
                                     "fp32"};
    line.insert(line.end(), more.begin(), more.end());
    ok(line);
  }
  /// Without what Danlu carries beside its own conversions: what MindSpeed's converter leaves.
  void forget_companions(const std::string& checkpoint) const {
    for (const auto& entry : fs::directory_iterator(*this / checkpoint)) {
      const std::string name = entry.path().filename();
      if (entry.is_regular_file() && name != "latest_checkpointed_iteration.txt")
        fs::remove(entry.path());
    }
  }
  void preprocess_text() const {
    std::string rows;
    for (int i = 0; i < 40; ++i) {
      rows += R"({"text": "the quick brown fox )" + std::to_string(i) +
              R"( jumps over the lazy dog and sleeps"})" + "\n";
    }
    write("text.jsonl", rows);
    ok({"preprocess", "--input", "text.jsonl", "--tokenizer-name-or-path", "run",
        "--tokenizer-type", "PretrainedFromHF", "--handler-name", "GeneralPretrainHandler",
        "--output-prefix", "fox", "--json-keys", "text", "--workers", "1", "--append-eod"});
  }
  ProgramResult pretrain(const std::string& load, const std::string& save,
                         const std::vector<std::string>& more = {}) const {
    return run(pretrain_line(load, save, more));
  }
  static std::vector<std::string> pretrain_line(const std::string& load, const std::string& save,
                                                const std::vector<std::string>& more) {
    std::vector<std::string> line = {"pretrain",
                                     "--load",
                                     load,
                                     "--save",
                                     save,
                                     "--data-path",
                                     "fox_text_document",
                                     "--tokenizer-name-or-path",
                                     "run",
                                     "--tokenizer-type",
                                     "PretrainedFromHF",
                                     "--use-mcore-models",
                                     "--num-layers",
                                     "2",
                                     "--hidden-size",
                                     "32",
                                     "--ffn-hidden-size",
                                     "48",
                                     "--num-attention-heads",
                                     "4",
                                     "--group-query-attention",
                                     "--num-query-groups",
                                     "2",
                                     "--add-qkv-bias",
                                     "--untie-embeddings-and-output-weights",
                                     "--seq-length",
                                     "16",
                                     "--micro-batch-size",
                                     "2",
                                     "--global-batch-size",
                                     "4",
                                     "--train-iters",
                                     "2",
                                     "--lr",
                                     "1e-3",
                                     "--split",
                                     "100,0,0",
                                     "--log-interval",
                                     "1",
                                     "--dtype",
                                     "fp32",
                                     "--seed",
                                     "7"};
    line.insert(line.end(), more.begin(), more.end());
    return line;
  }
  /// The launcher's words of the guides' scripts before a line of theirs.
  ProgramResult on_four(std::vector<std::string> line, const std::vector<std::string>& more) const {
    line.insert(line.begin(), {"launch", "--nproc_per_node", "4", "--nnodes", "1", "--node_rank",
                               "0", "--master_addr", "localhost", "--master_port",
                               std::to_string(free_port().value())});
    line.insert(line.end(), more.begin(), more.end());
    return run(line);
  }
  /// Losses by step, as logging.jsonl has them.
  std::vector<double> losses(const std::string& run_dir) const {
    std::vector<double> found;
    std::istringstream lines(content_of(*this / run_dir / "logging.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const json record = json::parse(line);
      if (record.contains("loss")) found.push_back(record["loss"].get<double>());
    }
    return found;
  }
  std::string answer(const std::vector<std::string>& flags) const {
    std::vector<std::string> line = {"infer", "--prompt",   "fox?", "--max-new-tokens",
                                     "8",     "--no-stream"};
    line.insert(line.end(), flags.begin(), flags.end());
    return ok(line).out;
  }
};

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "step " << i + 1;
}

TEST_F(Chain, ConvertedThenPretrainedTunedAndAsked) {
  train_base();
  convert_base("mcore");
  preprocess_text();
  const ProgramResult of_hf = pretrain("run", "from_hf");
  ASSERT_EQ(of_hf.exit_code, 0) << of_hf.err;
  EXPECT_THAT(of_hf.err, HasSubstr("weights  Hugging Face, qwen2: run"));
  const ProgramResult of_mcore = pretrain("mcore", "from_mcore");
  ASSERT_EQ(of_mcore.exit_code, 0) << of_mcore.err;
  EXPECT_THAT(of_mcore.err, AllOf(HasSubstr("TP2 PP2"), HasSubstr("iteration 0")));
  ASSERT_EQ(losses("from_hf").size(), 2u);
  EXPECT_GT(losses("from_hf")[0], 0.1);
  expect_near(losses("from_mcore"), losses("from_hf"), 1e-5);

  // What MindSpeed's own converter leaves: files alone, with or without a tokenizer that has a
  // config.json beside it.
  forget_companions("mcore");
  ASSERT_EQ(pretrain("mcore", "described").exit_code, 0);
  expect_near(losses("described"), losses("from_hf"), 1e-5);

  std::string rows;
  for (int row = 0; row < 8; ++row)
    rows += R"({"instruction": "fox?", "output": "cat"})"
            "\n";
  write("cats.jsonl", rows);
  const std::vector<std::string> lora = {"posttrain",
                                         "--stage",
                                         "sft",
                                         "--tokenizer-name-or-path",
                                         "run",
                                         "--lora-r",
                                         "4",
                                         "--lora-alpha",
                                         "8",
                                         "--lora-target-modules",
                                         "linear_qkv",
                                         "linear_proj",
                                         "--dataset",
                                         "cats.jsonl",
                                         "--train-iters",
                                         "12",
                                         "--micro-batch-size",
                                         "2",
                                         "--global-batch-size",
                                         "4",
                                         "--lr",
                                         "0.02",
                                         "--log-interval",
                                         "1",
                                         "--dtype",
                                         "fp32",
                                         "--seed",
                                         "7"};
  for (const auto& [load, save] : {std::pair("run", "lora_hf"), std::pair("mcore", "lora_mcore")}) {
    std::vector<std::string> line = lora;
    line.insert(line.end(), {"--load", load, "--save", save});
    ok(line);
  }
  expect_near(losses("lora_mcore"), losses("lora_hf"), 1e-5);

  const std::string plain = answer({"--model", "run"});
  EXPECT_EQ(answer({"--load",
                    "mcore",
                    "--tokenizer-name-or-path",
                    "run",
                    "--tensor-model-parallel-size",
                    "2",
                    "--pipeline-model-parallel-size",
                    "2",
                    "--nnodes",
                    "1",
                    "--node_rank",
                    "0",
                    "--nproc_per_node",
                    "4",
                    "--master_addr",
                    "localhost",
                    "--master_port",
                    "6000",
                    "--use-mcore-models",
                    "--num-layers",
                    "2",
                    "--no-masked-softmax-fusion",
                    "--exit-on-missing-checkpoint",
                    "--ckpt-format",
                    "torch",
                    "--seed",
                    "42"}),
            plain);
  const std::string tuned = answer({"--model", "run", "--adapters", "lora_hf"});
  EXPECT_NE(tuned, plain);
  EXPECT_EQ(answer({"--load", "mcore", "--lora-load", "lora_mcore", "--tokenizer-name-or-path",
                    "run", "--lora-r", "4", "--lora-alpha", "8", "--lora-fusion",
                    "--lora-target-modules", "linear_qkv", "linear_proj"}),
            tuned);
  // The adapter names its base itself.
  EXPECT_EQ(answer({"--adapters", "lora_mcore"}), tuned);
  // The base has no tokenizer: the adapter's goes along.
  ok({"merge", "--model", "mcore", "--adapters", "lora_mcore", "--output", "merged"});
  EXPECT_EQ(answer({"--model", "merged"}), tuned);
}

TEST_F(Chain, WhatIsTrainedIsNeverShadowedOrForgotten) {
  train_base();
  convert_base("mcore");
  const auto lora = [&](const std::string& output) {
    return run({"sft", "--load", "mcore", "--dataset", good("good.jsonl"), "--output_dir", output,
                "--no-version-dir", "--max_steps", "1", "--dtype", "fp32"});
  };
  // Megatron's files would be read in place of the trained model.
  expect_error(lora("mcore"), 2, {"mcore: holds a Megatron checkpoint", "--output_dir"});
  // The iteration goes into what is written down: the tracker may move on.
  ASSERT_EQ(lora("lora").exit_code, 0);
  EXPECT_THAT(content_of(*this / "lora" / "adapter_config.json"), HasSubstr("mcore/iter_0000001"));
  // Two models in one directory.
  fs::copy(*this / "run" / "model.safetensors", *this / "mcore" / "model.safetensors");
  expect_error(run({"infer", "--load", "mcore", "--prompt", "x"}), 4, {"lie in it", "iter_"});
  fs::remove(*this / "mcore" / "model.safetensors");
  // Ranks of two saves, and a damaged one.
  const fs::path rank = *this / "mcore" / "iter_0000001" / "mp_rank_01_000" / "model_optim_rng.pt";
  const fs::path other = *this / "other" / "iter_0000001" / "mp_rank_01_000" / "model_optim_rng.pt";
  ok({"convert", good("model"), "other", "--to", "mcore", "--tp", "2", "--pp", "2"});
  const std::string whole = content_of(rank);
  fs::copy_file(other, rank, fs::copy_options::overwrite_existing);
  expect_error(run({"infer", "--load", "mcore", "--prompt", "x"}), 4, {"ranks do not agree"});
  std::string damaged = whole;
  damaged[damaged.size() / 2] ^= 1;
  write_content(rank, damaged);
  expect_error(run({"infer", "--load", "mcore", "--prompt", "x"}), 4, {"model_optim_rng.pt"});
}

TEST_F(Chain, EveryFormatAnswersAlike) {
  train_base();
  convert_base("mcore");
  const std::string expected = answer({"--model", "run"});
  EXPECT_NE(answer({"--model", good("model")}), expected);
  ok({"convert", "run", "native", "--to", "native", "--tp", "2"});
  ok({"convert", "run", "legacy", "--to", "legacy", "--tp", "2", "--pp", "2"});
  ok({"convert", "run", "f32.gguf", "--to", "gguf", "--outtype", "f32"});
  write("generation_config.json", "{");  // of nobody: a GGUF has no directory of its own
  for (const std::string model : {"mcore", "native", "legacy", "f32.gguf"}) {
    EXPECT_EQ(answer({"--model", model, "--tokenizer", "run"}), expected) << model;
    const ProgramResult trained = run({"sft",
                                       "--model",
                                       model,
                                       "--tokenizer",
                                       "run",
                                       "--dataset",
                                       good("good.jsonl"),
                                       "--output_dir",
                                       "sft-" + model,
                                       "--tuner",
                                       "full",
                                       "--dtype",
                                       "fp32",
                                       "--max_steps",
                                       "2",
                                       "--lr",
                                       "1e-3",
                                       "--logging_steps",
                                       "1",
                                       "--batch_size",
                                       "2"});
    EXPECT_EQ(trained.exit_code, 0) << model << trained.err;
  }
  for (const std::string model : {"native", "legacy", "f32.gguf"})
    expect_near(losses("sft-" + model), losses("sft-mcore"), 1e-5);
  EXPECT_EQ(answer({"--model", "f32.gguf"}), expected);
}

TEST_F(Chain, MegatronsOptimizerAndIterationAreContinued) {
  const std::vector<std::string> flags = {"--lr",           "0.01",     "--logging_steps", "1",
                                          "--lr_scheduler", "constant", "--warmup_ratio",  "0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  const ProgramResult whole =
      train(good("good.jsonl"), with({"--max_steps", "4", "--save_total_limit", "0"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const std::vector<double> expected = losses("run");
  ASSERT_EQ(expected.size(), 4u);
  ok({"convert", "run/checkpoint-2", "half", "--to", "mcore", "--tp", "2", "--with-optimizer"});
  const auto go_on = [&](const std::string& output, std::vector<std::string> more) {
    std::vector<std::string> line = {"sft",
                                     "--model",
                                     "half",
                                     "--tokenizer",
                                     good("tokenizer"),
                                     "--dataset",
                                     good("good.jsonl"),
                                     "--output_dir",
                                     output,
                                     "--no-version-dir",
                                     "--tuner",
                                     "full",
                                     "--dtype",
                                     "fp32",
                                     "--batch_size",
                                     "2"};
    more = with(std::move(more));
    line.insert(line.end(), more.begin(), more.end());
    return run(line);
  };
  const ProgramResult rest = go_on("rest", {"--max_steps", "4"});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_THAT(rest.err, HasSubstr("continued: iteration 2, consumed samples"));
  expect_near(losses("rest"), {expected[2], expected[3]}, 1e-5);
  // F32 weights are their own masters.
  const ProgramResult rounded = go_on("rounded", {"--max_steps", "4", "--dtype", "bf16"});
  ASSERT_EQ(rounded.exit_code, 0) << rounded.err;
  expect_near(losses("rounded"), {expected[2], expected[3]}, 0.05);
  const ProgramResult anew = go_on("anew", {"--max_steps", "2", "--finetune"});
  ASSERT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(anew.err, HasSubstr("iteration 0"));
  EXPECT_EQ(losses("anew").size(), 2u);
  expect_error(go_on("over", {"--max_steps", "2"}), 2, {"iteration 2", "2 steps", "--finetune"});
}

TEST_F(Chain, WhatIsSavedInMegatronsFormatIsContinued) {
  const auto line = [&](const std::string& model, const std::string& output,
                        std::vector<std::string> more) {
    std::vector<std::string> words = {"sft",
                                      "--model",
                                      model,
                                      "--tokenizer",
                                      good("tokenizer"),
                                      "--dataset",
                                      good("good.jsonl"),
                                      "--output_dir",
                                      output,
                                      "--no-version-dir",
                                      "--tuner",
                                      "full",
                                      "--dtype",
                                      "fp32",
                                      "--batch_size",
                                      "2",
                                      "--lr",
                                      "0.01",
                                      "--logging_steps",
                                      "1",
                                      "--lr_scheduler",
                                      "constant",
                                      "--warmup_ratio",
                                      "0"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  ok(line(good("model"), "whole", {"--max_steps", "4"}));
  const std::vector<double> expected = losses("whole");
  ASSERT_EQ(expected.size(), 4u);
  // The distributed optimizer's flat buffers are padded by data and context ranks.
  auto half = line(good("model"), "half",
                   {"--max_steps", "2", "--save_steps", "1", "--save_total_limit", "1",
                    "--save_format", "mcore", "--tp", "2", "--cp", "2", "--shard", "zero1"});
  half.insert(half.begin(), {"launch", "--nproc_per_node", "4"});
  ok(half);
  const fs::path saved = *this / "half" / "megatron";
  EXPECT_EQ(content_of(saved / "latest_checkpointed_iteration.txt"), "2");
  EXPECT_TRUE(fs::exists(saved / "iter_0000002" / "mp_rank_01" / "distrib_optim.pt"));
  EXPECT_FALSE(fs::exists(saved / "iter_0000001"));  // beyond the limit
  ok({"diff", "half/checkpoint-2", "half/megatron"});
  const ProgramResult rest = ok(line("half/megatron", "rest", {"--max_steps", "4"}));
  EXPECT_THAT(rest.err, HasSubstr("continued: iteration 2, consumed samples"));
  expect_near(losses("rest"), {expected[2], expected[3]}, 1e-5);
  expect_error(
      run(line(good("model"), "no", {"--save_format", "mcore", "--tuner", "lora", "--use_dora"})),
      2, {"--save_format mcore", "DoRA", "danlu convert"});
}

TEST_F(Chain, WeightsAreNeverRandomUnasked) {
  train_base();
  preprocess_text();
  // Nothing there: as Megatron, unless a flag forbids it, and said on a line of its own.
  const ProgramResult fresh = pretrain("missing", "fresh");
  EXPECT_EQ(fresh.exit_code, 0) << fresh.err;
  EXPECT_THAT(fresh.err, HasSubstr("weights  random (seed 7)"));
  EXPECT_THAT(fresh.err, HasSubstr("missing: no checkpoint there"));
  for (const char* flag : {"--exit-on-missing-checkpoint", "--no-from-scratch", "--finetune"})
    expect_error(pretrain("missing", "x", {flag}), 4, {"missing: no weights there"});
  expect_error(run({"sft", "--model", good("tokenizer"), "--dataset", good("good.jsonl")}), 4,
               {"no weights there"});
  // What looks like weights is never passed over.
  fs::create_directory(*this / "shard");
  fs::copy(*this / "run" / "config.json", *this / "shard" / "config.json");
  fs::copy(*this / "run" / "model.safetensors",
           *this / "shard" / "model-00002-of-00004.safetensors");
  expect_error(pretrain("shard", "x"), 4, {"no weights here", "model.safetensors.index.json"});
  ok({"convert", "run", "m.gguf", "--to", "gguf"});
  fs::create_directory(*this / "folder");
  fs::rename(*this / "m.gguf", *this / "folder" / "m.gguf");
  expect_error(pretrain("folder", "x"), 4, {"m.gguf", "name it"});
  fs::create_directories(*this / "dist" / "iter_0000005");
  write("dist/latest_checkpointed_iteration.txt", "5");
  write("dist/iter_0000005/metadata.json", R"({"sharded_backend": "torch_dist"})");
  write("dist/iter_0000005/__0_0.distcp", "x");
  expect_error(pretrain("dist", "x"), 4, {"torch_dist"});
}

TEST_F(Chain, TheScriptsLinesOfSeveralProcesses) {
  DANLU_SLOW_TEST();
  train_base();
  convert_base("mcore");
  preprocess_text();
  ASSERT_EQ(pretrain("mcore", "one").exit_code, 0);
  const auto line = [](const std::string& save) { return pretrain_line("mcore", save, {}); };
  const std::vector<std::string> split = {"--tensor-model-parallel-size",
                                          "2",
                                          "--pipeline-model-parallel-size",
                                          "1",
                                          "--sequence-parallel",
                                          "--use-distributed-optimizer",
                                          "--overlap-grad-reduce",
                                          "--overlap-param-gather",
                                          "--no-shared-storage",
                                          "--distributed-backend",
                                          "nccl"};
  const ProgramResult four = on_four(line("four"), split);
  ASSERT_EQ(four.exit_code, 0) << four.err;
  EXPECT_THAT(four.err, AllOf(HasSubstr("over 2 tensor-parallel processes, and its tokens"),
                              HasSubstr("(ZeRO-1)")));
  expect_near(losses("four"), losses("one"), 1e-5);
  auto stages = split;
  stages[3] = "2";
  stages.insert(stages.end(), {"--num-layers-per-virtual-pipeline-stage", "1"});
  const ProgramResult staged = on_four(line("stages"), stages);
  ASSERT_EQ(staged.exit_code, 0) << staged.err;
  EXPECT_THAT(staged.err, HasSubstr("its layers stand in 2 pipeline stages"));
  expect_near(losses("stages"), losses("one"), 1e-5);
  auto context = split;
  context[0] = "--context-parallel-size";
  context.insert(context.end(),
                 {"--context-parallel-algo", "megatron_cp_algo", "--use-cp-send-recv-overlap",
                  "--cp-attention-mask-type", "causal", "--cp-window-size", "1"});
  const ProgramResult shared = on_four(line("context"), context);
  ASSERT_EQ(shared.exit_code, 0) << shared.err;
  EXPECT_THAT(shared.err, HasSubstr("2 context-parallel processes"));
  expect_near(losses("context"), losses("one"), 1e-5);

  write("cats.jsonl", R"({"instruction": "fox?", "output": "cat"})"
                      "\n"
                      R"({"instruction": "dog?", "output": "cat"})"
                      "\n");
  const std::vector<std::string> tune = {"posttrain",  "--stage",
                                         "sft",        "--load",
                                         "mcore",      "--tokenizer-name-or-path",
                                         "run",        "--dataset",
                                         "cats.jsonl", "--prompt-type",
                                         "qwen",       "--train-iters",
                                         "2",          "--micro-batch-size",
                                         "1",          "--global-batch-size",
                                         "2",          "--lr",
                                         "0.02",       "--log-interval",
                                         "1",          "--dtype",
                                         "fp32",       "--lora-r",
                                         "4",          "--lora-alpha",
                                         "8",          "--lora-target-modules",
                                         "linear_qkv", "linear_proj",
                                         "linear_fc1", "linear_fc2"};
  auto alone = tune, together = tune;
  alone.insert(alone.end(), {"--save", "tuned_one"});
  together.insert(together.end(), {"--save", "tuned"});
  ok(alone);
  const ProgramResult tuned = on_four(together, {"--tensor-model-parallel-size", "2"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  expect_near(losses("tuned"), losses("tuned_one"), 1e-5);
}

/// The exit code of a recipe in this directory; what it printed is in recipe.log.
int run_recipe(const fs::path& directory, const std::string& words) {
  const std::string command = "cd '" + directory.string() + "' && DANLU='" + danlu_path() +
                              "' DANLU_LANG=en TP=2 PP=2 LENGTH=64 BATCH=2 STEPS=2 DTYPE=fp32 "
                              "bash '" DANLU_SOURCE_DIR "/recipes/megatron_chain.sh' " +
                              words + " >recipe.log 2>&1";
  const int status = std::system(command.c_str());
  return WEXITSTATUS(status);
}

TEST_F(Chain, TheRecipeRunsAndItsPipesHideNoFailure) {
  train_base();
  write("text.jsonl", "{\"text\": \"the quick brown fox jumps over the lazy dog\"}\n");
  EXPECT_EQ(run_recipe(*this / ".", "run text.jsonl " + good("good.jsonl").string() + " out"), 0)
      << content_of(*this / "recipe.log");
  EXPECT_THAT(content_of(*this / "out/pretrain.log"), HasSubstr("weights  Megatron-core, TP2 PP2"));
  EXPECT_TRUE(fs::exists(*this / "out/merged/config.json"));
  // The conversion fails: nothing after it is tried, and the last line says so.
  EXPECT_EQ(run_recipe(*this / ".", "nowhere text.jsonl rows.jsonl failed"), 4);
  EXPECT_THAT(content_of(*this / "failed/convert.log"), testing::EndsWith("FAILED (exit 4)\n"));
  EXPECT_FALSE(fs::exists(*this / "failed/preprocess.log"));
}

}  // namespace
}  // namespace danlu::test
