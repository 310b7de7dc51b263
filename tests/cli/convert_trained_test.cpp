// `danlu convert` of what training leaves behind: optimizer states and adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

using testing::HasSubstr;

class ConvertTrained : public BadInput {
 protected:
  ProgramResult ok(const std::vector<std::string>& arguments) const {
    ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
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
