// Several processes that train together: the numbers of one, and ends that all of them share.
#include <csignal>
#include <fstream>
#include <thread>

#include "base/free_port.h"
#include "base/json.h"
#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// One entry of logging.jsonl a step.
std::vector<Json> steps_of(const fs::path& run) {
  std::vector<Json> steps;
  std::ifstream file(run / "logging.jsonl");
  for (std::string line; std::getline(file, line);) {
    Json record = Json::parse(line);
    if (record.contains("loss")) steps.push_back(std::move(record));
  }
  return steps;
}

class Launch : public BadInput {
 protected:
  std::vector<std::string> training(const std::string& run,
                                    const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"sft",
                                      "--model",
                                      good("model"),
                                      "--dataset",
                                      good("good.jsonl"),
                                      "--output_dir",
                                      (*this) / run,
                                      "--no-version-dir",
                                      "--dtype",
                                      "fp32",
                                      "--logging_steps",
                                      "1",
                                      "--adam_epsilon",
                                      "1e-6"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult run_words(std::vector<std::string> words,
                          std::map<std::string, std::string> environment = {}) const {
    ProgramSettings settings;
    environment["XDG_CACHE_HOME"] = (*this) / "cache";
    environment.try_emplace("OMP_NUM_THREADS", "1");
    settings.environment = std::move(environment);
    settings.directory = (*this) / "";
    return run_danlu(words, settings);
  }
  ProgramResult launch(int64_t nproc, const std::vector<std::string>& words) const {
    std::vector<std::string> all = {"launch", "--nproc_per_node=" + std::to_string(nproc)};
    all.insert(all.end(), words.begin(), words.end());
    return run_words(std::move(all));
  }
};

TEST_F(Launch, EveryMeshGivesTheNumbersOfOneProcess) {
  struct MeshLine {
    const char* run;
    int64_t processes;
    std::vector<std::string> flags;
    const char* said;
  };
  const std::vector<MeshLine> meshes = {
      {"dp2", 2, {}, "× 2 processes = 8 samples a step"},
      {"dp4", 4, {}, "× 4 processes = 8 samples a step"},
      {"tp2", 2, {"--tp", "2"}, "divided over 2 tensor-parallel"},
      {"tp2dp2sp", 4, {"--tp", "2", "--sequence-parallel"}, "processes, and its tokens"}};
  for (const char* tuner : {"full", "lora"}) {
    const auto line = [&](const std::string& run, const char* batch) {
      return training(run, {"--tuner", tuner, "--batch_size", batch, "--global_batch_size", "8",
                            "--max_steps", "6", "--lora_dropout", "0.1", "--val_ratio", "0.25",
                            "--eval_steps", "3", "--save_steps", "3"});
    };
    const std::string one = std::string("one-") + tuner;
    const ProgramResult alone = run_words(line(one, "4"));
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    const auto expected = steps_of((*this) / one);
    ASSERT_EQ(expected.size(), 6u);
    for (const MeshLine& mesh : meshes) {
      SCOPED_TRACE(std::string(mesh.run) + " " + tuner);
      const std::string run = std::string(mesh.run) + tuner;
      auto words = line(run, "1");
      words.insert(words.end(), mesh.flags.begin(), mesh.flags.end());
      const ProgramResult together = launch(mesh.processes, words);
      ASSERT_EQ(together.exit_code, 0) << together.err;
      EXPECT_THAT(together.err, HasSubstr(mesh.said));
      const auto got = steps_of((*this) / run);
      ASSERT_EQ(got.size(), 6u);
      for (size_t i = 0; i < got.size(); ++i) {
        for (const char* key : {"loss", "grad_norm"}) {
          const double want = expected[i].at(key);
          EXPECT_NEAR(got[i].at(key).get<double>(), want, 1e-5 * want) << key << " " << i;
        }
      }
      const ProgramResult same =
          run_words({"diff", (*this) / one, (*this) / run, "--tolerance", "1e-4"});
      EXPECT_EQ(same.exit_code, 0) << same.out;
      EXPECT_TRUE(fs::exists((*this) / run / "rank-1.log"));
    }
  }
}

TEST_F(Launch, ARunGoesOnAtAnotherMesh) {
  const auto line = [&](const std::string& run, const char* steps, const std::string& from,
                        const std::vector<std::string>& more = {}) {
    auto words = training(run, {"--tuner", "full", "--batch_size", "1", "--global_batch_size", "4",
                                "--max_steps", steps, "--lr_scheduler_type", "constant",
                                "--warmup_ratio", "0", "--save_steps", "2"});
    if (!from.empty()) words.insert(words.end(), {"--resume", (*this) / (run + "/" + from)});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  ASSERT_EQ(run_words(line("whole", "8", "")).exit_code, 0);
  ASSERT_EQ(launch(2, line("cut", "2", "", {"--tp", "2"})).exit_code, 0);
  const ProgramResult alone = run_words(line("cut", "4", "checkpoint-2"));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const ProgramResult both = launch(4, line("cut", "6", "checkpoint-4", {"--tp", "2"}));
  ASSERT_EQ(both.exit_code, 0) << both.err;
  const ProgramResult last = launch(4, line("cut", "8", "checkpoint-6"));
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("resuming from"));
  const auto whole = steps_of((*this) / "whole"), cut = steps_of((*this) / "cut");
  ASSERT_EQ(whole.size(), 8u);
  ASSERT_EQ(cut.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    const double want = whole[i].at("loss");
    EXPECT_NEAR(cut[i].at("loss").get<double>(), want, 1e-5 * want) << i;
  }
}

/// The process that is rank `rank` of a job started in `directory`; 0: none, which kill() would
/// take for everybody.
pid_t process_of(const fs::path& directory, int64_t rank) {
  const std::string variable = '\0' + ("RANK=" + std::to_string(rank)) + '\0';
  for (const auto& process : fs::directory_iterator("/proc")) {
    std::error_code error;
    if (!fs::equivalent(process.path() / "cwd", directory, error) || error) continue;
    if (content_of(process.path() / "environ").find(variable) != std::string::npos)
      return std::stoi(process.path().filename().string());
  }
  return 0;
}

void send_signal(pid_t process, int signal) {
  EXPECT_GT(process, 0) << "the run was over too soon";
  if (process > 0) ::kill(process, signal);
}

TEST_F(Launch, ARankThatIsKilledEndsAllAndTheSameCommandGoesOn) {
  const auto line = [&](const std::string& run) {
    return training(run, {"--tuner", "full", "--batch_size", "1", "--global_batch_size", "4",
                          "--max_steps", "80", "--save_steps", "1", "--save_total_limit", "1"});
  };
  ASSERT_EQ(launch(2, line("whole")).exit_code, 0);
  ProgramResult killed;
  std::thread job([&] { killed = launch(2, line("run")); });
  while (!fs::exists((*this) / "run/last/DONE"))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  send_signal(process_of((*this) / "", 1), SIGKILL);
  job.join();
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

TEST_F(Launch, ARankThatIsStoppedEndsAll) {
  ProgramResult stopped;
  std::thread job([&] {
    stopped = launch(2, training("run", {"--max_steps", "100000", "--save_steps", "5"}));
  });
  while (!fs::exists((*this) / "run/last/DONE"))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  send_signal(process_of((*this) / "", 1), SIGSTOP);
  job.join();
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
    const auto command = training("run", {"--max_steps", "4000", "--save_steps", "1000"});
    words.insert(words.end(), command.begin(), command.end());
    return run_danlu(words, settings);
  };
  const ProgramResult early = stopped_after("processor");  // the banner: nothing is trained yet
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
      auto words = training("run", {"--max_steps", "2", "--ddp_timeout", "20"});
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

TEST_F(Launch, WhatCannotBeIsRefusedBeforeAnythingIsMade) {
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
  expect_error(launch(2, training("run", {"--pp", "2"})), 2, {"--pp 2: this version divides"});
  expect_error(launch(2, training("run", {"--tp", "3"})), 2, {"2 processes are no multiple of it"});
  expect_error(launch(2, training("run", {"--tp", "2", "--dp", "2"})), 2, {"--dp 2: 2 processes"});
  expect_error(launch(3, training("run", {"--tp", "3", "--max_steps", "1"})), 2,
               {"4 attention heads", "do not divide over 3", "hint: sizes that do: 1, 2, 4"});
  fs::remove_all((*this) / "run");  // made before the model is
  expect_error(launch(2, training("run", {"--global_batch_size", "3", "--batch_size", "1"})), 2,
               {"must be a multiple of --batch_size 1 × 2 processes = 2"});
  expect_error(run_words({"launch", "sft"}), 2, {"--nproc is missing"});
  EXPECT_THAT(run_words({"launch", "sft", "--help"}).out, HasSubstr("Usage: danlu sft"));
  expect_error(run_words({"launch", "--nproc", "2"}), 2, {"which command"});
  expect_error(run_words({"launch", "--nproc", "2", "infer", "--model", "x"}), 2,
               {"danlu infer is one process"});
  expect_error(run_words({"launch", "--nproc", "0", "sft"}), 2, {"--nproc"});
  expect_error(run_words({"launch", "--nproc", "2", "--node_rank", "1", "sft"}), 2,
               {"counted from 0, and --nnodes is 1"});
  EXPECT_FALSE(fs::exists((*this) / "run"));
}

}  // namespace
}  // namespace danlu::test
