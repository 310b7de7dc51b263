// The guides' training lines of several processes, with the flags and ranks that stand there, on
// narrow models of the same depth: from Hugging Face's directory and from a converted one, against
// one process, to a checkpoint that answers. `make test` runs some of each guide from one of the
// two; with DANLU_SLOW all from both, and again in f32.
#include <algorithm>
#include <iterator>
#include <set>

#include "cli/guide_runs.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

using ::testing::HasSubstr;

/// Lines of every axis, kind of data and tuning; npu_guide_lines_test.cpp has one of guide (a).
bool is_quick(const GuideLine& line) {
  static const std::set<std::string> names = {
      "b_zero3", "c_pretrain", "c_tune", "c_tune_lora", "e_pretrain_half_b", "e_tune_half_b_lora"};
  return names.contains(line.name);
}

std::vector<GuideLine> lines_to_run() {
  std::vector<GuideLine> lines;
  for (const auto& list : {printed_lines(), script_lines()}) {
    std::copy_if(list.begin(), list.end(), std::back_inserter(lines),
                 [](const GuideLine& line) { return is_slow() || is_quick(line); });
  }
  return lines;
}

using GuideLines = GuideRuns;

TEST_P(GuideLines, RunWithTheirRanksToACheckpointThatAnswers) {
  const bool slow = is_slow();
  const Tolerance rounding = GetParam().rounds_alike ? kSameNumbers : Tolerance{5e-4, 1e-2};
  const std::string one = train(alone(line(Source::kHuggingFace, "one")));
  const std::string f32 = slow ? train(in_f32(alone(line(Source::kHuggingFace, "f32")))) : "";
  for (const Source source : {Source::kHuggingFace, Source::kConverted}) {
    if (!slow && source != GetParam().first) continue;
    const bool converted = source == Source::kConverted;
    const std::string name = converted ? "of_converted" : "of_hf";
    SCOPED_TRACE(name);
    if (converted) convert();
    const std::string saved = train(line(source, name));
    ASSERT_NE(saved, "");
    EXPECT_THAT(last().err, HasSubstr(GetParam().said));
    EXPECT_THAT(last().err, HasSubstr(converted ? "Megatron" : "weights  Hugging Face"));
    expect_steps_of(one, saved, rounding);
    EXPECT_NE(answer(question(saved, source)), "");
    if (!slow) continue;
    const std::string in_full = train(in_f32(line(source, name + "_f32")));
    expect_steps_of(f32, in_full, kSameNumbers);
    const ProgramResult same = run_words({"diff", f32, in_full, "--tolerance", "1e-4"});
    EXPECT_EQ(same.exit_code, 0) << same.out;
    EXPECT_EQ(answer(question(in_full, source)), answer(question(f32, source)));
  }
}

INSTANTIATE_TEST_SUITE_P(Of, GuideLines, testing::ValuesIn(lines_to_run()),
                         [](const auto& info) { return info.param.name; });

TEST(GuideLinesOf, EveryGuideAreAllThatItPrints) {
  DANLU_REQUIRES_SHARED();
  for (const std::string guide : {kAlpacaGuide, kSwiftGuide}) {
    std::set<size_t> taken;
    std::string mark;
    for (const GuideLine& line : printed_lines()) {
      if (line.guide == guide && taken.insert(line.which).second) mark = line.command;
    }
    EXPECT_EQ(commands_of(guide, mark).size(), taken.size()) << guide;
  }
  // These two print conversions, and name scripts.
  for (const GuideLine& line : script_lines()) {
    EXPECT_EQ(commands_of(line.guide, "torchrun").size(), 0u);
    EXPECT_GT(commands_of(line.guide, "convert_ckpt.py").size(), line.which);
  }
}

}  // namespace
}  // namespace danlu::test
