// Which directory a run goes to, and what it leaves alone there.
#include "train/run_dir/run_dir.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "support/temporary_directory.h"
#include "train/loop.h"
#include "train/prepare_data.h"
#include "train/run.h"
#include "train/run_dir/save.h"
#include "train/support.h"

namespace danlu::train {
namespace run_dir_test {

class Versions : public testing::Test {
 protected:
  void SetUp() override {
    test::write_run_inputs(folder_, DType::kF32, 20);
    finish_run(folder_ / "runs" / "v3-20260101-000000");
  }

  TrainConfig config() const {
    TrainConfig config;
    config.precision = Precision::kF32;
    config.device = "cpu";
    config.lora.rank = 2;
    config.model.path = config.model.tokenizer = folder_ / "model";
    config.data.train = {(folder_ / "data.jsonl").string()};
    config.data.cache_dir = folder_ / "cache";
    config.data.max_length = 64;
    config.batch.max_steps = 1;
    config.settings = {{"lr", 0.01}, {"dataset", {"data.jsonl"}}};
    config.output.directory = folder_ / "runs";
    config.output.plot_loss = false;
    return config;
  }
  void finish_run(const fs::path& directory) const {
    TrainConfig one = config();
    one.output.directory = directory;
    run(one);
  }
  std::string chosen(const TrainConfig& config) const {
    const std::string name = choose_version(config).filename().string();
    return name.substr(0, name.find('-'));
  }

  const danlu::test::TemporaryDirectory folder_;
};

TEST_F(Versions, AFinishedRunIsFollowedByTheNextVersion) { EXPECT_EQ(chosen(config()), "v4"); }

TEST_F(Versions, AnUnfinishedRunOfTheSameSettingsIsGoneOnWith) {
  mark_unfinished(folder_ / "runs" / "v3-20260101-000000");
  EXPECT_EQ(choose_version(config()), folder_ / "runs" / "v3-20260101-000000");
  // A later one of other settings does not hide it.
  fs::create_directories(folder_ / "runs" / "v7-20260102-000000");
  EXPECT_EQ(chosen(config()), "v3");
}

TEST_F(Versions, AnUnfinishedRunIsLeftAloneWhereItCannotBeGoneOnWith) {
  const fs::path unfinished = folder_ / "runs" / "v3-20260101-000000";
  mark_unfinished(unfinished);
  TrainConfig other = config();
  other.settings["lr"] = 0.02;
  EXPECT_EQ(chosen(other), "v4");
  other = config();
  other.output.resume = "none";
  EXPECT_EQ(chosen(other), "v4");
  other = config();
  other.output.overwrite = true;
  EXPECT_EQ(chosen(other), "v4");
  {
    const FileLock training = lock_run_directory(unfinished);
    EXPECT_EQ(chosen(config()), "v4");
  }
  EXPECT_EQ(chosen(config()), "v3");
  for (const auto& entry : fs::directory_iterator(unfinished)) {
    if (entry.is_directory() && !entry.is_symlink()) fs::remove(entry.path() / "DONE");
  }
  EXPECT_EQ(chosen(config()), "v4") << "no complete checkpoint is left";
}

TEST_F(Versions, AScriptThatSaysFinetuneKnowsItsOwnRun) {
  const fs::path run_dir = folder_ / "runs" / "v3-20260101-000000";
  TrainConfig script = config();
  script.output.directory = run_dir;
  EXPECT_EQ(own_run(script), OwnRun::kNone) << "without --finetune resuming decides";
  script.output.begins_anew = true;
  script.output.resume = "none";
  EXPECT_EQ(own_run(script), OwnRun::kFinished);
  run(script);
  mark_unfinished(run_dir);
  EXPECT_EQ(own_run(script), OwnRun::kUnfinished);
  // Where it runs does not make it another line, what it trains does.
  script.settings["master_port"] = 29501;
  script.of_machine = {"master_port"};
  EXPECT_EQ(own_run(script), OwnRun::kUnfinished);
  TrainConfig other = script;
  other.settings["lr"] = 0.02;
  EXPECT_EQ(own_run(other), OwnRun::kNone);
  EXPECT_THROW(run(other), UsageError);
  {
    const FileLock training = lock_run_directory(run_dir);
    EXPECT_EQ(own_run(script), OwnRun::kNone);
  }
  run(script);
  EXPECT_TRUE(is_finished(run_dir));
  for (const auto& entry : fs::directory_iterator(run_dir)) {
    if (entry.is_directory() && !entry.is_symlink()) fs::remove(entry.path() / "DONE");
  }
  EXPECT_EQ(own_run(script), OwnRun::kModelAlone);
  run(script);
  mark_unfinished(run_dir);
  EXPECT_EQ(own_run(script), OwnRun::kNone) << "nothing to go on from";
  EXPECT_THROW(run(script), UsageError);
}

TEST_F(Versions, OnlyATokenizerThatWasNamedMustBeThere) {
  TrainConfig of_rows = config();
  of_rows.model.tokenizer = folder_ / "cache";
  const arch::ModelConfig model = arch::load_model_config(of_rows.model.path);
  EXPECT_FALSE(prepare_text(of_rows, model).tokenizer) << "rows that are tokens need none";
  of_rows.model.tokenizer_is_named = true;
  EXPECT_THROW(prepare_text(of_rows, model), text::MissingTokenizer);
}

TEST_F(Versions, ADirectoryThatIsNoRunIsNotCleared) {
  const fs::path own = folder_ / "own";
  fs::create_directories(own);
  for (const char* file : {"tokenizer.json", "config.json", "logging.jsonl"})
    std::ofstream(own / file) << "{}";
  clear_run_directory(own);
  for (const char* file : {"tokenizer.json", "config.json", "logging.jsonl"})
    EXPECT_TRUE(fs::exists(own / file)) << file;
}

TEST_F(Versions, ClearingADirectoryKeepsWhatNoRunWrote) {
  const fs::path run_dir = folder_ / "runs" / "v3-20260101-000000";
  for (const char* own : {"notes.txt", "model.py", "checkpoint-notes"})
    std::ofstream(run_dir / own) << "the user's own";
  fs::create_directories(run_dir / "checkpoint-500");
  std::ofstream(run_dir / "checkpoint-500" / "optimizer.pt") << "of another program";
  clear_run_directory(run_dir);
  EXPECT_TRUE(fs::exists(run_dir / "checkpoint-500" / "optimizer.pt"));
  for (const char* own : {"notes.txt", "model.py", "checkpoint-notes"})
    EXPECT_TRUE(fs::exists(run_dir / own)) << own;
  for (const char* old : {"adapter_model.safetensors", "adapter_config.json", "DONE",
                          "checkpoint-1", "last", "logging.jsonl", "all_results.json"})
    EXPECT_FALSE(fs::exists(run_dir / old)) << old;
}

TEST_F(Versions, WhatTheRunReadsIsNotOverwritten) {
  const fs::path run_dir = folder_ / "runs" / "v3-20260101-000000";
  TrainConfig again = config();
  again.output.directory = run_dir;
  again.output.overwrite = true;
  EXPECT_NO_THROW(refuse_to_lose_files(again));
  const auto refused = [&](const std::function<void(TrainConfig&)>& change) {
    TrainConfig changed = again;
    change(changed);
    EXPECT_THROW(refuse_to_lose_files(changed), UsageError);
    changed.output.overwrite = false;
    EXPECT_NO_THROW(refuse_to_lose_files(changed));
  };
  refused([&](TrainConfig& c) { c.model.adapter = run_dir / "checkpoint-1"; });
  refused([&](TrainConfig& c) { c.model.adapter = run_dir / "last"; });
  refused([&](TrainConfig& c) { c.model.adapter = run_dir; });
  refused([&](TrainConfig& c) { c.model.path = run_dir / "checkpoint-1"; });
  refused([&](TrainConfig& c) { c.model.tokenizer = run_dir / "checkpoint-1"; });
  refused([&](TrainConfig& c) { c.output.resume = (run_dir / "checkpoint-1").string(); });
  std::ofstream(run_dir / "val_dataset.jsonl") << "{}";
  refused(
      [&](TrainConfig& c) { c.data.train = {(run_dir / "val_dataset.jsonl").string() + "#3"}; });
}

TEST_F(Versions, PublishingLeavesNoWeightsOfAnEarlierModel) {
  const fs::path run_dir = folder_ / "runs" / "v3-20260101-000000";
  for (const char* stale :
       {"model.safetensors", "model.safetensors.index.json", "model-00001-of-00002.safetensors"})
    std::ofstream(run_dir / stale) << "stale";
  publish_model(run_dir / "checkpoint-1", run_dir);
  for (const char* stale :
       {"model.safetensors", "model.safetensors.index.json", "model-00001-of-00002.safetensors"})
    EXPECT_FALSE(fs::exists(run_dir / stale)) << stale;
  EXPECT_TRUE(fs::exists(run_dir / "adapter_model.safetensors"));
}

TEST(Checkpoints, WhatCannotBeSettledBehindAWholeOneIsAWarning) {
  const danlu::test::TemporaryDirectory folder;
  OutputConfig output;
  output.directory = folder.path();
  output.save_total_limit = 1;
  fs::create_directory(folder / "checkpoint-2");
  std::ofstream(folder / "checkpoint-2/DONE") << "{}";
  fs::create_directories(folder / "last" / "no link");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(settle_checkpoints(output, folder / "checkpoint-2", /*best_step=*/0));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("last: cannot link: "), said.npos) << said;
  EXPECT_NE(said.find("checkpoint-2 is whole; links and older checkpoints stay as they are"),
            said.npos)
      << said;
  fs::remove_all(folder / "checkpoint-2");
  EXPECT_FALSE(settle_checkpoints(output, folder / "checkpoint-2", 0)) << "its directory is gone";
}

// A checkpoint that nothing asked for but its evaluation goes when a better one is whole.
TEST(Checkpoints, TheFormerBestGoesWhenTheNewOneIsWhole) {
  const danlu::test::TemporaryDirectory folder;
  OutputConfig output;
  output.directory = folder.path();
  output.save_total_limit = 0;
  for (const char* name : {"checkpoint-2", "checkpoint-3", "checkpoint-4", "checkpoint-6"})
    fs::create_directory(folder / name);
  const auto is_there = [&](int step) {
    return fs::exists(folder / ("checkpoint-" + std::to_string(step)));
  };
  const auto settle = [&](int newest, int64_t best, std::vector<fs::path> in_use = {}) {
    return settle_checkpoints(output, folder / ("checkpoint-" + std::to_string(newest)), best,
                              std::move(in_use), {2, 4, 6});
  };
  EXPECT_TRUE(settle(6, 4));
  EXPECT_TRUE(is_there(2)) << "checkpoint-4, the best, is not whole";
  std::ofstream(folder / "checkpoint-4/DONE") << "{}";
  EXPECT_TRUE(settle(6, 4, {folder / "checkpoint-2"}));
  EXPECT_TRUE(is_there(2)) << "it is being read";
  EXPECT_TRUE(settle(6, 4));
  EXPECT_FALSE(is_there(2));
  EXPECT_TRUE(is_there(3)) << "the line asked for it";
  EXPECT_TRUE(is_there(4)) << "the best";
  EXPECT_TRUE(is_there(6)) << "the newest, from which the run is resumed";
}

}  // namespace run_dir_test
}  // namespace danlu::train
