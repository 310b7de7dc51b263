// Ranks that were started with what does not fit together.
#include <cstdlib>

#include "base/free_port.h"
#include "cli/launch.h"

namespace danlu::test {
namespace {

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

}  // namespace
}  // namespace danlu::test
