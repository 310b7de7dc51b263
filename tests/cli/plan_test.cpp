// `danlu plan`.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "cli/run_program.h"
#include "cli/tiny_models.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

using testing::HasSubstr;

std::string model() { return (shared_dir() / "data/models/stories260K/hf").string(); }

TEST(PlanCommand, PrintsJsonWithoutWeights) {
  DANLU_REQUIRES_SHARED();
  const TemporaryDirectory directory;
  const std::filesystem::path here = directory;
  const std::string alone = (here / "config.json").string();
  std::filesystem::copy_file(model() + "/config.json", alone);
  const ProgramResult got =
      run_danlu({"plan", "--model", alone, "--machine", "cpu-node", "--json"});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  const Json json = Json::parse(got.out);
  EXPECT_EQ(json["devices"], 2);
  EXPECT_EQ(json["stages"][0]["moments"], 8 * json["parameters"].get<int64_t>());
}

TEST(PlanCommand, AutoIsTheTypeOfATraining) {
  DANLU_REQUIRES_SHARED();
  const auto type = [](const std::string& name) {
    const ProgramResult got =
        run_danlu({"plan", "--model", model(), "--machine", "cpu-node", "--dtype", name, "--json"});
    EXPECT_EQ(got.exit_code, 0) << got.err;
    return got.exit_code == 0 ? Json::parse(got.out)["dtype"] : Json();
  };
  EXPECT_EQ(type("auto"), "bf16");
  EXPECT_EQ(type("AUTO"), "bf16");
  EXPECT_EQ(type("fp32"), "fp32");
}

TEST(PlanCommand, DrawsItsSchedule) {
  DANLU_REQUIRES_SHARED();
  const TemporaryDirectory directory;
  const std::filesystem::path here = directory;
  const std::string svg = (here / "a.svg").string();
  const ProgramResult got = run_danlu({"plan", "--model", model(), "--machine", "a100-80g",
                                       "--num_layer_list", "3,2", "--pp", "2", "--draw", svg});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  std::ostringstream drawn;
  drawn << std::ifstream(svg).rdbuf();
  EXPECT_THAT(drawn.str(), HasSubstr("1F1B, 2 stages, 16 micro-batches"));
}

TEST(PlanCommand, APictureReplacesNothingElse) {
  const ProgramResult got =
      run_danlu({"plan", "--model", "nowhere", "--draw", "model.safetensors"});
  EXPECT_EQ(got.exit_code, 2);
  EXPECT_THAT(got.err, HasSubstr("--draw model.safetensors: the picture is SVG"));
}

TEST(PlanCommand, HasAsManyDevicesAsTheVariableOfATrainingSays) {
  DANLU_REQUIRES_SHARED();
  const ProgramResult got =
      run_danlu({"plan", "--model", model(), "--json"}, {.environment = {{"NPROC_PER_NODE", "4"}}});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(Json::parse(got.out)["devices"], 4);
}

TEST(PlanCommand, TakesTheLineOfATraining) {
  DANLU_REQUIRES_SHARED();
  const ProgramResult got = run_danlu({"plan",     "--load",
                                       model(),    "--machine",
                                       "a100-80g", "--tensor-model-parallel-size",
                                       "2",        "--pipeline-model-parallel-size",
                                       "2",        "--seq-length",
                                       "512",      "--micro-batch-size",
                                       "2",        "--global-batch-size",
                                       "32",       "--use-distributed-optimizer",
                                       "--bf16",   "--lr",
                                       "1e-4",     "--recompute-granularity",
                                       "full",     "--num_layer_list",
                                       "3,2",      "--json"});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  EXPECT_THAT(got.err, HasSubstr("--lr has no effect here: a plan does not depend on it"));
  const Json json = Json::parse(got.out);
  EXPECT_EQ(json["tp"], 2);
  EXPECT_EQ(json["dp"], 2);
  EXPECT_EQ(json["zero"], 1);
  EXPECT_EQ(json["num_micro_batches"], 8);
  EXPECT_EQ(json["recompute"], "full");
}

TEST(PlanCommand, ALineHasTheDefaultsOfTheSystemThatItIsOf) {
  DANLU_REQUIRES_SHARED();
  const std::vector<std::pair<std::vector<std::string>, std::string>> lines = {
      {{"--tp", "2"}, "4096 tokens each, bf16"},
      {{"--tensor-model-parallel-size", "2"}, "4096 tokens each, fp32"},
      {{"--tensor-model-parallel-size", "2"}, "mindspeed, chosen by --tensor-model-parallel-size"},
      {{"--tensor-model-parallel-size", "2", "--global-batch-size", "32"}, "micro-batch 1 x 8"},
      {{"--sft_type", "full"}, "2048 tokens each, bf16"},
      {{"--sft_type", "full"}, "recompute full"},
      {{"--profile", "alpaca"}, "512 tokens each, fp32"}};
  for (const auto& [flags, said] : lines) {
    std::vector<std::string> line = {"plan", "--model", model(), "--machine", "a100-80g"};
    line.insert(line.end(), flags.begin(), flags.end());
    const ProgramResult got = run_danlu(line);
    EXPECT_EQ(got.exit_code, 0) << got.err;
    EXPECT_THAT(got.out, HasSubstr(said));
  }
}

TEST(PlanCommand, DeepSpeedsWordsMeanTheirStageAndOffload) {
  DANLU_REQUIRES_SHARED();
  const ProgramResult got = run_danlu({"plan", "--model", model(), "--machine", "a100-80g",
                                       "--deepspeed", "zero3_offload", "--json"});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  const Json json = Json::parse(got.out);
  EXPECT_EQ(json["zero"], 3);
  EXPECT_EQ(json["offload_optimizer"], true);
}

TEST(PlanCommand, NothingGoesFromAHostToItself) {
  DANLU_REQUIRES_SHARED();
  const auto plan = [](const std::string& machine, const std::vector<std::string>& more) {
    std::vector<std::string> line = {"plan", "--model", model(), "--machine", machine, "--json"};
    line.insert(line.end(), more.begin(), more.end());
    return run_danlu(line);
  };
  const Json plain = Json::parse(plan("cpu-node", {}).out);
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--offload", "optimizer"}, {"--activation_offload", "host"}}) {
    const ProgramResult here = plan("cpu-node", flags), there = plan("a100-80g", flags);
    EXPECT_THAT(here.err, HasSubstr("cpu-node computes in its host's memory"));
    EXPECT_EQ(Json::parse(here.out)["memory_bytes"], plain["memory_bytes"]);
    EXPECT_EQ(there.err, "");
    EXPECT_NE(Json::parse(there.out)["memory_bytes"],
              Json::parse(plan("a100-80g", {}).out)["memory_bytes"]);
  }
}

TEST(PlanCommand, WhatItDoesNotDependOnIsNotRead) {
  DANLU_REQUIRES_SHARED();
  const std::vector<std::string> line = {"plan", "--model", model(), "--json"};
  std::vector<std::string> more = line;
  more.insert(more.end(), {"--lr", "abc", "--hidden_size", "1", "--dataset_dir", "nowhere",
                           "--report_to", "wandb", "--stage", "dpo", "--offload_dir", "nowhere"});
  const ProgramResult got = run_danlu(more);
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(got.out, run_danlu(line).out);
  EXPECT_THAT(got.err, HasSubstr("have no effect here"));
}

TEST(PlanCommand, AdaptersSitWhereTheLineSays) {
  DANLU_REQUIRES_SHARED();
  const auto trained = [](const std::vector<std::string>& more) {
    std::vector<std::string> line = {"plan", "--model", model(), "--tuner", "lora", "--json"};
    line.insert(line.end(), more.begin(), more.end());
    const ProgramResult got = run_danlu(line);
    EXPECT_EQ(got.exit_code, 0) << got.err;
    return got.exit_code == 0 ? Json::parse(got.out)["trained"].get<int64_t>() : 0;
  };
  // 5 layers of width 64: A [8, 64] and B [64, 8].
  EXPECT_EQ(trained({"--lora_target", "q_proj"}), 5 * 8 * (64 + 64));
  EXPECT_EQ(trained({"--lora_target", "q_proj", "--modules_to_save", "norm"}),
            5 * 8 * (64 + 64) + 64);
  EXPECT_GT(trained({}), 5 * 8 * (64 + 64));
}

TEST(PlanCommand, AutoShowsTenAndWhatLimitsThem) {
  DANLU_REQUIRES_SHARED();
  const ProgramResult got =
      run_danlu({"plan", "--model", model(), "--machine", "a100-80g", "--auto"});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(std::count(got.out.begin(), got.out.end(), '\n'), 11) << got.out;
  EXPECT_THAT(got.out, HasSubstr("limited by"));
}

TEST(PlanCommand, ExpertsAreDividedAsTheLineSays) {
  const TemporaryDirectory directory;
  nlohmann::json config = tiny_model("qwen3_moe");
  config.update({{"num_experts", 16}, {"hidden_size", 256}, {"moe_intermediate_size", 128}});
  std::ofstream(directory.path() / "config.json") << config;
  const auto planned = [&](std::vector<std::string> flags) {
    std::vector<std::string> line = {"plan",      "--model",      directory.path().string(),
                                     "--machine", "a100-80g",     "--max_length",
                                     "128",       "--batch_size", "2"};
    line.insert(line.end(), flags.begin(), flags.end());
    return run_danlu(line);
  };
  const ProgramResult whole = planned({"--json"}), divided = planned({"--ep", "4", "--json"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  ASSERT_EQ(divided.exit_code, 0) << divided.err;
  const nlohmann::json all = nlohmann::json::parse(whole.out),
                       part = nlohmann::json::parse(divided.out);
  EXPECT_EQ(part["ep"], 4);
  EXPECT_EQ(part["parameters"], all["parameters"]);
  const int64_t experts = 2 * 16 * 3 * 256 * 128;
  EXPECT_EQ(
      all["stages"][0]["weights"].get<int64_t>() - part["stages"][0]["weights"].get<int64_t>(),
      2 * (experts - experts / 4));
  EXPECT_EQ(all["stages"][0]["sent_expert"]["node"], 0);
  EXPECT_GT(part["stages"][0]["sent_expert"]["node"], 0);
  const ProgramResult shown =
      planned({"--expert-model-parallel-size", "4", "--expert_imbalance", "1.5"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("ep 4 dp 8"));
  EXPECT_THAT(shown.out, HasSubstr("4 a layer and rank, 768 rows of a pass on the rank with the "
                                   "most (1.5 times the mean)"));
  EXPECT_THAT(shown.out, HasSubstr("expert axis"));
}

TEST(PlanCommand, BadInputSaysRuleAndWhatWorks) {
  DANLU_REQUIRES_SHARED();
  struct Case {
    std::vector<std::string> flags;
    std::vector<std::string> said;
  };
  const TemporaryDirectory directory;
  const std::filesystem::path here = directory;
  const std::string file = (here / "my.yaml").string();
  std::ofstream(file) << "devices_per_node: 8\nmemory_gbs: 80\n";
  for (const Case& bad : std::vector<Case>{
           {{"--machine", "a100-80"}, {"did you mean a100-80g?"}},
           {{"--machine", file}, {"my.yaml:2: unknown key memory_gbs", "did you mean memory_gb?"}},
           {{"--machine", "."}, {".: neither a machine of Danlu's nor a file"}},
           {{"--tp", "3"}, {"--tp 3: 8 processes are no multiple of it"}},
           {{"--pp", "8"}, {"5 layers", "8"}},
           {{"--pp", "2", "--num_layer_list", "2,2"}, {"2,2", "5"}},
           {{"--pp", "2", "--num_layer_list", "5,0"},
            {"stage 1 of 2 is left without a layer", "another --num-layer-list"}},
           {{"--devices", "16", "--cp", "16"},
            {"8 query and 4 key/value heads", "megatron_cp_algo"}},
           {{"--pp", "2", "--noop_layers", "5", "--vpp", "3", "--global_batch_size", "4"},
            {"as many micro-batches a step as pipeline stages: 1 for 2",
             "give --global_batch_size 8"}},
           {{"--pp", "2", "--noop_layers", "5", "--vpp", "3", "--enable-zero-bubble"},
            {"--enable-zero-bubble", "not with virtual stages"}},
           {{"--pp", "2", "--num_layer_list", "3,2", "--enable-zero-bubble", "--shard", "zero2"},
            {"zero-bubble schedule leaves gradients", "take --shard zero1"}},
           {{"--shard", "zero2", "--use-distributed-optimizer"}, {"ZeRO-2", "ZeRO-1", "give one"}},
           {{"--bf16", "--fp16"}, {"--bf16 and --fp16 are both on"}},
           {{"--global_batch_size", "12"},
            {"must be a multiple of", "8 processes = 8", "8 and 16"}},
           {{"--gradient_accumulation_steps", "3", "--global_batch_size", "8"},
            {"--global_batch_size 8: differs from", "--gradient_accumulation_steps 3", "= 24"}},
           {{"--nproc_per_node", "16"}, {"--nproc_per_node 16: a100-80g has 8 devices"}},
           {{"--devices", "8", "--nnodes", "2"}, {"--devices is of all machines"}},
           {{"--auto", "--tp", "2"}, {"--auto looks for --tp itself"}},
           {{"--auto", "--ep", "2"}, {"--auto looks for --ep itself"}},
           {{"--expert_imbalance", "2"}, {"--expert_imbalance: llama has no experts"}},
           {{"--expert_imbalance", "0.5"}, {"--expert_imbalance", "0.5"}},
           {{"--auto", "--draw", "a.svg"}, {"--draw draws one"}},
           {{"--offload", "params"}, {"--offload params", "take --offload optimizer"}},
           {{"--learning_rte", "1"}, {"--learning_rte", "learning_rate"}}}) {
    std::vector<std::string> line = {"plan", "--model", model()};
    if (bad.flags[0] != "--machine") line.insert(line.end(), {"--machine", "a100-80g"});
    line.insert(line.end(), bad.flags.begin(), bad.flags.end());
    const ProgramResult got = run_danlu(line);
    EXPECT_EQ(got.exit_code, 2) << got.out << got.err;
    for (const std::string& said : bad.said) EXPECT_THAT(got.err, HasSubstr(said));
  }
}

}  // namespace
}  // namespace danlu::test
