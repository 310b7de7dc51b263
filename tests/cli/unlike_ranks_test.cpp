// Ranks that were started with what does not fit together.
#include <cstdlib>
#include <functional>
#include <map>
#include <tuple>

#include "base/free_port.h"
#include "cli/launch.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;

TEST_F(Launch, RanksWithOtherNumbersOfThreadsAreNamed) {
  const std::string port = std::to_string(free_port().value());
  ProgramResult results[2];
  const auto rank = [&](int number, const char* threads) {
    results[number] =
        run_words(training("run", {"--max_steps", "1"}), {{"OMP_NUM_THREADS", threads},
                                                          {"RANK", std::to_string(number)},
                                                          {"WORLD_SIZE", "2"},
                                                          {"MASTER_ADDR", "127.0.0.1"},
                                                          {"MASTER_PORT", port}});
  };
  std::thread other([&] { rank(1, "2"); });
  rank(0, "1");
  other.join();
  for (const ProgramResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.err;
  const char* said = "rank 1 on .* computes with 2 threads, rank 0 on .* with 1: ";
  EXPECT_THAT(results[0].err, testing::ContainsRegex(said));
  EXPECT_THAT(content_of((*this) / "run/train.log"), testing::ContainsRegex(said));
  EXPECT_THAT(results[1].err, testing::Not(testing::HasSubstr("computes with")));
}

TEST_F(Launch, RanksOfAMachineThatDoNotFollowEachOtherAreRefused) {
  if (std::system("unshare -r -u true 2>/dev/null") != 0)
    GTEST_SKIP() << "no machine of another name can be made here";
  const std::string port = std::to_string(free_port().value());
  ProgramResult results[3];
  // As mpirun --map-by node deals them to two machines: the third is the first one's second.
  const auto rank = [&](int number, const char* host, const char* local_rank) {
    std::vector<std::string> words = {
        "-r",        "-u", "bash", "-c", std::string("hostname ") + host + "; exec \"$0\" \"$@\"",
        danlu_path()};
    for (const std::string& word : training("run", {"--max_steps", "1"})) words.push_back(word);
    results[number] = run_danlu(words, {.program = "/usr/bin/unshare",
                                        .environment = {{"RANK", std::to_string(number)},
                                                        {"WORLD_SIZE", "3"},
                                                        {"LOCAL_RANK", local_rank},
                                                        {"MASTER_ADDR", "127.0.0.1"},
                                                        {"MASTER_PORT", port},
                                                        {"OMP_NUM_THREADS", "1"},
                                                        {"XDG_CACHE_HOME", (*this) / "cache"}}});
  };
  std::thread second([&] { rank(1, "beta", "0"); }), third([&] { rank(2, "alpha", "1"); });
  rank(0, "alpha", "0");
  second.join();
  third.join();
  for (const ProgramResult& result : results) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err,
                testing::HasSubstr("rank 2 on alpha is process 1 of its machine, but rank 1, which "
                                   "would be its first, is on beta"));
  }
}

/// Two ranks started by hand on one machine, of which the second has `more` words too.
std::vector<ProgramResult> two_by_hand(
    const std::function<ProgramResult(std::map<std::string, std::string>, bool)>& run) {
  const std::string port = std::to_string(free_port().value());
  std::vector<ProgramResult> results(2);
  const auto rank = [&](size_t number) {
    const std::string text = std::to_string(number);
    results[number] = run({{"RANK", text},
                           {"WORLD_SIZE", "2"},
                           {"LOCAL_RANK", text},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", port}},
                          number == 1);
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
  return results;
}

TEST_F(Launch, ARankThatFailsBeforeTheyMeetIsToldToWhoWaitsForIt) {
  // The file is missed, the word is not read, the flag's value is no number.
  for (const auto& [word, value, code] :
       std::vector<std::tuple<std::string, std::string, int>>{{"--model", "no_such_model", 4},
                                                              {"--learning_rat", "1", 2},
                                                              {"--max_steps", "two", 2}}) {
    const auto results = two_by_hand([&, word = word, value = value](auto environment, bool bad) {
      auto words = training("run", {"--max_steps", "1"});
      if (bad) words.insert(words.end(), {word, value});
      return run_words(words, environment);
    });
    for (const ProgramResult& result : results)
      EXPECT_EQ(result.exit_code, code) << word << "\n" << result.err;
    EXPECT_THAT(results[0].err, testing::ContainsRegex("rank 1 on .* does not come: ")) << word;
  }
}

TEST_F(Launch, RanksWhoseFilesHoldOtherSystemMessagesAreRefused) {
  fs::create_directories((*this) / "other");
  write("told", "Answer briefly.");
  write("other/told", "Answer at length.");
  const auto results = two_by_hand([&](auto environment, bool is_second) {
    environment["XDG_CACHE_HOME"] = (*this) / "cache";
    environment["OMP_NUM_THREADS"] = "1";
    return run_danlu(
        training("run", {"--max_steps", "1", "--system", "told"}),
        {.environment = environment, .directory = (*this) / (is_second ? "other" : "")});
  });
  for (const ProgramResult& result : results) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, testing::HasSubstr("rank 1 has another system message: 17 bytes"));
  }
}

TEST_F(Launch, ALauncherWhoseLineCannotBeReadIsToldToTheOtherMachine) {
  const std::string port = std::to_string(free_port().value());
  ProgramResult results[2];
  const auto machine = [&](int number) {
    auto words = training(
        "run", {"--nnodes", "2", "--node_rank", std::to_string(number), "--nproc_per_node=1",
                "--master_port", port, "--master_addr", "127.0.0.1", "--max_steps", "1"});
    if (number == 1) words.insert(words.begin() + 1, "--learning_rat=1");
    results[number] = run_words(words);
  };
  std::thread other([&] { machine(1); });
  machine(0);
  other.join();
  for (const ProgramResult& result : results) EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(results[0].err,
              testing::ContainsRegex("rank 1 on .* does not come: .*--learning_rat"));
}

TEST_F(Launch, MachinesWithUnlikeNumbersOfProcessesSayBoth) {
  const std::string port = std::to_string(free_port().value());
  ProgramResult results[2];
  const auto machine = [&](int number) {
    results[number] =
        run_words(training("run", {"--nnodes", "2", "--node_rank", std::to_string(number),
                                   "--nproc_per_node", std::to_string(2 - number), "--master_port",
                                   port, "--master_addr", "127.0.0.1", "--max_steps", "1"}));
  };
  std::thread other([&] { machine(1); });
  machine(0);
  other.join();
  for (const ProgramResult& result : results) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, testing::ContainsRegex("the job has [24] ranks on .* and [24] on "));
  }
}

TEST_F(Launch, WhereAMachineKeepsItsFilesIsItsOwn) {
  for (const char* name : {"swap0", "swap1"}) fs::create_directory((*this) / name);
  const auto results = two_by_hand([&](auto environment, bool other) {
    return run_words(training("run", {"--max_steps", "1", "--workers", other ? "1" : "2",
                                      "--cache_dir", (*this) / (other ? "cache1" : "cache0"),
                                      "--offload_dir", (*this) / (other ? "swap1" : "swap0")}),
                     environment);
  });
  for (const ProgramResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace danlu::test
