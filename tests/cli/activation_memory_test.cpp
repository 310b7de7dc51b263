// Activations of a run that are elsewhere, and recomputation that the plan chooses.
#include <sys/resource.h>

#include "base/json.h"
#include "cli/launch.h"
#include "cli/logged_steps.h"

namespace danlu::test {
namespace activation_memory_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class ActivationMemory : public Launch {
 protected:
  std::string elsewhere() const {
    const fs::path folder = (*this) / "elsewhere";
    fs::create_directories(folder);
    return folder;
  }
  std::vector<std::string> in_a_file(const std::string& run) const {
    return training(
        run, {"--tuner", "full", "--activation_offload", "file", "--offload_dir", elsewhere()});
  }
  Json args_of(const std::string& run) const {
    return Json::parse(content_of((*this) / run / "args.json"));
  }
};

TEST_F(ActivationMemory, InAFileIsTheSameRunAndLeavesNothingThere) {
  const ProgramResult plain = run_words(training("plain", {"--tuner", "full"}));
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const ProgramResult moved = run_words(in_a_file("moved"));
  ASSERT_EQ(moved.exit_code, 0) << moved.err;
  EXPECT_EQ(content_of((*this) / "moved" / "model.safetensors"),
            content_of((*this) / "plain" / "model.safetensors"));
  EXPECT_TRUE(fs::is_empty(elsewhere()));
  const ProgramResult two = launch(2, in_a_file("two"));
  EXPECT_EQ(two.exit_code, 0) << two.err;
}

TEST_F(ActivationMemory, ADiskThatIsFullEndsTheRunAndKeepsNothing) {
  struct rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{40'000, before.rlim_max};  // the log and settings are less
  ::setrlimit(RLIMIT_FSIZE, &small);
  const ProgramResult full = run_words(in_a_file("run"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(full.exit_code, 8) << full.err;
  EXPECT_THAT(full.err, HasSubstr("elsewhere: no space: File too large"));
  EXPECT_THAT(full.err, HasSubstr("hint: --offload_dir names a directory on a disk with room"));
  EXPECT_TRUE(fs::is_empty(elsewhere()));
  // The log alone says how it ended.
  EXPECT_THAT(content_of((*this) / "run" / "train.log"),
              testing::AllOf(HasSubstr("elsewhere: no space"), HasSubstr("FAILED (exit 8)")));
}

TEST_F(ActivationMemory, AKillLeavesNothing) {
  ProgramSettings settings;
  settings.environment = {{"OMP_NUM_THREADS", "1"}, {"XDG_CACHE_HOME", (*this) / "cache"}};
  settings.directory = (*this) / "";
  settings.signal = SIGKILL;
  settings.signal_after = "loss";
  std::vector<std::string> words = in_a_file("run");
  words.insert(words.end(), {"--max_steps", "100000"});
  const ProgramResult killed = run_danlu(words, settings);
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL) << killed.err;
  EXPECT_TRUE(fs::is_empty(elsewhere()));
}

TEST_F(ActivationMemory, OfACpuIsInHostMemoryAsItIs) {
  const ProgramResult result = run_words(training("run", {"--swap-attention"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--swap-attention: a CPU has its activations in host memory"));
  EXPECT_THAT(result.err, HasSubstr("--activation_offload file --offload_dir DIR"));
}

TEST_F(ActivationMemory, AutoTakesNothingWhereAllFitsAndWritesThatDown) {
  const ProgramResult one = run_words(training("one", {"--recompute", "auto"}));
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.err, HasSubstr("recompute auto: none: "));
  EXPECT_EQ(args_of("one")["recompute"], "none");
  const ProgramResult two = launch(2, training("two", {"--recompute", "auto"}));
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(args_of("two")["recompute"], "none");
}

TEST_F(ActivationMemory, AutoTakesMoreTheMoreTokensAPassHas) {
  // Passes that no machine has memory for end the row of dry runs.
  std::vector<std::string> chosen;
  for (int64_t samples = 1 << 14; samples <= int64_t{1} << 30; samples *= 2) {
    const std::string batch = std::to_string(samples);
    const ProgramResult dry =
        run_words(training("run", {"--recompute", "auto", "--dry_run", "--batch_size", batch,
                                   "--global_batch_size", batch}));
    ASSERT_EQ(dry.exit_code, 0) << dry.err;
    const size_t at = dry.err.find("recompute auto: ");
    ASSERT_NE(at, std::string::npos) << dry.err;
    chosen.push_back(dry.err.substr(at, dry.err.find('\n', at) - at));
    if (chosen.back().find("which needs the least") != std::string::npos) break;
  }
  EXPECT_THAT(chosen.front(), HasSubstr("recompute auto: none: "));
  EXPECT_THAT(chosen.back(), HasSubstr("which needs the least: "));
  EXPECT_GT(chosen.size(), 2U);
}

TEST_F(ActivationMemory, APlanChoosesForAMachine) {
  const auto planned = [&](const char* machine, const char* tokens) {
    return run_words({"plan", "--model", good("model"), "--machine", machine, "--devices", "1",
                      "--batch_size", "3", "--global_batch_size", "3", "--max_length", tokens,
                      "--recompute", "auto"})
        .out;
  };
  EXPECT_THAT(planned("a100-80g", "32"), HasSubstr("recompute auto: none: "));
  EXPECT_THAT(planned("a100-80g", "16000000"), HasSubstr("would need "));
  EXPECT_THAT(planned("a100-80g", "16000000"), Not(HasSubstr("recompute auto: none")));
}

}  // namespace activation_memory_test
}  // namespace danlu::test
