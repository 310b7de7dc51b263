// `--quantize` from the command line: what is held in blocks is said, and nothing else is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class Quantize : public BadInput {
 protected:
  ProgramResult infer(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "infer");
    for (const char* more : {"--raw", "--prompt", "ab", "--max_new_tokens", "3", "--device", "cpu"})
      arguments.push_back(more);
    return run(arguments);
  }
};

TEST_F(Quantize, HoldsMatricesInBlocksWhenAskedTo) {
  for (const char* type : {"q8_0", "q4_0"}) {
    const ProgramResult answered = infer({"--model", good("model"), "--quantize", type});
    EXPECT_EQ(answered.exit_code, 0) << answered.err;
    EXPECT_THAT(answered.err, HasSubstr("of them in blocks")) << type;
  }
  EXPECT_THAT(infer({"--model", good("model")}).err, Not(HasSubstr("in blocks")));
  const ProgramResult other = infer({"--model", good("model"), "--quantize", "q5_0"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("q8_0"));
}

TEST_F(Quantize, WhatCannotBeHeldInBlocksIsSaid) {
  write("config.json", R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
    "vocab_size": 320, "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1})");
  const ProgramResult made = run(
      {"init", "--config", "config.json", "--tokenizer", good("tokenizer"), "--output", "narrow"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const ProgramResult dense = infer({"--model", "narrow", "--quantize", "q4_0"});
  EXPECT_EQ(dense.exit_code, 0) << dense.err;
  EXPECT_THAT(dense.err, HasSubstr("--quantize: nothing is quantised"));
  EXPECT_THAT(infer({"--model", good("model"), "--quantize", "q4_0"}).err,
              Not(HasSubstr("nothing is quantised")));
}

TEST_F(Quantize, BlocksOfAGgufFileStayUnlessTheyAreToBeWidened) {
  const ProgramResult converted =
      run({"convert", good("model"), "q.gguf", "--to", "gguf", "--outtype", "q8_0"});
  ASSERT_EQ(converted.exit_code, 0) << converted.err;
  const ProgramResult kept = infer({"--model", "q.gguf"});
  EXPECT_EQ(kept.exit_code, 0) << kept.err;
  EXPECT_THAT(kept.err, HasSubstr("of them in blocks"));
  const ProgramResult widened =
      infer({"--model", "q.gguf", "--tokenizer", good("model"), "--quantize", "none"});
  EXPECT_EQ(widened.exit_code, 0) << widened.err;
  EXPECT_THAT(widened.err, Not(HasSubstr("in blocks")));
}

}  // namespace
}  // namespace danlu::test
