// `danlu convert` of what training leaves behind: optimizer states and adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

using testing::HasSubstr;

class ConvertTrained : public BadInput {
 protected:
  std::string total(const ProgramResult& converted) const {
    const size_t line = converted.out.rfind("  total of");
    return line == std::string::npos ? "none" : converted.out.substr(line - 16, 16);
  }
};

TEST_F(ConvertTrained, TheOptimizerGoesThroughEveryFormat) {
  const ProgramResult trained = train(
      good("good.jsonl"), {"--tuner_type", "full", "--max_steps", "2", "--torch_dtype", "bf16"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const ProgramResult plain = ok({"convert", "run/checkpoint-2", "plain", "--to", "mcore", "--tp",
                                  "2", "--with-optimizer", "--checksums"});
  EXPECT_THAT(plain.out, HasSubstr("exp_avg_sq.model.norm.weight"));
  EXPECT_THAT(ok({"inspect", "plain"}).out, HasSubstr("Adam, plain layout"));
  const ProgramResult native =
      ok({"convert", "plain", "native", "--to", "native", "--with-optimizer", "--pp", "2"});
  const ProgramResult flat =
      ok({"convert", "native", "flat", "--to", "mcore", "--pp", "2", "--with-optimizer",
          "--use-distributed-optimizer", "--target-data-parallel-size", "4"});
  EXPECT_THAT(ok({"inspect", "flat"}).out, HasSubstr("distributed layout"));
  const ProgramResult back =
      ok({"convert", "flat", "back", "--load-model-type", "optim", "--to", "native"});
  for (const ProgramResult& step : {native, flat, back}) EXPECT_EQ(total(step), total(plain));
  ok({"diff", "run/checkpoint-2", "back"});
}

TEST_F(ConvertTrained, WideWeightsAreTheOptimizersExactOnes) {
  const ProgramResult trained = train(
      good("good.jsonl"), {"--tuner_type", "full", "--max_steps", "2", "--torch_dtype", "bf16"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const ProgramResult wide = ok({"convert", "run/checkpoint-2", "wide", "--to", "mcore",
                                 "--with-optimizer", "--dtype", "fp32"});
  // With F32 weights the plain layout has no masters: the weights are they.
  const ProgramResult masters =
      ok({"convert", "wide", "flat", "--to", "native", "--with-optimizer"});
  EXPECT_NE(run({"diff", "run/checkpoint-2", "wide", "--tolerance", "0"}).exit_code, 0);
  ok({"diff", "run/checkpoint-2", "wide", "--tolerance", "0.01"});
  EXPECT_EQ(total(wide), total(masters));
}

TEST_F(ConvertTrained, GgufIsCheckedInEveryTypeThatKeepsNumbers) {
  for (const char* type : {"f32", "f16", "bf16"}) {
    const ProgramResult made =
        ok({"convert", good("model"), "m.gguf", "--to", "gguf", "--outtype", type, "--overwrite"});
    EXPECT_THAT(made.err, HasSubstr("every bit read back")) << type;
    ok({"diff", good("model"), "m.gguf", "--tolerance", type == std::string("f32") ? "0" : "0.01"});
    ok({"convert", "m.gguf", "back", "--to", "hf", "--overwrite", "--tokenizer-model",
        good("tokenizer")});
    ok({"diff", good("model"), "back", "--tolerance", type == std::string("f32") ? "0" : "0.01"});
    EXPECT_TRUE(std::filesystem::exists(*this / "back" / "tokenizer.json"));
  }
  const ProgramResult blocks =
      ok({"convert", good("model"), "q.gguf", "--to", "gguf", "--outtype", "q8_0", "--check"});
  EXPECT_THAT(blocks.err, HasSubstr("not read back: blocks round"));
}

/// As the guides print it, from `source` into `original`/mg2hf.
std::vector<std::string> back(const std::string& source, const std::string& original,
                              const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"convert",
                                    "--use-mcore-models",
                                    "--model-type",
                                    "GPT",
                                    "--model-type-hf",
                                    "llama2",
                                    "--load-model-type",
                                    "mg",
                                    "--save-model-type",
                                    "hf",
                                    "--target-tensor-parallel-size",
                                    "1",
                                    "--target-pipeline-parallel-size",
                                    "1",
                                    "--add-qkv-bias",
                                    "--load-dir",
                                    source,
                                    "--save-dir",
                                    original};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(ConvertTrained, TheGuidesLineBackTakesARunsDirectoryWhateverItHolds) {
  copy_model("hf");
  const ProgramResult trained =
      train(good("good.jsonl"), {"--tuner_type", "full", "--max_steps", "3", "--save_steps", "1",
                                 "--save_total_limit", "0", "--torch_dtype", "bf16"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  ok(back("run", "hf"));
  EXPECT_THAT(ok({"diff", "run", "hf/mg2hf"}).out, HasSubstr("the same"));
  EXPECT_THAT(ok(back("run", "hf")).err, HasSubstr("up to date"));
  expect_error(run(back("run", "hf", {"--params-dtype", "fp16"})), 2, {"mg2hf", "exists"});
  const std::string words = content_of(*this / "run" / "tokenizer_config.json");
  std::filesystem::remove(*this / "run" / "tokenizer_config.json");  // a link to the checkpoint's
  write_content(*this / "run" / "tokenizer_config.json", words + "\n");
  expect_error(run(back("run", "hf")), 2, {"mg2hf", "exists"});  // its tokenizer is another one
  // A step of it; and a split, with Adam's state that a checkpoint alone has.
  std::filesystem::remove_all(*this / "hf" / "mg2hf");
  EXPECT_THAT(ok(back("run", "hf", {"--iteration", "2"})).err, HasSubstr("checkpoint of step 2"));
  ok({"diff", "run/checkpoint-2", "hf/mg2hf"});
  expect_error(run(back("run", "other", {"--iteration", "7"})), 4, {"run", "7", "1, 2, 3"});
  ok({"convert", "--use-mcore-models", "--load-model-type", "optim", "--save-model-type", "mg",
      "--target-tensor-parallel-size", "2", "--load-dir", "run", "--save-dir", "cut"});
  ok({"diff", "run", "cut"});
  // Before its end: the newest checkpoint that is whole.
  for (const char* name : {"DONE", "model.safetensors", "checkpoint-3/DONE"})
    std::filesystem::remove(*this / "run" / name);
  std::filesystem::remove_all(*this / "hf" / "mg2hf");
  EXPECT_THAT(ok(back("run", "hf")).err, HasSubstr("checkpoint of step 2"));
  ok({"diff", "run/checkpoint-2", "hf/mg2hf"});
  // What no training left is held to what the flag says.
  expect_error(run(back(good("model").string(), "other")), 2, {"Megatron", "danlu chat"});
}

TEST_F(ConvertTrained, ARunOfAdaptersIsMergedWithItsBaseOrSaysWhatIsMissing) {
  copy_model("hf");
  copy_model("base");
  const ProgramResult trained =
      train(good("good.jsonl"), {"--tuner_type", "lora", "--max_steps", "2", "--learning_rate",
                                 "0.05", "--lora_rank", "4", "--lora_alpha", "8", "--model",
                                 (*this / "base").string(), "--save_format", "mcore"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("--lora-target-modules linear_"));
  ok({"merge", "--model", "base", "--adapters", "run", "--output", "merged"});
  const std::vector<std::string> as_trained = {"--lora-r", "4", "--lora-alpha", "8"};
  ok(back("run", "hf", as_trained));
  ok({"diff", "merged", "hf/mg2hf"});
  // From what MindSpeed goes on with, base inside; and beside the base in Megatron's format.
  std::filesystem::remove_all(*this / "hf" / "mg2hf");
  ok(back("run/megatron", "hf", as_trained));
  ok({"diff", "merged", "hf/mg2hf"});
  ok({"convert", "run/megatron", "peft", "--to", "peft"});
  ok({"diff", "run", "peft"});
  ok({"convert", "base", "mc", "--to", "mcore", "--tp", "2"});
  std::filesystem::remove_all(*this / "hf" / "mg2hf");
  ok(back("mc", "hf", {"--lora-load", "run", "--lora-r", "4"}));
  ok({"diff", "merged", "hf/mg2hf"});
  expect_error(run(back("mc", "other", {"--lora-load", "run", "--lora-r", "5"})), 2, {"5", "4"});
  // An adapter is never lost: on a trained model it is merged.
  const ProgramResult full = run(
      {"sft", "--model", "base", "--dataset", good("good.jsonl").string(), "--tuner_type", "full",
       "--max_steps", "1", "--max_length", "32", "--version_dir", "false", "--output_dir", "full"});
  ASSERT_EQ(full.exit_code, 0) << full.err;
  ok({"merge", "--model", "full", "--adapters", "run", "--output", "both"});
  std::filesystem::remove_all(*this / "hf" / "mg2hf");
  ok(back("full", "hf", {"--lora-load", "run"}));
  ok({"diff", "both", "hf/mg2hf"});
  expect_error(run(back("mc", "other", {"--lora-load", "full"})), 2, {"full", "--load-dir"});
  // The base is another one by now, or gone.
  replace_in_file(*this / "base" / "config.json", "\"rms_norm_eps\": 1e-06",
                  "\"rms_norm_eps\": 1e-05");
  expect_error(run(back("run", "other")), 4, {"not the base model any more", "--lora-load"});
  std::filesystem::remove_all(*this / "base");
  expect_error(run(back("run", "other")), 4, {"is missing", "base", "--lora-load"});
}

TEST_F(ConvertTrained, AModelAloneHasNoOptimizer) {
  expect_error(run({"convert", good("model"), "x", "--to", "mcore", "--with-optimizer"}), 4,
               {"no optimizer state", "checkpoint-<step>"});
}

TEST_F(ConvertTrained, MergingHereAndByDanluMergeIsTheSame) {
  const ProgramResult trained = train(
      good("good.jsonl"), {"--tuner_type", "lora", "--max_steps", "3", "--learning_rate", "0.05"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  ok({"merge", "--model", good("model"), "--adapters", "run", "--output", "merged"});
  ok({"convert", good("model"), "here", "--adapters", "run", "--to", "mcore", "--tp", "2"});
  ok({"diff", "merged", "here"});  // every bit: there is one way to merge
  EXPECT_EQ(run({"diff", good("model"), "here", "--tolerance", "1e-6"}).exit_code, 4)
      << "the adapter changes the model";
  expect_error(
      run({"convert", good("model"), "x", "--adapters", "run", "--to", "hf", "--lora-r", "3"}), 2,
      {"lora-r", "3"});
  expect_error(run({"convert", good("model"), "x", "--adapters", "run", "--to", "hf",
                    "--lora-target-modules", "linear_qkv"}),
               2, {"lora-target-modules", "down_proj"});
}

}  // namespace
}  // namespace danlu::test
