// What is left of a training that was ended in the middle, and what is said of it.
#include <csignal>

#include "base/json.h"
#include "cli/launch.h"
#include "cli/logged_steps.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class Interrupted : public Launch {
 protected:
  /// run_words(line), with `meanwhile` once steps are logged; RANK tells the process that is
  /// started from the ranks that it starts.
  template <typename Meanwhile>
  ProgramResult during(const std::vector<std::string>& line, const Meanwhile& meanwhile) const {
    ProgramResult result;
    std::atomic<bool> over = false;
    std::thread job([&] {
      result = run_words(line, {{"RANK", "7"}, {"WORLD_SIZE", "1"}});
      over = true;
    });
    while (!over && content_of((*this) / "run/logging.jsonl").empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(over) << "the run was over too soon";
    meanwhile(over);
    job.join();
    return result;
  }
};

TEST_F(Interrupted, ASecondSignalIsSaidAndWrittenDown) {
  // Steps of seconds, in which a first signal waits.
  std::string rows;
  const std::string few = content_of(good("good.jsonl"));
  while (rows.size() < 1000 * few.size()) rows += few;
  write_content((*this) / "many.jsonl", rows);
  for (const char* processes : {"1", "2"}) {
    SCOPED_TRACE(processes);
    fs::remove_all((*this) / "run");
    const ProgramResult result =
        during(training("run", {"--dataset", (*this) / "many.jsonl", "--batch_size", "1",
                                "--global_batch_size", "4000", "--max_steps", "1000",
                                "--save_steps", "1000", "--nproc", processes}),
               [&](const std::atomic<bool>& over) {
                 const pid_t process = process_of((*this) / "", 7);
                 // Behind a step it stops at once, and no second signal meets it.
                 std::this_thread::sleep_for(std::chrono::milliseconds(500));
                 for (int i = 0; i < 2 && process > 0 && !over; ++i) {
                   ::kill(process, SIGTERM);
                   std::this_thread::sleep_for(std::chrono::milliseconds(100));
                 }
               });
    EXPECT_EQ(result.exit_code, 143) << result.err;
    EXPECT_THAT(result.err, EndsWith("STOPPED (exit 143)\n"));
    EXPECT_THAT(result.err, HasSubstr("ended at once by a second signal"));
    const std::string log = content_of((*this) / "run/train.log");
    EXPECT_THAT(log, HasSubstr("ended at once by a second signal"));
    EXPECT_THAT(log, EndsWith("STOPPED (exit 143)\n"));
  }
}

TEST_F(Interrupted, ARunWhoseDirectoryIsRemovedSaysSoAndGoesOn) {
  const std::vector<std::string> steps = {"--max_steps", "200", "--save_steps", "100"};
  for (const char* processes : {"1", "2"}) {
    SCOPED_TRACE(processes);
    fs::remove_all((*this) / "run");
    auto line = training("run", steps);
    line.insert(line.end(),
                {"--nproc", processes, "--global_batch_size", "4", "--batch_size", "1"});
    const ProgramResult result = during(line, [&](const std::atomic<bool>&) {
      // As rm -rf does: what is made while it works stays.
      std::error_code ignored;
      fs::remove_all((*this) / "run", ignored);
    });
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("the directory was removed or replaced during the training; "
                                      "the checkpoints and TensorBoard files in it are lost; it is "
                                      "made again, with all that was logged"));
    const auto logged = steps_of((*this) / "run");
    ASSERT_EQ(logged.size(), 200u);
    for (size_t i = 0; i < logged.size(); ++i)
      EXPECT_EQ(logged[i].at("global_step"), static_cast<int64_t>(i + 1));
    for (const char* file : {"args.json", "config.yaml", "train.log", "last/DONE", "DONE"})
      EXPECT_TRUE(fs::exists((*this) / "run" / file)) << file;
    EXPECT_EQ(fs::exists((*this) / "run/rank-1.log"), processes[0] == '2');
  }
}

TEST_F(Interrupted, ARunLeavesItsDirectoryToOneThatHasTakenIt) {
  ASSERT_EQ(run_words(training("other", {"--max_steps", "3"})).exit_code, 0);
  const std::string log = content_of((*this) / "other/logging.jsonl");
  const ProgramResult result =
      during(training("run", {"--max_steps", "1000000", "--save_steps", "1000000"}),
             [&](const std::atomic<bool>&) {
               fs::rename((*this) / "run", (*this) / "gone");
               fs::rename((*this) / "other", (*this) / "run");
               std::this_thread::sleep_for(std::chrono::milliseconds(500));
               ::kill(process_of((*this) / "", 7), SIGTERM);
             });
  EXPECT_EQ(result.exit_code, 8) << result.err;
  EXPECT_THAT(result.err, HasSubstr("another run has begun there"));
  EXPECT_EQ(content_of((*this) / "run/logging.jsonl"), log);
  EXPECT_TRUE(fs::exists((*this) / "run/checkpoint-3/DONE"));
}

TEST_F(Interrupted, ARunOutlivesItsDirectoryInTheMiddleOfACheckpoint) {
  constexpr int kTimes = 3;
  const ProgramResult result =
      during(training("run", {"--max_steps", "60", "--save_steps", "1", "--nproc", "2"}),
             [&](const std::atomic<bool>& over) {
               for (int i = 0; i < kTimes && !over; ++i) {
                 while (!over && !fs::exists((*this) / "run/last/DONE"))
                   std::this_thread::sleep_for(std::chrono::milliseconds(1 + i));
                 std::error_code ignored;
                 fs::remove_all((*this) / "run", ignored);
               }
             });
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("it is made again, with all that was logged"));
  EXPECT_EQ(steps_of((*this) / "run").size(), 60u);
  EXPECT_TRUE(fs::exists((*this) / "run/DONE"));
}

TEST_F(Interrupted, ADirectoryThatCannotBeMadeAgainIsSaidOnceAndEndsAtTheNextCheckpoint) {
  const ProgramResult result =
      during(training("run", {"--max_steps", "1000000", "--save_steps", "100"}),
             [&](const std::atomic<bool>&) {
               fs::rename((*this) / "run", (*this) / "elsewhere");
               write("run", "somebody's file");
             });
  EXPECT_EQ(result.exit_code, 8) << result.err;
  EXPECT_THAT(result.err, HasSubstr("it cannot be made again: "));
  EXPECT_EQ(content_of((*this) / "run"), "somebody's file");
}

}  // namespace
}  // namespace danlu::test
