// The account of the guides: every line that one prints for a terminal of ours, or names a script
// for, with what becomes of it here and the test of this program that types it. What a guide
// prints beside these (environments, builds of other systems) has no line here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "cli/guide_lines.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

enum class Fate { kRuns, kNotHere };

struct Entry {
  const char* guide;
  const char* text;  ///< stands in the guide
  int count;         ///< how many lines of the guide begin with it
  Fate fate;
  const char* typed_by;  ///< a test, or its first part
};

constexpr const char *kA = "a_alpaca_on_910b.txt", *kB = "b_ms_swift_npu.txt",
                     *kC = "c_mindspeed_llm_practice.txt", *kD = "d_mindspeed_mm.txt",
                     *kE = "e_mindspeed_llm_guide.txt";

const std::vector<Entry>& entries() {
  using enum Fate;
  static const std::vector<Entry> list = {
      {kA, "npu-smi info", 2, kRuns, "Of/CardsOfGuides.AndTheirLinks/a"},
      {kA, "torchrun --nproc_per_node=8", 3, kRuns, "Of/GuideLines.Run"},
      {kB, "(valle) root@valle:~/src# npu-smi info", 2, kRuns, "Of/CardsOfGuides.AndTheirLinks"},
      {kB, "swift sft", 4, kRuns, "Of/GuideLines.RunWithTheirRanksToACheckpointThatAnswers/b_"},
      {kB, "ASCEND_RT_VISIBLE_DEVICES=0 swift infer --model_type", 1, kRuns,
       "DownloadCommand.ALineOfMsSwiftFetches"},
      {kB, "ASCEND_RT_VISIBLE_DEVICES=0 swift infer --ckpt_dir", 1, kRuns,
       "Of/GuideLines.RunWithTheirRanksToACheckpointThatAnswers/b_"},
      {kC, "wget https://huggingface.co/", 11, kRuns,
       "DownloadCommand.AddressesThatGuideCGivesToWget"},
      {kC, "model_dir = snapshot_download(", 1, kRuns, "DownloadCommand.SnapshotDownloadOfGuidesC"},
      {kC, "python convert_ckpt.py", 1, kRuns, "Lines/ConvertGuides.TheirCommandLines"},
      {kC, "bash examples/mcore/llama2/ckpt_convert_qwen15_hf2mcore.sh", 1, kRuns,
       "Lines/ConvertGuides.TheirCommandLines"},
      {kC, "bash examples/mcore/llama2/data_convert_qwen15_pretrain.sh", 1, kRuns,
       "Of/GuideLines.RunWithTheirRanksToACheckpointThatAnswers/c_pretrain"},
      {kC, "bash examples/mcore/qwen15/data_convert_qwen15_instruction.sh", 1, kRuns,
       "Of/GuideLines.RunWithTheirRanksToACheckpointThatAnswers/c_tune"},
      {kC, "按照官方指导,选择对应xxx_pretrain.sh脚本", 1, kRuns,
       "Of/GuideLines.RunWithTheirRanksToACheckpointThatAnswers/c_pretrain"},
      {kC, "按照官方指导,选择对应tune_xxx.sh脚本", 1, kRuns,
       "Of/GuideLines.RunWithTheirRanksToACheckpointThatAnswers/c_tune"},
      {kC, "- 按照官方指导,选择对应generate_xx.sh脚本", 1, kRuns,
       "Chain.ConvertedThenPretrainedTunedAndAsked"},
      {kC, "同样进入example文件路径下mcore对应的模型文件内,如果没有chat脚本", 1, kRuns,
       "Terminal.WhoTypesBeforeATeeSeesThePrompt"},
      {kC, "大模型评估支持 mmlu", 1, kRuns, "GuideEvaluation.OfTheBaseTheTunedModelAndLora"},
      {kE, "model_dir = snapshot_download(", 1, kRuns, "DownloadCommand.SnapshotDownloadOfGuidesC"},
      {kE, "python convert_ckpt.py", 2, kRuns, "Lines/ConvertGuides.TheirCommandLines"},
      {kE, "bash examples/ckpt/ckpt_convert_qwen25_mcore2hf.sh", 1, kRuns,
       "Convert.BackToHuggingFaceAsTheGuidesSayIt"},
      {kE, "python preprocess_data.py", 1, kRuns,
       "Of/GuideLines.RunWithTheirRanksToACheckpointThatAnswers/e_pretrain"},
      {kE, "python ./preprocess_data.py", 1, kRuns,
       "Of/GuideLines.RunWithTheirRanksToACheckpointThatAnswers/e_tune"},
      {kE, "按照官方指导，选择对应xxx_pretrain.sh脚本", 1, kRuns,
       "Of/GuideLines.RunWithTheirRanksToACheckpointThatAnswers/e_pretrain"},
      {kE, "按照官方指导，选择对应tune_xxx.sh脚本", 1, kRuns,
       "Of/GuideLines.RunWithTheirRanksToACheckpointThatAnswers/e_tune"},
      {kE, "- 按照官方指导，选择对应generate_xx.sh脚本", 1, kRuns,
       "Chain.TheScriptsLinesOfSeveralProcesses"},
      {kE, "- chat对话推理", 1, kRuns, "Terminal.WhoTypesBeforeATeeSeesThePrompt"},
      {kE, "bash examples/data/preprocess_data.sh grpo_pe_nlp", 1, kRuns,
       "PreferenceData.TheGuidesYamlOfReinforcementLearning"},
      {kD, "mm-convert  Qwen2VLConverter", 2, kRuns, "MmConvert.TheGuidesLinesRunAsTyped"},
      {kD, "(3)运行数据转换脚本python examples/qwen2vl/llava_instruct_2_mllm_demo_format.py", 1,
       kRuns, "PictureRows.LlavaRowsAreConvertedOnce"},
      {kD, "bash examples/qwen2vl/finetune_qwen2vl_7b.sh", 2, kRuns,
       "MindSpeedMmChain.RunsFromTheFirstLineToTheLast"},
  };
  return list;
}

std::vector<std::string> lines_of(const std::string& guide) {
  std::ifstream file(shared_dir() / "guides" / guide);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(line.substr(std::min(line.find_first_not_of(' '), line.size())));
  return lines;
}

std::vector<std::string> tests_of_this_program() {
  std::vector<std::string> names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j)
      names.push_back(std::string(suite.name()) + "." + suite.GetTestInfo(j)->name());
  }
  return names;
}

TEST(GuideTable, EveryLineHasATestThatTypesIt) {
  DANLU_REQUIRES_SHARED();
  const std::vector<std::string> tests = tests_of_this_program();
  std::map<Fate, int> counted;
  for (const Entry& entry : entries()) {
    int found = 0;
    for (const std::string& line : lines_of(entry.guide)) found += line.starts_with(entry.text);
    EXPECT_EQ(found, entry.count) << entry.guide << ": " << entry.text;
    const bool is_typed = std::any_of(tests.begin(), tests.end(), [&](const std::string& name) {
      return name.starts_with(entry.typed_by);
    });
    EXPECT_TRUE(is_typed) << entry.text << ": no test is called " << entry.typed_by;
    counted[entry.fate] += entry.count;
    std::cout << (entry.fate == Fate::kRuns ? "  RUNS      " : "  not here  ") << entry.count
              << " × " << entry.guide << ": " << entry.text << "  (" << entry.typed_by << ")\n";
  }
  EXPECT_EQ(counted[Fate::kRuns], 50);
  EXPECT_EQ(counted[Fate::kNotHere], 0);
}

/// Who adds a line to a guide adds it to the table.
TEST(GuideTable, NoLineOfAGuideIsLeftOut) {
  DANLU_REQUIRES_SHARED();
  // Beginnings of lines that are typed at a terminal and name something that Danlu takes over.
  const std::vector<std::string> marks = {
      "python ",  "torchrun ",   "swift ",
      "bash ex",  "wget http",   "mm-convert ",
      "npu-smi ", "model_dir =", "ASCEND_RT_VISIBLE_DEVICES=0 swift"};
  for (const char* guide : {kA, kB, kC, kD, kE}) {
    for (const std::string& line : lines_of(guide)) {
      const bool is_command = std::any_of(marks.begin(), marks.end(),
                                          [&](const auto& mark) { return line.starts_with(mark); });
      if (!is_command) continue;
      const bool is_listed = std::any_of(entries().begin(), entries().end(), [&](const Entry& e) {
        return guide == std::string(e.guide) && line.starts_with(e.text);
      });
      EXPECT_TRUE(is_listed) << guide << ": " << line;
    }
  }
}

}  // namespace
}  // namespace danlu::test
