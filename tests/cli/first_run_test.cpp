// tools/gpu_first_run.sh, which somebody with a card runs: here it says that there is none, and
// tries itself on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "cli/run_program.h"
#include "support/temporary_directory.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

ProgramResult first_run(const fs::path& out, const std::map<std::string, std::string>& variables) {
  const fs::path script = fs::path(DANLU_SOURCE_DIR) / "tools/gpu_first_run.sh";
  return run_danlu({script, fs::path(danlu_path()).parent_path(), out},
                   {.program = "/bin/bash", .environment = variables});
}

TEST(GpuFirstRun, WithoutACardSaysSoAndEndsAsDanluDoes) {
  const TemporaryDirectory folder;
  const ProgramResult result = first_run(folder / "run", {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("no GPU: [device] 'cuda' asked for"));
  EXPECT_THAT(result.out, Not(HasSubstr("== 2/7")));
  EXPECT_FALSE(fs::exists(folder / "run.tar.gz"));
}

TEST(GpuFirstRun, GoesThroughOnTheCpu) {
  if (!std::getenv("DANLU_SLOW")) GTEST_SKIP() << "slow; DANLU_SLOW=1 runs it";
  const TemporaryDirectory folder;
  const ProgramResult result = first_run(folder / "run", {{"DANLU_FIRST_RUN_DEVICE", "cpu"}});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("FAILED")));
  for (const char* line : {"all are there", "all pass", "LoRA, fp32", "the same as the CPU's",
                           "tokens/s, MFU 0.", "GB/s of weights"})
    EXPECT_THAT(result.out, HasSubstr(line));
  EXPECT_TRUE(fs::exists(folder / "run.tar.gz"));
}

}  // namespace
}  // namespace danlu::test
