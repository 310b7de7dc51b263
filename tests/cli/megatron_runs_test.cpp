// --load, --save and --save-format mcore as a script of MindSpeed-LLM has them: what a run leaves
// in Megatron's format is cut as its line says, and the same line, or the next one, goes on from
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

constexpr const char* kTracker = "latest_checkpointed_iteration.txt";

class MegatronRuns : public BadInput {
 protected:
  void SetUp() override {
    BadInput::SetUp();
    std::string rows;
    for (int i = 0; i < 40; ++i) {
      rows += R"({"text": "the quick brown fox )" + std::to_string(i) +
              R"( jumps over the lazy dog and sleeps"})" + "\n";
    }
    write("text.jsonl", rows);
    ok({"preprocess", "--input", "text.jsonl", "--tokenizer-name-or-path",
        good("tokenizer").string(), "--tokenizer-type", "PretrainedFromHF", "--handler-name",
        "GeneralPretrainHandler", "--output-prefix", "fox", "--json-keys", "text", "--workers", "1",
        "--append-eod"});
  }
  /// Four steps of a random model, unless `more` says otherwise; saved every two.
  Words line(const std::string& load, const std::string& save, const Words& more = {}) const {
    Words words = {"pretrain",
                   "--profile",
                   "mindspeed",
                   "--adam-beta2",
                   "0.95",
                   "--load",
                   load,
                   "--save",
                   save,
                   "--model",
                   good("model").string(),
                   "--data-path",
                   "fox_text_document",
                   "--seq-length",
                   "16",
                   "--micro-batch-size",
                   "2",
                   "--global-batch-size",
                   "4",
                   "--train-iters",
                   "4",
                   "--lr",
                   "1e-2",
                   "--min-lr",
                   "1e-3",
                   "--lr-decay-style",
                   "cosine",
                   "--lr-warmup-iters",
                   "1",
                   "--weight-decay",
                   "0.1",
                   "--split",
                   "100,0,0",
                   "--log-interval",
                   "1",
                   "--dtype",
                   "fp32",
                   "--seed",
                   "7",
                   "--save-interval",
                   "2",
                   "--plot_loss",
                   "false",
                   "--save-total-limit",
                   "0",
                   "--save-format",
                   "mcore"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words on(int ranks, Words words) const {
    words.insert(words.begin(), {"launch", "--nproc_per_node", std::to_string(ranks)});
    return words;
  }
  std::vector<double> losses(const std::string& run_dir) const {
    std::vector<double> found;
    std::istringstream lines(content_of(*this / run_dir / "logging.jsonl"));
    for (std::string text; std::getline(lines, text);) {
      const json record = json::parse(text);
      if (record.contains("loss")) found.push_back(record["loss"].get<double>());
    }
    return found;
  }
  void expect_losses(const std::string& run_dir, const std::vector<double>& expected) const {
    const std::vector<double> found = losses(run_dir);
    ASSERT_EQ(found.size(), expected.size()) << run_dir;
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-6 * expected[i]) << run_dir << ", line " << i;
  }
};

TEST_F(MegatronRuns, ALoadedRunGoesOnWithItsOptimizerScheduleAndSamples) {
  const ProgramResult whole = ok(line("whole", "whole"));
  EXPECT_THAT(whole.err, AllOf(HasSubstr("weights  random"),
                               HasSubstr("go on from it: --load whole/megatron --no-load-rng\n")));
  const std::vector<double> all = losses("whole");
  ASSERT_EQ(all.size(), 4u);
  const std::vector<double> rest(all.begin() + 2, all.end());
  const ProgramResult next = ok(line("whole", "next", {"--iteration", "2"}));
  EXPECT_THAT(next.err, AllOf(HasSubstr("whole/megatron/iter_0000002; continued: iteration 2, "
                                        "consumed samples 8, Adam's state"),
                              Not(HasSubstr("instead of its own"))));
  expect_losses("next", rest);
  // At another mesh, and back from the one it was saved at.
  const Words pieces = {"--tensor-model-parallel-size",
                        "2",
                        "--pipeline-model-parallel-size",
                        "2",
                        "--iteration",
                        "2"};
  ok(on(4, line("whole", "pieces", pieces)));
  expect_losses("pieces", rest);
  const ProgramResult shared =
      ok(on(2, line("pieces", "shared", {"--use-distributed-optimizer", "--train-iters", "5"})));
  EXPECT_THAT(shared.err, HasSubstr("TP2 PP2, iteration 4"));
  EXPECT_EQ(losses("shared").size(), 1u);
  // Other settings are followed, and told.
  const ProgramResult faster =
      ok(line("whole", "faster", {"--iteration", "2", "--lr", "2e-2", "--adam-beta2", "0.999"}));
  EXPECT_THAT(faster.err, AllOf(HasSubstr("max_lr: 0.01 then, 0.02 now"),
                                HasSubstr("betas: [0.9,0.95] then, [0.9,0.999] now")));
  const ProgramResult anew = ok(line("whole", "anew", {"--finetune"}));
  EXPECT_THAT(anew.err, HasSubstr("weights  Hugging Face"));
  EXPECT_EQ(losses("anew").size(), 4u);
}

TEST_F(MegatronRuns, TheSameLineGoesOnAndMakesGoodWhatAKillLeft) {
  ok(line("run", "run"));
  const std::vector<double> all = losses("run");
  EXPECT_THAT(ok(line("run", "run")).err, HasSubstr("this run is complete: 4 steps are done"));
  // Killed when the last checkpoint was whole and its copy was not.
  fs::remove(*this / "run" / "DONE");
  fs::remove_all(*this / "run" / "megatron" / "iter_0000004");
  write("run/megatron/" + std::string(kTracker), "2");
  EXPECT_THAT(run(line("run", "other", {"--dry_run"})).err,
              HasSubstr("is of iteration 2, and the run's newest checkpoint of step 4"));
  EXPECT_THAT(ok(line("run", "run")).err, HasSubstr("resuming from run/checkpoint-4"));
  EXPECT_EQ(content_of(*this / "run" / "megatron" / kTracker), "4");
  ok({"diff", "run/checkpoint-4", "run/megatron"});
  expect_losses("run", all);
  // Back to an older checkpoint, with room for one: what is written then is what stays.
  fs::remove_all(*this / "run" / "checkpoint-4");
  fs::remove(*this / "run" / "DONE");
  ok(line("run", "run", {"--save-total-limit", "1"}));
  EXPECT_EQ(content_of(*this / "run" / "megatron" / kTracker), "4");
  EXPECT_TRUE(fs::exists(*this / "run" / "megatron" / "iter_0000004"));
  expect_losses("run", all);
  // Begun anew, an older run's copies would be taken for this one's.
  ok(line("elsewhere", "run",
          {"--overwrite_output_dir", "--save-format", "hf", "--train-iters", "1"}));
  EXPECT_FALSE(fs::exists(*this / "run" / "megatron"));
}

/// RUN/megatron of each checkpoint-<step> that is there; the tracker names the newest.
void expect_copies(const fs::path& run) {
  int64_t newest = 0;
  for (const auto& entry : fs::directory_iterator(run)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("checkpoint-")) continue;
    const std::string step = name.substr(std::string("checkpoint-").size());
    newest = std::max<int64_t>(newest, std::stoll(step));
    EXPECT_TRUE(fs::exists(run / "megatron" / ("iter_" + std::string(7 - step.size(), '0') + step)))
        << name;
  }
  EXPECT_GT(newest, 2);
  EXPECT_EQ(content_of(run / "megatron" / kTracker), std::to_string(newest));
}

TEST_F(MegatronRuns, ASignalAndAKillLeaveEveryWholeCheckpointInMegatronsFormatToo) {
  const Words long_line = line("none", "run", {"--train-iters", "4000"});
  const ProgramResult stopped = run_danlu(long_line, {.environment = {{"OMP_NUM_THREADS", "1"}},
                                                      .directory = (*this / "").string(),
                                                      .signal = SIGTERM,
                                                      .signal_after = "saved run/checkpoint-2"});
  EXPECT_EQ(stopped.exit_code, 143) << stopped.err;
  EXPECT_THAT(stopped.err, Not(HasSubstr("not written in Megatron's format")));
  expect_copies(*this / "run");
  // Two were not written when it was killed: the same line makes both.
  std::vector<fs::path> copies;
  for (const auto& entry : fs::directory_iterator(*this / "run" / "megatron")) {
    if (entry.is_directory()) copies.push_back(entry.path());
  }
  std::sort(copies.begin(), copies.end());
  ASSERT_GE(copies.size(), 2u);
  for (size_t i = copies.size() - 2; i < copies.size(); ++i) fs::remove_all(copies[i]);
  const ProgramResult again = run_danlu(long_line, {.environment = {{"OMP_NUM_THREADS", "1"}},
                                                    .directory = (*this / "").string(),
                                                    .signal = SIGTERM,
                                                    .signal_after = "saved run/megatron"});
  EXPECT_EQ(again.exit_code, 143) << again.err;
  expect_copies(*this / "run");
}

TEST_F(MegatronRuns, AScriptThatSaysFinetuneIsGivenTwice) {
  const Words tune = line(good("model").string(), "tuned", {"--finetune", "--no-load-optim"});
  ok(tune);
  const std::vector<double> all = losses("tuned");
  EXPECT_THAT(ok(tune).err, HasSubstr("this run is complete: 4 steps are done"));
  for (const char* name : {"DONE", "checkpoint-4", "config.json", "model.safetensors"})
    fs::remove_all(*this / "tuned" / name);
  EXPECT_THAT(ok(tune).err, AllOf(HasSubstr("an unfinished run of this very line"),
                                  HasSubstr("resuming from tuned/checkpoint-2")));
  expect_losses("tuned", all);
  Words other = tune;
  other.insert(other.end(), {"--lr", "3e-3"});
  expect_error(run(other), 2, {"tuned", "--finetune begins anew"});
}

TEST_F(MegatronRuns, ALineThatLoadsWeightsAloneResumesItsOwnRun) {
  const std::string base = good("model").string();
  const Words weights_alone = {"--no-load-optim", "--no-load-rng"};
  ok(line(base, "tuned", weights_alone));
  const std::vector<double> all = losses("tuned");
  const auto as_killed = [&] {
    for (const char* name : {"DONE", "checkpoint-4", "config.json", "model.safetensors"})
      fs::remove_all(*this / "tuned" / name);
  };
  as_killed();
  EXPECT_THAT(ok(line(base, "tuned", weights_alone)).err,
              HasSubstr("resuming from tuned/checkpoint-2"));
  expect_losses("tuned", all);
  // As Megatron's users go on with a run.
  as_killed();
  EXPECT_THAT(ok(line("tuned", "tuned")).err, HasSubstr("resuming from tuned/checkpoint-2"));
  expect_losses("tuned", all);
}

TEST_F(MegatronRuns, AModelThatOnlyAFileDescribesIsSavedWithIt) {
  ok({"pretrain",
      "--from_scratch",
      "--model",
      (good("model") / "config.json").string(),
      "--tokenizer",
      good("tokenizer").string(),
      "--data-path",
      "fox_text_document",
      "--split",
      "100,0,0",
      "--max_steps",
      "1",
      "--max_length",
      "16",
      "--batch_size",
      "1",
      "--global_batch_size",
      "2",
      "--dtype",
      "fp32",
      "--output_dir",
      "described",
      "--no-version-dir"});
  EXPECT_TRUE(fs::exists(*this / "described" / "config.json"));
  EXPECT_TRUE(fs::exists(*this / "described" / "checkpoint-1" / "model.safetensors"));
}

TEST_F(MegatronRuns, FilesAreCutAsTheLineThatGoesOnReadsThem) {
  // One copy of the model; Megatron's distributed optimizer has its own files all the same.
  const ProgramResult cut =
      ok(line("cut", "cut",
              {"--use-distributed-optimizer", "--overlap-grad-reduce", "--transformer-impl",
               "transformer_engine", "--make-vocab-size-divisible-by", "1000"}));
  EXPECT_THAT(cut.err,
              HasSubstr("--no-load-rng --use-distributed-optimizer --overlap-grad-reduce\n"));
  EXPECT_TRUE(fs::exists(*this / "cut/megatron/iter_0000004/mp_rank_00/distrib_optim.pt"));
  EXPECT_THAT(ok({"inspect", "cut/megatron"}).out,
              AllOf(HasSubstr("Transformer-Engine names"), HasSubstr("padded_vocab_size 1000"),
                    HasSubstr("distributed")));
  // Pickle: a key, its place in the memo, and what it says.
  const std::string file =
      content_of(*this / "cut/megatron/iter_0000004/mp_rank_00/model_optim_rng.pt");
  const size_t key = file.find("overlap_grad_reduce");
  ASSERT_NE(key, file.npos);
  EXPECT_THAT(file.substr(key, 40), HasSubstr("\x88"));
  const ProgramResult plain = ok(line("plain", "plain", {"--overlap-grad-reduce"}));
  EXPECT_THAT(plain.err, HasSubstr("--load plain/megatron --no-load-rng\n"));
  EXPECT_FALSE(fs::exists(*this / "plain/megatron/iter_0000004/mp_rank_00/distrib_optim.pt"));
}

}  // namespace
}  // namespace danlu::test
