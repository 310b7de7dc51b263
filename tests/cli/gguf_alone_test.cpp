// A GGUF file by itself: what was trained on and asked with a directory beside it needs none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/bad_input.h"

namespace danlu::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class GgufAlone : public BadInput {
 protected:
  std::string answer(const std::string& model, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> line = {"infer",
                                     "--model",
                                     model,
                                     "--prompt",
                                     "the small house",
                                     "--device",
                                     "cpu",
                                     "--max_new_tokens",
                                     "8",
                                     "--temperature",
                                     "0",
                                     "--dtype",
                                     "fp32"};
    line.insert(line.end(), more.begin(), more.end());
    return ok(line).out;
  }
};

TEST_F(GgufAlone, AnswersAndIdsAreThoseOfItsDirectory) {
  ok({"convert", good("model"), "m.gguf", "--to", "gguf", "--outtype", "f32"});
  EXPECT_EQ(answer("m.gguf"), answer(good("model")));
  const std::string text = "<|im_start|>user\nhi 12<|im_end|> 你";
  const std::string ids = ok({"tokenize", "--model", good("model"), text}).out;
  EXPECT_EQ(ok({"tokenize", "--model", "m.gguf", text}).out, ids);
  write("messages.json", "[{\"role\": \"user\", \"content\": \"hi\"}]");
  const auto rendered = [&](const std::string& model) {
    return ok({"render", "--model", model, "--input", "messages.json", "--json"}).out;
  };
  EXPECT_EQ(Json::parse(rendered("m.gguf"))["input_ids"],
            Json::parse(rendered(good("model")))["input_ids"]);
  // A tokenizer that agrees may stand beside it; another is named with its first difference.
  EXPECT_EQ(answer("m.gguf", {"--tokenizer", good("model")}), answer(good("model")));
  replace_in_file(copy_model("other") / "tokenizer.json", "\"!\": 0", "\"!!\": 0");
  const ProgramResult other =
      run({"infer", "--model", "m.gguf", "--tokenizer", "other", "--prompt", "hi"});
  EXPECT_EQ(other.exit_code, 4);
  EXPECT_THAT(other.err, HasSubstr("tokenizer other is another one than the file's own: token 0 is "
                                   "\"!!\" there and \"!\" in the file"));
}

TEST_F(GgufAlone, WhatIsMadeOfItHasTheTokenizerToo) {
  ok({"convert", good("model"), "m.gguf", "--to", "gguf", "--outtype", "f32"});
  ok({"convert", "m.gguf", "back", "--to", "hf"});
  EXPECT_EQ(answer("back"), answer(good("model")));
  ok({"convert", "m.gguf", "--outfile", "again.gguf", "--outtype", "q4_0"});  // as llama.cpp says
  // The same blocks are made of the directory when it is loaded.
  EXPECT_EQ(answer("again.gguf"), answer(good("model"), {"--quantize", "q4_0"}));
  const ProgramResult trained = ok({"sft", "--model", "m.gguf", "--dataset", good("good.jsonl"),
                                    "--output_dir", "run", "--tuner", "full", "--max_steps", "1"});
  EXPECT_THAT(trained.err, Not(HasSubstr("warning")));
  EXPECT_NE(ok({"infer", "--model", "run", "--prompt", "hi", "--max_new_tokens", "1"}).exit_code,
            1);
}

}  // namespace
}  // namespace danlu::test
