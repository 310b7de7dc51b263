// Lines with --device npu on the simulated NPU: the CPU's numbers, and what the program says of it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/launch.h"
#include "cli/logged_steps.h"
#include "cli/served_program.h"
#include "cli/tiny_models.h"
#include "support/raw_http.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Variables for programs that are started while it lives.
class ChangedEnvironment {
 public:
  explicit ChangedEnvironment(std::map<std::string, std::string> variables)
      : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~ChangedEnvironment() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  ChangedEnvironment(const ChangedEnvironment&) = delete;
  ChangedEnvironment& operator=(const ChangedEnvironment&) = delete;

 private:
  const std::map<std::string, std::string> variables_;
};

class NpuLines : public Launch {
 protected:
  static std::map<std::string, std::string> simulated() {
    // Its default of 2000 is tests/npu's: there a stream's work shows that it was not waited for.
    return {{"DANLU_NPU_LIBRARY", DANLU_BUILD_DIR "/npu_sim/current"}, {"NPU_SIM_DELAY_US", "50"}};
  }
  void make_model(const std::string& name, const nlohmann::json& config) const {
    write(name + ".json", config.dump());
    ok({"init", "--config", name + ".json", "--output", name, "--tokenizer",
        good("tokenizer").string(), "--seed", "3"});
  }
  /// The line that trains all weights of this model.
  std::vector<std::string> training_of(const std::string& model, const std::string& run,
                                       const std::vector<std::string>& more) const {
    std::vector<std::string> words = training(run, more);
    *(std::find(words.begin(), words.end(), "--model") + 1) = (*this) / model;
    words.insert(words.end(), {"--tuner_type", "full"});
    return words;
  }
  ProgramResult on_npu(std::vector<std::string> words) const {
    return run_words(std::move(words), simulated());
  }
};

TEST_F(NpuLines, TrainAndAnswerAsOnTheCpu) {
  for (const std::vector<std::string>& kind :
       {std::vector<std::string>{}, {"--tuner_type", "lora", "--lora_rank", "4"}}) {
    std::vector<std::string> more = {"--max_steps", "4", "--device"};
    more.insert(more.begin(), kind.begin(), kind.end());
    const auto line = [&](const std::string& run, const std::string& device) {
      std::vector<std::string> own = more;
      own.push_back(device);
      return training(run, own);
    };
    const ProgramResult cpu = run_words(line("cpu", "cpu")), npu = on_npu(line("npu", "npu"));
    ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
    ASSERT_EQ(npu.exit_code, 0) << npu.err;
    EXPECT_THAT(npu.err, HasSubstr("NPU SIMULATOR"));
    expect_same_losses((*this) / "cpu", (*this) / "npu", 4);
    std::filesystem::remove_all((*this) / "cpu");
    std::filesystem::remove_all((*this) / "npu");
  }
  const auto ask = [&](const std::string& device) {
    return std::vector<std::string>{"infer", "--model",  good("model"), "--prompt",
                                    "hi",    "--device", device,        "--max_new_tokens",
                                    "12",    "--dtype",  "fp32"};
  };
  const ProgramResult cpu = run_words(ask("cpu")), npu = on_npu(ask("npu:1"));
  ASSERT_EQ(npu.exit_code, 0) << npu.err;
  EXPECT_EQ(npu.out, cpu.out);
}

/// The simulator's counters of one run, by name.
std::map<std::string, int64_t> counters_in(const std::filesystem::path& file) {
  std::map<std::string, int64_t> counters;
  std::ifstream lines(file);
  int64_t value = 0;
  for (std::string name; lines >> name >> value;) counters[name] = value;
  return counters;
}

/// Each further token of an answer costs a layer one launch over its pages, which are not copied.
TEST_F(NpuLines, AnswersReadPagesWhereTheyLie) {
  nlohmann::json config = tiny_model("llama");
  config.update({{"hidden_size", 64}, {"num_attention_heads", 4}, {"num_key_value_heads", 2}});
  make_model("of16", config);
  const auto ask = [&](int64_t tokens, const std::string& faults) {
    const std::string file = (*this) / ("counters" + std::to_string(tokens) + faults);
    std::map<std::string, std::string> more = simulated();
    more.insert({{"NPU_SIM_COUNTERS", file}, {"NPU_SIM_FAULT", faults}});
    const std::string count = std::to_string(tokens);
    const ProgramResult result = run_words(
        {"infer", "--model", (*this) / "of16", "--prompt", "hi", "--device", "npu", "--do_sample",
         "false", "--dtype", "bf16", "--max_new_tokens", count, "--min_new_tokens", count},
        more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return std::pair(result, counters_in(file));
  };
  const auto [few, after_few] = ask(4, "");
  const auto [many, after_many] = ask(12, "");
  const auto more_of = [](const auto& before, const auto& after, const std::string& name) {
    const auto of = [&](const auto& counters) {
      const auto found = counters.find("launches.aclnn" + name);
      return found == counters.end() ? 0 : found->second;
    };
    return of(after) - of(before);
  };
  const int64_t layers = more_of(after_few, after_many, "FusedInferAttentionScoreV2") / 8;
  EXPECT_GT(layers, 0);
  EXPECT_EQ(more_of(after_few, after_many, "FusedInferAttentionScoreV2"), 8 * layers);
  EXPECT_EQ(more_of(after_few, after_many, "FlashAttentionVarLenScore"), 0);
  EXPECT_EQ(more_of(after_few, after_many, "IndexSelect"), 8) << "the embedding's rows";
  // A CANN that does not take them says so once, and the answer is the same.
  const std::string fault = "call:aclnnFusedInferAttentionScoreV2GetWorkspaceSize:1:161002";
  const auto [refused, after_refused] = ask(12, fault);
  EXPECT_EQ(refused.out, many.out);
  EXPECT_THAT(refused.err, HasSubstr("CANN does not take pages of 32 tokens"));
  EXPECT_EQ(more_of(after_refused, after_many, "FusedInferAttentionScoreV2"), 11 * layers);
  // Keys and values of each layer are gathered there, and turned.
  EXPECT_EQ(more_of(after_many, after_refused, "IndexSelect"), 11 * 2 * layers);
  EXPECT_GE(more_of(after_many, after_refused, "InplaceCopy"), 11 * 2 * layers);
}

TEST_F(NpuLines, ServeAnswersWithPagesThatFitTheCard) {
  const std::vector<std::string> line = {
      "--model", good("model"), "--dtype", "fp32", "--served_model_name",
      "m",       "--template",  "default"};
  const auto answers = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = line;
    words.insert(words.end(), more.begin(), more.end());
    const ServedProgram server(words);
    const nlohmann::json body = {
        {"model", "m"}, {"prompt", "hi"}, {"max_tokens", 12}, {"temperature", 0}};
    RawClient client(server.port());
    client.send(raw_request("POST", "/v1/completions", body.dump()));
    const RawResponse response = client.response();
    EXPECT_EQ(response.status, 200) << response.body << server.log();
    const auto read = nlohmann::json::parse(response.body, nullptr, false);
    return std::pair(response.status == 200 ? read["choices"][0]["text"].get<std::string>() : "",
                     server.log());
  };
  const auto [cpu, cpu_log] = answers({});
  std::map<std::string, std::string> small = simulated();
  small["NPU_SIM_MEMORY"] = "256M";
  const ChangedEnvironment here(small);
  const auto [npu, npu_log] = answers({"--device", "npu"});
  const std::vector<std::string> tight = {"--device", "npu", "--gpu_memory_utilization", "0.004"};
  const auto [half, half_log] = answers(tight);
  EXPECT_EQ(npu, cpu);
  EXPECT_EQ(half, cpu);
  const auto tokens = [](const std::string& log) {
    const std::string before = "keys and values of ";
    const size_t at = log.find(before);
    EXPECT_NE(at, log.npos) << log;
    std::string digits;
    for (size_t i = at + before.size(); i < log.size() && log[i] != ' '; ++i)
      if (log[i] != ',') digits += log[i];
    return std::stod(digits);
  };
  EXPECT_LE(tokens(npu_log), tokens(cpu_log)) << npu_log;
  EXPECT_LT(tokens(half_log), tokens(npu_log)) << half_log;
}

TEST_F(NpuLines, GoOnFromTheirCheckpoints) {
  const auto line = [&](const std::string& run, const std::string& steps,
                        const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"--max_steps", steps, "--save_steps",        "2",
                                      "--device",    "npu", "--lr_scheduler_type", "constant"};
    words.insert(words.end(), more.begin(), more.end());
    return training(run, words);
  };
  const ProgramResult whole = on_npu(line("whole", "4")), half = on_npu(line("parts", "2")),
                      rest =
                          on_npu(line("parts", "4", {"--resume", (*this) / "parts/checkpoint-2"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  ASSERT_EQ(half.exit_code, 0) << half.err;
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  expect_same_losses((*this) / "whole", (*this) / "parts", 4);
}

TEST_F(NpuLines, DoctorAndDevicesSayWhatIsThere) {
  const ProgramResult doctor = on_npu({"doctor", "--only", "npu_engine"});
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("npu:0 Ascend910B3"), HasSubstr("NPU SIMULATOR")));
  const ProgramResult devices = on_npu({"devices"});
  EXPECT_THAT(devices.out, AllOf(HasSubstr("npu:0 Ascend910B3"), HasSubstr("NPU SIMULATOR")));
}

TEST_F(NpuLines, NameTheVariablesOfTorchNpuThatDoNothing) {
  auto environment = simulated();
  environment.insert({{"TASK_QUEUE_ENABLE", "2"}, {"PYTORCH_NPU_ALLOC_CONF", "x"}});
  const std::vector<std::string> ask = {"infer",    "--model", good("model"),      "--prompt", "hi",
                                        "--device", "npu",     "--max_new_tokens", "1"};
  EXPECT_THAT(run_words(ask, environment).err,
              HasSubstr("TASK_QUEUE_ENABLE, PYTORCH_NPU_ALLOC_CONF: without effect"));
  environment = simulated();
  environment["TASK_QUEUE_ENABLE"] = "0";
  EXPECT_THAT(run_words(ask, environment).err, Not(HasSubstr("without effect")));
}

/// Plans that are asked for give the same numbers; if CANN takes one no more, so does the ordinary
/// way, with one notice.
TEST_F(NpuLines, KeptPlansAreGivenUpWhereCannRefusesThem) {
  const auto run = [&](const std::string& name, std::map<std::string, std::string> more) {
    more.merge(simulated());
    const ProgramResult result =
        run_words(training(name, {"--max_steps", "3", "--device", "npu"}), more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  const std::string refusal = "CANN does not take a kept plan again (code 161002)";
  EXPECT_THAT(run("anew", {{"NPU_SIM_FAULT", "call:aclSetTensorAddr:40:161002"}}),
              Not(HasSubstr("kept plan")));
  EXPECT_THAT(run("kept", {{"DANLU_NPU_KEEP_PLANS", "1"}}), Not(HasSubstr("kept plan")));
  const std::string said = run("refused", {{"DANLU_NPU_KEEP_PLANS", "1"},
                                           {"NPU_SIM_FAULT", "call:aclSetTensorAddr:40:161002"}});
  const size_t first = said.find(refusal);
  ASSERT_NE(first, said.npos) << said;
  EXPECT_EQ(said.find(refusal, first + 1), said.npos) << "once";
  expect_same_losses((*this) / "anew", (*this) / "kept", 3);
  expect_same_losses((*this) / "anew", (*this) / "refused", 3);
}

TEST_F(NpuLines, SayWhatIsMissing) {
  std::vector<std::string> words = training("run", {"--max_steps", "1", "--device", "npu"});
  const ProgramResult absent = run_words(words, {{"DANLU_NPU_LIBRARY", (*this) / "nowhere"}});
  expect_error(absent, 5, {"DANLU_NPU_LIBRARY", "has no libascendcl.so", "unset it"});
  words.back() = "npu:77";
  expect_error(run_words(words, simulated()), 5, {"there is no npu:77"});
}

TEST_F(NpuLines, SeveralRanksExchangeByHccl) {
  const std::vector<std::string> words =
      training("npu", {"--max_steps", "3", "--device", "npu", "--deepspeed", "zero2"});
  std::vector<std::string> all = {"launch", "--nproc_per_node=2"};
  all.insert(all.end(), words.begin(), words.end());
  const ProgramResult npu = on_npu(all);
  ASSERT_EQ(npu.exit_code, 0) << npu.err;
  const ProgramResult cpu = launch(2, training("cpu", {"--max_steps", "3", "--device", "cpu"}));
  ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
  expect_same_losses((*this) / "cpu", (*this) / "npu", 3);
}

TEST_F(NpuLines, RanksDivideExpertsAndSequencesWithAWindow) {
  DANLU_SLOW_TEST();
  nlohmann::json windows = tiny_model("mistral");
  windows["sliding_window"] = 9;
  make_model("windows", windows);
  make_model("experts", tiny_model("mixtral"));
  const auto expect_same = [&](const std::string& model, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--max_steps", "3", "--device", "npu"});
    std::vector<std::string> words = {"launch", "--nproc_per_node=2"};
    const std::vector<std::string> own = training_of(model, model + "_npu", flags);
    words.insert(words.end(), own.begin(), own.end());
    const ProgramResult npu = on_npu(words),
                        cpu = run_words(training_of(model, model + "_cpu",
                                                    {"--max_steps", "3", "--device", "cpu"}));
    ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
    ASSERT_EQ(npu.exit_code, 0) << npu.err;
    expect_same_losses((*this) / (model + "_cpu"), (*this) / (model + "_npu"), 3);
  };
  expect_same("windows", {"--cp", "2"});
  expect_same("experts", {"--ep", "2"});
}

}  // namespace
}  // namespace danlu::test
