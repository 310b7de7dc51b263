// Interrupted runs, as real processes: killed, terminated, out of disk; then continued.
#include <ATen/ops/equal.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/temporary.h"
#include "checkpoint/checkpoint.h"
#include "models/causal_lm.h"
#include "models/merge.h"
#include "models/weight_files.h"
#include "support/temporary_directory.h"
#include "train/report/metrics_log.h"
#include "train/run.h"
#include "train/support.h"

namespace danlu::train {
namespace resume_test {

constexpr const char* kChildVariable = "DANLU_TRAIN_TEST_CHILD";

/// What a child is told, and what every run of a test shares.
struct Job {
  fs::path directory;  ///< holds model/, data.jsonl and the runs
  std::string output = "run";
  bool lora = false, packing = false, fp16 = false;
  int64_t steps = 40, save_steps = 5;
  uint64_t file_limit_bytes = 0;  ///< > 0: no file may grow beyond (a full disk)
  std::string resume = "auto";
  double lr = 1e-2;
  bool overwrite = false, load_best = false;
  std::string save_dtype;  ///< empty: the training type
  std::string validation;  ///< a file below `directory`; empty: held out of the data
  int64_t logging_steps = 1;
  bool nohup = false;  ///< started with SIGHUP ignored
  double slow_after_s = 20;
  double loss_scale = 1 << 22;  ///< the first
  int64_t accumulation = 2;
};

Json to_json(const Job& job) {
  return {{"directory", job.directory.string()},
          {"output", job.output},
          {"lora", job.lora},
          {"packing", job.packing},
          {"fp16", job.fp16},
          {"steps", job.steps},
          {"save_steps", job.save_steps},
          {"file_limit_bytes", job.file_limit_bytes},
          {"resume", job.resume},
          {"lr", job.lr},
          {"overwrite", job.overwrite},
          {"load_best", job.load_best},
          {"save_dtype", job.save_dtype},
          {"validation", job.validation},
          {"logging_steps", job.logging_steps},
          {"slow_after_s", job.slow_after_s},
          {"loss_scale", job.loss_scale},
          {"accumulation", job.accumulation}};
}

TrainConfig config_of(const Json& job) {
  const fs::path directory = job.at("directory").get<std::string>();
  TrainConfig config;
  config.tuner = job.at("lora").get<bool>() ? Tuner::kLora : Tuner::kFull;
  config.precision = job.at("fp16").get<bool>() ? Precision::kF16 : Precision::kBF16;
  // So short a window doubles the scale again and again: a run that forgot it, its window or its
  // hysteresis would go another way.
  config.loss_scale.initial_scale = job.at("loss_scale").get<double>();
  config.loss_scale.window = 3;
  config.loss_scale.hysteresis = 2;
  config.device = "cpu";
  config.lora.dropout = 0.1;
  if (config.tuner == Tuner::kLora) config.noise_alpha = 5;
  config.model.path = config.model.tokenizer = directory / "model";
  config.data.train = {(directory / "data.jsonl").string()};
  config.data.validation_ratio = 0.1;
  config.data.cache_dir = directory / "cache";
  config.data.max_length = 64;
  config.data.share_passes = job.at("packing").get<bool>();
  config.batch.micro_batch_size = 2;
  config.batch.accumulation = job.at("accumulation").get<int64_t>();
  config.batch.max_steps = job.at("steps").get<int64_t>();
  config.schedule.shape.kind = settings::ScheduleKind::kCosine;
  config.schedule.shape.lr = job.at("lr").get<double>();
  config.output.directory = directory / job.at("output").get<std::string>();
  config.output.save_steps = job.at("save_steps").get<int64_t>();
  config.output.logging_steps = job.at("logging_steps").get<int64_t>();
  config.output.plot_loss = false;
  config.output.slow_after_s = job.at("slow_after_s").get<double>();
  config.output.resume = job.at("resume").get<std::string>();
  config.output.overwrite = job.at("overwrite").get<bool>();
  config.output.load_best_at_end = job.at("load_best").get<bool>();
  if (const std::string file = job.at("validation"); !file.empty())
    config.data.validation = {(directory / file).string()};
  if (const std::string dtype = job.at("save_dtype"); !dtype.empty())
    config.output.final_dtype = dtype_from_name(dtype);
  return config;
}

/// The body of a child process; run by start() through this program itself.
TEST(ResumeChild, DISABLED_Run) {
  const char* text = std::getenv(kChildVariable);
  ASSERT_NE(text, nullptr);
  const Json job = Json::parse(text);
  if (const auto limit = job.at("file_limit_bytes").get<uint64_t>(); limit > 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit bound{limit, limit};
    setrlimit(RLIMIT_FSIZE, &bound);
  }
  int code = 0;
  try {
    run(config_of(job));
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    code = static_cast<int>(error.code());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

pid_t start(const Job& job) {
  // Everything the child needs is made before the fork: afterwards only exec is safe.
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  const std::string variable = std::string(kChildVariable) + "=" + to_json(job).dump();
  const std::string log = (job.directory / (job.output + ".log")).string();
  // One thread: on a busy machine two of them mostly spin; thread counts are step_test's matter.
  // UCX, which some builds of libtorch load before main, would take SIGHUP for its debugger.
  std::vector<std::string> environment_text = {variable, "OMP_NUM_THREADS=1", "UCX_DEBUG_SIGNO=0"};
  for (char** entry = environ; *entry; ++entry) {
    if (std::string(*entry).rfind("OMP_NUM_THREADS=", 0) != 0) environment_text.push_back(*entry);
  }
  std::vector<char*> environment;
  for (std::string& entry : environment_text) environment.push_back(entry.data());
  environment.push_back(nullptr);
  std::vector<std::string> words = {program, "--gtest_also_run_disabled_tests",
                                    "--gtest_filter=ResumeChild.DISABLED_Run"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::dup2(fd, 1);
  ::dup2(fd, 2);
  ::signal(SIGHUP, job.nohup ? SIG_IGN : SIG_DFL);  // this suite may itself run under nohup
  ::execve(program.c_str(), arguments.data(), environment.data());
  ::_exit(127);
}

/// Exit code, or 128 + signal.
int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_to_end(const Job& job) { return wait_for(start(job)); }

/// Sends `signal` once `step` is logged; the child's code as wait_for.
int stop_at(const Job& job, int64_t step, int signal) {
  const pid_t child = start(job);
  const std::string mark = "\"global_step/max_steps\":\"" + std::to_string(step) + "/";
  for (int waited_ms = 0; waited_ms < 1200000; ++waited_ms) {
    std::ifstream file(job.directory / job.output / "logging.jsonl");
    const std::string content((std::istreambuf_iterator<char>(file)), {});
    if (content.find(mark) != std::string::npos) break;
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(child, signal);
  return wait_for(child);
}

std::vector<std::pair<int64_t, double>> losses(const Job& job) {
  return read_metrics(job.directory / job.output / "logging.jsonl")["loss"];
}

/// The lines of logging.jsonl, without what a clock or the machine has a part in.
std::vector<Json> records(const Job& job) {
  std::vector<Json> found;
  std::ifstream file(job.directory / job.output / "logging.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json all = Json::parse(line);
    Json kept = Json::object();
    for (const char* key : {"loss", "token_acc", "acc", "grad_norm", "learning_rate", "epoch",
                            "global_step", "percentage", "loss_scale", "skipped_steps", "eval_loss",
                            "eval_token_acc", "train_loss", "train_samples", "train_tokens"}) {
      if (all.contains(key)) kept[key] = all.at(key);
    }
    found.push_back(kept);
  }
  return found;
}

/// Nothing before its process has opened it.
std::string log_of(const Job& job) {
  const fs::path log = job.directory / (job.output + ".log");
  return fs::exists(log) ? read_file(log) : "";
}

class Resume : public testing::Test {
 protected:
  void SetUp() override {
    job_.directory = directory_.path();
    test::write_run_inputs(job_.directory, DType::kBF16, 120);
  }

  void expect_killed_run_continues_bit_for_bit() {
    Job whole = job_, killed = job_;
    whole.output = "whole";
    killed.output = "killed";
    ASSERT_EQ(run_to_end(whole), 0) << log_of(whole);
    ASSERT_EQ(stop_at(killed, 17, SIGKILL), 128 + SIGKILL) << log_of(killed);
    ASSERT_EQ(run_to_end(killed), 0) << log_of(killed);
    EXPECT_NE(log_of(killed).find("resuming from"), std::string::npos) << log_of(killed);
    const auto reference = losses(whole);
    if (!job_.fp16) {
      EXPECT_EQ(reference.size(), 40u);
    }
    EXPECT_EQ(losses(killed), reference);
    EXPECT_EQ(final_state(killed), final_state(whole));
    const char* weights = job_.lora ? "adapter_model.safetensors" : "model.safetensors";
    EXPECT_EQ(read_file(job_.directory / "whole" / weights),
              read_file(job_.directory / "killed" / weights));
    EXPECT_EQ(read_file(job_.directory / "whole/last/optim/rank-0.safetensors"),
              read_file(job_.directory / "killed/last/optim/rank-0.safetensors"));
  }

  /// The counters at the end that no clock has a part in.
  static Json final_state(const Job& job) {
    Json state = read_json_file(job.directory / job.output / "last" / "trainer_state.json");
    for (const char* of_the_clock : {"train_seconds", "log_history"}) state.erase(of_the_clock);
    return state;
  }

  const danlu::test::TemporaryDirectory directory_;
  Job job_;
};

TEST_F(Resume, FullUnpackedAfterKillIsBitExact) { expect_killed_run_continues_bit_for_bit(); }

TEST_F(Resume, FullPackedAfterKillIsBitExact) {
  job_.packing = true;
  expect_killed_run_continues_bit_for_bit();
}

TEST_F(Resume, LoraUnpackedAfterKillIsBitExact) {
  job_.lora = true;
  expect_killed_run_continues_bit_for_bit();
}

TEST_F(Resume, LoraPackedAfterKillIsBitExact) {
  job_.lora = true;
  job_.packing = true;
  expect_killed_run_continues_bit_for_bit();
}

TEST_F(Resume, Fp16AfterKillIsBitExactWithItsLossScale) {
  job_.fp16 = true;
  expect_killed_run_continues_bit_for_bit();
  Job whole = job_;
  whole.output = "whole";
  const Json state = final_state(whole);
  EXPECT_GT(state.at("skipped_steps").get<int64_t>(), 3) << "the scale was never in question";
  std::set<double> scales;
  const auto metrics = read_metrics(whole.directory / "whole" / "logging.jsonl");
  for (const auto& [step, scale] : metrics.at("loss_scale")) scales.insert(scale);
  EXPECT_GT(scales.size(), 2u);
}

TEST_F(Resume, ASearchForTheLossScaleSpendsNoStepAndNoRandomNumber) {
  job_.fp16 = job_.lora = true;  // with dropout
  job_.steps = 8;
  Job from_above = job_, from_there = job_;
  from_above.output = "above";
  from_above.loss_scale = 4294967296.0;
  ASSERT_EQ(run_to_end(from_above), 0) << log_of(from_above);
  EXPECT_NE(log_of(from_above).find("step 1: gradients overflowed at loss scales from 4.29497e+09"),
            std::string::npos)
      << log_of(from_above);
  const auto scales = read_metrics(job_.directory / "above" / "logging.jsonl").at("loss_scale");
  ASSERT_EQ(scales.front().first, 1);
  from_there.output = "there";
  from_there.loss_scale = scales.front().second;
  ASSERT_LT(from_there.loss_scale, from_above.loss_scale);
  ASSERT_EQ(run_to_end(from_there), 0) << log_of(from_there);
  EXPECT_EQ(log_of(from_there).find("gradients overflowed"), std::string::npos);
  EXPECT_EQ(records(from_above), records(from_there));
  EXPECT_EQ(read_file(job_.directory / "above/adapter_model.safetensors"),
            read_file(job_.directory / "there/adapter_model.safetensors"));
}

TEST_F(Resume, ASignalInASearchForTheLossScaleEndsIt) {
  job_.fp16 = true;
  job_.loss_scale = 3e38;  // 110 halvings and more
  job_.accumulation = 40;
  ::setenv("LOG_LEVEL", "debug", 1);
  const pid_t child = start(job_);
  ::unsetenv("LOG_LEVEL");
  const std::string mark = "step 1: overflow at loss scale";
  for (int waited_ms = 0; waited_ms < 600000 && log_of(job_).find(mark) == std::string::npos;
       ++waited_ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ::kill(child, SIGTERM);
  ASSERT_EQ(wait_for(child), 143) << log_of(job_);
  EXPECT_NE(log_of(job_).find("stopped by SIGTERM in step 1: no step was finished"),
            std::string::npos)
      << log_of(job_);
  EXPECT_TRUE(checkpoint::list(job_.directory / "run").empty());
  job_.loss_scale = 65536;
  job_.steps = 2;
  EXPECT_EQ(run_to_end(job_), 0) << log_of(job_);
}

TEST_F(Resume, WhatIsLoggedIsTheSameThoughEverySaveFallsBetweenTwoRecords) {
  job_.logging_steps = 7;
  job_.steps = 100;
  for (const int signal : {SIGKILL, SIGTERM}) {
    Job whole = job_, stopped = job_;
    whole.output = "whole";
    stopped.output = "stopped" + std::to_string(signal);
    if (!fs::exists(job_.directory / "whole")) {
      ASSERT_EQ(run_to_end(whole), 0) << log_of(whole);
    }
    // Twice: a window may hold the steps of three sessions.
    for (const int64_t step : {14, 28}) {
      ASSERT_EQ(stop_at(stopped, step, signal), 128 + signal) << log_of(stopped);
    }
    ASSERT_EQ(run_to_end(stopped), 0) << log_of(stopped);
    const std::vector<Json> reference = records(whole);
    // Steps 1, 7, …, 98, 100; evaluations at 5, 10, …, 100; the summary.
    EXPECT_EQ(reference.size(), 16u + 20u + 1u);
    EXPECT_EQ(records(stopped), reference);
  }
}

TEST_F(Resume, ASecondRunInTheSameDirectoryIsRefusedWhileTheFirstLives) {
  job_.steps = 1'000'000;
  const pid_t first = start(job_);
  const fs::path log = job_.directory / "run" / "logging.jsonl";
  for (int waited_ms = 0; waited_ms < 60000 && !fs::exists(log); ++waited_ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Job second = job_;
  EXPECT_EQ(run_to_end(second), 8);
  EXPECT_NE(
      log_of(job_).find("run: process " + std::to_string(first) + " is training in this directory"),
      std::string::npos)
      << log_of(job_);
  ::kill(first, SIGKILL);
  ASSERT_EQ(wait_for(first), 128 + SIGKILL);
  // A dead run locks nobody out: its steps are in the log, so this one is stopped at once or later.
  EXPECT_EQ(stop_at(second, 2, SIGKILL), 128 + SIGKILL) << log_of(job_);
}

TEST_F(Resume, SigtermSavesACompleteCheckpointAndExitsWith143) {
  ASSERT_EQ(stop_at(job_, 12, SIGTERM), 143) << log_of(job_);
  const auto found = checkpoint::list(job_.directory / "run");
  ASSERT_FALSE(found.empty());
  EXPECT_GE(found.back().step, 12);
  EXPECT_TRUE(found.back().resumable);
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  EXPECT_EQ(losses(job_).size(), 40u);
}

TEST_F(Resume, ALostTerminalSavesAndExitsWith129UnlessNohupSaidOtherwise) {
  job_.steps = 100;
  ASSERT_EQ(stop_at(job_, 12, SIGHUP), 129) << log_of(job_);
  EXPECT_NE(log_of(job_).find("stopped by SIGHUP"), std::string::npos) << log_of(job_);
  const auto found = checkpoint::list(job_.directory / "run");
  ASSERT_FALSE(found.empty());
  EXPECT_GE(found.back().step, 12);
  job_.nohup = true;
  EXPECT_EQ(stop_at(job_, found.back().step + 5, SIGHUP), 0) << log_of(job_);
  EXPECT_EQ(losses(job_).size(), 100u);
}

TEST_F(Resume, SigintExitsWith130) { ASSERT_EQ(stop_at(job_, 12, SIGINT), 130) << log_of(job_); }

TEST_F(Resume, AFullDiskKeepsTheOldCheckpointAndExitsWith8) {
  job_.steps = 20;
  ASSERT_EQ(stop_at(job_, 12, SIGTERM), 143) << log_of(job_);
  const auto before = checkpoint::list(job_.directory / "run");
  // The state file needs more than 100 kB; logs stay below.
  job_.file_limit_bytes = 100'000;
  ASSERT_EQ(run_to_end(job_), 8) << log_of(job_);
  const auto after = checkpoint::list(job_.directory / "run");
  ASSERT_EQ(after.size(), before.size());
  EXPECT_EQ(after.back().step, before.back().step);
  for (const auto& entry : fs::directory_iterator(job_.directory / "run")) {
    EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos) << entry.path();
  }
  job_.file_limit_bytes = 0;
  EXPECT_EQ(run_to_end(job_), 0) << log_of(job_);
}

TEST_F(Resume, AStepThatIsThoughtToBeSlowSaysSo) {
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  EXPECT_EQ(log_of(job_).find("layer passes done"), std::string::npos) << log_of(job_);
  job_.slow_after_s = 0;
  job_.output = "slow";
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  // Two layers, two micro-batches, forward and backward.
  EXPECT_NE(log_of(job_).find(" of 40: "), std::string::npos) << log_of(job_);
  EXPECT_NE(log_of(job_).find(" of 8 layer passes done"), std::string::npos) << log_of(job_);
}

TEST_F(Resume, DivergedTrainingEndsWith9) {
  job_.lr = 1e30;
  job_.save_steps = 100;  // an evaluation would say so first
  ASSERT_EQ(run_to_end(job_), 9) << log_of(job_);
  EXPECT_NE(log_of(job_).find("steps in a row were not finite"), std::string::npos) << log_of(job_);
}

TEST_F(Resume, ChangedSettingsAreRefusedNamingBothValues) {
  job_.steps = 10;
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  job_.lr = 0.5;
  EXPECT_EQ(run_to_end(job_), 2);
  EXPECT_NE(log_of(job_).find("lr: 0.01 then, 0.5 now"), std::string::npos) << log_of(job_);
}

TEST_F(Resume, ChangedDataAreRefused) {
  job_.steps = 10;
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  std::ofstream(job_.directory / "data.jsonl", std::ios::app)
      << R"({"input_ids":[5,6,7],"labels":[5,6,7]})" << '\n';
  EXPECT_EQ(run_to_end(job_), 2);
  EXPECT_NE(log_of(job_).find("training data: content"), std::string::npos) << log_of(job_);
}

TEST_F(Resume, ACompleteRunIsNotRepeated) {
  job_.steps = 10;
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  const auto before = fs::last_write_time(job_.directory / "run" / "model.safetensors");
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  EXPECT_NE(log_of(job_).find("this run is complete"), std::string::npos);
  EXPECT_EQ(fs::last_write_time(job_.directory / "run" / "model.safetensors"), before);
}

TEST_F(Resume, ARunNamedInPlaceOfACheckpointIsPointedOut) {
  job_.steps = 5;
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  job_.resume = (job_.directory / "run").string();
  EXPECT_EQ(run_to_end(job_), 2);
  EXPECT_NE(log_of(job_).find("a run, not one of its checkpoints"), std::string::npos)
      << log_of(job_);
}

TEST_F(Resume, AnotherRunsCheckpointIsNotMixedWithThoseOfTheDirectory) {
  job_.steps = 10;
  job_.load_best = true;
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  Job other = job_;
  other.output = "other";
  other.steps = 15;
  other.resume = (job_.directory / "run" / "checkpoint-10").string();
  ASSERT_EQ(run_to_end(other), 0) << log_of(other);
  // Its best is one of its own steps, though step 10 may have been better.
  const Json state = read_json_file(job_.directory / "other" / "last" / "trainer_state.json");
  EXPECT_EQ(state.at("best_global_step"), 15);
  Job third = other;
  third.output = "run";
  third.resume = (job_.directory / "other" / "checkpoint-15").string();
  EXPECT_EQ(run_to_end(third), 2) << log_of(third);
  EXPECT_NE(log_of(third).find("holds checkpoints of an earlier run"), std::string::npos);
}

TEST_F(Resume, AnotherModelOfTheSameShapeIsAnotherRun) {
  ASSERT_EQ(stop_at(job_, 12, SIGTERM), 143) << log_of(job_);
  models::CausalLM other(test::tiny_config(), parallel::Mesh::single(), at::kBFloat16,
                         at::Device(at::kCPU));
  models::initialize(other, 4);
  models::save(other, job_.directory / "model", DType::kBF16, {});
  EXPECT_EQ(run_to_end(job_), 2);
  EXPECT_NE(log_of(job_).find("with other settings: model: "), std::string::npos) << log_of(job_);
}

TEST_F(Resume, ARunStoppedBetweenItsLastCheckpointAndItsEndIsFinished) {
  job_.steps = 10;
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  const fs::path run_dir = job_.directory / "run";
  const std::string model = read_file(run_dir / "model.safetensors");
  // What a kill at that moment leaves: the checkpoint, and none of what is written after it.
  for (const char* later : {"DONE", "model.safetensors", "config.json", "all_results.json"})
    ASSERT_TRUE(fs::remove(run_dir / later)) << later;
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  EXPECT_EQ(read_file(run_dir / "model.safetensors"), model);
  EXPECT_TRUE(fs::exists(run_dir / "all_results.json"));
  EXPECT_EQ(losses(job_).size(), 10u);
}

TEST_F(Resume, ARunKilledBehindItsLastCheckpointGetsItsLinksAndReports) {
  job_.steps = 10;
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  const fs::path run_dir = job_.directory / "run";
  // DONE is written last, and the links are pointed after the checkpoint is there.
  for (const char* later : {"DONE", "README.md", "last"})
    ASSERT_TRUE(fs::remove(run_dir / later)) << later;
  fs::create_directory_symlink("checkpoint-5", run_dir / "last");
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  EXPECT_EQ(fs::read_symlink(run_dir / "last"), "checkpoint-10");
  EXPECT_TRUE(fs::exists(run_dir / "README.md"));
  EXPECT_TRUE(fs::exists(run_dir / "DONE"));
}

TEST_F(Resume, ACheckpointHalfRemovedIsNotKept) {
  job_.steps = 10;
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  const fs::path run_dir = job_.directory / "run";
  const pid_t child = ::fork();
  if (child == 0) {
    // As the rotation does it, killed in the midst.
    const auto* grave = new Temporary(run_dir / "checkpoint-5", Temporary::Kind::kDirectory);
    fs::rename(run_dir / "checkpoint-5", grave->path() / "checkpoint-5");
    ::_exit(0);
  }
  wait_for(child);
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  for (const auto& entry : fs::directory_iterator(run_dir))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
}

TEST_F(Resume, OverwritingLeavesNothingOfTheEarlierRun) {
  job_.steps = 10;
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  const fs::path run_dir = job_.directory / "run";
  fs::remove(run_dir / "checkpoint-5" / "DONE");
  std::ofstream(run_dir / "notes.txt") << "the user's own";
  job_.lora = true;
  job_.steps = 3;
  job_.overwrite = true;
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  for (const char* old : {"model.safetensors", "config.json", "checkpoint-5", "checkpoint-10"})
    EXPECT_FALSE(fs::exists(run_dir / old)) << old;
  for (const char* here :
       {"adapter_model.safetensors", "checkpoint-3", "last", "DONE", "notes.txt"})
    EXPECT_TRUE(fs::exists(run_dir / here)) << here;
}

TEST_F(Resume, TheBestWeightsArePublishedInAnotherType) {
  // What is learned from the data is wrong here: the longer the training, the worse.
  job_.validation = "contrary.jsonl";
  std::ofstream(job_.directory / job_.validation)
      << R"({"input_ids":[3,4,5,6,7,8,9,10],"labels":[-100,4,5,6,7,8,9,10]})" << '\n';
  job_.load_best = true;
  job_.save_dtype = "fp32";
  ASSERT_EQ(run_to_end(job_), 0) << log_of(job_);
  const fs::path run_dir = job_.directory / "run";
  const Json state = read_json_file(run_dir / "last" / "trainer_state.json");
  ASSERT_LT(state.at("best_global_step").get<int64_t>(), 40);
  const auto published = weights::open_weights(run_dir);
  ASSERT_EQ(published->find("model.norm.weight")->dtype, DType::kF32);
  EXPECT_EQ(read_json_file(run_dir / "config.json").at("torch_dtype"), "float32");
  // All that a checkpoint has of a model is there, and nothing of its state.
  std::set<std::string> missing;
  for (const auto& entry : fs::directory_iterator(run_dir / "best")) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && !fs::exists(run_dir / name)) missing.insert(name);
  }
  EXPECT_THAT(missing, testing::UnorderedElementsAre("trainer_state.json", "data_state.json"));
  const auto of_run = models::load_model(run_dir, parallel::Mesh::single(), at::kFloat, at::kCPU);
  const auto best =
      models::load_model(run_dir / "best", parallel::Mesh::single(), at::kFloat, at::kCPU);
  const auto last =
      models::load_model(run_dir / "last", parallel::Mesh::single(), at::kFloat, at::kCPU);
  EXPECT_TRUE(at::equal(models::probe_logits(*of_run), models::probe_logits(*best)));
  EXPECT_FALSE(at::equal(models::probe_logits(*of_run), models::probe_logits(*last)));
}

}  // namespace resume_test
}  // namespace danlu::train
