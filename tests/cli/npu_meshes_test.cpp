// Axes side by side over HCCL of the simulated NPUs, four and eight cards: one CPU's losses.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/launch.h"
#include "cli/logged_steps.h"
#include "cli/tiny_models.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

using ::testing::HasSubstr;

struct NpuMesh {
  const char* name;
  int64_t cards;
  std::vector<std::string> flags;
  const char* model_type = "qwen2";
};

std::ostream& operator<<(std::ostream& out, const NpuMesh& mesh) { return out << mesh.name; }

class NpuMeshLines : public Launch {
 protected:
  /// Three steps of eight samples on so many ranks.
  ProgramResult train(const std::string& run, const std::string& device, int64_t ranks,
                      const std::vector<std::string>& flags) const {
    std::vector<std::string> words =
        training(run, {"--max_steps", "3", "--tuner_type", "full", "--global_batch_size", "8",
                       "--batch_size", "1", "--save_strategy", "no", "--val_ratio", "0", "--device",
                       device});
    *(std::find(words.begin(), words.end(), "--model") + 1) = (*this) / "small";
    words.insert(words.end(), flags.begin(), flags.end());
    if (ranks > 1)
      words.insert(words.begin(), {"launch", "--nproc_per_node=" + std::to_string(ranks)});
    return run_words(words, {{"DANLU_NPU_LIBRARY", DANLU_BUILD_DIR "/npu_sim/current"},
                             {"NPU_SIM_DELAY_US", "50"}});
  }
};

class NpuMeshes : public NpuMeshLines, public testing::WithParamInterface<NpuMesh> {};

TEST_P(NpuMeshes, LearnWhatOneCpuDoes) {
  DANLU_SLOW_BUT_FOR("tensor_2_stages_2", "data_2_experts_2", "context_2_zero3", "zero1");
  nlohmann::json config = tiny_model(GetParam().model_type);
  config["num_hidden_layers"] = 2;
  write("small.json", config.dump());
  ok({"init", "--config", "small.json", "--output", "small", "--tokenizer",
      good("tokenizer").string(), "--seed", "3"});
  const ProgramResult cpu = train("cpu", "cpu", 1, {});
  const ProgramResult npu = train("npu", "npu", GetParam().cards, GetParam().flags);
  ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
  ASSERT_EQ(npu.exit_code, 0) << npu.err;
  EXPECT_THAT(npu.err, HasSubstr("NPU SIMULATOR"));
  expect_same_losses((*this) / "cpu", (*this) / "npu", 3);
}

INSTANTIATE_TEST_SUITE_P(
    Of, NpuMeshes,
    testing::Values(NpuMesh{"eight_cards_zero2", 8, {"--deepspeed", "zero2"}},
                    NpuMesh{"data_2_tensor_2_sequence", 4, {"--tp", "2", "--sequence-parallel"}},
                    NpuMesh{"tensor_2_stages_2", 4, {"--tp", "2", "--pp", "2"}},
                    NpuMesh{"data_2_experts_2", 4, {"--ep", "2"}, "mixtral"},
                    NpuMesh{"context_2_zero3", 4, {"--cp", "2", "--deepspeed", "zero3"}},
                    NpuMesh{"zero1", 2, {"--shard", "zero1"}}),
    [](const auto& info) { return std::string(info.param.name); });

/// Ranks over HCCL end, and others go on from their checkpoint.
TEST_F(NpuMeshLines, GoOnFromCheckpointsOfOtherMeshes) {
  DANLU_SLOW_TEST();
  nlohmann::json config = tiny_model("qwen2");
  config["num_hidden_layers"] = 2;
  write("small.json", config.dump());
  ok({"init", "--config", "small.json", "--output", "small", "--tokenizer",
      good("tokenizer").string(), "--seed", "3"});
  const auto steps = [](const std::string& count, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--max_steps", count, "--save_strategy", "steps", "--save_steps",
                               "2", "--lr_scheduler_type", "constant"});
    return flags;
  };
  const ProgramResult cpu = train("cpu", "cpu", 1, steps("4", {}));
  const ProgramResult half = train("npu", "npu", 2, steps("2", {"--deepspeed", "zero3"}));
  ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
  ASSERT_EQ(half.exit_code, 0) << half.err;
  const ProgramResult rest =
      train("npu", "npu", 2, steps("4", {"--tp", "2", "--resume", (*this) / "npu/checkpoint-2"}));
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  expect_same_losses((*this) / "cpu", (*this) / "npu", 4);
}

TEST_F(NpuMeshLines, ExpertsAreBalancedAsOnTheCpu) {
  nlohmann::json config = tiny_model("mixtral");
  write("small.json", config.dump());
  ok({"init", "--config", "small.json", "--output", "small", "--tokenizer",
      good("tokenizer").string(), "--seed", "3"});
  for (const char* how : {"aux_loss", "seq_aux_loss"}) {
    SCOPED_TRACE(how);
    const std::vector<std::string> flags = {"--moe-router-load-balancing-type",
                                            how,
                                            "--moe-aux-loss-coeff",
                                            "0.05",
                                            "--moe-z-loss-coeff",
                                            "0.01"};
    const std::string run = how;
    const ProgramResult cpu = train(run + "_cpu", "cpu", 1, flags);
    const ProgramResult npu = train(run + "_npu", "npu", 1, flags);
    ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
    ASSERT_EQ(npu.exit_code, 0) << npu.err;
    expect_same_losses((*this) / (run + "_cpu"), (*this) / (run + "_npu"), 3);
    const auto want = steps_of((*this) / (run + "_cpu")), got = steps_of((*this) / (run + "_npu"));
    for (size_t i = 0; i < want.size(); ++i) {
      bool has_term = false;
      for (const auto& [name, value] : want[i].items()) {
        if (name.find("aux") == name.npos && name.find("z_loss") == name.npos) continue;
        has_term = true;
        EXPECT_NEAR(got[i].value(name, -1.0), value.get<double>(), 1e-5) << name;
      }
      EXPECT_TRUE(has_term) << want[i].dump();
    }
  }
}

}  // namespace
}  // namespace danlu::test
