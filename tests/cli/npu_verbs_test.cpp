// Verbs beside training with --device npu on the simulated NPU: the same lines, the CPU's answers.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/examined.h"
#include "support/shared_data.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NpuVerbs : public Examined {
 protected:
  ProgramSettings simulated(const std::string& input = {}) const {
    ProgramSettings settings;
    settings.environment = {{"DANLU_NPU_LIBRARY", DANLU_BUILD_DIR "/npu_sim/current"},
                            {"NPU_SIM_DELAY_US", "50"},
                            {"OMP_NUM_THREADS", "1"}};
    settings.directory = (*this) / "";
    settings.input = input;
    return settings;
  }
};

TEST_F(NpuVerbs, EvalScoresAsOnTheCpu) {
  for (const char* task : {"foxes", "talk", "tale"}) {
    SCOPED_TRACE(task);
    const std::string cpu = std::string("cpu_") + task, npu = std::string("npu_") + task;
    const Flags flags = {{"tasks", task}, {"dtype", "fp32"}};
    Flags on_cpu = flags, on_npu = flags;
    on_cpu.insert({{"device", "cpu"}, {"output_path", cpu}});
    on_npu.insert({{"device", "npu"}, {"output_path", npu}});
    const ProgramResult here = examine(on_cpu), there = examine(on_npu, simulated());
    ASSERT_EQ(here.exit_code, 0) << here.err;
    ASSERT_EQ(there.exit_code, 0) << there.err;
    EXPECT_THAT(there.err, HasSubstr("NPU SIMULATOR"));
    const auto own = samples_in(cpu, task), of_npu = samples_in(npu, task);
    if (std::string(task) == "foxes") expect_near_samples(own, of_npu, 1e-5);
    ASSERT_EQ(own.size(), of_npu.size());
    for (size_t i = 0; i < own.size() && std::string(task) == "talk"; ++i)
      EXPECT_EQ(of_npu[i].at("resps"), own[i].at("resps")) << i;
    for (const auto& [figure, value] : results_in(cpu)["results"][task].items()) {
      if (!value.is_number()) continue;
      const double wanted = value, found = results_in(npu)["results"][task][figure];
      EXPECT_NEAR(found, wanted, 1e-5 * std::max(1.0, std::abs(wanted))) << figure;
    }
  }
}

TEST_F(NpuVerbs, ChatAnswersAsOnTheCpu) {
  const std::vector<std::string> words = {
      "chat", "--model", good("model").string(), "--max_new_tokens", "8", "--dtype",
      "fp32", "--device"};
  const auto said = [&](const std::string& device) {
    std::vector<std::string> line = words;
    line.push_back(device);
    const ProgramResult result = run_danlu(line, simulated("the fox\nand now?\n"));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err.find("NPU SIMULATOR") != result.err.npos, device == "npu") << result.err;
    return result.out;
  };
  EXPECT_EQ(said("npu"), said("cpu"));
}

TEST_F(NpuVerbs, BenchMeasuresTheCardBesideItsOwnLimits) {
  DANLU_SLOW_TEST();
  // A step of the smallest shape takes the simulator long.
  const ProgramResult result =
      run_danlu({"bench", "--device", "npu", "--quick", "--json", "--dtype", "fp32", "--only",
                 is_slow() ? "step,decode" : "decode"},
                simulated());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto report = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(report.is_object()) << result.out;
  EXPECT_THAT(report["processor"].get<std::string>(), HasSubstr("NPU SIMULATOR Ascend910B3"));
  EXPECT_EQ(report["cpu_class"], "npu:0");
  for (const char* key : {"f32_flops", "bf16_flops", "read_bytes", "copy_bytes", "update_bytes"})
    EXPECT_GT(report["limits"][key].get<double>(), 1e5) << key;
  std::set<std::string> names;
  for (const auto& row : report["rows"]) {
    names.insert(row["name"].get<std::string>());
    EXPECT_GT(row["share"].get<double>(), 0) << row;
  }
  for (const char* name : {"decode", "decode_16_sequences", "prefill"})
    EXPECT_TRUE(names.count(name)) << name;
  for (const char* name : {"step", "adamw", "gradient_norm"})
    EXPECT_EQ(names.count(name) == 1, is_slow()) << name;
  expect_error(run_danlu({"bench", "--device", "npu", "--only", "ops"}, simulated()), 2,
               {"--only", "on the CPU alone", "step,decode"});
}

TEST_F(NpuVerbs, PlanNeedsNoCard) {
  const ProgramResult planned = run_danlu(
      {"plan", "sft", "--model", good("model").string(), "--device", "npu", "--max_length", "64"},
      {.directory = (*this) / ""});
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("8 x atlas-800t-a2"));
  EXPECT_THAT(planned.err, Not(HasSubstr("NPU SIMULATOR")));
}

/// A model whose table is its head, whose two gradients autograd adds.
TEST_F(NpuVerbs, VerifyComparesATiedHeadAndItsGradients) {
  DANLU_REQUIRES_SHARED();
  const std::filesystem::path golden = shared_dir() / "golden/qwen2";
  const ProgramResult same =
      run_danlu({"verify", "--model", golden.string(), "--golden",
                 (golden / "golden.safetensors").string(), "--device", "npu"},
                simulated());
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_THAT(same.err, HasSubstr("NPU SIMULATOR"));
  EXPECT_THAT(same.out, HasSubstr("grad."));
}

}  // namespace
}  // namespace danlu::test
