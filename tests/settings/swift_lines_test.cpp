// Flags of ms-swift's and LLaMA-Factory's lines that say something of Danlu's in other words.
#include <gmock/gmock.h>

#include "settings/option_lines.h"
#include "settings/options/processes.h"

namespace danlu::settings::options_test {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(TrainOptions, NamesOfSelfCognitionAreOneOrTwo) {
  const data::SelfNames one =
      with("sft", {"--model_name", "robot", "--model_author", "swift"}).data.names;
  EXPECT_EQ(one, (data::SelfNames{"robot", "robot", "swift", "swift"}));
  const data::SelfNames two = with("sft", {"--model_name", "小黄", "Xiao Huang"}).data.names;
  EXPECT_EQ(two, (data::SelfNames{"小黄", "Xiao Huang", "", ""}));
  EXPECT_THAT(refusal("sft", {"--model_name", "a", "b", "c"}), HasSubstr("got 3"));
}

TEST_F(TrainOptions, PartsThatAreLearntGoByLlamaFactorysSwitchesToo) {
  const auto learnt = [&](const std::vector<std::string>& line) {
    return with("sft", line).data.learnt;
  };
  EXPECT_EQ(learnt({"--train_on_prompt", "true"}), learnt({"--loss_scale", "all"}));
  EXPECT_EQ(learnt({"--mask_history", "true"}), learnt({"--loss_scale", "last_round"}));
  EXPECT_EQ(learnt({"--mask_history", "false"}), text::TrainedPart());
  EXPECT_THAT(refusal("sft", {"--mask_history", "true", "--train_on_prompt", "true"}),
              HasSubstr("both say what is learnt"));
  EXPECT_THAT(refusal("sft", {"--mask_history", "true", "--loss_scale", "all"}),
              HasSubstr("--loss_scale and --mask_history both say"));
}

TEST_F(TrainOptions, ThinkingIsAVariableOfTheTemplate) {
  EXPECT_TRUE(with("sft", {}).data.template_variables.is_null());
  EXPECT_EQ(with("sft", {"--enable_thinking", "false"}).data.template_variables,
            (Json{{"enable_thinking", false}}));
}

TEST_F(TrainOptions, TheLastSamplesAreLeftOutWhereThatIsAskedFor) {
  EXPECT_FALSE(with("sft", {}).data.drops_last);
  EXPECT_TRUE(with("sft", {"--dataloader_drop_last", "true"}).data.drops_last);
}

TEST_F(TrainOptions, EndStagesHaveLayersOfTheirOwn) {
  const auto list = [](std::vector<std::string> line, int64_t layers,
                       std::vector<int64_t> noop = {}) {
    line.insert(line.end(), {"--model", "m", "--dataset", "d", "--pp", "4"});
    arch::PipelineLayers split{.stages = 4, .noop_layers = std::move(noop)};
    put_end_stages(cli::sft_options().parse(line, /*accepts_config=*/false), layers, split);
    return split.layer_list;
  };
  EXPECT_THAT(list({}, 10), testing::IsEmpty());
  EXPECT_THAT(list({"--decoder_first_pipeline_num_layers", "1"}, 10), ElementsAre(1, 3, 3, 3));
  EXPECT_THAT(list({"--decoder-last-pipeline-num-layers", "1"}, 10), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(
      list({"--decoder_first_pipeline_num_layers", "1", "--decoder_last_pipeline_num_layers", "3"},
           10),
      ElementsAre(1, 3, 3, 3));
  EXPECT_THAT(list({"--decoder_first_pipeline_num_layers", "0"}, 8, {0}), ElementsAre(0, 3, 3, 3));
  try {
    list({"--decoder_first_pipeline_num_layers", "2"}, 10);
    FAIL() << "8 layers are shared by 3 stages";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("8 are left, which the other 3 stages of 4 cannot share"));
  }
}

}  // namespace danlu::settings::options_test
