#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "device/memory.h"
#include "support/pretend_device.h"
#include "train/report/console.h"
#include "train/report/log_lines.h"
#include "train/report/megatron_line.h"
#include "train/report/shown_sample.h"
#include "train/report/sparkline.h"
#include "train/report/used_memory.h"

namespace danlu::train::report_lines_test {

using ::testing::HasSubstr;
using ::testing::Not;

StepRecord a_record() {
  return {.step = 600,
          .total_steps = 22156,
          .epoch = 0.2,
          .loss = 0.10014,
          .grad_norm = 0.17811,
          .lr = 5.4e-5,
          .metrics = {{"token_acc", 0.98613}},
          .elapsed_s = 3 * 3600 + 14 * 60 + 25,
          .remaining_s = 4 * 86400 + 20 * 3600,
          .step_s = 2.5,
          .tokens_per_s = 3120,
          .samples_per_s = 4,
          .mfu = 0.314,
          .data_wait = 0.003,
          .memory_bytes = 45204930560};  // 42.1 GiB
}

TEST(StepLine, ShowsWhatAPersonWatches) {
  EXPECT_EQ(
      step_line(a_record(), 64ull << 30, 3),
      "step 600/22156  2.71%  loss 0.1001  acc 0.986  gnorm 0.178  lr 5.4e-05  mem 42.1/64.0GiB  "
      "3,120 tok/s (1,040/dev)  mfu 31.4%  data 0.3%  3h14m<4d20h");
}

TEST(StepLine, DividesTokensWhereRowsHoldPictures) {
  StepRecord record = a_record();
  EXPECT_FALSE(step_json(record).contains("visual_tokens_per_second"));
  record.visual_tokens_per_s = 2080;
  EXPECT_THAT(step_line(record), HasSubstr("GiB  3,120 tok/s = 2,080 visual + 1,040 text  mfu"));
  EXPECT_EQ(step_json(record)["visual_tokens_per_second"], 2080);
  EXPECT_EQ(step_json(record)["text_tokens_per_second"], 1040);
}

TEST(StepLine, LeavesOutWhatIsNotKnown) {
  StepRecord record = a_record();
  record.metrics.clear();
  record.mfu = -1;
  const std::string line = step_line(record);
  EXPECT_THAT(line, Not(HasSubstr("acc")));
  EXPECT_THAT(line, Not(HasSubstr("mfu")));
  EXPECT_THAT(line, Not(HasSubstr("/dev")));
  EXPECT_THAT(line, HasSubstr("mem 42.1GiB"));
  EXPECT_FALSE(step_json(record).contains("token_acc"));
  EXPECT_FALSE(step_json(record).contains("mfu"));
}

TEST(StepLine, SaysWhatItsBatchesTookAndWhichMemory) {
  StepRecord record = a_record();
  EXPECT_FALSE(step_json(record).contains("host_memory(GiB)"));
  record.times = {{"judging", 0.25}, {"rollout", 2}};
  record.host_memory_bytes = 3ull << 30;
  EXPECT_THAT(step_line(record), HasSubstr("  data 0.3%  judging 10.0%  rollout 80.0%  3h14m"));
  const Json json = step_json(record);
  EXPECT_EQ(json["time/rollout"], 2);
  EXPECT_EQ(json["time/judging"], 0.25);
  EXPECT_EQ(json["memory(GiB)"], 42.1);
  EXPECT_EQ(json["host_memory(GiB)"], 3);
  record.memory_bytes = 0;
  EXPECT_THAT(step_line(record), Not(HasSubstr("mem ")));
  EXPECT_FALSE(step_json(record).contains("memory(GiB)"));
}

TEST(UsedMemory, IsTheDevicesWhereTheModelIsOnOne) {
  const at::Device device = danlu::test::pretend_device(1);
  ASSERT_TRUE(device::count_memory(device));
  device::reset_peak_memory(device);
  const at::Tensor kept = at::empty({5000}, at::device(device));
  const UsedMemory used = used_memory(device);
  // What its allocator holds for the tensors, which is whole pieces.
  const auto bytes = static_cast<uint64_t>(device::memory(device));
  EXPECT_GE(used.bytes, bytes);
  EXPECT_LT(used.bytes, bytes + (1u << 20));
  EXPECT_GT(used.host_bytes, 1u << 20);
  EXPECT_EQ(used_memory(at::kCPU).host_bytes, 0u);
  EXPECT_GT(used_memory(at::kCPU).bytes, 1u << 20);
}

TEST(StepLine, CountsSkippedSteps) {
  StepRecord record = a_record();
  record.skipped_steps = 2;
  record.loss_scale = 1024;
  EXPECT_THAT(step_line(record), HasSubstr("  scale 1024  "));
  EXPECT_THAT(step_line(record), HasSubstr("  skipped 2"));
}

TEST(StepLine, HasNoSignedNan) {
  StepRecord record = a_record();
  record.grad_norm = record.loss = -std::nan("");
  const std::string line = step_line(record);
  EXPECT_THAT(line, HasSubstr("  gnorm skipped  lr"));
  EXPECT_THAT(line, HasSubstr("loss nan"));
  EXPECT_THAT(line, Not(HasSubstr("-nan")));
  EXPECT_THAT(eval_line({.loss = -std::nan("")}), Not(HasSubstr("-nan")));
}

// Keys of ms-swift 2.x and 3.x, and ours.
TEST(StepJson, HoldsTheKeysThatPlottersKnow) {
  EXPECT_EQ(
      step_json(a_record()).dump(),
      R"j({"loss":0.10014,"token_acc":0.98613,"acc":0.98613,"grad_norm":0.17811,"learning_rate":5.4e-05,)j"
      R"j("epoch":0.2,"global_step":600,"global_step/max_steps":"600/22156","percentage":"2.71%",)j"
      R"j("elapsed_time":"3h 14m 25s","remaining_time":"4d 20h 0m 0s","memory(GiB)":42.1,)j"
      R"j("train_speed(s/it)":2.5,"train_speed(iter/s)":0.4,"tokens_per_second":3120.0,)j"
      R"j("samples_per_second":4.0,"mfu":0.314,"data_wait":0.003})j");
}

TEST(StepJson, HfFormatHasOnlyHfKeys) {
  EXPECT_EQ(hf_step_json(a_record()).dump(),
            R"j({"loss":0.1001,"grad_norm":0.17811,"learning_rate":5.4e-05,"epoch":0.2})j");
}

/// The line that MindSpeed-MM's scripts read for their mean time: the fifth of the fields between
/// ':' up to the next '|'.
TEST(MegatronLine, HoldsTheTimeWhereScriptsLook) {
  const std::string line = megatron_step_line(a_record(), 10, 0);
  EXPECT_THAT(line, HasSubstr("] iteration      600/   22156 | consumed samples:         6000 | "
                              "elapsed time per iteration (ms): 2500.0 | learning rate: "
                              "5.400000E-05 | global batch size:    10 | lm loss: 1.00"));
  EXPECT_THAT(line,
              HasSubstr("number of skipped iterations:   0 | number of nan iterations:   0 |"));
  size_t at = 0;
  for (int colon = 0; colon < 4; ++colon) at = line.find(':', at) + 1;
  EXPECT_EQ(std::stod(line.substr(at, line.find('|', at) - at)), 2500.0);
}

TEST(EvalJson, DividesByTheSecondsItTook) {
  const EvalRecord record{.step = 50,
                          .total_steps = 100,
                          .epoch = 0.5,
                          .loss = 1.25,
                          .metrics = {{"token_acc", 0.5}},
                          .num_samples = 80,
                          .num_batches = 10,
                          .seconds = 4};
  EXPECT_EQ(
      eval_json(record).dump(),
      R"j({"eval_loss":1.25,"eval_token_acc":0.5,"eval_acc":0.5,"eval_runtime":4.0,)j"
      R"j("eval_samples_per_second":20.0,"eval_steps_per_second":2.5,"epoch":0.5,"global_step":50,)j"
      R"j("global_step/max_steps":"50/100"})j");
  EXPECT_EQ(eval_line(record), "eval 50/100  loss 1.2500  acc 0.500  ppl 3.490  80 samples  4.0s");
}

TEST(SpelledDuration, NamesUnitsFromTheLargest) {
  EXPECT_EQ(spelled_duration(0), "0s");
  EXPECT_EQ(spelled_duration(59.6), "1m 0s");
  EXPECT_EQ(spelled_duration(90061), "1d 1h 1m 1s");
  EXPECT_EQ(spelled_duration(std::nan("")), "?");
}

TEST(Sparkline, DrawsEightHeights) {
  EXPECT_EQ(sparkline(std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline(std::vector<double>{3, 3}), "▅▅");
  EXPECT_EQ(sparkline(std::vector<double>{}), "");
}

TEST(Sparkline, TakesMeansOfStretchesAndSkipsGaps) {
  EXPECT_EQ(sparkline(std::vector<double>{0, 2, 10, 12}, 2), "▁█");
  EXPECT_EQ(sparkline(std::vector<double>{0, std::nan(""), 1}, 3), "▁ █");
}

TEST(ProgressBarText, FillsInEighths) {
  // 44 columns less 12 before and 19 behind leave 13; 13 · 5/8 = 8 1/8
  EXPECT_EQ(progress_bar_text(5, 8, 62, 37, 44), "Train:  62%|████████▏    | 5/8 [1m02s<37.0s]");
  EXPECT_EQ(progress_bar_text(0, 0, 0, 0, 30), "Train:   0%| | 0/0 [0.0s<0.0s]");
  EXPECT_EQ(progress_bar_text(8, 8, 62, 0, 34), "Train: 100%|████| 8/8 [1m02s<0.0s]");
}

TEST(ShownSample, KeepsBothEndsOfTheInputAndOfTheLabels) {
  EXPECT_EQ(shown_sample("[INPUT]  a\nb\n[LABELS] [-100 * 1]b\n"),
            "[INPUT]  a\nb\n[LABELS] [-100 * 1]b");
  EXPECT_EQ(shown_sample("[INPUT]  1\n2\n3\n4\n5\n6\n7\n[LABELS] [-100 * 9]8\n9\n10\n11\n12\n"),
            "[INPUT]  1\n2\n3\n… 3 more lines; -v shows all … 7\n"
            "[LABELS] [-100 * 9]8 … 3 more lines; -v shows all … 12");
  EXPECT_EQ(shown_sample("[INPUT]  1\n2\n3\n4\n"), "[INPUT]  1\n2\n3\n4");
  // What a row says may look like labels.
  EXPECT_EQ(shown_sample("[INPUT]  1\n[LABELS] of it\n[LABELS] x"),
            "[INPUT]  1\n[LABELS] of it\n[LABELS] x");
  EXPECT_EQ(shown_sample(""), "");
}

TEST(ShownSample, CutsLongLinesBetweenCharacters) {
  std::string line = "[INPUT]  ";  // 9 characters
  for (int i = 0; i < 191; ++i) line += "火";
  EXPECT_EQ(shown_sample(line), line);
  const std::string shown = shown_sample(line + "ab");
  EXPECT_THAT(shown, HasSubstr(" … 42 more characters … "));  // 202 less 120 and 40
  EXPECT_EQ(shown.substr(shown.size() - 3 * 2 - 2), "火火ab");
  EXPECT_EQ(shown.substr(9, 3), "火");
}

}  // namespace danlu::train::report_lines_test
