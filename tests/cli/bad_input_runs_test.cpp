// Flags that do not fit, outputs that cannot be written, disks that fill up, damaged checkpoints:
// the exit code says which, and what was there before stays.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <future>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class BadRun : public BadInput {
 protected:
  ProgramResult train_good(const std::vector<std::string>& more = {}) const {
    return train(good("good.jsonl"), more);
  }
  fs::path checkpoint(int step) const {
    return (*this) / "run" / ("checkpoint-" + std::to_string(step));
  }
};

/// No file of this process and its children may grow beyond this while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(BadRun, UnknownFlagsAndValues) {
  expect_error(train_good({"--learning_rat", "1"}), 2,
               {"unknown flag --learning_rat", "hint: did you mean --learning_rate?"});
  expect_error(train_good({"--lr", "abc"}), 2, {"--lr: expected a number above 0, got 'abc'"});
  expect_error(train_good({"--tuner", "ful"}), 2, {"--tuner: expected one of", "'full'?"});
  expect_error(run({"srt"}), 2, {"unknown command 'srt'", "did you mean danlu sft?"});
  write("run.yaml", "max_length: 32\nlearning_rat: 1\n");
  expect_error(run({"sft", "run.yaml"}), 2,
               {"run.yaml:2: unknown name 'learning_rat'", "did you mean learning_rate?"});
  write("broken.yaml", "lr: [1\n");
  expect_error(run({"sft", "broken.yaml"}), 2, {"broken.yaml:2:1: not valid YAML"});
  EXPECT_FALSE(fs::exists((*this) / "run"));
}

TEST_F(BadRun, DivisibilityAndLimits) {
  expect_error(train_good({"--global_batch_size", "5"}), 2,
               {"--global_batch_size 5: must be a multiple of --batch_size 2"});
  expect_error(train_good({"--max_length", "9999"}), 2, {"--max_length 9999", "64 positions"});
  EXPECT_FALSE(fs::exists(checkpoint(1)));
}

TEST_F(BadRun, OutputThatCannotBeWritten) {
  // A file in the way stops root too, which permissions do not.
  write("in_the_way", "precious");
  const std::vector<std::vector<std::string>> commands = {
      {"init", "--config", good("config.json"), "--output", "in_the_way/model"},
      {"tokenizer", "train", "--input", good("text.txt"), "--vocab_size", "300", "--output",
       "in_the_way/tokenizer"},
      {"preprocess", "--input", good("good.jsonl"), "--tokenizer", good("model"), "--output_prefix",
       "in_the_way/ids"},
      {"infer", "--model", good("model"), "--prompt", "hi", "--output",
       "in_the_way/answers.jsonl"}};
  for (const auto& command : commands)
    expect_error(run(command), 8, {"in_the_way", "Not a directory"});
  expect_error(train_good({"--output_dir", "in_the_way"}), 8, {"in_the_way", "Not a directory"});
  expect_error(train_good({"--output_dir", "/proc/danlu"}), 8, {"/proc/danlu", "cannot create"});
  EXPECT_EQ(content_of((*this) / "in_the_way"), "precious");
}

TEST_F(BadRun, ADirectoryThatAnotherRunWritesIntoIsRefused) {
  fs::create_directories((*this) / "run");
  const fs::path lock = (*this) / "run/.danlu.lock";
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  write_content(lock, std::to_string(::getpid()) + " " + host + "\n");
  const int fd = ::open(lock.c_str(), O_RDWR);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  const auto before = contents_below((*this) / "run");
  expect_error(train_good(), 8,
               {"[train] run: process " + std::to_string(::getpid()) + " is training in this",
                "hint: wait until it has finished, or choose another --output_dir"});
  EXPECT_EQ(contents_below((*this) / "run"), before);
  // A process that is gone holds nothing, whatever its file says.
  ::close(fd);
  const ProgramResult next = train_good();
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_FALSE(fs::exists(lock));
}

TEST_F(BadRun, WhatFailsBeforeItsFirstStepLeavesNoDirectory) {
  expect_error(train("nowhere.jsonl"), 3, {"nowhere.jsonl"});
  EXPECT_FALSE(fs::exists((*this) / "run"));
  expect_error(train("nowhere.jsonl", {"--output_dir", "deep/down/run"}), 3, {"nowhere.jsonl"});
  EXPECT_FALSE(fs::exists((*this) / "deep"));
  // What was there before stays, empty or not.
  fs::create_directories((*this) / "mine/run");
  expect_error(train("nowhere.jsonl", {"--output_dir", "mine/run"}), 3, {"nowhere.jsonl"});
  EXPECT_TRUE(fs::exists((*this) / "mine/run"));
}

TEST_F(BadRun, ProcessesThatPrepareTheSameDataWaitForEachOther) {
  std::string rows;
  for (int i = 0; i < 3000; ++i) {
    rows += "{\"instruction\": \"fox " + std::to_string(i) + "\", \"output\": \"dog\"}\n";
  }
  const fs::path data = write("rows.jsonl", rows);
  const auto prepare = [&](const std::string& prefix) {
    return run({"preprocess", "--input", data, "--tokenizer", good("model"), "--output_prefix",
                prefix, "--workers", "1"});
  };
  ASSERT_EQ(prepare("alone/x").exit_code, 0);
  std::vector<std::future<ProgramResult>> together;
  for (int i = 0; i < 3; ++i) {
    together.push_back(std::async(std::launch::async, prepare, "together/x"));
    // These share one entry of the token cache.
    together.push_back(std::async(std::launch::async, [&, i] {
      return train(data, {"--output_dir", "run" + std::to_string(i), "--max_steps", "1"});
    }));
  }
  for (auto& one : together) {
    const ProgramResult result = one.get();
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  const auto files_of = [&](const std::string& folder) {
    std::vector<std::pair<std::string, std::string>> files;
    for (const auto& [path, content] : contents_below((*this) / folder)) {
      files.emplace_back(fs::path(path).filename(), content);
    }
    return files;
  };
  EXPECT_EQ(files_of("together"), files_of("alone"));
}

TEST_F(BadRun, ExistingOutputIsKept) {
  const fs::path model = copy_model();
  const auto before = contents_below(model);
  expect_error(run({"init", "--config", good("config.json"), "--output", model}), 2,
               {"exists and is not empty", "--overwrite"});
  EXPECT_EQ(contents_below(model), before);
}

TEST_F(BadRun, DiskFullWhileSavingKeepsTheOldCheckpoint) {
  ASSERT_EQ(train_good().exit_code, 0);
  // As if the run had been stopped after its first step.
  fs::remove_all(checkpoint(2));
  const auto before = contents_below(checkpoint(1));
  ASSERT_FALSE(before.empty());
  {
    const FileSizeLimit limit(100'000);  // the weights alone are 144,512 bytes
    expect_error(train_good(), 8,
                 {"checkpoint-2: cannot be saved", "File too large",
                  "hint: earlier checkpoints are intact: no file may be larger than 100.0 kB here: "
                  "raise the limit (ulimit -f)"});
    fs::rename((*this) / "run", (*this) / "kept");
    expect_error(train_good(), 8,
                 {"checkpoint-1: cannot be saved", "hint: there is no earlier checkpoint: "});
    fs::remove_all((*this) / "run");
    fs::rename((*this) / "kept", (*this) / "run");
  }
  EXPECT_EQ(contents_below(checkpoint(1)), before);
  EXPECT_FALSE(fs::exists(checkpoint(2)));
  for (const auto& entry : fs::directory_iterator((*this) / "run"))
    EXPECT_EQ(entry.path().filename().string().find(".checkpoint-"), std::string::npos);

  const ProgramResult again = train_good();
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("resuming from run/checkpoint-1"));
  EXPECT_TRUE(fs::exists(checkpoint(2) / "DONE"));
}

TEST_F(BadRun, AFileAboveTheLimitOfItsSizeIsToldTheLimit) {
  const std::string model = good("model").string();
  const FileSizeLimit limit(51'200);
  for (const char* format : {"gguf", "mcore", "hf"}) {
    expect_error(run({"convert", model, "out", "--to", format}), 8,
                 {"File too large",
                  "hint: no file may be larger than 51.2 kB here: raise the limit (ulimit -f)"});
    EXPECT_FALSE(fs::exists((*this) / "out")) << format;
  }
}

TEST_F(BadRun, DiskFullWhileMakingAModelLeavesNothing) {
  const FileSizeLimit limit(100'000);
  expect_error(run({"init", "--config", good("config.json"), "--output", "made"}), 8,
               {"model.safetensors: cannot write", "File too large"});
  EXPECT_FALSE(fs::exists((*this) / "made"));
}

TEST_F(BadRun, DamagedCheckpointIsNamedAndTheOneBeforeUsed) {
  ASSERT_EQ(train_good().exit_code, 0);
  fs::resize_file(checkpoint(2) / "optim" / "rank-0.safetensors", 1000);
  expect_error(
      train_good({"--resume", "run/checkpoint-2"}), 8,
      {"run/checkpoint-2: not a complete checkpoint", "rank-0.safetensors has 1000 bytes"});
  const ProgramResult again = train_good();
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err,
              HasSubstr("run/checkpoint-2: file optim/rank-0.safetensors has 1000 bytes"));
  EXPECT_THAT(again.err, HasSubstr("resuming from run/checkpoint-1"));
}

TEST_F(BadRun, AChangedByteIsNoticedAndTheCheckpointBeforeUsed) {
  ASSERT_EQ(train_good().exit_code, 0);
  const auto change = [&](int step) {
    std::fstream file(checkpoint(step) / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('\x5a');
  };
  change(2);
  expect_error(train_good({"--resume", "run/checkpoint-2"}), 8,
               {"run/checkpoint-2: a damaged checkpoint: file model.safetensors was changed"});
  const ProgramResult again = train_good();
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("warning: run/checkpoint-2: a damaged checkpoint: "));
  EXPECT_THAT(again.err, HasSubstr("resuming from run/checkpoint-1"));
  // The step is taken again, and saved anew.
  EXPECT_THAT(train_good().err,
              HasSubstr("this run is complete: 2 steps are done, 2 are asked for. To train on, "
                        "raise --max_steps and add --resume run/checkpoint-2"));

  for (const int step : {1, 2}) change(step);
  const auto before = contents_below(checkpoint(2));
  expect_error(train_good(), 8,
               {"every checkpoint is damaged (checkpoint-2, checkpoint-1)",
                "hint: restore one from a copy"});
  EXPECT_EQ(contents_below(checkpoint(2)), before);
}

TEST_F(BadRun, ADiskTooSmallForACheckpointSaysWhatIsCounted) {
  fs::create_directory((*this) / "small");
  const auto on_small_disk = [&](const std::string& then) {
    std::vector<std::string> words = {};
    if (::geteuid() != 0) words.push_back("-r");
    words.insert(words.end(), {"-m", "bash", "-c",
                               "mount -t tmpfs -o size=8m none small && " + then, danlu_path()});
    return run_danlu(
        words, {.program = "/usr/bin/unshare",
                .environment = {{"OMP_NUM_THREADS", "1"}, {"XDG_CACHE_HOME", (*this) / "cache"}},
                .directory = (*this) / ""});
  };
  const ProgramResult may = on_small_disk("true");
  if (may.exit_code != 0) GTEST_SKIP() << "this system lets nobody mount here: " << may.err;
  expect_error(on_small_disk("exec \"$0\" sft --model '" + good("model").string() +
                             "' --dataset '" + good("good.jsonl").string() +
                             "' --output_dir small/run --no-version-dir --max_steps 2 "
                             "--save_steps 1"),
               8,
               {"a checkpoint (with 16.0 MB of room for tokenizer, settings and logs) needs",
                "MB are free"});
}

}  // namespace
}  // namespace danlu::test
