// What the program does with words it knows and words it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "cli/run_program.h"

namespace danlu::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Program, PrintsItsVersion) {
  EXPECT_THAT(run_danlu({"--version"}).out,
              testing::MatchesRegex("danlu [0-9]+[.][0-9]+[.][0-9]+\n"));
}

TEST(Program, AnUnknownCommandNamesTheNearestAndExitsWith2) {
  const ProgramResult result = run_danlu({"chta"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "error: unknown command 'chta'\nhint: did you mean danlu chat?\nFAILED (exit 2)\n");
  EXPECT_EQ(run_danlu({"help", "chta"}).exit_code, 2);
  EXPECT_THAT(run_danlu({"--versoin"}).err, StartsWith("error: unknown flag '--versoin'"));
}

TEST(Program, AnUnknownFlagNamesTheNearestAndExitsWith2) {
  const ProgramResult result = run_danlu({"infer", "--modle", "x"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "error: [infer] unknown flag --modle\nhint: did you mean --model?\n"
            "FAILED (exit 2)\n");
}

TEST(Program, ErrorsSpeakTheUsersLanguage) {
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"DANLU_LANG", "zh"}, {"LANG", "zh_CN.UTF-8"}, {"LC_ALL", "zh_CN.UTF-8"}}) {
    EXPECT_THAT(
        run_danlu({"infer", "--modle", "x"}, {.environment = {{name, value}}}).err,
        testing::Eq("错误：[infer] 未知参数 --modle\n建议：是否想写 --model？\n失败（退出码 2）\n"))
        << name;
  }
  EXPECT_THAT(run_danlu({"infer", "--modle"},
                        {.environment = {{"DANLU_LANG", "en"}, {"LANG", "zh_CN.UTF-8"}}})
                  .err,
              HasSubstr("did you mean"));
}

/// Chinese punctuation counts: a usage line may hold no other.
bool has_chinese(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0xE3 && byte <= 0xEF;
  });
}

TEST(Program, EveryHelpTextIsChineseForChineseReaders) {
  const ProgramSettings chinese = {.environment = {{"DANLU_LANG", "zh"}}};
  EXPECT_THAT(run_danlu({"--help"}, chinese).out, HasSubstr("命令"));
  for (const std::string& verb : listed_commands()) {
    const std::string help = run_danlu({verb, "--help"}, chinese).out;
    EXPECT_TRUE(has_chinese(help.substr(0, help.find('\n')))) << verb;
    // A description may be a name of config.json: it has no words then.
    static const std::regex words("  --?[a-z][^\n]* [a-z]{2,} [a-z]{2,}[^\n]*");
    std::smatch english;
    const std::string options = help.substr(0, help.find("\n为兼容"));
    EXPECT_FALSE(std::regex_search(options, english, words)) << verb << ": " << english.str();
  }
}

TEST(Program, ManyNoticesAreThreeLinesUnlessAllAreWanted) {
  std::vector<std::string> words = {"posttrain", "--model", "nowhere", "--dataset", "nowhere"};
  for (const char* flag :
       {"--use-flash-attn", "--no-load-rng", "--use-distributed-optimizer", "--overlap-grad-reduce",
        "--no-gradient-accumulation-fusion", "--use-fused-rmsnorm", "--use-fused-swiglu", "--tf32",
        "--use-mcore-models", "--tokenizer-not-use-fast"})
    words.push_back(flag);
  const auto notices = [&] {
    const std::string err = run_danlu(words).err;
    size_t count = 0;
    for (size_t at = err.find("notice: "); at != err.npos; at = err.find("notice: ", at + 1))
      ++count;
    return count;
  };
  EXPECT_LE(notices(), 3u);
  words.push_back("-v");
  EXPECT_GT(notices(), 4u);
}

TEST(Program, AnUnknownLanguageIsToldOnce) {
  const auto notices = [](const std::string& language) {
    return run_danlu({"--version"}, {.environment = {{"DANLU_LANG", language}}}).err;
  };
  EXPECT_EQ(notices("fr"), "notice: DANLU_LANG=fr: there are zh and en; messages are in English\n");
  for (const char* known : {"zh", "zh_CN.UTF-8", "en", "en_US.UTF-8", "C", ""})
    EXPECT_EQ(notices(known), "") << known;
}

TEST(Program, ALogLevelThatIsNoneIsNamedOnce) {
  const auto said = [](const std::string& level) {
    return run_danlu({"--version"}, {.environment = {{"LOG_LEVEL", level}}}).err;
  };
  EXPECT_EQ(said("eror"),
            "warning: LOG_LEVEL=eror: there are debug, info, warning, error and off; info is "
            "taken\n");
  for (const char* level : {"", "Debug", "INFO", "WARN", "warning", "Error", "OFF"})
    EXPECT_EQ(said(level), "") << level;
}

TEST(Program, AWordThatIsNoFlagIsRefused) {
  const ProgramResult result = run_danlu({"completion", "bash", "stray"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("unexpected word 'stray'"));
}

TEST(Program, PrintConfigShowsValuesAndSourcesAndRunsNothing) {
  const ProgramResult result = run_danlu({"infer", "--model", "nowhere", "--print_config"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, testing::ContainsRegex("model: \"nowhere\" +# flag --model\n"));
  EXPECT_EQ(run_danlu({"infer", "--print-config", "--model=nowhere"}).exit_code, 0);
}

TEST(Program, OutputThatCannotBeWrittenIsAnError) {
  const std::string command = danlu_path() + " --help >/dev/full 2>/dev/null";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 8);
}

TEST(Program, CompletionScriptsAreValidShellAndKnowTheVerbs) {
  const ProgramResult script = run_danlu({"completion", "bash"});
  EXPECT_EQ(script.exit_code, 0);
  const std::string check = "bash -c 'source <(" + danlu_path() +
                            " completion bash); COMP_WORDS=(danlu cha); COMP_CWORD=1; _danlu; "
                            "[ \"${COMPREPLY[*]}\" = chat ]'";
  EXPECT_EQ(std::system(check.c_str()), 0);
  EXPECT_THAT(run_danlu({"completion", "zsh"}).out, HasSubstr("bashcompinit"));
  EXPECT_EQ(run_danlu({"completion", "fish"}).exit_code, 2);
}

}  // namespace
}  // namespace danlu::test
