// The help text of every verb is a golden file: see tests/cli/README.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/run_program.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;

fs::path golden_folder() { return fs::path(DANLU_SOURCE_DIR) / "tests/cli/help"; }

bool updating() { return std::getenv("DANLU_UPDATE_HELP") != nullptr; }

void compare_with_golden(const std::string& name, const std::string& text) {
  const fs::path path = golden_folder() / (name + ".txt");
  if (updating()) {
    fs::create_directories(golden_folder());
    std::ofstream(path) << text;
    return;
  }
  ASSERT_TRUE(fs::exists(path)) << path << " is missing: make help-texts";
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str()) << "after an intended change: make help-texts";
}

TEST(Help, EveryCommandsHelpIsItsGoldenText) {
  const std::vector<std::string> commands = listed_commands();
  ASSERT_GT(commands.size(), 3u) << "danlu --help lists no commands";
  for (const std::string& command : commands) {
    SCOPED_TRACE(command);
    const ProgramResult result = run_danlu({command, "--help"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    compare_with_golden(command, result.out);
    EXPECT_EQ(run_danlu({"help", command}).out, result.out);
  }
}

TEST(Help, TheOverviewIsItsGoldenText) {
  const ProgramResult result = run_danlu({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  compare_with_golden("overview", result.out);
  EXPECT_EQ(run_danlu({}).out, result.out);
}

TEST(Help, NoGoldenTextIsLeftOver) {
  const std::vector<std::string> commands = listed_commands();
  for (const auto& entry : fs::directory_iterator(golden_folder())) {
    const std::string name = entry.path().stem();
    if (name == "overview") continue;
    if (updating() && !testing::Value(name, testing::AnyOfArray(commands))) fs::remove(entry);
    EXPECT_THAT(name, testing::AnyOfArray(commands)) << entry.path();
  }
}

TEST(Help, LinesFitAHundredColumns) {
  for (const std::string& command : listed_commands()) {
    std::istringstream lines(run_danlu({command, "--help"}).out);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("Usage:")) continue;
      const auto columns = std::count_if(line.begin(), line.end(),
                                         [](unsigned char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LE(columns, 100) << command << ": " << line;
    }
  }
}

}  // namespace
}  // namespace danlu::test
