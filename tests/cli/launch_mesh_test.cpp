// Several processes have the numbers of one, whatever they divide, and go on at another mesh.
// `make test` runs some of each kind; with DANLU_SLOW every tuning meets every mesh.
#include <cstdlib>
#include <set>
#include <sstream>
#include <thread>

#include "base/free_port.h"
#include "base/json.h"
#include "cli/launch.h"
#include "cli/logged_steps.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::map<std::string, std::vector<std::string>>& tunings() {
  static const std::map<std::string, std::vector<std::string>> known = {
      {"full", {"--tuner", "full"}},
      {"lora", {"--tuner", "lora", "--lora_dropout", "0.1"}},
      {"dora", {"--tuner", "lora", "--lora_dropout", "0.1", "--use_dora"}}};
  return known;
}

struct MeshLine {
  std::string run;
  int64_t processes;
  std::vector<std::string> flags;
  const char* said;
  std::set<std::string> quick_tunings = {"full", "lora"};
  int64_t machines = 1;  ///< that the processes are told to be on
};

std::vector<std::string> virtual_stages() {
  // The flag is one of MindSpeed-LLM's, whose defaults would train otherwise.
  return {
      "--pp",      "2",    "--num-layers-per-virtual-pipeline-stage", "1", "--noop-layers", "0,3",
      "--profile", "danlu"};
}

std::vector<MeshLine> mesh_lines() {
  std::vector<std::string> virtual_zero3 = virtual_stages();
  virtual_zero3.insert(virtual_zero3.end(), {"--shard", "zero3"});
  const std::vector<std::string> in_files = {"--offload", "optimizer", "params", "--offload_dir",
                                             "offloaded"};
  std::vector<std::string> tensor_in_files = {"--tp", "2", "--shard", "zero3"};
  tensor_in_files.insert(tensor_in_files.end(), in_files.begin(), in_files.end());
  std::vector<std::string> zero1_in_files = {"--shard", "zero1"};
  zero1_in_files.insert(zero1_in_files.end(), in_files.begin(), in_files.end());
  return {{"dp2", 2, {}, "× 2 processes = 8 samples a step", {"lora"}},
          {"dp4", 4, {}, "× 4 processes = 8 samples a step", {"full"}},
          {"tp2", 2, {"--tp", "2"}, "divided over 2 tensor-parallel"},
          {"tp2dp2sp",
           4,
           {"--tp", "2", "--sequence-parallel"},
           "processes, and its tokens",
           {"full", "lora", "dora"}},
          {"zero1", 4, {"--shard", "zero1"}, "share the optimizer's state (ZeRO-1)", {"lora"}},
          {"zero2", 2, {"--deepspeed", "zero2"}, "state and gradients (ZeRO-2)", {"full"}},
          {"zero3",
           4,
           {"--fsdp", "full_shard auto_wrap", "--tp", "2"},
           "parameters (ZeRO-3)",
           {"full", "lora", "dora"}},
          {"hybrid3", 4, {"--fsdp", "hybrid_shard"}, "parameters (ZeRO-3)", {"full", "dora"}, 2},
          {"hybrid2", 4, {"--fsdp", "hybrid_shard_zero2"}, "gradients (ZeRO-2)", {"lora"}, 2},
          {"host",
           2,
           {"--shard", "zero3", "--offload", "optimizer", "params"},
           "parameters and state are in host memory",
           {"lora"}},
          {"files", 2, zero1_in_files, "(ZeRO-1)", {"full"}},
          {"pp2", 2, {"--pp", "2"}, "stand in 2 pipeline stages", {"lora"}},
          {"pp2tp2",
           4,
           {"--pp", "2", "--tp", "2", "--sequence-parallel"},
           "stand in 2 pipeline stages",
           {"full"}},
          // The model's two layers in four slots: two virtual stages of each have none.
          {"vpp2", 2, virtual_stages(), "2 runs of layers in each, which go interleaved", {"full"}},
          {"vpp2zero3", 4, virtual_zero3, "parameters (ZeRO-3)", {"lora"}},
          {"zero_bubble",
           2,
           {"--pp", "2", "--use-nanopipe"},
           "with the zero-bubble schedule",
           {"full"}},
          {"pp2zero3", 4, {"--pp", "2", "--shard", "zero3"}, "parameters (ZeRO-3)", {"dora"}},
          {"cp2",
           2,
           {"--cp", "2"},
           "2 context-parallel processes share the tokens of every micro-batch (heads exchanged)"},
          {"ring4",
           4,
           {"--context-parallel-size", "4", "--context-parallel-algo", "megatron_cp_algo",
            "--cp-window-size", "2"},
           "of every micro-batch (a ring)",
           {"full"}},
          {"cp2tp2",
           4,
           {"--cp", "2", "--context-parallel-algo", "megatron_cp_algo", "--tp", "2",
            "--sequence-parallel", "--shard", "zero1"},
           "(ZeRO-1)",
           {"dora"}},
          {"files3", 4, tensor_in_files, "parameters (ZeRO-3)", {"lora"}}};
}

class LaunchMesh : public Launch {
 protected:
  void SetUp() override {
    Launch::SetUp();
    fs::create_directory((*this) / "offloaded");
  }
  /// Started one by one, as by a launcher of several machines.
  ProgramResult on_machines(const MeshLine& mesh, const std::vector<std::string>& words) const {
    const std::string port = std::to_string(free_port().value());
    std::vector<ProgramResult> results(static_cast<size_t>(mesh.processes));
    std::vector<std::thread> ranks;
    for (size_t rank = 0; rank < results.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        results[rank] =
            run_words(words, {{"RANK", std::to_string(rank)},
                              {"WORLD_SIZE", std::to_string(mesh.processes)},
                              {"LOCAL_WORLD_SIZE", std::to_string(mesh.processes / mesh.machines)},
                              {"MASTER_ADDR", "127.0.0.1"},
                              {"MASTER_PORT", port}});
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const ProgramResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.err;
    return results.front();
  }
  ProgramResult run_mesh(const MeshLine& mesh, std::vector<std::string> words) const {
    words.insert(words.end(), mesh.flags.begin(), mesh.flags.end());
    if (mesh.machines > 1) return on_machines(mesh, words);
    return launch(mesh.processes, words);
  }
  void expect_numbers_of(const std::string& one, const std::string& run, size_t count) const {
    const auto expected = steps_of((*this) / one), got = steps_of((*this) / run);
    ASSERT_EQ(expected.size(), count);
    ASSERT_EQ(got.size(), count);
    for (size_t i = 0; i < count; ++i) {
      for (const char* key : {"loss", "grad_norm"}) {
        const double want = expected[i].at(key);
        EXPECT_NEAR(got[i].at(key).get<double>(), want, 1e-5 * want) << key << " " << i;
      }
    }
    const ProgramResult same =
        run_words({"diff", (*this) / one, (*this) / run, "--tolerance", "1e-4"});
    EXPECT_EQ(same.exit_code, 0) << same.out;
  }
};

TEST_F(LaunchMesh, EveryMeshGivesTheNumbersOfOneProcess) {
  for (const auto& [tuning, flags] : tunings()) {
    const auto line = [&](const std::string& run, const char* batch) {
      auto words =
          training(run, {"--batch_size", batch, "--global_batch_size", "8", "--max_steps", "6",
                         "--val_ratio", "0.25", "--eval_steps", "3", "--save_steps", "3"});
      words.insert(words.end(), flags.begin(), flags.end());
      return words;
    };
    const std::string one = "one-" + tuning;
    const ProgramResult alone = run_words(line(one, "4"));
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    for (const MeshLine& mesh : mesh_lines()) {
      if (!std::getenv("DANLU_SLOW") && mesh.quick_tunings.count(tuning) == 0) continue;
      SCOPED_TRACE(mesh.run + " " + tuning);
      const ProgramResult together = run_mesh(mesh, line(mesh.run + tuning, "1"));
      ASSERT_EQ(together.exit_code, 0) << together.err;
      EXPECT_THAT(together.err, HasSubstr(mesh.said));
      expect_numbers_of(one, mesh.run + tuning, 6);
      if (mesh.machines == 1) {
        EXPECT_TRUE(fs::exists((*this) / (mesh.run + tuning) / "rank-1.log"));
      }
    }
  }
}

TEST_F(LaunchMesh, ALastStepThatGivesOneRankNothingEndsLikeTheOthers) {
  std::istringstream rows(content_of(good("good.jsonl")));  // eight
  std::string ninth;
  std::getline(rows, ninth);
  write_content((*this) / "ninth.jsonl", ninth + "\n");
  const auto line = [&](const std::string& run) {
    return training(run, {"--dataset", "ninth.jsonl", "--epochs", "1", "--batch_size", "1",
                          "--global_batch_size", "4", "--val_ratio", "0", "--tuner", "full"});
  };
  ASSERT_EQ(run_words(line("one")).exit_code, 0);
  for (const auto& [run, flags] : std::map<std::string, std::vector<std::string>>{
           {"plain", {"--pp", "2"}}, {"interleaved", virtual_stages()}}) {
    SCOPED_TRACE(run);
    std::vector<std::string> words = line(run);
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--shard", "zero3"});
    const ProgramResult together = launch(4, words);
    ASSERT_EQ(together.exit_code, 0) << together.err;
    expect_numbers_of("one", run, 3);
  }
}

/// Where a run is cut: each part begins at the checkpoint of the one before.
struct Part {
  int64_t processes;
  std::vector<std::string> flags;
};

TEST_F(LaunchMesh, ARunGoesOnAtAnotherMesh) {
  const std::vector<std::string> zero3 = {"--shard", "zero3"}, tp2 = {"--tp", "2"},
                                 both = {"--tp", "2", "--shard", "zero3"}, pp2 = {"--pp", "2"},
                                 stages = {"--pp", "2", "--shard", "zero1"},
                                 context = {"--cp", "2", "--shard", "zero3"};
  std::map<std::string, std::vector<Part>> all = {
      {"full",
       {{4, both},
        {4, stages},
        {4, context},
        {1, {}},
        {2, pp2},
        {4, tp2},
        {2, virtual_stages()},
        {4, {"--shard", "zero2"}}}},
      {"lora", {{2, tp2}, {2, pp2}, {2, zero3}, {1, {}}}}};
  if (std::getenv("DANLU_SLOW")) {
    all["lora"].push_back({4, both});
    all["dora"] = {{4, both}, {1, {}}, {2, tp2}, {2, zero3}};
  }
  for (const auto& [tuning, parts] : all) {
    SCOPED_TRACE(tuning);
    const auto line = [&](const std::string& run, size_t steps) {
      auto words = training(run, {"--batch_size", "1", "--global_batch_size", "4", "--max_steps",
                                  std::to_string(steps), "--lr_scheduler_type", "constant",
                                  "--warmup_ratio", "0", "--save_steps", "2"});
      words.insert(words.end(), tunings().at(tuning).begin(), tunings().at(tuning).end());
      return words;
    };
    const std::string whole = "whole-" + tuning, cut = "cut-" + tuning;
    ASSERT_EQ(run_words(line(whole, 2 * parts.size())).exit_code, 0);
    for (size_t i = 0; i < parts.size(); ++i) {
      auto words = line(cut, 2 * (i + 1));
      if (i > 0) {
        const std::string from = cut + "/checkpoint-" + std::to_string(2 * i);
        words.insert(words.end(), {"--resume", (*this) / from});
      }
      words.insert(words.end(), parts[i].flags.begin(), parts[i].flags.end());
      const bool alone = parts[i].processes == 1;
      const ProgramResult result = alone ? run_words(words) : launch(parts[i].processes, words);
      ASSERT_EQ(result.exit_code, 0) << i << result.err;
      if (i > 0) {
        EXPECT_THAT(result.err, HasSubstr("resuming from")) << i;
      } else {
        const std::string last = "rank-" + std::to_string(parts[i].processes - 1);
        EXPECT_TRUE(fs::exists((*this) / cut / "checkpoint-2/optim" / (last + ".safetensors")));
      }
    }
    expect_numbers_of(whole, cut, 2 * parts.size());
  }
}

}  // namespace
}  // namespace danlu::test
