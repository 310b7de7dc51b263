// Lines with --device npu on the simulated NPU for models that are not plain decoders: the CPU's
// numbers.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/launch.h"
#include "cli/logged_steps.h"
#include "cli/seeing_model.h"
#include "cli/tiny_models.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NpuFamilyLines : public Launch {
 protected:
  using Words = std::vector<std::string>;
  static std::map<std::string, std::string> simulated(const std::string& variant = "current") {
    return {{"DANLU_NPU_LIBRARY", DANLU_BUILD_DIR "/npu_sim/" + variant},
            {"NPU_SIM_DELAY_US", "50"}};
  }
  void make_model(const std::string& name, const nlohmann::json& config) const {
    write(name + ".json", config.dump());
    ok({"init", "--config", name + ".json", "--output", name, "--tokenizer",
        good("tokenizer").string(), "--seed", "3"});
  }
  Words training_of(const std::string& model, const std::string& run, const Words& more) const {
    Words words = training(run, more);
    *(std::find(words.begin(), words.end(), "--model") + 1) = (*this) / model;
    return words;
  }
  static nlohmann::json gemma2() {
    nlohmann::json config = tiny_model("gemma2");
    config.erase("num_experts_per_tok");
    config.update({{"head_dim", 8},
                   {"hidden_activation", "gelu_pytorch_tanh"},
                   {"tie_word_embeddings", true},
                   {"query_pre_attn_scalar", 8},
                   {"sliding_window", 5},
                   {"attn_logit_softcapping", 2.0},
                   {"final_logit_softcapping", 5.0}});
    return config;
  }
  static nlohmann::json bloom() {
    nlohmann::json config = tiny_model("bloom");
    for (const char* other :
         {"num_key_value_heads", "rms_norm_eps", "max_position_embeddings", "num_experts_per_tok"})
      config.erase(other);
    config.update({{"intermediate_size", 128}, {"layer_norm_epsilon", 1e-5}, {"seq_length", 64}});
    return config;
  }
  /// The same answers of both devices.
  void expect_same_answers(const std::string& model, const Words& more = {}) const {
    Words words = {"infer", "--model", (*this) / model, "--prompt", "the fox", "--max_new_tokens",
                   "12",    "--device"};
    words.push_back("cpu");
    words.insert(words.end(), more.begin(), more.end());
    // The CPU's kernels round activations beside weights in blocks; its composite does not.
    const ProgramResult cpu = run_words(words, {{"DANLU_KERNELS", "composite"}});
    *std::find(words.begin(), words.end(), "cpu") = "npu";
    const ProgramResult npu = run_words(words, simulated());
    ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
    ASSERT_EQ(npu.exit_code, 0) << npu.err;
    EXPECT_EQ(npu.out, cpu.out);
  }
};

TEST_F(NpuFamilyLines, CapsOffsetNormsLayerNormsAndAlibiTrainAndAnswerAsOnTheCpu) {
  for (const auto& [name, config] :
       {std::pair(std::string("gemma2"), gemma2()), std::pair(std::string("bloom"), bloom())}) {
    SCOPED_TRACE(name);
    make_model(name, config);
    for (const Words& kind : {Words{"--tuner_type", "full"}, Words{"--lora_rank", "4"}}) {
      if (!is_slow() && (kind.back() == "4") == (name == "gemma2")) continue;
      Words more = {"--max_steps", "3"};
      more.insert(more.end(), kind.begin(), kind.end());
      more.insert(more.end(), {"--device", "cpu"});
      const ProgramResult cpu = run_words(training_of(name, "cpu", more));
      more.back() = "npu";
      const ProgramResult npu = run_words(training_of(name, "npu", more), simulated());
      ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
      ASSERT_EQ(npu.exit_code, 0) << npu.err;
      expect_same_losses((*this) / "cpu", (*this) / "npu", 3);
      for (const char* run : {"cpu", "npu"}) std::filesystem::remove_all((*this) / run);
    }
    expect_same_answers(name);
  }
}

TEST_F(NpuFamilyLines, WeightsStayInBlocks) {
  std::filesystem::copy(good("model"), (*this) / "dense", std::filesystem::copy_options::recursive);
  ok({"convert", "dense", "q8.gguf", "--to", "gguf", "--outtype", "q8_0"});
  expect_same_answers("q8.gguf");
  for (const char* type : {"q8_0", "q4_0"}) expect_same_answers("dense", {"--quantize", type});
}

TEST_F(NpuFamilyLines, PicturesTrainAndAreAnsweredAsOnTheCpu) {
  DANLU_REQUIRES_SHARED();
  const SeeingModel seeing = make_seeing_model((*this) / "");
  const auto line = [&](const std::string& device) {
    Words words = training_of(
        "seeing", device,
        {"--max_steps", "3", "--tuner_type", "full", "--freeze_vit", "false", "--freeze_aligner",
         "false", "--max_length", "256", "--val_ratio", "0", "--device", device});
    *(std::find(words.begin(), words.end(), "--dataset") + 1) = seeing.rows.string();
    return words;
  };
  const ProgramResult cpu = run_words(line("cpu")), npu = run_words(line("npu"), simulated());
  ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
  ASSERT_EQ(npu.exit_code, 0) << npu.err;
  expect_same_losses((*this) / "cpu", (*this) / "npu", 3);
  const std::string picture = (shared_dir() / "golden/vl/rows/media/a.png").string();
  expect_same_answers("seeing", {"--image", picture});
}

TEST_F(NpuFamilyLines, WhatACannHasNoOperatorForIsSaidBeforeAnythingIsPrepared) {
  make_model("bloom", bloom());
  const ProgramResult refused = run_words(
      training_of("bloom", "run", {"--max_steps", "1", "--device", "npu"}), simulated("old"));
  expect_error(refused, 5, {"--device npu:0", "bloom", "GELU", "--device cpu"});
  EXPECT_THAT(refused.err, Not(HasSubstr("tokenise")));
}

TEST_F(NpuFamilyLines, ChipsThatCannHasNoOperatorsForAreNamedAndPassedOverByAuto) {
  const auto ask = [&](const std::string& device, const std::string& chip) {
    auto environment = simulated();
    environment["NPU_SIM_CHIP"] = chip;
    return run_words({"infer", "--model", good("model"), "--prompt", "the fox", "--max_new_tokens",
                      "8", "--device", device},
                     environment);
  };
  const ProgramResult cpu = ask("cpu", "910B");
  ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
  for (const auto& [chip, name] :
       {std::pair("910A", "Ascend910A"), std::pair("310P", "Ascend310P3")}) {
    expect_error(ask("npu", chip), 5, {"npu:0", name, "Ascend910B", "--device cpu"});
    const ProgramResult by_auto = ask("auto", chip);
    EXPECT_EQ(by_auto.out, cpu.out) << by_auto.err;
    EXPECT_THAT(by_auto.err, HasSubstr(name));
    auto environment = simulated();
    environment["NPU_SIM_CHIP"] = chip;
    const ProgramResult doctor = run_words({"doctor", "--only", "npu_engine"}, environment);
    EXPECT_EQ(doctor.exit_code, 5) << doctor.out;
    EXPECT_THAT(doctor.out, HasSubstr(name));
  }
  auto other = simulated();
  other["NPU_SIM_CHIP"] = "Ascend910B4";
  EXPECT_EQ(run_words({"infer", "--model", good("model"), "--prompt", "the fox", "--max_new_tokens",
                       "8", "--device", "npu"},
                      other)
                .out,
            cpu.out);
}

/// CANN without newer functions, CANN with its operators by family, and the card that auto finds.
TEST_F(NpuFamilyLines, EveryCannAnswersAndAutoFindsTheCard) {
  const auto ask = [&](const std::string& device, const std::string& variant) {
    return run_words({"infer", "--model", good("model"), "--prompt", "the fox", "--max_new_tokens",
                      "8", "--device", device},
                     simulated(variant));
  };
  const ProgramResult cpu = ask("cpu", "current");
  ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
  EXPECT_THAT(cpu.err, Not(HasSubstr("NPU SIMULATOR")));
  for (const auto& [device, variant] :
       {std::pair("npu", "old"), std::pair("npu", "split"), std::pair("auto", "current")}) {
    const ProgramResult npu = ask(device, variant);
    ASSERT_EQ(npu.exit_code, 0) << npu.err;
    EXPECT_THAT(npu.err, HasSubstr("NPU SIMULATOR")) << device << variant;
    EXPECT_EQ(npu.out, cpu.out) << device << variant;
  }
}

/// As many processes as scripts for Ascend say that a machine has NPUs; a line says it better.
TEST_F(NpuFamilyLines, NpusPerNodeSaysHowManyProcesses) {
  auto environment = simulated();
  environment["NPUS_PER_NODE"] = "2";
  const Words two = training("two", {"--max_steps", "1", "--device", "npu"});
  const ProgramResult run = run_words(two, environment);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("2 processes"));
  // The same behind launch; a line of a CPU says itself how many.
  Words launched = training("launched", {"--max_steps", "1", "--device=npu"});
  launched.insert(launched.begin(), "launch");
  const ProgramResult behind = run_words(launched, environment);
  EXPECT_EQ(behind.exit_code, 0) << behind.err;
  EXPECT_THAT(behind.err, HasSubstr("2 processes"));
  launched.back() = "--device=cpu";
  expect_error(run_words(launched, environment), 2, {"how many processes"});
  const ProgramResult alone =
      run_words(training("cpu", {"--max_steps", "1", "--device", "cpu"}), environment);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.err, Not(HasSubstr("2 processes")));
  environment["NPUS_PER_NODE"] = "all";
  expect_error(run_words(two, environment), 2, {"NPUS_PER_NODE=all", "1 to 1024"});
}

}  // namespace
}  // namespace danlu::test
