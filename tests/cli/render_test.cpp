// `danlu render`: text, ids and mask, for people and as JSON; bad input exits with the right code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/run_program.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const char* const kTalk = R"([{"role": "system", "content": "Be terse."},
    {"role": "user", "content": "Capital of France?"}, {"role": "assistant", "content": "Paris"}])";

ProgramResult render(const std::string& input, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {"render", "--model", (unpacked("tokenizers") / "qwen2_5").string()});
  return run_danlu(arguments, {.input = input});
}

TEST(Render, ShowsMaskedRunsAndTargets) {
  DANLU_REQUIRES_SHARED();
  const ProgramResult result = render(kTalk, {});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("[TEMPLATE] tokenizer_config.json (jinja)\n[INPUT] "
                                     "<|im_start|>system\nBe terse.<|im_end|>\n"));
  // 20 masked: im_start system \n Be␣terse. im_end \n, user's part, im_start assistant \n; then the
  // last \n.
  EXPECT_THAT(result.out, HasSubstr("[LABELS] [-100 * 20]Paris<|im_end|>[-100 * 1]\n"));
  EXPECT_THAT(
      result.out,
      HasSubstr("[-100 * 20][59604, 151645][-100 * 1]\n[TOKENS] 23, of which 2 are targets\n"));
}

TEST(Render, JsonHoldsTheSameNumbers) {
  DANLU_REQUIRES_SHARED();
  const ProgramResult result = render(kTalk, {"--json", "--prompt-type", "qwen"});
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["template"], "qwen");
  EXPECT_EQ(json["input_ids"].size(), json["labels"].size());
  EXPECT_EQ(json["labels"][json["labels"].size() - 1], 151645);
  EXPECT_EQ(json["stop_ids"], nlohmann::json::array({151645}));
}

TEST(Render, APromptEndsWithTheAnswersHeader) {
  DANLU_REQUIRES_SHARED();
  const auto json =
      nlohmann::json::parse(render(R"([{"role": "user", "content": "hi"}])", {"--json"}).out);
  EXPECT_THAT(json["text"].get<std::string>(),
              testing::EndsWith("hi<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_FALSE(json.contains("labels"));
  const auto bare = nlohmann::json::parse(
      render(R"([{"role": "user", "content": "hi"}])", {"--json", "--no-add-generation-prompt"})
          .out);
  EXPECT_THAT(bare["text"].get<std::string>(), testing::EndsWith("hi<|im_end|>\n"));
}

TEST(Render, BadInputSaysWhereAndExitsAccordingly) {
  DANLU_REQUIRES_SHARED();
  const ProgramResult no_role = render(R"([{"content": "hi"}])", {});
  EXPECT_EQ(no_role.exit_code, 3);
  EXPECT_THAT(no_role.err, HasSubstr("standard input: message 1: \"role\" must be a string"));
  EXPECT_EQ(render("[", {}).exit_code, 3);
  EXPECT_EQ(render("[]", {}).exit_code, 3);
  const ProgramResult unknown = render(kTalk, {"--prompt-type", "qwem"});
  EXPECT_EQ(unknown.exit_code, 4);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'qwen'?"));
  EXPECT_EQ(
      render(kTalk, {"--prompt-type", "qwen", "--chat-template-kwargs", R"({"x": 1})"}).exit_code,
      2);
}

}  // namespace
}  // namespace danlu::test
