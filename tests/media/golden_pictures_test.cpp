// Every recorded picture: decoded, resized and cut as PIL and the public processors do.
#include <gtest/gtest.h>

#include <cmath>

#include "media/decode.h"
#include "media/golden.h"
#include "media/media_error.h"
#include "media/patches.h"
#include "support/throws.h"

namespace danlu::media {
namespace {

constexpr DecodeOptions kAsLoadersDo{Exif::kIgnore};

struct Pipeline {
  ImageProcessor processor;
  PreResize pre_resize;
};

ImageProcessor processor_between(int64_t min_pixels, int64_t max_pixels) {
  ImageProcessor processor;
  processor.min_pixels = min_pixels;
  processor.max_pixels = max_pixels;
  return processor;
}

std::map<std::string, Pipeline> pipelines() {
  const ImageProcessor large = processor_between(3136, 12845056);
  return {{"hf", {large, {}}},
          {"hf_small", {processor_between(784, 4704), {}}},
          {"qu", {large, PreResize::qwen_utils(784, 4704)}},
          {"lf", {large, PreResize::llama_factory(1024, 6400)}},
          {"mm20", {large, PreResize::mindspeed20(6400)}},
          {"mm21", {large, PreResize::mindspeed21(0, 6400)}}};
}

struct GoldenPictures : testing::Test {
  const std::filesystem::path dir = golden_dir() / "image_processor";
  std::filesystem::path file(const std::string& name) const { return dir / "pictures" / name; }
  Json vectors() const { return read_json_file(dir / "vectors.json")["pictures"]; }
};

TEST_F(GoldenPictures, AreDecodedAsPilDoes) {
  DANLU_REQUIRES_SHARED();
  size_t turned = 0, decoded = 0;
  const Json recorded = vectors();
  for (const auto& [name, wanted] : recorded.items()) {
    SCOPED_TRACE(name);
    if (!wanted.contains("rgb_sha256")) continue;
    const PictureSize size = picture_size(file(name));
    EXPECT_EQ(size.stored.width, wanted["size_wh"][0].get<int64_t>());
    EXPECT_EQ(size.stored.height, wanted["size_wh"][1].get<int64_t>());
    EXPECT_EQ(sha256_of(decode_picture(file(name), kAsLoadersDo)),
              wanted["rgb_sha256"].get<std::string>());
    ++decoded;
    const bool turns = wanted.contains("exif_transposed_sha256");
    EXPECT_EQ(size.orientation != 1, turns);
    const Picture upright = decode_picture(file(name));
    EXPECT_EQ(sha256_of(upright),
              wanted[turns ? "exif_transposed_sha256" : "rgb_sha256"].get<std::string>());
    EXPECT_EQ(upright.size, size.upright());
    if (!turns) continue;
    ++turned;
    // Recorded as stored: width and height of the file are exchanged in its shape of the result.
    EXPECT_EQ(wanted["exif_transposed_shape"][0].get<int64_t>(), upright.size.height);
    EXPECT_EQ(wanted["exif_transposed_shape"][1].get<int64_t>(), upright.size.width);
  }
  EXPECT_EQ(decoded, 31u);
  EXPECT_EQ(turned, 3u);
}

TEST_F(GoldenPictures, AreResizedAsEveryPipelineDoes) {
  DANLU_REQUIRES_SHARED();
  size_t compared = 0;
  const Json recorded = vectors();
  for (const auto& [name, wanted] : recorded.items()) {
    for (const auto& [key, pipeline] : pipelines()) {
      if (!wanted.contains(key)) continue;
      SCOPED_TRACE(name + " " + key);
      const auto grid = [&] {
        return grid_of_file(file(name), pipeline.processor, pipeline.pre_resize, kAsLoadersDo);
      };
      if (wanted[key].contains("error")) {
        EXPECT_THROW(grid(), MediaError);
        EXPECT_THROW(process_picture(file(name), pipeline.processor, pipeline.pre_resize),
                     MediaError);
        continue;
      }
      const auto& shape = wanted[key]["grid"];
      const Grid expected{shape[0].get<int64_t>(), shape[1].get<int64_t>(),
                          shape[2].get<int64_t>()};
      EXPECT_EQ(grid(), expected);
      const MappedFile map(file(name));
      const Picture picture =
          sized_picture(map.bytes(), name, pipeline.processor, pipeline.pre_resize, kAsLoadersDo);
      EXPECT_EQ(sha256_of(picture), wanted[key]["resized_sha256"].get<std::string>());
      const Patches patches = patches_of({&picture, 1}, pipeline.processor);
      EXPECT_EQ(patches.grid, expected);
      EXPECT_EQ(patches.values.size(), static_cast<size_t>(expected.patches() * 1176));
      if (wanted[key].contains("pixel_sum")) {
        double sum = 0;
        for (const float value : patches.values) sum += value;
        EXPECT_NEAR(sum, wanted[key]["pixel_sum"].get<double>(), 1e-2);
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, 180u);
}

void expect_near(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  float worst = 0;
  for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - wanted[i]));
  EXPECT_LE(worst, 1e-6f);
}

TEST_F(GoldenPictures, BecomeTheSameValues) {
  DANLU_REQUIRES_SHARED();
  const Golden golden(dir / "golden.safetensors");
  for (const char* name : {"base420.jpg", "palette.png", "rgb.png"}) {
    SCOPED_TRACE(name);
    expect_near(process_picture(file(name), pipelines().at("hf_small").processor).values,
                golden.values<float>(std::string(name) + ".hf_small.pixel_values"));
  }
}

TEST_F(GoldenPictures, AndFramesOfTheTinyModelsToo) {
  DANLU_REQUIRES_SHARED();
  for (const char* model : {"qwen2_vl", "qwen2_5_vl"}) {
    const auto folder = golden_dir() / model;
    const Golden golden(folder / "golden.safetensors");
    const ImageProcessor processor = read_image_processor(folder);
    EXPECT_EQ(processor.min_pixels, 784);
    EXPECT_EQ(processor.max_pixels, 9408);
    std::vector<Picture> frames;
    for (int i = 0; i < 3; ++i) {
      SCOPED_TRACE(std::string(model) + " image " + std::to_string(i));
      const std::string name = "image" + std::to_string(i);
      const Patches patches = process_picture(folder / (name + ".png"), processor);
      expect_near(patches.values, golden.values<float>(name + ".pixel_values"));
      EXPECT_EQ((std::vector<int64_t>{patches.grid.t, patches.grid.h, patches.grid.w}),
                golden.values<int64_t>(name + ".grid_thw"));
    }
  }
}

TEST_F(GoldenPictures, BrokenOnesAreToldApart) {
  DANLU_REQUIRES_SHARED();
  const auto fault_of = [&](const std::string& name) {
    try {
      decode_picture(file(name));
    } catch (const MediaError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      return error.fault();
    }
    ADD_FAILURE() << name << " is accepted";
    return MediaFault::kMissing;
  };
  EXPECT_EQ(fault_of("not_a_picture.png"), MediaFault::kNotAPicture);
  EXPECT_EQ(fault_of("truncated.jpg"), MediaFault::kTruncated);
  EXPECT_EQ(fault_of("truncated.png"), MediaFault::kTruncated);
  EXPECT_EQ(fault_of("no_such_file.png"), MediaFault::kMissing);
}

TEST(SmartResize, EqualsBothReferences) {
  DANLU_REQUIRES_SHARED();
  const Json rows = read_json_file(golden_dir() / "image_processor/smart_resize.json")["rows"];
  for (const Json& row : rows) {
    SCOPED_TRACE(row.dump());
    const Size from{row[1].get<int64_t>(), row[0].get<int64_t>()};
    for (const auto& [column, resize] :
         {std::pair(4, &smart_resize), std::pair(5, &smart_resize_qwen_utils)}) {
      const auto to = [&] {
        return resize(from, 28, row[2].get<int64_t>(), row[3].get<int64_t>());
      };
      if (row[column].is_string()) {
        EXPECT_THROW(to(), MediaError);
      } else {
        EXPECT_EQ(to(), (Size{row[column][1].get<int64_t>(), row[column][0].get<int64_t>()}));
      }
    }
  }
  EXPECT_EQ(rows.size(), 400u);
}

}  // namespace
}  // namespace danlu::media
