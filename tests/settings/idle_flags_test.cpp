// What was asked for and is not to be had is said, each in a line of its own.
#include <gmock/gmock.h>

#include <cstdlib>
#include <map>

#include "settings/option_lines.h"
#include "settings/options/media_flags.h"

namespace danlu::settings::options_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(TrainOptions, PipelineFlagsWithoutAPipelineAreOneLine) {
  EXPECT_THAT(notices("pretrain", {"--noop-layers", "1", "--vpp", "2", "--enable-zero-bubble"}),
              AllOf(HasSubstr("notice: --noop-layers, --vpp, --enable-zero-bubble have no effect "
                              "with --pp 1: there is no pipeline\n")));
  EXPECT_THAT(
      notices("pretrain", {"--num-layers-per-virtual-pipeline-stage", "1"}),
      HasSubstr("notice: --num-layers-per-virtual-pipeline-stage has no effect with --pp 1: "
                "there is no pipeline\n"));
}

TEST_F(TrainOptions, ThreadsThatDecodeAhead) {
  EXPECT_FALSE(with("sft", {}).data.media_workers);
  EXPECT_EQ(with("sft", {"--dataloader_num_workers", "3"}).data.media_workers, 3);
  EXPECT_EQ(with("pretrain", {"--num-workers", "0"}).data.media_workers, 0);
  EXPECT_THAT(notices("sft", {"--dataloader_num_workers", "3"}),
              HasSubstr("notice: --dataloader_num_workers has no effect with a model that reads "
                        "text alone\n"));
}

/// Weights of a format that has no processor, and the tokenizer of the model as it was downloaded.
TEST_F(TrainOptions, PicturesAreReadByTheProcessorBesideTheTokenizer) {
  fs::create_directories(directory_ / "hf");
  write_json_file(directory_ / "hf/preprocessor_config.json",
                  {{"image_processor_type", "Qwen2VLImageProcessor"}});
  const std::vector<std::string> words = {"--tokenizer", (directory_ / "hf").string(), "--exif",
                                          "ignore"};
  EXPECT_THAT(notices("sft", words), Not(HasSubstr("--exif has no effect")));
  EXPECT_THAT(notices("sft", {"--exif", "ignore"}),
              HasSubstr("--exif has no effect with a model that reads text alone"));
}

TEST_F(TrainOptions, DomainsArePartOfWhatTokensDependOn) {
  write_json_file(directory_ / "model/preprocessor_config.json",
                  {{"image_processor_type", "Qwen2VLImageProcessor"}});
  const auto key = [&](const std::string& domains) {
    const TrainConfig config = with("sft", {"--allow_media_domains", domains});
    return fetching_media_settings(processor_directory(config), config.data.media)->to_json();
  };
  EXPECT_NE(key("a.com"), key("a.com,b.com"));
  EXPECT_EQ(key("b.com,A.com"), key("a.com,b.com"));
}

TEST_F(TrainOptions, MoreLayersToRecomputeThanThereAre) {
  const std::vector<std::string> block = {"--recompute-granularity", "full", "--recompute-method",
                                          "block", "--recompute-num-layers"};
  const auto of = [&](const char* layers) {
    std::vector<std::string> words = block;
    words.push_back(layers);
    return notices("pretrain", words);
  };
  EXPECT_THAT(of("64"), HasSubstr("notice: --recompute-num-layers 64: no stage has more than 2 "
                                  "layers, so it means all of them\n"));
  EXPECT_THAT(of("2"), Not(HasSubstr("no stage has more")));
}

TEST_F(TrainOptions, HybridShardingOnOneMachine) {
  const std::map<std::string, std::string> ranks = {{"RANK", "0"},
                                                    {"WORLD_SIZE", "4"},
                                                    {"LOCAL_WORLD_SIZE", "4"},
                                                    {"MASTER_ADDR", "127.0.0.1"},
                                                    {"MASTER_PORT", "29500"}};
  const auto of = [&](const char* machine, const std::string& words) {
    for (const auto& [name, value] : ranks) ::setenv(name.c_str(), value.c_str(), 1);
    ::setenv("LOCAL_WORLD_SIZE", machine, 1);
    const std::string said = notices("sft", {"--fsdp", words});
    for (const auto& [name, value] : ranks) ::unsetenv(name.c_str());
    return said;
  };
  const auto named = HasSubstr("all processes are on one machine and share one copy");
  EXPECT_THAT(of("4", "hybrid_shard auto_wrap"), named);
  EXPECT_THAT(of("2", "hybrid_shard auto_wrap"), Not(named));
  EXPECT_THAT(of("4", "full_shard auto_wrap"), Not(named));
}

TEST_F(TrainOptions, AnIterationOfWhatHasNone) {
  EXPECT_THAT(notices("sft", {"--iteration", "5"}),
              AllOf(HasSubstr("notice: --iteration 5: "),
                    HasSubstr("/model has no iterations to choose from\n")));
}

}  // namespace danlu::settings::options_test
