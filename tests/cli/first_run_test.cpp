// tools/gpu_first_run.sh and tools/npu_first_run.sh, which somebody with a card runs: here they say
// that there is none, and try themselves on the CPU and on the simulated NPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "cli/run_program.h"
#include "support/slow.h"
#include "support/temporary_directory.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

ProgramResult first_run(const std::string& name, const fs::path& out,
                        const std::map<std::string, std::string>& variables) {
  const fs::path script = fs::path(DANLU_SOURCE_DIR) / "tools" / (name + "_first_run.sh");
  return run_danlu({script, fs::path(danlu_path()).parent_path(), out},
                   {.program = "/bin/bash", .environment = variables});
}

TEST(GpuFirstRun, WithoutACardSaysSoAndEndsAsDanluDoes) {
  const TemporaryDirectory folder;
  const ProgramResult result = first_run("gpu", folder / "run", {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("no GPU: [device] 'cuda' asked for"));
  EXPECT_THAT(result.out, Not(HasSubstr("== 2/7")));
  EXPECT_FALSE(fs::exists(folder / "run.tar.gz"));
}

TEST(GpuFirstRun, ReplacesNothingButAnEarlierFirstRun) {
  const TemporaryDirectory folder;
  const auto into = [&](const char* name) {
    return first_run("gpu", folder / name, {{"CUDA_VISIBLE_DEVICES", ""}});
  };
  // A folder of this name may be anybody's.
  fs::create_directories(folder / "work/first-run");
  fs::create_directories(folder / "other/.danlu-first-run");
  for (const char* name : {"work", "other"}) {
    const ProgramResult refused = into(name);
    EXPECT_EQ(refused.exit_code, 1) << refused.out << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("is there and no earlier first run"));
  }
  EXPECT_TRUE(fs::exists(folder / "work/first-run"));
  fs::create_directories(folder / "empty");
  EXPECT_EQ(into("empty").exit_code, 5);
  EXPECT_TRUE(fs::is_regular_file(folder / "empty/.danlu-first-run"));
  EXPECT_EQ(into("empty").exit_code, 5) << "its own earlier run";
}

TEST(GpuFirstRun, GoesThroughOnTheCpu) {
  DANLU_SLOW_TEST();
  const TemporaryDirectory folder;
  const ProgramResult result =
      first_run("gpu", folder / "run", {{"DANLU_FIRST_RUN_DEVICE", "cpu"}});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("FAILED")));
  for (const char* line : {"all are there", "all pass", "LoRA, fp32", "the same as the CPU's",
                           "tokens/s, MFU 0.", "GB/s of weights"})
    EXPECT_THAT(result.out, HasSubstr(line));
  EXPECT_TRUE(fs::exists(folder / "run.tar.gz"));
}

TEST(NpuFirstRun, WithoutACardSaysSoAndEndsAsDanluDoes) {
  const TemporaryDirectory folder;
  const ProgramResult result =
      first_run("npu", folder / "run", {{"DANLU_NPU_LIBRARY", folder / "nowhere"}});
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("no NPU: "));
  EXPECT_THAT(result.out, HasSubstr("has no libascendcl.so"));
  EXPECT_THAT(result.out, Not(HasSubstr("== 2/5")));
}

TEST(NpuFirstRun, GoesThroughOnTheSimulator) {
  DANLU_SLOW_TEST();
  const TemporaryDirectory folder;
  const ProgramResult result =
      first_run("npu", folder / "run", {{"DANLU_NPU_LIBRARY", DANLU_BUILD_DIR "/npu_sim/current"}});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("FAILED")));
  for (const char* line : {"NPU SIMULATOR", "operators, kept plans", "training, bf16", "LoRA, fp32",
                           "the same as the CPU's", "two cards"})
    EXPECT_THAT(result.out, HasSubstr(line));
  EXPECT_TRUE(fs::exists(folder / "run.tar.gz"));
}

}  // namespace
}  // namespace danlu::test
