// Several processes that train together: the numbers of one, and ends that all of them share.
#include "cli/launch.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/free_port.h"
#include "base/json.h"
#include "cli/logged_steps.h"
#include "support/alpaca_line.h"
#include "support/rank_process.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST_F(Launch, TheGuidesLinesOfSeveralProcesses) {
  DANLU_SLOW_TEST();
  Json config = Json::parse(content_of(good("model") / "config.json"));
  config["max_position_embeddings"] = 1024;
  const auto model_of = [&](const std::string& name, const Json& of) {
    fs::create_directories((*this) / name);
    write_content((*this) / name / "config.json", of.dump());
    const ProgramResult made = run_words({"init", "--config", (*this) / name / "config.json",
                                          "--output", (*this) / (name + "-chat")});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy_file(good("model") / file, (*this) / (name + "-chat") / file);
    return ((*this) / (name + "-chat")).string();
  };
  const std::string qwen = model_of("qwen", config);
  const std::string baichuan = model_of("baichuan2", {{"architectures", {"BaichuanForCausalLM"}},
                                                      {"model_type", "baichuan"},
                                                      {"hidden_size", 32},
                                                      {"intermediate_size", 48},
                                                      {"num_attention_heads", 4},
                                                      {"num_hidden_layers", 2},
                                                      {"vocab_size", 125696},
                                                      {"max_position_embeddings", 1024},
                                                      {"rms_norm_eps", 1e-6},
                                                      {"hidden_act", "silu"},
                                                      {"z_loss_weight", 0},
                                                      {"tie_word_embeddings", false},
                                                      {"torch_dtype", "float32"}});
  Json rows = Json::array();
  for (int i = 0; i < 8; ++i)
    rows.push_back(
        {{"instruction", "fox?"}, {"input", ""}, {"output", "dog " + std::to_string(i)}});
  write("alpaca_data_1k.json", rows.dump());
  write("ds_config_zero2.json", R"({"zero_optimization": {"stage": 2}, "fp16": {"enabled": "auto"},
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"})");
  const auto alpaca = [&](const std::string& model, std::vector<std::string> more) {
    std::vector<std::string> line = alpaca_line();
    line.insert(line.begin(), {"launch", "--nproc_per_node=2", "train", "--model_name_or_path",
                               model, "--data_path", "./alpaca_data_1k.json"});
    // A folder of the test's, and a step of its few rows.
    line.insert(line.end(), {"--output_dir", (*this) / ("out" + more.back()),
                             "--gradient_accumulation_steps", "2"});
    line.insert(line.end(), more.begin(), more.end());
    return run_words(line);
  };
  const auto expect_done = [](const ProgramResult& result, const char* said) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr(said));
    EXPECT_THAT(result.err, HasSubstr("finished 1 steps"));
  };
  expect_done(alpaca(qwen, {"--fsdp", "full_shard auto_wrap",
                            "--fsdp_transformer_layer_cls_to_wrap", "Qwen2DecoderLayer"}),
              "(ZeRO-3)");
  expect_done(alpaca(baichuan, {"--initial_loss_scale", "64", "--gradient_checkpointing", "True",
                                "--fsdp", "full_shard offload auto_wrap",
                                "--fsdp_transformer_layer_cls_to_wrap", "DecoderLayer"}),
              "(ZeRO-3)");
  expect_done(alpaca(qwen, {"--deepspeed", "ds_config_zero2.json"}), "(ZeRO-2)");
  for (const auto& [preset, said] : std::map<std::string, const char*>{
           {"default-zero2", "(ZeRO-2)"}, {"default-zero3", "(ZeRO-3)"}}) {
    expect_done(run_words({"sft", "--model_type", "qwen1half-7b-chat", "--model_id_or_path", qwen,
                           "--dataset", good("good.jsonl"), "--num_train_epochs", "1", "--sft_type",
                           "lora", "--output_dir", (*this) / preset, "--deepspeed", preset},
                          {{"NPROC_PER_NODE", "4"}, {"ASCEND_RT_VISIBLE_DEVICES", "0,1,2,3"}}),
                said);
  }
}

TEST_F(Launch, ARankWithoutSamplesInTheLastStepWaitsForNobody) {
  // Eight rows in steps of six: the second step's two are rank 0's.
  for (const char* shard : {"none", "zero2", "zero3"}) {
    const auto line = [&](const std::string& run) {
      return training(run, {"--tuner", "full", "--batch_size", "3", "--global_batch_size", "6",
                            "--epochs", "1", "--val_ratio", "0", "--shard", shard});
    };
    const std::string run = std::string("run-") + shard;
    const ProgramResult together = launch(2, line(run));
    ASSERT_EQ(together.exit_code, 0) << together.err;
    const auto got = steps_of((*this) / run);
    ASSERT_EQ(got.size(), 2u);
    ASSERT_EQ(run_words(line("one-" + run)).exit_code, 0);
    const auto expected = steps_of((*this) / ("one-" + run));
    for (size_t i = 0; i < 2; ++i) {
      const double want = expected[i].at("loss");
      EXPECT_NEAR(got[i].at("loss").get<double>(), want, 1e-5 * want) << shard << i;
    }
  }
}

TEST_F(Launch, AChangedByteOfARanksStateIsNoticedAndTheCheckpointBeforeUsed) {
  const auto line = training("run", {"--tuner", "full", "--batch_size", "1", "--max_steps", "2",
                                     "--save_steps", "1", "--shard", "zero1"});
  ASSERT_EQ(launch(2, line).exit_code, 0);
  const fs::path state = (*this) / "run/checkpoint-2/optim/rank-1.safetensors";
  {
    std::fstream file(state, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('\x5a');
  }
  const ProgramResult again = launch(2, line);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("run/checkpoint-2: a damaged checkpoint: file "
                                   "optim/rank-1.safetensors was changed"));
  EXPECT_THAT(again.err, HasSubstr("run/checkpoint-1 at step 1"));
}

TEST_F(Launch, ATrainingCommandStartsItsProcessesItself) {
  const auto words = [&](const std::string& run, const std::vector<std::string>& more) {
    auto all = training(run, {"--max_steps", "2", "--batch_size", "1"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto expect_two = [&](const ProgramResult& result, const std::string& run) {
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("× 2 processes = 16 samples a step"));
    EXPECT_THAT(result.err, testing::Not(HasSubstr("notice: --nproc")));
    EXPECT_TRUE(fs::exists((*this) / (run + "/rank-1.log")));
  };
  ASSERT_EQ(launch(2, words("launched", {})).exit_code, 0);
  expect_two(run_words(words("flag", {"--nproc_per_node", "2"})), "flag");
  expect_two(run_words(words("variable", {}), {{"NPROC_PER_NODE", "2"}, {"MASTER_PORT", "0"}}),
             "variable");
  write("two.yaml", "nproc: 2\n");
  auto file = words("file", {});
  file.insert(file.begin() + 1, (*this) / "two.yaml");
  expect_two(run_words(file), "file");
  for (const char* run : {"flag", "variable", "file"})
    EXPECT_EQ(run_words({"diff", (*this) / "launched", (*this) / run}).exit_code, 0);
  // Whoever started this process has decided.
  const ProgramResult one = run_words(words("one", {"--nproc", "2"}),
                                      {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.err, HasSubstr("--nproc 2: 1 processes run on this machine"));
  expect_error(run_words(words("tp", {"--tp", "2"})), 2,
               {"--tp 2: for 2 processes, and one runs", "add --nproc_per_node 2"});
  expect_error(run_words(words("far", {"--nnodes", "2"})), 2, {"must know machine 0"});
  EXPECT_THAT(run_words(words("x", {"--nproc", "2", "--print_config"})).out, HasSubstr("nproc: 2"));
}

TEST_F(Launch, ARankThatIsKilledEndsAllAndTheSameCommandGoesOn) {
  const auto line = [&](const std::string& run, const char* save_steps = "1") {
    return training(
        run, {"--tuner", "full", "--batch_size", "1", "--global_batch_size", "4", "--max_steps",
              "80", "--save_steps", save_steps, "--save_total_limit", "1"});
  };
  ASSERT_EQ(launch(2, line("whole", "80")).exit_code, 0);
  const ProgramResult killed =
      signalled(SIGKILL, "run/last/DONE", [&] { return launch(2, line("run")); });
  EXPECT_EQ(killed.exit_code, 7) << killed.err;
  EXPECT_THAT(killed.err, HasSubstr("rank 1 (process "));
  const ProgramResult again = launch(2, line("run"));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("resuming from"));
  const auto whole = steps_of((*this) / "whole"), resumed = steps_of((*this) / "run");
  ASSERT_EQ(whole.size(), 80u);
  ASSERT_EQ(resumed.size(), 80u);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(whole[i].at("loss"), resumed[i].at("loss"));
  EXPECT_EQ(run_words({"diff", (*this) / "whole", (*this) / "run"}).exit_code, 0);
}

TEST_F(Launch, WhatRanksWroteOfAStateIsInspected) {
  for (const char* processes : {"1", "2"}) {
    SCOPED_TRACE(processes);
    const std::string run = std::string("run") + processes;
    ASSERT_EQ(run_words(training(run, {"--tuner", "full", "--max_steps", "1", "--nproc", processes,
                                       "--shard", "zero2"}))
                  .exit_code,
              0);
    const fs::path state = (*this) / run / "checkpoint-1" / "optim";
    const ProgramResult said = run_words({"inspect", state});
    EXPECT_EQ(said.exit_code, 0) << said.err;
    EXPECT_THAT(said.out,
                testing::AllOf(HasSubstr("optim: an optimizer's state (Adam)"),
                               HasSubstr("checkpoint-1 shows the model"),
                               testing::ContainsRegex("weights +72,256 parameters in "),
                               HasSubstr("exp_avg_sq.model.layers.*.mlp.down_proj.weight")));
  }
}

TEST_F(Launch, ANoticeIsSaidOnce) {
  const ProgramResult result = run_words(
      training("run", {"--max_steps", "2", "--max_steps", "1", "--nproc", "2", "--tf32", "true"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* notice :
       {"takes the place of the earlier --max_steps", "--tf32 has no effect"}) {
    const size_t first = result.err.find(notice);
    ASSERT_NE(first, result.err.npos) << result.err;
    EXPECT_EQ(result.err.find(notice, first + 1), result.err.npos) << result.err;
  }
}

TEST_F(Launch, AJobBeginsAgainFromItsOwnCheckpoint) {
  DANLU_SLOW_TEST();
  const auto line = [&](const std::string& run, const std::vector<std::string>& more) {
    auto words = training(run, {"--tuner", "full", "--batch_size", "1", "--global_batch_size", "4",
                                "--max_steps", "80", "--save_steps", "1", "--nproc", "2"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  ASSERT_EQ(run_words(line("whole", {"--save_steps", "80"})).exit_code, 0);
  // What an earlier run left is not the job's own.
  ASSERT_EQ(run_words(line("run", {"--lr", "3e-4", "--max_steps", "3"})).exit_code, 0);
  const ProgramResult again = signalled(SIGKILL, "run/checkpoint-5/DONE", [&] {
    return run_words(line("run", {"--max_restarts", "1", "--overwrite_output_dir"}));
  });
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, testing::AllOf(HasSubstr("was ended by SIGKILL; "),
                                        HasSubstr("it begins again from its newest checkpoint: "
                                                  "restart 1 of 1"),
                                        HasSubstr("resuming from")));
  EXPECT_EQ(run_words({"diff", (*this) / "whole", (*this) / "run"}).exit_code, 0);

  const ProgramResult usage =
      run_words(line("x", {"--max_restarts", "3", "--dataset", (*this) / "nowhere.jsonl"}));
  EXPECT_EQ(usage.exit_code, 3) << usage.err;
  EXPECT_THAT(usage.err, testing::Not(HasSubstr("begins again")));
  expect_error(run_words(line("x", {"--min-ranks", "1"})), 2,
               {"--min-ranks 1: a job that lost a machine begins again only with --max_restarts"});
  expect_error(run_words(line("x", {"--min-ranks", "3", "--max_restarts", "1"})), 2,
               {"--min-ranks 3: the job has 2 ranks"});
}

TEST_F(Launch, AJobKnowsItsCheckpointsByItsName) {
  const auto life = [&](const char* number, const char* job) {
    return run_words(
        training("run", {"--max_steps", "3", "--save_steps", "1", "--overwrite_output_dir"}),
        {{"DANLU_RESTARTS", number}, {"DANLU_JOB", job}});
  };
  ASSERT_EQ(life("0", "one").exit_code, 0);
  for (const char* last : {"run/checkpoint-3", "run/DONE"})
    std::filesystem::remove_all((*this) / last);
  const ProgramResult again = life("1", "one");
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("resuming from"));
  const ProgramResult other = life("1", "two");
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.err, testing::Not(HasSubstr("resuming from")));
}

TEST_F(Launch, AJobThatLostRanksKeepsItsStepOrSaysWhatDoesNotDivide) {
  DANLU_SLOW_TEST();
  const auto of = [&](const char* ranks, const char* left, const std::vector<std::string>& more) {
    auto words = training("run", {"--max_steps", "1", "--batch_size", "1", "--dist-timeout", "60"});
    words.insert(words.end(), more.begin(), more.end());
    return run_words(words, {{"DANLU_JOB_RANKS", ranks},
                             {"WORLD_SIZE", left},
                             {"RANK", "0"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", std::to_string(free_port().value())}});
  };
  const ProgramResult alone = of("2", "1", {"--accum", "2", "--dp", "2"});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("1 sample × 4 accumulation × 1 process = 4 samples a step"));
  expect_error(of("3", "2", {"--accum", "1"}), 2,
               {"--global_batch_size 3: must be a multiple of --batch_size 1 × 2 processes = 2"});
  expect_error(of("4", "3", {"--tp", "2"}), 2,
               {"a micro-batch takes 2 ranks: of 4 ranks 3 are left"});
}

TEST_F(Launch, AHostFileSaysWhereThisMachineStands) {
  const auto with_file = [&](const std::string& content) {
    write("hosts", content);
    return run_words(training("run", {"--hostfile", (*this) / "hosts", "--max_steps", "1"}));
  };
  char name[256] = "";
  ASSERT_EQ(::gethostname(name, sizeof(name) - 1), 0);
  const std::string own = name;
  const ProgramResult two = with_file("# mine\n" + own + " slots=2  # both\n\n");
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_THAT(two.err, HasSubstr("× 2 processes"));
  fs::remove_all((*this) / "run");
  EXPECT_THAT(with_file("localhost slots=2\n").err, HasSubstr("× 2 processes"));
  fs::remove_all((*this) / "run");
  expect_error(with_file(own + " slots=2\nother slots=two\n"), 2,
               {"hosts:2: 'other slots=two' is no line of a host file", "NAME slots=N"});
  expect_error(with_file(own + " slots=2 more\n"), 2, {"hosts:1:"});
  expect_error(with_file("a slots=2\n" + own + "\na slots=1\n"), 2,
               {"hosts:3: a stands there twice"});
  expect_error(with_file("192.0.2.1 slots=2\n"), 2, {"this machine", "is not in it", own});
  expect_error(with_file("localhost slots=2\nother\n"), 2,
               {"localhost is another machine on each of several"});
  expect_error(with_file("# none\n"), 2, {"no machine"});
  expect_error(with_file(own + "\n192.0.2.1\n"), 2, {"must agree on a port"});
  expect_error(run_words(training("run", {"--hostfile", (*this) / "nowhere"})), 8,
               {"nowhere: cannot be read"});
  expect_error(run_words(training("run", {"--hostfile", (*this) / "hosts", "--nproc", "2"})), 2,
               {"--nproc and --hostfile both say"});
}

TEST_F(Launch, MoreProcessesThanMemoryHoldsAreNotBegun) {
  const int64_t memory = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  if (memory > 50'000'000'000) GTEST_SKIP() << "it holds as many as may be asked for";
  const auto line = training("run", {"--max_steps", "1", "--nproc", "1024"});
  expect_error(run_words(line), 6, {"1024 processes on this machine: each takes 50 MB"});
  EXPECT_FALSE(std::filesystem::exists((*this) / "run"));
}

TEST_F(Launch, WhatAnotherLauncherStartedStartsNoJobOfItsOwn) {
  const auto line = training("run", {"--max_steps", "1", "--nproc", "2"});
  expect_error(run_words(line, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}), 2,
               {"RANK=1 and WORLD_SIZE=2 say that this is one of several processes already",
                "NNODES=2 NODE_RANK=1"});
  EXPECT_FALSE(std::filesystem::exists((*this) / "run"));
}

/// A program of the cluster's, found first.
void stand_in(const fs::path& program, const std::string& script) {
  write_content(program, "#!/bin/bash\n" + script);
  fs::permissions(program, fs::perms::owner_all);
}

TEST_F(Launch, TheBatchScriptForSlurmStartsRanks) {
  fs::create_directory((*this) / "bin");
  stand_in((*this) / "bin/scontrol", "echo 127.0.0.1\necho node2\n");
  stand_in((*this) / "bin/danlu", "exec '" + danlu_path() + "' \"$@\"\n");
  stand_in((*this) / "bin/srun",
           "shift\nfor i in 1 2 3 0; do\n"
           "  SLURM_PROCID=$i SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 "
           "\"$@\" &\ndone\nwait $!\n");
  ProgramSettings settings;
  settings.program = DANLU_SOURCE_DIR "/recipes/slurm_two_nodes.sh";
  settings.directory = (*this) / "";
  settings.environment = {{"OMP_NUM_THREADS", "1"},
                          {"XDG_CACHE_HOME", (*this) / "cache"},
                          {"SLURM_JOB_ID", std::to_string(::getpid())},
                          {"SLURM_JOB_NODELIST", "127.0.0.1,node2"},
                          {"PATH", ((*this) / "bin").string() + ":" + std::getenv("PATH")}};
  auto words = training("run", {"--max_steps", "1"});
  words.erase(words.begin());
  const ProgramResult result = run_danlu(words, settings);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("× 4 processes"));
}

TEST_F(Launch, TheManifestForKubernetesSaysWhatItsOperatorDoesNot) {
  const std::string manifest = content_of(DANLU_SOURCE_DIR "/recipes/pytorchjob_two_pods.yaml");
  const std::string name = "{name: LOCAL_WORLD_SIZE, value: \"";
  const size_t at = manifest.find(name);
  ASSERT_NE(at, manifest.npos);
  const std::string local = manifest.substr(at + name.size(), 1);
  const std::string port = std::to_string(free_port().value());
  const auto pod = [&](const char* rank) {
    return run_words(training("run", {"--max_steps", "1"}), {{"RANK", rank},
                                                             {"WORLD_SIZE", "2"},
                                                             {"LOCAL_WORLD_SIZE", local},
                                                             {"MASTER_ADDR", "127.0.0.1"},
                                                             {"MASTER_PORT", port}});
  };
  std::thread worker([&] { EXPECT_EQ(pod("1").exit_code, 0); });
  const ProgramResult master = pod("0");
  worker.join();
  EXPECT_EQ(master.exit_code, 0) << master.err;
  EXPECT_THAT(master.err, HasSubstr("× 2 processes"));
}

TEST_F(Launch, RanksOfOneMachineDivideItsThreadsUnlessTheyAreTold) {
  const auto threads_of = [&](std::map<std::string, std::string> rank) {
    rank["OMP_NUM_THREADS"] = "";
    const ProgramResult result = run_words(training("run", {"--max_steps", "1"}), rank);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const size_t said = result.err.find("device  cpu, ");
    return said == std::string::npos ? 0 : std::atoi(result.err.c_str() + said + 13);
  };
  const std::string port = std::to_string(free_port().value());
  const auto rank = [&](const char* number) {
    return std::map<std::string, std::string>{
        {"RANK", number},          {"WORLD_SIZE", "2"},          {"LOCAL_RANK", number},
        {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
  };
  std::thread second([&] { threads_of(rank("1")); });
  const int of_two = threads_of(rank("0"));
  second.join();
  const int alone = threads_of({});
  // Processors that this test is bound to are not divided.
  if (alone < static_cast<int>(std::thread::hardware_concurrency())) GTEST_SKIP();
  EXPECT_EQ(of_two, std::max(1, alone / 2));
}

TEST_F(Launch, ARankThatIsStoppedEndsAll) {
  const ProgramResult stopped = signalled(SIGSTOP, "run/last/DONE", [&] {
    return launch(2, training("run", {"--max_steps", "100000", "--save_steps", "5"}));
  });
  EXPECT_EQ(stopped.exit_code, 7) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("was stopped by SIGSTOP"));
}

TEST_F(Launch, ASignalStopsEveryRankBehindOneCheckpoint) {
  const auto stopped_after = [&](const char* words_seen) {
    ProgramSettings settings;
    settings.environment = {{"OMP_NUM_THREADS", "1"}, {"XDG_CACHE_HOME", (*this) / "cache"}};
    settings.directory = (*this) / "";
    settings.signal = SIGTERM;
    settings.signal_after = words_seen;
    std::vector<std::string> words = {"launch", "--nproc", "2", "--"};
    const auto command = training("run", {"--max_steps", "100000", "--save_steps", "50000"});
    words.insert(words.end(), command.begin(), command.end());
    return run_danlu(words, settings);
  };
  const ProgramResult early = stopped_after("device  cpu");  // the banner: nothing is trained yet
  EXPECT_EQ(early.exit_code, 143) << early.err;
  EXPECT_THAT(early.err, HasSubstr("STOPPED (exit 143)"));
  fs::remove_all((*this) / "run");
  const ProgramResult stopped = stopped_after("step 3/");
  EXPECT_EQ(stopped.exit_code, 143) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("stopped by SIGTERM"));
  EXPECT_TRUE(fs::exists((*this) / "run/last/DONE"));
}

TEST_F(Launch, AnErrorOfOneRankIsSaidAndEndsAll) {
  const ProgramResult rows = launch(3, training("run", {"--dataset", (*this) / "nowhere.jsonl"}));
  EXPECT_EQ(rows.exit_code, 3) << rows.err;
  EXPECT_THAT(rows.err, HasSubstr("nowhere.jsonl: no such file"));
  EXPECT_FALSE(fs::exists((*this) / "run"));

  // By hand, with other flags on rank 1.
  const auto expect_difference = [&](const std::vector<std::string>& more, const char* said) {
    const std::string port = std::to_string(free_port().value());
    const auto rank = [&](const char* number, const std::vector<std::string>& flags) {
      auto words = training("run", {"--max_steps", "2", "--ddp_timeout", "600"});
      words.insert(words.end(), flags.begin(), flags.end());
      return run_words(words, {{"RANK", number},
                               {"WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "127.0.0.1"},
                               {"MASTER_PORT", port}});
    };
    ProgramResult first;
    std::thread other([&] { first = rank("0", {}); });
    const ProgramResult second = rank("1", more);
    other.join();
    for (const ProgramResult& result : {first, second})
      expect_error(result, 2, {std::string("rank 1 has another configuration: ") + said});
  };
  expect_difference({"--lr", "2e-4"}, "--lr is 0.0002 there, not given on rank 0");
  // What would leave ranks waiting for each other, or adding up different things.
  expect_difference({"--eval_iters", "1"}, "--eval_iters is 1 there");
  expect_difference({"--tp", "2"}, "--tp is 2 there, 1 on rank 0");
}

TEST_F(Launch, NamesThatAreNoUtf8AreSaidBetweenRanks) {
  const std::string gbk = "\xca\xfd";
  const ProgramResult trained = launch(2, training(gbk, {"--max_steps", "1"}));
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_TRUE(fs::exists((*this) / gbk / "rank-1.log"));
  const ProgramResult again =
      launch(2, training(gbk, {"--max_steps", "2", "--resume", (*this) / gbk / "checkpoint-1"}));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  const ProgramResult failed =
      launch(2, training("run", {"--dataset", (*this) / (gbk + ".jsonl")}));
  EXPECT_EQ(failed.exit_code, 3) << failed.err;
  EXPECT_THAT(failed.err, HasSubstr(gbk + ".jsonl: no such file"));
}

TEST_F(Launch, WhatCannotBeIsRefusedBeforeAnythingIsMade) {
  std::vector<std::string> as_typed = {"launch", "--nproc", "2", "danlu"};
  for (const std::string& word : training("run", {"--dry_run"})) as_typed.push_back(word);
  EXPECT_EQ(run_words(as_typed).exit_code, 0);
  expect_error(run_words({"launch", "--nproc", "2", "stf", "--model", "m"}), 2,
               {"'stf'", "did you mean", "sft"});
  expect_error(run_words({"launch", "--nproc", "2", "--shard", "zero2", "sft"}), 2,
               {"--shard is no flag of danlu launch", "danlu launch … sft --shard"});
  expect_error(run_words({"launch", "--nproc", "2", "sft", "--max_restarts", "2"}), 2,
               {"--max_restarts behind sft", "danlu launch --max_restarts … sft"});
  const auto alone = [&](const std::map<std::string, std::string>& environment) {
    return run_words(training("run", {}), environment);
  };
  expect_error(alone({{"WORLD_SIZE", "2"}}), 2, {"RANK is missing", "danlu launch"});
  expect_error(alone({{"WORLD_SIZE", "2"}, {"RANK", "2"}}), 2, {"RANK=2", "from 0 to 1"});
  expect_error(alone({{"WORLD_SIZE", "two"}}), 2, {"WORLD_SIZE=two"});
  expect_error(alone({{"WORLD_SIZE", "2"}, {"RANK", "0"}}), 2, {"MASTER_ADDR is missing"});
  expect_error(run_words(training("run", {"--ddp_timeout", "2"}),
                         {{"WORLD_SIZE", "2"},
                          {"RANK", "1"},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", std::to_string(free_port().value())}}),
               7, {"rank 1 cannot reach rank 0 at 127.0.0.1:"});
  expect_error(launch(2, training("run", {"--cp", "3"})), 2, {"2 processes are no multiple of it"});
  expect_error(launch(3, training("run", {"--cp", "3"})), 2,
               {"query and", "heads that a tensor rank has cannot be shared by 3",
                "megatron_cp_algo divides no heads"});
  expect_error(launch(2, training("run", {"--tp", "3"})), 2, {"2 processes are no multiple of it"});
  const auto stages = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--pp", "2"});
    return launch(2, training("run", flags));
  };
  expect_error(stages({"--num-layer-list", "2,0"}), 2, {"pipeline stage 1 of 2 is left without"});
  expect_error(stages({"--num-layer-list", "2,1"}), 2,
               {"2,1 does not cut 2 layers into 2", "(no-op slots included): 1,1"});
  const std::string virtual_stage = "--num-layers-per-virtual-pipeline-stage";
  expect_error(stages({"--num-layer-list", "1,1", virtual_stage, "1"}), 2,
               {"cannot be combined with virtual pipeline stages"});
  expect_error(stages({virtual_stage, "2"}), 2,
               {"virtual pipeline stage size 2 does not divide 1 layers of a pipeline stage",
                "sizes that do: 1"});
  const std::vector<std::string> two_runs = {"--noop-layers", "0,3", virtual_stage, "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), two_runs.begin(), two_runs.end());
    return stages(more);
  };
  expect_error(with({"--batch_size", "1", "--gradient_accumulation_steps", "1"}), 2,
               {"at least as many micro-batches a step as pipeline stages: 1 for 2 stages",
                "give --gradient_accumulation_steps 2"});
  expect_error(with({"--batch_size", "2", "--global_batch_size", "2"}), 2,
               {"1 for 2 stages", "give --global_batch_size 4"});
  expect_error(with({"--use-nanopipe"}), 2,
               {"--use-nanopipe: not with virtual stages", "leave " + virtual_stage + " out"});
  expect_error(with({"--vpp", "2"}), 2, {"say the same: give one"});
  expect_error(stages({"--pipeline-schedule", "interleaved"}), 2, {"needs virtual stages"});
  expect_error(stages({"--pipeline-schedule", "1f1b", "--enable-zero-bubble"}), 2,
               {"--enable-zero-bubble asks for zero-bubble"});
  expect_error(launch(4, training("run", {"--pp", "2", "--shard", "zero2", "--pipeline-schedule",
                                          "zero-bubble"})),
               2, {"the zero-bubble schedule leaves gradients", "--shard zero1"});
  expect_error(launch(2, training("run", {"--tp", "2", "--pp", "2"})), 2,
               {"--tp 2 × --pp 2: 2 processes are no multiple of it",
                "--tp × --pp may be 1, 2; --tp × --pp 4 needs a multiple of 4 processes"});
  expect_error(launch(4, training("run", {"--pp", "4"})), 2,
               {"pipeline size 4 does not divide 2 layers", "sizes that do: 1, 2"});
  expect_error(launch(2, training("run", {"--tp", "2", "--dp", "2"})), 2, {"--dp 2: 2 processes"});
  expect_error(
      launch(3, training("run", {"--tp", "3", "--max_steps", "1"})), 2,
      {"3 tensor-parallel ranks cannot divide 4 attention heads", "hint: sizes that do: 1, 2, 4"});
  fs::remove_all((*this) / "run");  // made before the model is
  expect_error(launch(2, training("run", {"--global_batch_size", "3", "--batch_size", "1"})), 2,
               {"must be a multiple of --batch_size 1 × 2 processes = 2"});
  const auto few = write("few.jsonl", "{\"instruction\": \"fox?\", \"output\": \"dog\"}\n");
  expect_error(launch(2, {"sft", "--model", good("model"), "--dataset", few, "--val_ratio", "0",
                          "--output_dir", (*this) / "run", "--no-version-dir"}),
               2, {"1 training samples for 2 processes"});
  fs::remove_all((*this) / "run");
  expect_error(run_words({"launch", "sft"}), 2, {"--nproc is missing"});
  EXPECT_THAT(run_words({"launch", "sft", "--help"}).out, HasSubstr("Usage: danlu sft"));
  expect_error(run_words({"launch", "--nproc", "2"}), 2, {"which command"});
  expect_error(run_words({"launch", "--nproc", "2", "merge", "--model", "x"}), 2,
               {"danlu merge is one process"});
  expect_error(run_words({"launch", "--nproc", "0", "sft"}), 2, {"--nproc"});
  expect_error(run_words({"launch", "--nproc", "2", "--node_rank", "1", "sft"}), 2,
               {"counted from 0, and --nnodes is 1"});
  EXPECT_FALSE(fs::exists((*this) / "run"));
}

}  // namespace
}  // namespace danlu::test
