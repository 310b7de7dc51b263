// Guides (a) and (b), which are about Ascend NPUs, typed with --device npu on the simulated one:
// `make test` one line of each guide with shallow models on eight ranks, DANLU_SLOW all with the
// guides' eight and four ranks and the depth of their models, and again in f32.
#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "cli/guide_runs.h"

namespace danlu::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool is_lora(const GuideLine& line) { return line.name == "b_data_parallel"; }

/// The line of its guide that `make test` types, on eight ranks.
bool is_for_eight(const GuideLine& line) { return is_lora(line) || line.name == "a_full_shard"; }

std::vector<GuideLine> npu_lines() {
  std::vector<GuideLine> all = printed_lines(), lines;
  GuideLine one_card = *std::find_if(all.begin(), all.end(), is_lora);
  one_card.name = "b_one_card";
  one_card.command = "swift sft";
  one_card.said = "NPU SIMULATOR";
  all.push_back(one_card);
  for (GuideLine& line : all) {
    if (is_slow()) {
      lines.push_back(line);
    } else if (is_for_eight(line) || line.name == "b_one_card") {
      line.shape.layers = 2;
      if (is_lora(line)) line.said = "× 8 processes";
      lines.push_back(line);
    }
  }
  return lines;
}

class NpuGuideLines : public GuideRuns {
 protected:
  static Run on_npu(Run run) {
    run.environment["DANLU_NPU_LIBRARY"] = DANLU_BUILD_DIR "/npu_sim/current";
    run.environment["NPU_SIM_DELAY_US"] = "100";
    run.words = joined(run.words, {"--device", "npu"});
    return run;
  }
  /// The samples of a step stay sixteen.
  static Run on_eight(Run run) {
    if (is_slow() || !is_for_eight(GetParam())) return run;
    if (run.environment.count("NPROC_PER_NODE") > 0) run.environment["NPROC_PER_NODE"] = "8";
    const auto seen = run.environment.find("ASCEND_RT_VISIBLE_DEVICES");
    if (seen != run.environment.end()) seen->second = "0,1,2,3,4,5,6,7";
    run.words =
        with_values(run.words, {{"--nproc_per_node", "8"}, {"--gradient_accumulation_steps", "2"}});
    return run;
  }
  Run on_cpu(const std::string& run) const {
    Run own = alone(line(Source::kHuggingFace, run));
    own.words = joined(own.words, {"--device", "cpu"});
    own.environment.erase("ASCEND_RT_VISIBLE_DEVICES");
    return own;
  }
};

TEST_P(NpuGuideLines, TrainAndAnswerOnNpusAsOnTheCpu) {
  // Products and norms round at other places there.
  constexpr Tolerance kIn16Bits{2e-3, 2e-2}, kInF32{1e-5, 1e-4};
  const Source hf = Source::kHuggingFace;
  const std::string saved = train(on_npu(on_eight(line(hf, "npu"))));
  ASSERT_NE(saved, "");
  EXPECT_THAT(last().err, AllOf(HasSubstr(GetParam().said), HasSubstr("NPU SIMULATOR")));
  expect_steps_of(train(on_cpu("cpu")), saved, kIn16Bits);
  EXPECT_NE(answer(on_npu(question(saved, hf))), "");
  if (!is_slow()) return;
  const std::string f32 = train(in_f32(on_npu(line(hf, "npu_f32"))));
  expect_steps_of(train(in_f32(on_cpu("cpu_f32"))), f32, kInF32);
}

INSTANTIATE_TEST_SUITE_P(Of, NpuGuideLines, testing::ValuesIn(npu_lines()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace danlu::test
