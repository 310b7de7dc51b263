#include "board/run_state.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "board/run_folder.h"

namespace danlu::board {
namespace {

class RunStateTest : public ::testing::Test {
 protected:
  RunStateTest() {
    put_settings(run_);
    put(run_ / "logging.jsonl", step_line(5, 1));
  }
  const char* state(bool is_complete = false) const {
    return state_name(standing_of(run_, /*changed_ns=*/0, is_complete).state);
  }
  void log_ends_with(const std::string& line) const {
    put(run_ / "train.log", "step 5\nerror: what\n" + line + "\n");
  }

  const test::TemporaryDirectory folder_;
  const std::filesystem::path run_ = folder_ / "run";
};

TEST_F(RunStateTest, DoneIsFinished) {
  put(run_ / "DONE", "{}");
  EXPECT_STREQ(state(), "finished");
}

TEST_F(RunStateTest, TheLastLineOfTheLogSaysHowItEnded) {
  log_ends_with("FAILED (exit 9)");
  EXPECT_STREQ(state(), "diverged");
  log_ends_with("FAILED (exit 6)");
  EXPECT_STREQ(state(), "failed");
  EXPECT_EQ(standing_of(run_, 0, false).exit_code, 6);
  log_ends_with("STOPPED (exit 143)");
  EXPECT_STREQ(state(), "stopped");
  log_ends_with("失败（退出码 9）");
  EXPECT_STREQ(state(), "diverged");
  log_ends_with("已停止（退出码 130）");
  EXPECT_STREQ(state(), "stopped");
}

TEST_F(RunStateTest, AnEarlierEndIsNoEnd) {
  put(run_ / "train.log", "FAILED (exit 9)\nstep 6\nFAILED (exit 9) and more\n");
  EXPECT_STREQ(state(), "stopped");
  EXPECT_FALSE(standing_of(run_, 0, false).exit_code);
}

TEST_F(RunStateTest, WhoHoldsTheLockAndLivesTrains) {
  put_lock(run_, ::getpid());
  const RunStanding standing = standing_of(run_, 0, false);
  EXPECT_EQ(standing.state, RunState::kRunning);
  EXPECT_EQ(standing.holder, fmt::format("process {}", ::getpid()));
  log_ends_with("FAILED (exit 9)");  // of an earlier life
  EXPECT_STREQ(state(), "running");
}

TEST_F(RunStateTest, TheLockOfADeadProcessIsOfAKilledRun) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  put_lock(run_, child);
  EXPECT_STREQ(state(), "stopped");
}

TEST_F(RunStateTest, AProcessThatBeganLaterOnlyHasTheNumber) {
  put_lock(run_, ::getpid());
  std::filesystem::last_write_time(
      run_ / ".danlu.lock",
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(24 * 3650));
  EXPECT_STREQ(state(), "stopped");
}

TEST_F(RunStateTest, AnotherMachinesLockIsBelievedWhileFilesChange) {
  put(run_ / ".danlu.lock", "12 some-other-host\n");
  EXPECT_STREQ(state(), "stopped");
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto standing = standing_of(run_, int64_t{now.tv_sec} * 1'000'000'000, false);
  EXPECT_EQ(standing.state, RunState::kRunning);
  EXPECT_EQ(standing.holder, "process 12 on some-other-host");
}

TEST_F(RunStateTest, LookingTakesNoLock) {
  put_lock(run_, ::getpid());
  (void)state();
  EXPECT_TRUE(std::filesystem::exists(run_ / ".danlu.lock"));
}

TEST_F(RunStateTest, AnotherProgramsRunIsFinishedAtItsLastStep) {
  std::filesystem::remove(run_ / "config.yaml");
  EXPECT_STREQ(state(/*is_complete=*/true), "finished");
  EXPECT_STREQ(state(/*is_complete=*/false), "stopped");
  put_settings(run_);
  EXPECT_STREQ(state(/*is_complete=*/true), "stopped");  // ours would have left DONE
}

}  // namespace
}  // namespace danlu::board
