// Two models side by side in a conversation: which ones, and what is said of one that is not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/bad_input.h"
#include "cli/logged_steps.h"

namespace danlu::test {
namespace {

using testing::HasSubstr;

class CompareChat : public BadInput {
 protected:
  std::vector<std::string> line(const std::string& other) const {
    return {"chat",          "--model", good("model").string(), "--compare", other,
            "--temperature", "0",       "--max_new_tokens",     "6"};
  }
};

TEST_F(CompareChat, EachAnswersUnderItsPath) {
  std::string rows;
  for (int i = 0; i < 8; ++i)
    rows += Json{{"instruction", "hi"}, {"output", "hello hello"}}.dump() + "\n";
  write("rows.jsonl", rows);
  ok({"sft",
      "--model",
      good("model").string(),
      "--dataset",
      "rows.jsonl",
      "--tuner",
      "full",
      "--output_dir",
      "other",
      "--max_steps",
      "20",
      "--lr",
      "1e-2",
      "--dtype",
      "fp32",
      "--version_dir",
      "false",
      "--val_ratio",
      "0",
      "--save_strategy",
      "no"});
  ProgramSettings settings;
  settings.directory = (*this / "").string();
  settings.input = "hi\n";
  const ProgramResult result = run_danlu(line("other"), settings);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const size_t first = result.out.find("── " + good("model").string() + " ──"),
               second = result.out.find("── other ──");
  ASSERT_NE(first, std::string::npos) << result.out;
  ASSERT_NE(second, std::string::npos) << result.out;
  EXPECT_LT(first, second);
  const std::string of_first = result.out.substr(first, second - first),
                    of_second = result.out.substr(second);
  EXPECT_THAT(of_second, HasSubstr("hel")) << "what it was taught";
  EXPECT_THAT(of_first, testing::Not(HasSubstr("hel")));
}

TEST_F(CompareChat, AModelThatIsNotThereIsNamedWithItsFlag) {
  for (const char* other : {"nowhere", "./nowhere", "/no/where"})
    expect_error(run(line(other)), 4, {"--compare", "where"});
}

}  // namespace
}  // namespace danlu::test
