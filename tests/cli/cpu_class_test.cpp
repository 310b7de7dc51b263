// DANLU_CPU through the program: training and answering as on lesser processors.
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/json.h"
#include "cli/bad_input.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CpuClassRuns : public BadInput {
 protected:
  void SetUp() override {
    BadInput::SetUp();
    if (const char* given = std::getenv("DANLU_CPU")) given_ = given;
  }
  void TearDown() override {
    set(given_);
    BadInput::TearDown();
  }
  static void set(const std::string& choice) { ::setenv("DANLU_CPU", choice.c_str(), 1); }

  /// Losses of three steps as on this class of processor, and what was printed to stderr. Empty if
  /// this processor has less.
  std::vector<double> losses(const std::string& cpu, const std::string& dtype,
                             std::string* printed = nullptr) const {
    set(cpu);
    const std::string name = "run-" + cpu + dtype;
    const ProgramResult result =
        train(good("good.jsonl"),
              {"--dtype", dtype, "--output_dir", name, "--plot_loss", "false", "--max_steps", "3",
               "--save_steps", "3", "--logging_steps", "1", "--lr", "1e-3", "-v"});
    if (result.exit_code == 5) {
      EXPECT_THAT(result.err, HasSubstr("this processor has less"));
      return {};
    }
    EXPECT_EQ(result.exit_code, 0) << cpu << " " << dtype << ": " << result.err;
    if (printed) *printed = result.err;
    std::vector<double> found;
    std::istringstream lines(content_of((*this) / (name + "/logging.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line);
      if (record.contains("loss")) found.push_back(record.at("loss").get<double>());
    }
    EXPECT_GE(found.size(), 3u) << cpu << " " << dtype;
    return found;
  }

 private:
  std::string given_;
};

TEST_F(CpuClassRuns, ClassesThatAreNoneAreRefusedByName) {
  set("pentium");
  expect_error(ask(good("model")), 2, {"DANLU_CPU must be one of ", "plain", "'pentium'"});
}

TEST_F(CpuClassRuns, ARunThatGoesOnOnAnotherClassSaysSo) {
  const auto run = [&](const char* cpu, const char* steps, const char* from) {
    set(cpu);
    return train(good("good.jsonl"), {"--output_dir", "moved", "--max_steps", steps, "--save_steps",
                                      "2", "--resume", from, "-v"});
  };
  const ProgramResult first = run("plain", "2", "auto"),
                      same = run("plain", "4", "moved/checkpoint-2"),
                      other = run("", "6", "moved/checkpoint-4");
  for (const ProgramResult& each : {first, same, other}) EXPECT_EQ(each.exit_code, 0) << each.err;
  EXPECT_THAT(same.err, Not(HasSubstr("bit for bit")));
  const auto processor = [](const ProgramResult& result) {
    const size_t at = result.err.find("processor  ");
    return result.err.substr(at, result.err.find('\n', at) - at);
  };
  if (processor(other) == processor(same)) GTEST_SKIP() << "this processor has no more";
  EXPECT_THAT(other.err, HasSubstr("not bit for bit"));
}

TEST_F(CpuClassRuns, EveryTypeTrainsAsInFp32) {
  const std::vector<double> expected = losses("", "fp32");
#if defined(__aarch64__)
  const std::map<std::string, std::string> titles{{"dots", "NEON with dot products"},
                                                  {"plain", "NEON"}};
#else
  const std::map<std::string, std::string> titles{
      {"avx512", "AVX-512 without bf16"}, {"avx2", "AVX2"}, {"plain", "SSE"}};
#endif
  for (const auto& [cpu, title] : titles) {
    for (const std::string dtype : {"fp32", "bf16", "fp16"}) {
      // One narrow type of each class, of which the other is computed by the same kernels.
      if (!is_slow() && dtype == (cpu == "avx2" ? "bf16" : "fp16")) continue;
      std::string printed;
      const std::vector<double> got = losses(cpu, dtype, &printed);
      if (got.empty()) break;
      ASSERT_EQ(got.size(), expected.size());
      // The losses are about 6; bf16 holds 8 bits of each activation.
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], expected[i], dtype == "fp32" ? 1e-4 : 0.03) << cpu << " " << dtype;
      EXPECT_THAT(printed, HasSubstr("processor  " + title));
      if (dtype != "fp32") {
        EXPECT_THAT(printed, HasSubstr(dtype + " products in fp32"));
      }
    }
  }
}

TEST_F(CpuClassRuns, AnswersAreTheSame) {
  const auto answer = [&](const std::string& cpu, const std::string& dtype) {
    set(cpu);
    const ProgramResult result =
        run({"infer", "--model", good("model").string(), "--prompt", "hi", "--max_new_tokens", "8",
             "--temperature", "0", "--dtype", dtype});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string expected = answer("", "fp32");
  EXPECT_EQ(answer("plain", "fp32"), expected);
  EXPECT_FALSE(answer("plain", "bf16").empty());
}

}  // namespace
}  // namespace danlu::test
