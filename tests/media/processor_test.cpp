// preprocessor_config.json, grids, and the rules of the tools before the processor.
#include "media/processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "media/media_error.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::media {
namespace {

using testing::HasSubstr;

ImageProcessor parsed(const char* text) {
  return parse_image_processor(parse_json(text, "test"), "config");
}
std::string refusal(const char* text) {
  return test::error_of<ModelError>([&] { parsed(text); });
}

TEST(ImageProcessor, OldAndNewKeysOfTheAreas) {
  EXPECT_EQ(parsed("{}"), ImageProcessor{});
  EXPECT_EQ(parsed(R"({"min_pixels": 784, "max_pixels": 9408})").max_pixels, 9408);
  const ImageProcessor edges = parsed(R"({"size": {"shortest_edge": 3200, "longest_edge": 6400}})");
  EXPECT_EQ(edges.min_pixels, 3200);
  EXPECT_EQ(edges.max_pixels, 6400);
  EXPECT_EQ(parsed(R"({"size": {"min_pixels": 100, "max_pixels": 200}})").max_pixels, 200);
  const ImageProcessor both =
      parsed(R"({"max_pixels": 5000, "size": {"shortest_edge": 3200, "longest_edge": 6400}})");
  EXPECT_EQ(both.min_pixels, 3200);
  EXPECT_EQ(both.max_pixels, 5000) << "max_pixels wins";
  EXPECT_EQ(parsed(R"({"min_pixels": null, "size": null})").min_pixels, 3136);
}

TEST(ImageProcessor, OtherKeys) {
  const ImageProcessor processor = parsed(R"({"patch_size": 16, "temporal_patch_size": 3,
      "merge_size": 4, "image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 3], "do_resize": false,
      "do_rescale": false, "do_normalize": false, "rescale_factor": 0.5, "resample": 0})");
  EXPECT_EQ(processor.cell(), 64);
  EXPECT_EQ(processor.patch_values(), 3 * 3 * 16 * 16);
  EXPECT_EQ(processor.mean[2], 0.3f);
  EXPECT_EQ(processor.std[1], 2.0f);
  EXPECT_FALSE(processor.do_resize || processor.do_rescale || processor.do_normalize);
  EXPECT_EQ(processor.rescale_factor, 0.5);
  EXPECT_EQ(processor.filter, Filter::kNearest);
}

TEST(ImageProcessor, BadValuesAreNamed) {
  EXPECT_THAT(refusal("[]"), HasSubstr("config: the picture processor must be an object"));
  EXPECT_THAT(refusal(R"({"patch_size": 0})"),
              HasSubstr("patch_size must be from 1 to 256, got 0"));
  EXPECT_THAT(refusal(R"({"merge_size": "2"})"),
              HasSubstr("\"merge_size\" must be a whole number"));
  EXPECT_THAT(refusal(R"({"min_pixels": -1})"), HasSubstr("min_pixels must be from 1"));
  EXPECT_THAT(refusal(R"({"min_pixels": 9000, "max_pixels": 8000})"),
              HasSubstr("min_pixels is 9000, above max_pixels, 8000"));
  EXPECT_THAT(refusal(R"({"size": {"height": 224, "width": 224}})"), HasSubstr("shortest_edge"));
  EXPECT_THAT(refusal(R"({"size": {"shortest_edge": 0}})"), HasSubstr("size must be from 1"));
  EXPECT_THAT(refusal(R"({"image_mean": [1, 2]})"), HasSubstr("a list of three numbers"));
  EXPECT_THAT(refusal(R"({"image_std": [1, 0, 1]})"), HasSubstr("image_std numbers above 0"));
  EXPECT_THAT(refusal(R"({"rescale_factor": 0})"), HasSubstr("rescale_factor must be above 0"));
  EXPECT_THAT(refusal(R"({"resample": 1})"), HasSubstr("resample 1 is not supported"));
  EXPECT_THAT(refusal(R"({"image_processor_type": "CLIPImageProcessor"})"),
              HasSubstr("CLIPImageProcessor is not supported"));
}

TEST(ImageProcessor, TheNestedFileWins) {
  const test::TemporaryDirectory dir;
  EXPECT_THAT(test::error_of<ModelError>([&] { read_image_processor(dir); }),
              HasSubstr("has no preprocessor_config.json"));
  std::ofstream(dir / "preprocessor_config.json") << R"({"max_pixels": 7000})";
  EXPECT_EQ(read_image_processor(dir).max_pixels, 7000);
  std::ofstream(dir / "processor_config.json") << R"({"processor_class": "Qwen2VLProcessor"})";
  EXPECT_EQ(read_image_processor(dir).max_pixels, 7000);
  std::ofstream(dir / "processor_config.json") << R"({"image_processor": {"max_pixels": 8000}})";
  EXPECT_EQ(read_image_processor(dir).max_pixels, 8000);
}

TEST(SmartResize, HalvesGoToTheEvenNeighbour) {
  // 70/28 = 2.5 → 2, 98/28 = 3.5 → 4.
  EXPECT_EQ(smart_resize({98, 70}, 28, 784, 12845056), (Size{112, 56}));
}

TEST(SmartResize, NoSideIsEverZero) {
  // 500 x 7: β = √(3500/784) = 2.11; 7/2.11/28 is below 1.
  EXPECT_EQ(smart_resize({500, 7}, 28, 784, 784).height, 28);
  EXPECT_EQ(smart_resize_qwen_utils({500, 7}, 28, 784, 784).height, 0);
  EXPECT_EQ(smart_resize({1, 1}, 28, 1, 1000), (Size{28, 28}));
}

TEST(SmartResize, ARatioAbove200IsRefused) {
  EXPECT_NO_THROW(smart_resize({2000, 10}, 28, 784, 9408));
  try {
    smart_resize({2001, 10}, 28, 784, 9408);
    FAIL();
  } catch (const MediaError& error) {
    EXPECT_EQ(error.fault(), MediaFault::kBadShape);
  }
}

TEST(Grids, CountTokens) {
  const Grid grid = grid_of(1000, 600, {}, {});
  // smart_resize: 1008 x 588 (600/28 = 21.43 → 21), 72 x 42 patches.
  EXPECT_EQ(grid, (Grid{1, 42, 72}));
  EXPECT_EQ(grid.patches(), 3024);
  EXPECT_EQ(grid.visual_tokens(2), 756);
}

TEST(ToolSteps, AreaThenSidesThenRatio) {
  const ImageProcessor processor;
  // 1000 x 200 to 6400: √(6400/200000) = 0.17889: 178 x 35.
  const auto lf = tool_steps({1000, 200}, processor, PreResize::llama_factory(0, 6400));
  ASSERT_EQ(lf.size(), 1u);
  EXPECT_EQ(lf[0].to, (Size{178, 35}));
  EXPECT_EQ(lf[0].filter, Filter::kBicubic);
  EXPECT_FALSE(lf[0].in_rgb);
  const auto mm20 = tool_steps({1000, 10}, processor, PreResize::mindspeed20(6400));
  // √(6400/10000) = 0.8: 800 x 8, then 800 x 28; 800/28 is below 200.
  ASSERT_EQ(mm20.size(), 2u);
  EXPECT_EQ(mm20[0].to, (Size{800, 8}));
  EXPECT_EQ(mm20[0].filter, Filter::kNearest);
  EXPECT_EQ(mm20[1].to, (Size{800, 28}));
  EXPECT_EQ(mm20[1].filter, Filter::kNearest);
  EXPECT_TRUE(mm20[1].in_rgb);
  const auto mm21 = tool_steps({30, 9000}, processor, PreResize::mindspeed21(0, 1 << 20));
  ASSERT_EQ(mm21.size(), 1u);
  EXPECT_EQ(mm21[0].to, (Size{30, 30 * 180}));
  EXPECT_EQ(mm21[0].filter, Filter::kBicubic);
  // 20 x 20 up to 1024: 32 x 32.
  const auto up = tool_steps({20, 20}, processor, PreResize::mindspeed21(1024, 1 << 20));
  ASSERT_EQ(up.size(), 1u);
  EXPECT_EQ(up[0].to, (Size{32, 32}));
  EXPECT_EQ(up[0].filter, Filter::kNearest);
}

TEST(ToolSteps, WithoutResizeOnlyWholeCells) {
  ImageProcessor processor;
  processor.do_resize = false;
  EXPECT_EQ(grid_of(56, 84, processor), (Grid{1, 6, 4}));
  EXPECT_THROW(grid_of(57, 84, processor), MediaError);
}

}  // namespace
}  // namespace danlu::media
