// Machines that share their directories or do not: two launchers of one system, in two places.
#include <signal.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "base/free_port.h"
#include "cli/bad_input.h"
#include "cli/logged_steps.h"
#include "support/rank_process.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Storage : public BadInput {
 protected:
  void SetUp() override {
    BadInput::SetUp();
    for (const char* disk : {"disk-0", "disk-1"}) {
      fs::create_directory((*this) / disk);
      fs::copy_file(good("good.jsonl"), (*this) / disk / "rows.jsonl");
    }
  }
  static std::vector<std::string> training(const std::vector<std::string>& more) {
    std::vector<std::string> words = {"sft",
                                      "--model",
                                      good("model"),
                                      "--dataset",
                                      "rows.jsonl",
                                      "--output_dir",
                                      "run",
                                      "--no-version-dir",
                                      "--dtype",
                                      "fp32",
                                      "--logging_steps",
                                      "1",
                                      "--adam_epsilon",
                                      "1e-6",
                                      "--tuner",
                                      "full",
                                      "--batch_size",
                                      "1",
                                      "--global_batch_size",
                                      "4",
                                      "--save_steps",
                                      "2",
                                      "--lr_scheduler_type",
                                      "constant"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult run_on(const std::string& disk, const std::vector<std::string>& words,
                       const std::string& limits = "") const {
    std::string line = limits + " exec \"$0\" \"$@\"";
    std::vector<std::string> all = {"-c", line, danlu_path()};
    all.insert(all.end(), words.begin(), words.end());
    return run_danlu(all, {.program = "/bin/bash",
                           .environment = {{"OMP_NUM_THREADS", "1"},
                                           {"XDG_CACHE_HOME", (*this) / disk / "cache"}},
                           .directory = (*this) / disk});
  }
  /// REQUIRES: two machines have trained 4 steps with a shared state. Looks at the second one's
  /// files.
  void expect_part_is_known() const {
    const ProgramResult seen = run_on("disk-1", {"inspect", "run/checkpoint-4"});
    EXPECT_EQ(seen.exit_code, 0) << seen.err;
    EXPECT_THAT(seen.out,
                AllOf(HasSubstr("one machine's part of a training checkpoint"),
                      HasSubstr("optimizer state of ranks 1 (of 0-1)"),
                      HasSubstr("the model is on machine 0"), Not(HasSubstr("data set"))));
    EXPECT_THAT(run_on("disk-0", {"inspect", "run/checkpoint-4"}).out,
                AllOf(HasSubstr("the model and optimizer state of ranks 0 (of 0-1)"),
                      HasSubstr("Hugging Face model directory")));
    for (const std::string where : {"run/checkpoint-4", "run"}) {
      expect_error(run_on("disk-1", {"infer", "--model", where, "--prompt", "fox"}), 4,
                   {"one machine's part of a checkpoint, without the model",
                    "its weights are on machine 0"});
    }
    expect_error(run_on("disk-1", training({"--model", "run/checkpoint-4"})), 4,
                 {"one machine's part of a checkpoint", "its weights are on machine 0"});
  }
  /// A machine of one process on each of the disks; `limits`: shell words for the second.
  std::vector<ProgramResult> run_both(const std::vector<std::string>& disks,
                                      const std::vector<std::string>& more,
                                      const std::string& limits = "") const {
    const std::string port = std::to_string(free_port().value());
    std::vector<ProgramResult> results(2);
    const auto machine = [&](size_t number) {
      auto words = training({"--nnodes", "2", "--node_rank", std::to_string(number),
                             "--master_addr", "127.0.0.1", "--master_port", port});
      words.insert(words.end(), more.begin(), more.end());
      results[number] = run_on(disks[number], words, number == 1 ? limits : "");
    };
    std::thread second([&] { machine(1); });
    machine(0);
    second.join();
    return results;
  }
  /// Shell words that leave a program so much address space beside what the engine's libraries
  /// take, which is six times as much in a build for CUDA.
  static std::string limit_beside_libraries(int64_t kib) {
    const fs::path engine = fs::path(danlu_path()).parent_path() / "libdanlu_engine.so";
    const ProgramResult sizes = run_danlu(
        {"-c", "ldd \"$0\" | awk '$3 ~ /^\\// { print $3 }' | xargs stat -L -c %s", engine},
        {.program = "/bin/bash"});
    EXPECT_EQ(sizes.exit_code, 0) << sizes.err;
    std::istringstream lines(sizes.out);
    int64_t bytes = 0;
    for (int64_t of_one = 0; lines >> of_one;) bytes += of_one;
    EXPECT_GT(bytes, 0) << sizes.out;
    return "ulimit -v " + std::to_string(kib + bytes / 1024) + ";";
  }
};

TEST_F(Storage, EveryMachineKeepsWhatItsRanksHoldAndLearnsWhatItLacks) {
  const std::vector<std::string> apart = {"disk-0", "disk-1"};
  const auto first = run_both(apart, {"--shard", "zero1", "--max_steps", "4"});
  for (const ProgramResult& result : first) ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(first[0].err, AllOf(HasSubstr("machines do not share run: ranks 0, 1 each keep"),
                                  ContainsRegex("share .*cache.*: ranks 0, 1 prepare the data")));
  const auto file = [&](const std::string& disk, const std::string& name) {
    return (*this) / disk / "run/checkpoint-4" / name;
  };
  for (const std::string own : {"0", "1"}) {
    const std::string disk = "disk-" + own, other = own == "0" ? "1" : "0";
    EXPECT_TRUE(fs::exists(file(disk, "optim/rank-" + own + ".safetensors")));
    EXPECT_FALSE(fs::exists(file(disk, "optim/rank-" + other + ".safetensors")));
    EXPECT_TRUE(fs::exists(file(disk, "DONE")));
    EXPECT_EQ(fs::exists(file(disk, "model.safetensors")), own == "0");
    EXPECT_FALSE(fs::is_empty((*this) / disk / "cache"));
  }

  expect_part_is_known();
  expect_error(run_on("disk-0", training({"--max_steps", "6", "--resume", "run/checkpoint-4"})), 4,
               {"rank-1.safetensors is missing"});
  const std::vector<std::string> on = {"--shard", "zero1",    "--max_steps",
                                       "6",       "--resume", "run/checkpoint-4"};
  auto dry = on;
  dry.push_back("--dry_run");
  for (const ProgramResult& result : run_both(apart, dry))
    EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(fs::exists(file("disk-1", "model.safetensors")));
  const auto second = run_both(apart, on);
  for (const ProgramResult& result : second) EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(second[0].err,
              AllOf(HasSubstr("resuming from"),
                    ContainsRegex("checkpoint-4: rank 1 gets model.safetensors .* of rank 0"),
                    Not(HasSubstr("gets optim"))));
  EXPECT_EQ(content_of(file("disk-0", "model.safetensors")),
            content_of(file("disk-1", "model.safetensors")));
  EXPECT_THAT(content_of(file("disk-1", "DONE")),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("rank-1"), Not(HasSubstr("rank-0"))));

  auto alone = training({"--max_steps", "6", "--output_dir", "one"});
  ASSERT_EQ(run_on("disk-0", alone).exit_code, 0);
  expect_same_losses((*this) / "disk-0/one", (*this) / "disk-0/run", 6);
}

TEST_F(Storage, GoesOnFromTheNewestThatEveryMachineHasWhole) {
  const std::vector<std::string> apart = {"disk-0", "disk-1"};
  const std::vector<std::string> line = {
      "--shard", "zero1", "--max_steps", "6", "--save_total_limit", "5"};
  for (const ProgramResult& result : run_both(apart, line))
    ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto checkpoint = [&](const std::string& disk, const std::string& step) {
    return (*this) / disk / ("run/checkpoint-" + step);
  };
  // Killed between the names at the one and at the other keeper, behind a step of each.
  fs::remove_all(checkpoint("disk-1", "6"));
  fs::remove_all(checkpoint("disk-0", "4"));
  auto strict = line;
  strict.insert(strict.end(), {"--resume", "run/checkpoint-6"});
  for (const ProgramResult& result : run_both(apart, strict)) {
    EXPECT_EQ(result.exit_code, 8) << result.err;
    EXPECT_THAT(result.err,
                ContainsRegex("checkpoint-6: not every machine can have what it needs of it: rank "
                              "1 on .* lacks optim/rank-1.safetensors .nobody has it"));
    EXPECT_THAT(result.err, ContainsRegex("hint: .*copy run/checkpoint-6 of rank 0 on .* to every "
                                          "machine and give --model run/checkpoint-6"));
  }
  const auto on = run_both(apart, line);
  for (const ProgramResult& result : on) ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(on[0].err,
              AllOf(ContainsRegex("checkpoint-6: rank 1 on .*nobody has it.; not resumed from"),
                    ContainsRegex("checkpoint-4: rank 0 on .*nobody has it.; not resumed from"),
                    HasSubstr("resuming from run/checkpoint-2 at step 2")));
  for (const std::string disk : {"disk-0", "disk-1"}) {
    for (const std::string step : {"4", "6"})
      EXPECT_TRUE(fs::exists(checkpoint(disk, step) / "DONE")) << disk << step;
  }

  // What a machine's disk has lost is as good as not there.
  const fs::path state = checkpoint("disk-1", "6") / "optim/rank-1.safetensors";
  std::string changed = content_of(state);
  changed[changed.size() / 2] ^= 1;
  write_content(state, changed);
  const auto again = run_both(apart, line);
  for (const ProgramResult& result : again) ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(again[0].err,
              AllOf(ContainsRegex("checkpoint-6: rank 1 on .*file optim/rank-1.safetensors was "
                                  "changed.*not resumed from"),
                    HasSubstr("resuming from run/checkpoint-4 at step 4")));
  auto alone = line;
  alone.insert(alone.end(), {"--output_dir", "one"});
  ASSERT_EQ(run_on("disk-0", training(alone)).exit_code, 0);
  expect_same_losses((*this) / "disk-0/one", (*this) / "disk-0/run", 6);

  // Nothing is lacking of it by now, so nothing is copied that would be looked at.
  const fs::path earlier = checkpoint("disk-1", "2") / "optim/rank-1.safetensors";
  changed = content_of(earlier);
  changed[changed.size() / 2] ^= 1;
  write_content(earlier, changed);
  auto named = line;
  named.insert(named.end(), {"--resume", "run/checkpoint-2"});
  for (const ProgramResult& result : run_both(apart, named)) {
    EXPECT_EQ(result.exit_code, 8) << result.err;
    EXPECT_THAT(result.err, ContainsRegex("rank 1 on .*file optim/rank-1.safetensors was changed"));
  }

  for (const std::string step : {"2", "4", "6"})
    fs::remove(checkpoint("disk-0", step) / "optim/rank-0.safetensors");
  for (const ProgramResult& result : run_both(apart, line)) {
    EXPECT_EQ(result.exit_code, 8) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("no checkpoint is whole on every machine"),
                      HasSubstr("bring back what nobody has"), Not(HasSubstr("--model"))));
  }
}

TEST_F(Storage, AMachineWithAnEmptyDiskGetsWhatTheOthersHave) {
  DANLU_SLOW_TEST();
  const std::vector<std::string> apart = {"disk-0", "disk-1"};
  for (const ProgramResult& result : run_both(apart, {"--max_steps", "2"}))
    ASSERT_EQ(result.exit_code, 0) << result.err;
  fs::remove_all((*this) / "disk-1/run");
  for (const ProgramResult& result : run_both(apart, {"--max_steps", "2", "--dry_run"}))
    EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(fs::exists((*this) / "disk-1/run/checkpoint-2"));
  const auto full = run_both(apart, {"--max_steps", "2"}, "ulimit -f 16;");
  for (const ProgramResult& result : full) {
    EXPECT_EQ(result.exit_code, 8) << result.err;
    EXPECT_THAT(result.err, HasSubstr("model.safetensors: cannot write: File too large"));
  }
  EXPECT_THAT(full[0].err, HasSubstr("rank 1: "));
  EXPECT_FALSE(fs::exists((*this) / "disk-1/run/checkpoint-2/DONE"));
  // What a copy that was not finished has left is no checkpoint, and no obstacle: nor is it taken.
  const fs::path begun = (*this) / "disk-1/run/checkpoint-2/config.json";
  fs::create_directories(begun.parent_path());
  write_content(begun, "{}");
  const auto on = run_both(apart, {"--max_steps", "4", "--resume", "run/checkpoint-2"});
  for (const ProgramResult& result : on) ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(on[0].err, AllOf(HasSubstr("resuming from run/checkpoint-2 at step 2"),
                               HasSubstr("rank 1 gets optim/rank-0.safetensors")));
  EXPECT_EQ(content_of(begun), content_of((*this) / "disk-0/run/checkpoint-2/config.json"));
  auto alone = training({"--max_steps", "4", "--output_dir", "one"});
  ASSERT_EQ(run_on("disk-0", alone).exit_code, 0);
  expect_same_losses((*this) / "disk-0/one", (*this) / "disk-0/run", 4);
}

TEST_F(Storage, WhatNobodyHasOfACopyOnEveryMachineIsKnown) {
  DANLU_SLOW_TEST();
  const std::vector<std::string> apart = {"disk-0", "disk-1"};
  const std::vector<std::string> line = {"--max_steps", "6", "--save_total_limit", "5"};
  for (const ProgramResult& result : run_both(apart, line))
    ASSERT_EQ(result.exit_code, 0) << result.err;
  // Killed between the names at the one and at the other keeper.
  fs::remove_all((*this) / "disk-0/run/checkpoint-6");
  const auto on = run_both(apart, line);
  for (const ProgramResult& result : on) ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(on[0].err, AllOf(ContainsRegex("checkpoint-6: rank 0 on .*optim/rank-0.safetensors "
                                             ".nobody has it.*not resumed from"),
                               HasSubstr("resuming from run/checkpoint-4 at step 4")));
}

TEST_F(Storage, MachinesThatHaveTrainedApartAreNotMixed) {
  DANLU_SLOW_TEST();
  const std::vector<std::string> apart = {"disk-0", "disk-1"};
  const std::vector<std::string> line = {"--shard", "zero1", "--max_steps", "2"};
  for (const ProgramResult& result : run_both(apart, line))
    ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto alone = training({"--max_steps", "2", "--overwrite_output_dir"});
  ASSERT_EQ(run_on("disk-0", alone).exit_code, 0);
  for (const ProgramResult& result : run_both(apart, line)) {
    EXPECT_EQ(result.exit_code, 8) << result.err;
    EXPECT_THAT(result.err, ContainsRegex("rank [01] on .* and rank [01] on .* have different "
                                          "checkpoints of this name"));
  }
}

TEST_F(Storage, ADirectoryThatIsRemovedOnOneMachineIsMadeAgain) {
  DANLU_SLOW_TEST();
  std::atomic<bool> over = false;
  std::vector<ProgramResult> results;
  std::thread job([&] {
    results = run_both({"disk-0", "disk-1"},
                       {"--shard", "zero1", "--max_steps", "400", "--save_steps", "50"});
    over = true;
  });
  const fs::path run = (*this) / "disk-1/run";
  while (!over && !fs::exists(run / "checkpoint-50/DONE"))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(over);
  std::error_code ignored;
  fs::remove_all(run, ignored);
  job.join();
  for (const ProgramResult& result : results) ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* disk : {"disk-0", "disk-1"})
    EXPECT_TRUE(fs::exists((*this) / disk / "run/checkpoint-400/DONE")) << disk;
}

TEST_F(Storage, AJobBeginsAgainOnMachinesOfTheirOwnDisks) {
  DANLU_SLOW_TEST();
  const std::vector<std::string> line = {"--shard", "zero1", "--max_steps",        "60",
                                         "--lr",    "1e-4",  "--save_total_limit", "100"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), line.begin(), line.end());
    return more;
  };
  const std::vector<std::string> apart = {"disk-0", "disk-1"};
  for (const ProgramResult& result : run_both(apart, with({"--save_steps", "20"})))
    ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> whole = {"--output_dir", "one", "--save_steps", "20"};
  ASSERT_EQ(run_on("disk-0", training(with(whole))).exit_code, 0);
  std::atomic<bool> over = false;
  std::vector<ProgramResult> results;
  std::thread job([&] {
    results = run_both(
        apart, with({"--save_steps", "1", "--resume", "run/checkpoint-20", "--max_restarts", "1"}));
    over = true;
  });
  const fs::path seen = (*this) / "disk-1/run/checkpoint-23/DONE";
  while (!over && !fs::exists(seen)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const pid_t rank = process_of((*this) / "disk-1", 1);
  EXPECT_GT(rank, 0) << "the run was over too soon";
  if (rank > 0) ::kill(rank, SIGKILL);
  job.join();
  for (const ProgramResult& result : results) ASSERT_EQ(result.exit_code, 0) << result.err;
  // From its own newest, not from the newest that lies there.
  EXPECT_THAT(results[0].err, ContainsRegex("restart 1 of 1.*resuming from run/checkpoint-[23]"));
  expect_same_losses((*this) / "disk-0/one", (*this) / "disk-0/run", 60);
}

TEST_F(Storage, AnotherMeshOfAsManyRanksGetsTheStateOfAll) {
  DANLU_SLOW_TEST();
  const std::vector<std::string> apart = {"disk-0", "disk-1"};
  for (const ProgramResult& result : run_both(apart, {"--shard", "zero1", "--max_steps", "2"}))
    ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const int64_t step : {2, 4}) {
    const std::vector<std::string> on = {"--tp",
                                         "2",
                                         "--save_total_limit",
                                         "5",
                                         "--max_steps",
                                         std::to_string(step + 2),
                                         "--resume",
                                         "run/checkpoint-" + std::to_string(step)};
    for (const ProgramResult& result : run_both(apart, on))
      ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  const auto has = [&](const std::string& disk, const std::string& step, const std::string& rank) {
    return fs::exists((*this) / disk / ("run/checkpoint-" + step) /
                      ("optim/rank-" + rank + ".safetensors"));
  };
  for (const std::string disk : {"disk-0", "disk-1"}) {
    for (const std::string rank : {"0", "1"}) EXPECT_TRUE(has(disk, "2", rank)) << disk << rank;
  }
  // On the tensor axis a machine reads what its neighbour alone has written: what is not cut.
  EXPECT_TRUE(has("disk-1", "4", "0"));
  EXPECT_FALSE(has("disk-0", "4", "1"));
  auto alone = training({"--max_steps", "6", "--output_dir", "one"});
  ASSERT_EQ(run_on("disk-0", alone).exit_code, 0);
  expect_same_losses((*this) / "disk-0/one", (*this) / "disk-0/run", 6);
}

TEST_F(Storage, OtherDataOnAMachineAreNamedWithBothHashes) {
  std::string rows = content_of((*this) / "disk-1/rows.jsonl");
  write_content((*this) / "disk-1/rows.jsonl", rows.replace(rows.find("fox"), 3, "cat"));
  for (const ProgramResult& result :
       run_both({"disk-0", "disk-1"}, {"--max_steps", "2", "--no-shared-storage"})) {
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, ContainsRegex("rank 1 has another data set: [0-9a-f]{16} \\(.+\\) "
                                          "there, [0-9a-f]{16} \\(.+\\) on rank 0"));
  }
}

TEST_F(Storage, OtherWeightsOnAMachineAreNamed) {
  for (const char* disk : {"disk-0", "disk-1"})
    fs::copy(good("model"), (*this) / disk / "own", fs::copy_options::recursive);
  const fs::path weights = (*this) / "disk-1/own/model.safetensors";
  std::string bytes = content_of(weights);
  bytes.back() ^= 1;
  write_content(weights, bytes);
  for (const ProgramResult& result :
       run_both({"disk-0", "disk-1"}, {"--max_steps", "2", "--model", "own"})) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("rank 1 has another model: "));
  }
}

TEST_F(Storage, AMachineThatCannotBeginIsNotWaitedFor) {
  for (const size_t lacking : {0, 1}) {
    const size_t other = 1 - lacking;
    const auto disk = [&](size_t number) { return (*this) / ("disk-" + std::to_string(number)); };
    const std::string who = "rank " + std::to_string(lacking) + " on .* ";
    fs::remove(disk(lacking) / "rows.jsonl");
    fs::create_directory_symlink(good("model"), disk(other) / "own");
    const auto data = run_both({"disk-0", "disk-1"}, {"--max_steps", "2"});
    const auto model = run_both({"disk-0", "disk-1"}, {"--max_steps", "2", "--model", "own"});
    for (const auto& results : {data, model}) {
      EXPECT_EQ(results[0].exit_code, results[1].exit_code) << results[0].err << results[1].err;
      EXPECT_THAT(results[other].err, ContainsRegex(who + "(does not come|failed): "));
    }
    EXPECT_THAT(data[other].err, HasSubstr("rows.jsonl"));
    EXPECT_THAT(model[other].err, HasSubstr("does not come: [model] 'own'"));
    fs::copy_file(good("good.jsonl"), disk(lacking) / "rows.jsonl");
    fs::remove(disk(other) / "own");
  }
}

TEST_F(Storage, RankZeroThatCannotBeginTellsProcessesThatNoLauncherStarted) {
  const std::string port = std::to_string(free_port().value());
  std::vector<ProgramResult> results(2);
  const auto process = [&](size_t rank) {
    const std::string number = std::to_string(rank);
    results[rank] = run_on("disk-" + number,
                           training({"--max_steps", "2", "--dist-timeout", "60", "--model",
                                     rank == 0 ? "none" : "own"}),
                           "export RANK=" + number + " WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 " +
                               "MASTER_PORT=" + port + ";");
  };
  fs::create_directory_symlink(good("model"), (*this) / "disk-1/own");
  std::thread other([&] { process(1); });
  process(0);
  other.join();
  EXPECT_EQ(results[0].exit_code, 4) << results[0].err;
  EXPECT_THAT(results[0].err, HasSubstr("error: [model] 'none'"));
  EXPECT_EQ(results[1].exit_code, 4) << results[1].err;
  EXPECT_THAT(results[1].err, ContainsRegex("rank 0 on .* does not come: \\[model\\] 'none'"));
}

TEST_F(Storage, SharedDirectoriesAreSeenToBe) {
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--no-shared-storage"}}) {
    auto words = more;
    words.insert(words.end(), {"--max_steps", "2", "--shard", "zero1", "--overwrite_output_dir"});
    for (const ProgramResult& result : run_both({"disk-0", "disk-0"}, words)) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_THAT(result.err, Not(HasSubstr("do not share")));
    }
    EXPECT_TRUE(fs::exists((*this) / "disk-0/run/checkpoint-2/optim/rank-1.safetensors"));
  }
}

TEST_F(Storage, ADiskThatIsFullForOneRankEndsAllAndLosesNothing) {
  for (const std::vector<std::string>& disks :
       std::vector<std::vector<std::string>>{{"disk-0", "disk-0"}, {"disk-0", "disk-1"}}) {
    fs::remove_all((*this) / "disk-0/run");
    const std::vector<std::string> whole = {"--shard", "zero1", "--max_steps", "6"};
    for (const ProgramResult& result : run_both(disks, whole, "ulimit -f 32;")) {
      EXPECT_EQ(result.exit_code, 8) << result.err;
      EXPECT_THAT(result.err, AllOf(HasSubstr("checkpoint-2: cannot be saved"),
                                    HasSubstr("there is no earlier checkpoint"),
                                    Not(HasSubstr("checkpoint-4")), Not(HasSubstr("removed"))));
    }
    for (const char* disk : {"disk-0", "disk-1"}) fs::remove_all((*this) / disk / "run");
    const std::vector<std::string> begin = {"--shard", "zero1", "--max_steps", "2"};
    for (const ProgramResult& result : run_both(disks, begin))
      ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::vector<std::string> on = {"--shard", "zero1",    "--max_steps",
                                         "4",       "--resume", "run/checkpoint-2"};
    const auto results = run_both(disks, on, "ulimit -f 32;");
    for (const ProgramResult& result : results) {
      EXPECT_EQ(result.exit_code, 8) << result.err;
      EXPECT_THAT(result.err, HasSubstr(".safetensors: cannot write: File too large"));
    }
    EXPECT_THAT(results.front().err, HasSubstr("rank 1: "));
    for (const std::string& disk : disks) {
      EXPECT_TRUE(fs::exists((*this) / disk / "run/last/DONE"));
      EXPECT_FALSE(fs::exists((*this) / disk / "run/checkpoint-4"));
    }
    for (const ProgramResult& result : run_both(disks, on))
      EXPECT_EQ(result.exit_code, 0) << result.err;
  }
}

TEST_F(Storage, MemoryThatIsShortForOneRankIsSaidOnTheTerminalOfTheFirst) {
  DANLU_SLOW_TEST();
  write("large.json", R"({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 40000, "hidden_size": 1024, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "torch_dtype": "float32"})");
  ASSERT_EQ(
      run({"init", "--config", "large.json", "--tokenizer", good("tokenizer"), "--output", "large"})
          .exit_code,
      0);
  // Room for the weights, not for what trains them: refused, and where that is overridden it ends
  // amid the training.
  std::vector<std::string> line = {"--model", (*this) / "large", "--max_steps",
                                   "2",       "--save_strategy", "no"};
  const std::string limit = limit_beside_libraries(2'070'000);
  for (const ProgramResult& result : run_both({"disk-0", "disk-0"}, line, limit)) {
    EXPECT_EQ(result.exit_code, 6) << result.err;
  }
  line.push_back("--no-plan-check");
  const auto results = run_both({"disk-0", "disk-0"}, line, limit);
  for (const ProgramResult& result : results) EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(results[0].err, AllOf(ContainsRegex("rank 1 on .* failed: out of memory"),
                                    HasSubstr("hint: lower the batch size")));
  EXPECT_FALSE(fs::exists((*this) / "disk-0/run/DONE"));
}

TEST_F(Storage, AnotherVersionOnARankIsNamedWithBoth) {
  const fs::path other = (*this) / "other";
  fs::create_directory(other);
  for (const auto& entry : fs::directory_iterator(fs::path(danlu_path()).parent_path())) {
    const std::string name = entry.path().filename();
    if (name == "danlu" || (name.starts_with("lib") && name.ends_with(".so")))
      fs::copy(entry, other / name);
  }
  const std::string version = run({"--version"}).out.substr(std::string("danlu ").size(), 5);
  std::string changed = version;
  changed.back() = changed.back() == '9' ? '8' : '9';
  std::string engine = content_of(other / "libdanlu_engine.so");
  size_t replaced = 0;
  for (size_t at = 0; (at = engine.find(version, at)) != engine.npos; ++replaced)
    engine.replace(at, version.size(), changed);
  ASSERT_GT(replaced, 0u);
  write_content(other / "libdanlu_engine.so", engine);
  const auto results = run_both({"disk-0", "disk-0"}, {"--max_steps", "1"},
                                "exec '" + (other / "danlu").string() + "' \"$@\";");
  for (const ProgramResult& result : results) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("rank 1 has another version: " + changed + " there, " +
                                      version + " on rank 0"));
  }
}

}  // namespace
}  // namespace danlu::test
