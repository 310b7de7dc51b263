// Ranks that were started with what does not fit together.
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

}  // namespace
}  // namespace danlu::test
