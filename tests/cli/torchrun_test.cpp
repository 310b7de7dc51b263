// Ranks that torchrun starts, with a store of its own at MASTER_PORT or without one.
#include <filesystem>

#include "base/free_port.h"
#include "cli/launch.h"
#include "cli/logged_steps.h"

namespace danlu::test {
namespace {

TEST_F(Launch, RanksOfTorchrunTrainAsOneProcessDoes) {
  if (!std::filesystem::exists("/usr/bin/python3")) GTEST_SKIP() << "no Python here";
  const std::vector<std::string> steps = {"--max_steps", "3", "--global_batch_size", "4"};
  const auto with_steps = [&](const std::string& run) { return training(run, steps); };
  ASSERT_EQ(run_words(with_steps("alone")).exit_code, 0);
  const std::string port = std::to_string(free_port().value());
  const std::vector<std::vector<std::string>> ways = {
      {"--master_port", port}, {"--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:" + port}};
  for (size_t way = 0; way < ways.size(); ++way) {
    const std::string run = "torchrun-" + std::to_string(way);
    std::vector<std::string> words = {std::string(DANLU_SOURCE_DIR) + "/tests/cli/torchrun.py",
                                      "--no_python", "--nproc_per_node=2"};
    words.insert(words.end(), ways[way].begin(), ways[way].end());
    words.push_back(danlu_path());
    const auto line = with_steps(run);
    words.insert(words.end(), line.begin(), line.end());
    const ProgramResult result =
        run_danlu(words, {.program = "/usr/bin/python3",
                          .environment = {{"OMP_NUM_THREADS", "1"},
                                          {"USE_LIBUV", "0"},
                                          {"XDG_CACHE_HOME", (*this) / "cache"}},
                          .directory = (*this) / ""});
    if (result.exit_code == 77) GTEST_SKIP() << "no torchrun here";
    // Debian 13's asks for libuv whatever is said, and is built without.
    if (result.err.find("without libuv support") != std::string::npos)
      GTEST_SKIP() << "this PyTorch's torchrun starts nothing";
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, testing::HasSubstr("2 processes"));
    expect_same_losses((*this) / "alone", (*this) / run, 3);
  }
}

}  // namespace
}  // namespace danlu::test
