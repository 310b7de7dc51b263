// Launchers that wait for each other: they say so, and one number is one machine's.
#include <csignal>
#include <sstream>

#include "base/free_port.h"
#include "cli/launch.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// The flags of one machine of several, which all are this one.
std::vector<std::string> machine_of(int64_t machines, int64_t machine, int64_t port) {
  return {"--nnodes",      std::to_string(machines),
          "--node_rank",   std::to_string(machine),
          "--nproc",       "1",
          "--master_port", std::to_string(port),
          "--max_steps",   "2",
          "--master_addr", "127.0.0.1"};
}

TEST_F(Launch, WhoWaitsForOthersSaysForWhom) {
  // Each waits for seconds before it says so.
  std::vector<std::thread> together;
  const auto alone = [&](int64_t machine, const std::vector<std::string>& more,
                         const std::string& said) {
    ProgramSettings settings;
    settings.environment = {{"OMP_NUM_THREADS", "1"}, {"XDG_CACHE_HOME", (*this) / "cache"}};
    settings.directory = (*this) / "";
    settings.signal = SIGTERM;
    settings.signal_after = said;
    auto words = training("run" + std::to_string(together.size()),
                          machine_of(2, machine, free_port().value()));
    words.insert(words.end(), more.begin(), more.end());
    together.emplace_back([words, settings, said] {
      const ProgramResult result = run_danlu(words, settings);
      EXPECT_EQ(result.exit_code, 143) << result.err;
      EXPECT_THAT(result.err, HasSubstr(said));
    });
  };
  alone(0, {}, "[ranks] waiting for 1 of 2 ranks: 1 (");
  alone(1, {}, "[ranks] rank 1 waits for rank 0 at 127.0.0.1:");
  alone(0, {"--max_restarts", "1"}, "[launch] waiting for 1 of 2 machines: --node_rank 1 (");
  alone(1, {"--max_restarts", "1"}, "[launch] waiting for machine 0 at 127.0.0.1:");
  for (std::thread& one : together) one.join();
}

TEST_F(Launch, ALauncherWithTheNumberOfOneThatTrainsIsRefused) {
  for (const auto& more : std::vector<std::vector<std::string>>{{}, {"--max_restarts", "1"}}) {
    if (!is_slow() && more.empty()) continue;
    fs::remove_all((*this) / "run");
    const int64_t port = free_port().value();
    const auto machine = [&](int64_t number) {
      auto words = training("run", machine_of(2, number, port));
      words.insert(words.end(), {"--max_steps", "1000000", "--save_steps", "20"});
      words.insert(words.end(), more.begin(), more.end());
      return run_words(words);
    };
    std::atomic<bool> over = false;
    std::thread zero([&] {
      EXPECT_EQ(machine(0).exit_code, 143);
      over = true;
    });
    std::thread one([&] { EXPECT_EQ(machine(1).exit_code, 143); });
    while (!over && !fs::exists((*this) / "run/last/DONE"))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const ProgramResult third = machine(1);
    EXPECT_FALSE(over) << "the job ended with what came to it";
    if (!over) ::kill(process_of((*this) / "", 0), SIGTERM);
    zero.join();
    one.join();
    EXPECT_EQ(third.exit_code, 2) << third.err;
    EXPECT_THAT(third.err, testing::ContainsRegex("1 is there twice: .*process .* and .*process "));
    EXPECT_THAT(third.err, HasSubstr("another --node_rank"));
  }
}

TEST_F(Launch, TwoLaunchersOfOneNumberAreRefusedAndTheOthersWaitOn) {
  DANLU_SLOW_TEST();
  const int64_t port = free_port().value();
  const auto machine = [&](int64_t number) {
    auto words = training("run", machine_of(3, number, port));
    words.insert(words.end(), {"--max_restarts", "1", "--val_ratio", "0"});
    return run_words(words);
  };
  std::thread zero([&] {
    const ProgramResult result = machine(0);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  });
  ProgramResult first, second;
  std::thread one([&] { first = machine(1); });
  second = machine(1);
  one.join();
  for (const ProgramResult& result : {first, second}) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err,
                testing::ContainsRegex("machine 1 is there twice: .*process .* and .*process "));
  }
  std::thread two([&] { EXPECT_EQ(machine(2).exit_code, 0); });
  EXPECT_EQ(machine(1).exit_code, 0);
  zero.join();
  two.join();
}

pid_t parent_of(pid_t process) {
  std::istringstream status(content_of("/proc/" + std::to_string(process) + "/status"));
  for (std::string word; status >> word;) {
    if (word == "PPid:" && status >> word) return std::stoi(word);
  }
  return 0;
}

TEST_F(Launch, AJobThatIsStoppedOnOneMachineSaysWhereOnTheOther) {
  for (const int stopped : {0, 1}) {
    fs::remove_all((*this) / "run");
    const int64_t port = free_port().value();
    ProgramResult results[2];
    std::atomic<int> over = 0;
    std::vector<std::thread> machines;
    for (int number = 0; number < 2; ++number) {
      machines.emplace_back([&, number] {
        auto words = training("run", machine_of(2, number, port));
        words.insert(words.end(), {"--max_steps", "1000000", "--save_steps", "20"});
        results[number] = run_words(words);
        ++over;
      });
    }
    while (over == 0 && !fs::exists((*this) / "run/last/DONE"))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const pid_t launcher = parent_of(process_of((*this) / "", stopped));
    EXPECT_EQ(over, 0) << "the job was over too soon";
    if (over == 0 && launcher > 1) ::kill(launcher, SIGTERM);
    for (std::thread& machine : machines) machine.join();
    for (const ProgramResult& result : results) {
      EXPECT_EQ(result.exit_code, 143) << result.err;
      EXPECT_THAT(result.err, testing::EndsWith("STOPPED (exit 143)\n"));
      EXPECT_THAT(result.err, testing::Not(HasSubstr("error")));
    }
    EXPECT_THAT(results[stopped].err, HasSubstr("[train] stopped by SIGTERM after step "));
    EXPECT_THAT(results[1 - stopped].err,
                testing::ContainsRegex("\\[train\\] stopped by SIGTERM, sent to rank " +
                                       std::to_string(stopped) + " on .+, after step [0-9]+; "));
  }
}

}  // namespace
}  // namespace danlu::test
