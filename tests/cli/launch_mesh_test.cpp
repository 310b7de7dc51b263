// Several processes have the numbers of one, whatever they divide, and go on at another mesh.
// `make test` runs few of them, in which every two axes meet, every order of the work, stage of
// ZeRO and tuning; with DANLU_SLOW every tuning meets every mesh. (tests/train/mesh_test.cpp has
// many more meshes, of ranks that are threads.)
#include <cstdlib>
#include <sstream>
#include <thread>

#include "base/free_port.h"
#include "base/json.h"
#include "cli/launch.h"
#include "cli/logged_steps.h"
#include "cli/seeing_model.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

const std::map<std::string, Words>& tunings() {
  static const std::map<std::string, Words> known = {
      {"full", {"--tuner", "full"}},
      {"lora", {"--tuner", "lora", "--lora_dropout", "0.1"}},
      {"dora", {"--tuner", "lora", "--lora_dropout", "0.1", "--use_dora"}}};
  return known;
}

/// In the place of a tuning: `make test-slow` alone runs the mesh.
const char* const kSlow = "";

struct MeshLine {
  std::string run;
  int64_t processes;
  Words flags;
  Words said;                ///< in the banner
  std::string quick_tuning;  ///< the one of `make test`; kSlow: none
  int64_t machines = 1;      ///< that the processes are told to be on
};

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Words kTensor = {"--tp", "2"}, kSequence = {"--tp", "2", "--sequence-parallel"},
            kStages = {"--pp", "2"}, kZero1 = {"--shard", "zero1"}, kZero3 = {"--shard", "zero3"};

/// The flag is one of MindSpeed-LLM's, whose defaults would train otherwise. The model's two layers
/// in four slots: two virtual stages of each have none.
const Words kVirtualStages = {
    "--pp",      "2",    "--num-layers-per-virtual-pipeline-stage", "1", "--noop-layers", "0,3",
    "--profile", "danlu"};

std::vector<MeshLine> mesh_lines() {
  const Words ring = {"--context-parallel-algo", "megatron_cp_algo"},
              in_files = {"--offload", "optimizer", "params", "--offload_dir", "offloaded"};
  const std::string zero1 = "share the optimizer's state (ZeRO-1)",
                    zero2 = "state and gradients (ZeRO-2)", zero3 = "parameters (ZeRO-3)",
                    stages = "stand in 2 pipeline stages",
                    interleaved = "2 runs of layers in each, which go interleaved",
                    zero_bubble = "with the zero-bubble schedule",
                    heads =
                        "2 context-parallel processes share the tokens of every micro-batch "
                        "(heads exchanged)";
  return {{"dp2", 2, {}, {"× 2 processes = 8 samples a step"}, "lora"},
          {"dp4", 4, {}, {"× 4 processes = 8 samples a step"}, kSlow},
          {"tp2", 2, kTensor, {"divided over 2 tensor-parallel"}, kSlow},
          {"tp2dp2sp", 4, kSequence, {"over 2 tensor-parallel processes, and its tokens"}, kSlow},
          {"zero1", 4, kZero1, {zero1}, kSlow},
          {"zero2", 2, {"--deepspeed", "zero2"}, {zero2}, kSlow},
          {"zero2cp2", 4, {"--deepspeed", "zero2", "--cp", "2"}, {zero2, heads}, "full"},
          {"zero3tp2",
           4,
           Words{"--fsdp", "full_shard auto_wrap"} + kTensor,
           {zero3, "divided over 2 tensor-parallel"},
           kSlow},
          {"hybrid3", 4, {"--fsdp", "hybrid_shard"}, {zero3}, "lora", 2},
          {"hybrid2", 4, {"--fsdp", "hybrid_shard_zero2"}, {zero2}, kSlow, 2},
          {"host",
           2,
           kZero3 + Words{"--offload", "optimizer", "params"},
           {"parameters and state are in host memory"},
           kSlow},
          {"files", 2, kZero1 + in_files, {zero1}, kSlow},
          {"pp2", 2, kStages, {stages}, kSlow},
          {"pp2tp2sp", 4, kStages + kSequence, {stages}, "full"},
          {"vpp2", 2, kVirtualStages, {interleaved}, kSlow},
          {"vpp2zero3", 4, kVirtualStages + kZero3, {interleaved, zero3}, "dora"},
          {"zero_bubble", 2, kStages + Words{"--use-nanopipe"}, {zero_bubble}, kSlow},
          {"zero_bubble_cp2",
           4,
           kStages + Words{"--use-nanopipe", "--cp", "2"},
           {zero_bubble, heads},
           "lora"},
          {"pp2zero3", 4, kStages + kZero3, {stages, zero3}, kSlow},
          {"cp2", 2, {"--cp", "2"}, {heads}, kSlow},
          {"ring4",
           4,
           Words{"--context-parallel-size", "4", "--cp-window-size", "2"} + ring,
           {"of every micro-batch (a ring)"},
           "full"},
          {"cp2tp2sp", 4, Words{"--cp", "2"} + ring + kSequence + kZero1, {"(ZeRO-1)"}, "dora"},
          {"files3tp2", 4, kTensor + kZero3 + in_files, {zero3}, "lora"}};
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
      if (!is_slow() && mesh.quick_tuning != tuning) continue;
      SCOPED_TRACE(mesh.run + " " + tuning);
      const ProgramResult together = run_mesh(mesh, line(mesh.run + tuning, "1"));
      ASSERT_EQ(together.exit_code, 0) << together.err;
      for (const std::string& said : mesh.said) EXPECT_THAT(together.err, HasSubstr(said));
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
  for (const auto& [run, flags] :
       std::map<std::string, Words>{{"plain", kStages}, {"interleaved", kVirtualStages}}) {
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
  Words flags;
};

class LaunchMeshGoesOn : public LaunchMesh {
 protected:
  /// Trains in parts of two steps each and compares with one run; `more`: flags of every part.
  void expect_numbers_of_one_run(const std::string& name, const std::vector<Part>& parts,
                                 const Words& more) const {
    SCOPED_TRACE(name);
    const auto line = [&](const std::string& run, size_t steps) {
      return training(run, {"--batch_size", "1", "--global_batch_size", "4", "--max_steps",
                            std::to_string(steps), "--lr_scheduler_type", "constant",
                            "--warmup_ratio", "0", "--save_steps", "2"}) +
             more;
    };
    const std::string whole = "whole-" + name, cut = "cut-" + name;
    const ProgramResult uncut = run_words(line(whole, 2 * parts.size()));
    ASSERT_EQ(uncut.exit_code, 0) << uncut.err;
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
};

const Part kWholeState = {1, {}}, kTensorShares = {4, kTensor + kZero3},
           kContextShares = {4, {"--cp", "2", "--shard", "zero2"}},
           kStagesShares = {4, kStages + kZero1}, kPartsOfVirtualStages = {2, kVirtualStages};

TEST_F(LaunchMeshGoesOn, AtAnotherMesh) {
  std::map<std::string, std::vector<Part>> all = {
      {"full", {kTensorShares, kPartsOfVirtualStages, kContextShares, kWholeState}}};
  if (is_slow()) {
    all["lora"] = {{2, kTensor}, {2, kStages}, {2, kZero3}, kWholeState};
    all["full"] = {kTensorShares,
                   kStagesShares,
                   {4, {"--cp", "2", "--shard", "zero3"}},
                   kWholeState,
                   {2, kStages},
                   {4, kTensor},
                   kPartsOfVirtualStages,
                   {4, {"--shard", "zero2"}},
                   kContextShares};
    all["lora"].push_back(kTensorShares);
    all["dora"] = {kTensorShares, kWholeState, {2, kTensor}, {2, kZero3}};
  }
  for (const auto& [tuning, parts] : all)
    expect_numbers_of_one_run(tuning, parts, tunings().at(tuning));
}

/// The tower and the merger are trained or adapted too, and their part of a state is cut as the
/// model is. Shares end within rows of the kernel that makes patches.
TEST_F(LaunchMeshGoesOn, WithAModelThatSees) {
  DANLU_REQUIRES_SHARED();
  const SeeingModel seeing = make_seeing_model((*this) / "");
  const Words all_parts = {"--model",      seeing.model, "--dataset",        seeing.rows,
                           "--freeze_vit", "false",      "--freeze_aligner", "false",
                           "--max_length", "256",        "--val_ratio",      "0"};
  const Part shares = {2, kZero3}, tensor = {2, kSequence}, stages = {2, kStages};
  std::vector<Part> full = {shares, stages, tensor}, lora = {shares, tensor};
  if (is_slow()) {
    full.insert(full.end(), {kContextShares, kTensorShares, {2, {}}, kStagesShares, kWholeState});
    lora.insert(lora.end(), {kStagesShares, kContextShares, kWholeState});
  }
  expect_numbers_of_one_run("full", full, all_parts + tunings().at("full"));
  if (!is_slow()) return;
  expect_numbers_of_one_run("lora", lora, all_parts + tunings().at("lora"));
}

}  // namespace
}  // namespace danlu::test
