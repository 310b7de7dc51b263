// The order of patches and values, and what pictures and videos become.
#include "media/patches.h"

#include <gtest/gtest.h>

#include <fstream>

#include "media/made_pictures.h"
#include "media/media_error.h"
#include "media/video.h"
#include "support/frame_files.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::media {
namespace {

std::span<const std::byte> bytes_of_file(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Values are the bytes themselves.
ImageProcessor plain_processor() {
  ImageProcessor processor;
  processor.patch_size = 2;
  processor.do_resize = processor.do_rescale = processor.do_normalize = false;
  return processor;
}

TEST(Patches, StandInBlocksOfTheMerge) {
  // 8 x 4 pixels: 2 x 4 patches of 2 x 2, two cells side by side. A pixel's byte is 10 · row +
  // column in red, 100 more in green, 200 in blue of the second frame.
  Picture frames[2] = {Picture({8, 4}), Picture({8, 4})};
  for (int f = 0; f < 2; ++f) {
    for (int i = 0; i < 32; ++i) {
      const int place = i / 8 * 10 + i % 8;
      frames[f].rgb.data()[3 * i] = static_cast<uint8_t>(place + 40 * f);
      frames[f].rgb.data()[3 * i + 1] = static_cast<uint8_t>(place + 100);
      frames[f].rgb.data()[3 * i + 2] = static_cast<uint8_t>(place + 200);
    }
  }
  const Patches patches = patches_of(frames, plain_processor());
  EXPECT_EQ(patches.grid, (Grid{1, 2, 4}));
  ASSERT_EQ(patches.values.size(), 8u * 24);
  const auto patch = [&](size_t i) {
    return std::vector<float>(patches.values.begin() + static_cast<int64_t>(i * 24),
                              patches.values.begin() + static_cast<int64_t>(i * 24 + 24));
  };
  // Patch 2 is the lower left one of the first cell: rows 2 and 3, columns 0 and 1.
  EXPECT_EQ(patch(2),
            (std::vector<float>{20,  21,  30,  31,  60,  61,  70,  71,  120, 121, 130, 131,
                                120, 121, 130, 131, 220, 221, 230, 231, 220, 221, 230, 231}));
  // Patch 5 is the upper right one of the second cell: rows 0 and 1, columns 6 and 7.
  EXPECT_EQ(patch(5)[0], 6);
  EXPECT_EQ(patch(5)[3], 17);
}

TEST(Patches, APictureIsTwoFramesAndOddVideosEndTwice) {
  std::vector<Picture> frames;
  for (uint32_t i = 0; i < 3; ++i) frames.push_back(made::noise({4, 4}, i));
  const Patches one = patches_of({frames.data(), 1}, plain_processor());
  EXPECT_EQ(one.grid, (Grid{1, 2, 2}));
  for (size_t patch = 0; patch < 4; ++patch) {
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(one.values[patch * 24 + i], one.values[patch * 24 + 4 + i]);
    }
  }
  const Patches three = patches_of(frames, plain_processor());
  EXPECT_EQ(three.grid, (Grid{2, 2, 2}));
  const Patches last = patches_of({frames.data() + 2, 1}, plain_processor());
  EXPECT_TRUE(std::equal(last.values.begin(), last.values.end(), three.values.begin() + 4 * 24));
}

TEST(Patches, ValuesAreNormalised) {
  ImageProcessor processor;
  Picture picture({28, 28});
  std::fill_n(picture.rgb.data(), picture.rgb.size(), uint8_t{255});
  const Patches patches = patches_of({&picture, 1}, processor);
  // (1 − 0.48145466) / 0.26862954
  EXPECT_NEAR(patches.values[0], 1.93033624, 1e-6);
  EXPECT_NEAR(patches.values.back(), (1 - 0.40821073) / 0.27577711, 1e-6);
}

TEST(Patches, FramesOfOtherSizesAreRefused) {
  const Picture frames[] = {made::noise({4, 4}), made::noise({8, 4})};
  EXPECT_THROW(patches_of(frames, plain_processor()), MediaError);
  const Picture odd = made::noise({6, 4});
  EXPECT_THROW(patches_of({&odd, 1}, plain_processor()), MediaError);
}

TEST(ProcessPicture, GivesTheGridOfItsHeader) {
  const ImageProcessor processor;
  for (const Size size : {Size{300, 200}, Size{33, 900}, Size{5, 5}}) {
    made::JpegKind kind;
    kind.exif = made::exif(6, true, true);
    const std::string file = made::jpeg(made::noise(size), kind);
    for (const PreResize& pre :
         {PreResize{}, PreResize::qwen_utils(), PreResize::llama_factory(),
          PreResize::mindspeed20(9000), PreResize::mindspeed21(4000, 9000)}) {
      for (const Exif exif : {Exif::kTranspose, Exif::kIgnore}) {
        const Patches patches =
            process_picture(bytes_of_file(file), "made", processor, pre, {exif});
        EXPECT_EQ(patches.grid, grid_of_bytes(bytes_of_file(file), "made", processor, pre, {exif}));
        const Size seen = exif == Exif::kIgnore ? size : Size{size.height, size.width};
        EXPECT_EQ(patches.grid, grid_of(seen.width, seen.height, processor, pre));
      }
    }
  }
}

TEST(ProcessPicture, AnImpossibleShapeNamesItsFile) {
  const std::string file = made::png(made::noise({450, 2}));
  const std::string error = test::error_of<MediaError>(
      [&] { process_picture(bytes_of_file(file), "row 7.png", ImageProcessor{}); });
  EXPECT_NE(error.find("row 7.png: a picture of 450 x 2 pixels"), std::string::npos) << error;
}

TEST(ProcessFrames, TakeTheSizeOfTheFirst) {
  const test::TemporaryDirectory dir;
  std::vector<std::filesystem::path> files;
  for (const Size size : {Size{70, 70}, Size{100, 60}, Size{70, 70}}) {
    files.push_back(dir / (std::to_string(files.size()) + ".png"));
    std::ofstream(files.back(), std::ios::binary) << made::png(made::noise(size));
  }
  const ImageProcessor processor;
  const VideoPatches video = test::process_frame_files(files, 4, processor);
  EXPECT_EQ(video.patches.grid, (Grid{2, 4, 4}));
  EXPECT_EQ(video.second_per_grid, 0.5);
  EXPECT_THROW(test::process_frame_files({}, 4, processor), MediaError);
  files.push_back(dir / "absent.png");
  EXPECT_THROW(test::process_frame_files(files, 4, processor), MediaError);
}

TEST(ProcessVideo, AGifIsAVideoToo) {
  const std::vector<uint8_t> indices(40 * 30, 1);
  // A colour that no pixel has: so each frame has a control block, by which FFmpeg 7 tells them
  // apart.
  const std::string file = made::gif({{40, 30}, {40, 30}, 0, 0, /*transparent=*/2}, indices);
  const test::TemporaryDirectory dir;
  std::ofstream(dir / "a.gif", std::ios::binary) << file;
  VideoRule rule = VideoRule::llama_factory();
  rule.fps = 1000;
  const VideoFrames video = video_frames(bytes_of_file(file), "a.gif", rule);
  ASSERT_EQ(video.frames.size(), 2u);
  EXPECT_EQ(video.frames[0].rgb.data()[0], 200);  // red, then blue
  EXPECT_EQ(video.frames[1].rgb.data()[2], 200);
  const VideoPatches patches = process_video(dir / "a.gif", {}, rule);
  EXPECT_EQ(patches.patches.grid.t, 1);
  EXPECT_EQ(patches.patches.grid, grid_of_video(dir / "a.gif", {}, rule).first);
}

TEST(ProcessVideo, WhatIsNoVideoIsNamed) {
  const auto fault = [](const std::string& text) {
    try {
      video_frames(bytes_of_file(text), "made", VideoRule::qwen_utils());
    } catch (const MediaError& error) {
      return error.fault();
    }
    return MediaFault::kTooLarge;
  };
  EXPECT_EQ(fault(""), MediaFault::kNotAPicture);
  EXPECT_EQ(fault("no video at all, but a text that is long enough"), MediaFault::kDamaged);
  const std::string gif = made::gif({{40, 30}, {40, 30}}, std::vector<uint8_t>(1200, 1));
  EXPECT_THROW(video_frames(bytes_of_file(gif), "made", VideoRule::llama_factory(), 1199),
               MediaError);
}

TEST(ProcessVideo, PlaylistsOpenNothing) {
  const test::TemporaryDirectory dir;
  std::ofstream(dir / "real.gif", std::ios::binary)
      << made::gif({{40, 30}, {40, 30}}, std::vector<uint8_t>(1200, 1));
  const std::string real = (dir / "real.gif").string();
  for (const std::string& text :
       {"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n" + real + "\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '" + real + "'\n"}) {
    std::ofstream(dir / "list.mp4", std::ios::binary | std::ios::trunc) << text;
    EXPECT_THROW(process_video(dir / "list.mp4", {}, VideoRule::llama_factory()), MediaError)
        << text;
  }
}

// qwen_vl_utils 0.0.14 (fetch_video): frames as pictures, 80 x 57 -> 84 x 56, then by the limits of
// frames: the root of 100352 / 4704 is 4.6188, and 3 and 2 cells of 28 become 14 and 10.
TEST(Patches, AListOfFramesHasTheSizeOfAVideosFrames) {
  const ImageProcessor processor;
  VideoRule rule;
  EXPECT_EQ(list_size({84, 56}, processor, rule, 4), (Size{392, 280}));
  rule.frame_pixels = 50'176;  // below the least area, which outweighs it
  EXPECT_EQ(list_size({84, 56}, processor, rule, 4), (Size{392, 280}));
  rule.min_pixels = 784;
  EXPECT_EQ(list_size({84, 56}, processor, rule, 4), (Size{84, 56}));
  std::vector<std::string> files;
  for (uint32_t i = 0; i < 3; ++i) files.push_back(made::png(made::noise({80, 57}, i + 1)));
  std::vector<NamedBytes> frames;
  for (const std::string& file : files) frames.push_back({"made", std::as_bytes(std::span(file))});
  rule = {};
  EXPECT_EQ(process_frames(frames, 2, processor, {}, {}, &rule).patches.grid, (Grid{2, 20, 28}));
  EXPECT_EQ(process_frames(frames, 2, processor).patches.grid, (Grid{2, 4, 6}));
}

}  // namespace
}  // namespace danlu::media
