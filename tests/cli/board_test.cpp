// `danlu board` as a program: how it begins and ends. What it serves: tests/board.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "cli/run_program.h"
#include "support/temporary_directory.h"

namespace danlu::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

ProgramResult board_until_it_stands(const std::vector<std::string>& more, int signal = SIGTERM) {
  std::vector<std::string> words = {"board", "--port", "0"};
  words.insert(words.end(), more.begin(), more.end());
  return run_danlu(words, {.environment = {{"LD_DEBUG", "files"}},
                           .timeout_s = 120,
                           .signal = signal,
                           .signal_after = "Ctrl-C ends it"});
}

TEST(Board, SaysItsAddressAndEndsWellAtASignal) {
  const TemporaryDirectory runs;
  for (const int signal : {SIGTERM, SIGINT}) {
    const ProgramResult result = board_until_it_stands({runs.path().string()}, signal);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, MatchesRegex("http://127\\.0\\.0\\.1:[0-9]+/\n"));
  }
}

// It must run where libtorch is not installed.
TEST(Board, OpensNoEngine) {
  const TemporaryDirectory runs;
  const auto libraries = opened_libraries(board_until_it_stands({runs.path().string()}));
  EXPECT_THAT(libraries, Contains(HasSubstr("libdanlu_web.so")));
  EXPECT_THAT(libraries,
              Not(Contains(testing::AnyOf(HasSubstr("torch"), HasSubstr("libdanlu_engine")))));
}

TEST(Board, ADirectoryThatCannotBeReadIsAnError) {
  const ProgramResult result = run_danlu({"board", "no/such/runs"});
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("no/such/runs: cannot be read"), HasSubstr("--output_dir")));
}

TEST(Board, WarnsWhereAnybodyMayLook) {
  const TemporaryDirectory runs;
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {runs.path().string(), "--host", "0.0.0.0"};
    words.insert(words.end(), more.begin(), more.end());
    return board_until_it_stands(words).err;
  };
  EXPECT_THAT(said({}), HasSubstr("whoever reaches 0.0.0.0 sees these runs"));
  EXPECT_THAT(said({"--api-key", "secret"}), Not(HasSubstr("whoever reaches")));
}

TEST(Board, AnEmptyKeyIsNoKeyToLetEverybodyInBy) {
  const std::vector<std::vector<std::string>> lines = {
      {"board", "--api-key", ""}, {"serve", "--model", "m", "--api-key", "", "--host", "0.0.0.0"}};
  for (const std::vector<std::string>& line : lines) {
    const ProgramResult result = run_danlu(line);
    EXPECT_EQ(result.exit_code, 2) << line[0] << result.err;
    EXPECT_THAT(result.err, HasSubstr("the key is empty"));
  }
}

}  // namespace
}  // namespace danlu::test
