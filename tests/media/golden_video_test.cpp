// The recorded videos: facts, frames that each tool takes, pixels.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "media/golden.h"
#include "media/media_error.h"
#include "media/video.h"
#include "support/frame_files.h"

namespace danlu::media {
namespace {

struct GoldenVideos : testing::Test {
  const std::filesystem::path dir = golden_dir() / "video";
  Json vectors() const { return read_json_file(dir / "vectors.json"); }
  /// The rate of clip.gif is FFmpeg's guess: 7 takes the first delay of 0.12 s for all, the one
  /// that the tools were recorded with their mean.
  static double counted_by_ffmpeg(const std::string& name, const VideoFacts& facts,
                                  const Json& recorded) {
    constexpr double kFirstDelay = 0.12;
    const bool is_first =
        name == "clip.gif" && std::abs(facts.frames_per_second * kFirstDelay - 1) < 1e-9;
    return is_first ? 1 / kFirstDelay / recorded["average_rate"].get<double>() : 1;
  }
};

TEST_F(GoldenVideos, SayOfThemselvesWhatIsRecorded) {
  DANLU_REQUIRES_SHARED();
  const Json recorded = vectors();
  for (const char* name : {"clip.mp4", "clip.webm", "clip.mkv", "clip.gif"}) {
    SCOPED_TRACE(name);
    const Json& wanted = recorded[name];
    const MappedFile map(dir / name);
    const VideoFacts facts = video_facts(map.bytes(), name, VideoRule::llama_factory());
    EXPECT_EQ(facts.total_frames, wanted["frames_header"].get<int64_t>());
    EXPECT_EQ(facts.size,
              (Size{wanted["size_wh"][0].get<int64_t>(), wanted["size_wh"][1].get<int64_t>()}));
    EXPECT_NEAR(facts.frames_per_second,
                counted_by_ffmpeg(name, facts, wanted) * wanted["average_rate"].get<double>(),
                1e-9);
    ASSERT_EQ(facts.duration_s.has_value(), !wanted["duration"].is_null());
    if (facts.duration_s) {
      EXPECT_NEAR(*facts.duration_s, wanted["duration"].get<double>(), 1e-9);
    }
    EXPECT_EQ(video_facts(map.bytes(), name, VideoRule::qwen_utils()).total_frames,
              wanted["frames_decoded"].get<int64_t>());
  }
}

/// What would end a step of a training is found when the row is read.
TEST_F(GoldenVideos, DamageIsFoundBeforeFramesAreNeeded) {
  DANLU_REQUIRES_SHARED();
  const VideoRule rule = VideoRule::qwen_utils();
  const auto fails = [&](const auto& look) {
    try {
      look();
    } catch (const MediaError&) {
      return true;
    }
    return false;
  };
  int damaged = 0, whole = 0;
  for (const char* name : {"clip.mp4", "clip.webm", "clip.mkv", "clip.gif"}) {
    const std::string file = read_file(dir / name);
    for (size_t part = 0; part < 24; ++part) {
      std::string changed = file;
      if (part % 2) changed.resize(file.size() * (part + 1) / 24);
      for (size_t i = 0; part % 2 == 0 && i < 400; ++i) {
        const size_t at = file.size() * part / 24 + i;
        if (at < changed.size()) changed[at] = static_cast<char>(i * 41);
      }
      const auto bytes = std::as_bytes(std::span(changed));
      const bool is_damaged = fails([&] { process_video(bytes, name, {}, rule); });
      (is_damaged ? damaged : whole) += 1;
      EXPECT_EQ(fails([&] { require_whole_video(bytes, name, rule); }), is_damaged)
          << name << ", change " << part;
    }
  }
  EXPECT_GT(damaged, 10);
  EXPECT_GT(whole, 10);
}

TEST_F(GoldenVideos, TheToolsFramesAreChosen) {
  DANLU_REQUIRES_SHARED();
  const Json recorded = vectors();
  size_t compared = 0;
  for (const char* name : {"clip.mp4", "clip.webm", "clip.mkv", "clip.gif"}) {
    for (const double fps : {1.0, 2.0, 4.0}) {
      const std::string of_fps = " fps " + std::string(fps == 1 ? "1.0" : fps == 2 ? "2.0" : "4.0");
      const MappedFile map(dir / name);
      for (const bool is_qwen : {true, false}) {
        VideoRule rule = is_qwen ? VideoRule::qwen_utils() : VideoRule::llama_factory();
        rule.fps = fps;
        const VideoFacts facts = video_facts(map.bytes(), name, rule);
        if (is_qwen) {
          const Json& wanted = recorded[name]["qwen_vl_utils" + of_fps];
          const FrameChoice choice = choose_frames(facts, rule);
          EXPECT_EQ(choice.indices, wanted["indices"].get<std::vector<int64_t>>())
              << name << of_fps;
          EXPECT_NEAR(
              choice.fps,
              counted_by_ffmpeg(name, facts, recorded[name]) * wanted["sample_fps"].get<double>(),
              1e-9)
              << name << of_fps;
          ++compared;
          continue;
        }
        for (const int64_t most : {128, 5}) {
          rule.max_frames = most;
          const std::string tail = of_fps + " maxlen " + std::to_string(most);
          for (const auto& [tool, words] :
               {std::pair(PreResizeRule::kLlamaFactory, "llamafactory"),
                std::pair(PreResizeRule::kMindSpeed20, "mindspeed_mm 2.0")}) {
            rule.tool = tool;
            if (!recorded[name].contains(words + tail)) {
              EXPECT_THROW(choose_frames(facts, rule), MediaError) << name << tail;
              continue;
            }
            EXPECT_EQ(choose_frames(facts, rule).indices,
                      recorded[name][words + tail].get<std::vector<int64_t>>())
                << name << ' ' << words << tail;
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 48u);
}

TEST_F(GoldenVideos, NumbersOfFramesAreQwenVlUtils) {
  DANLU_REQUIRES_SHARED();
  const Json table = vectors()["nframes_table"];
  for (const Json& row : table) {
    VideoRule rule = VideoRule::qwen_utils();
    rule.fps = row[2].get<double>();
    const auto count = [&] {
      return qwen_utils_num_frames(row[0].get<int64_t>(), row[1].get<double>(), rule);
    };
    if (row[3].is_number()) {
      EXPECT_EQ(count(), row[3].get<int64_t>()) << row.dump();
    } else {
      EXPECT_THROW(count(), MediaError) << row.dump();
    }
  }
  EXPECT_GT(table.size(), 50u);
}

TEST_F(GoldenVideos, PixelsAreThoseOfPyAv) {
  DANLU_REQUIRES_SHARED();
  const Golden golden(dir / "golden.safetensors");
  for (const char* name : {"clip.mp4", "clip.webm", "clip.mkv", "clip.gif"}) {
    SCOPED_TRACE(name);
    const MappedFile map(dir / name);
    const VideoFrames video = video_frames(map.bytes(), name, VideoRule::qwen_utils());
    const auto wanted = golden.values<uint8_t>(std::string(name) + ".qwen_frames");
    ASSERT_EQ(video.frames.size(), video.choice.indices.size());
    size_t at = 0;
    int worst = 0;
    for (const Picture& frame : video.frames) {
      ASSERT_LE(at + static_cast<size_t>(frame.rgb.size()), wanted.size());
      for (int64_t i = 0; i < frame.rgb.size(); ++i) {
        worst = std::max(worst, std::abs(frame.rgb.data()[i] - wanted[at++]));
      }
    }
    EXPECT_EQ(at, wanted.size());
    EXPECT_LE(worst, 3);
    RecordProperty(std::string("worst_") + name, worst);
  }
}

TEST_F(GoldenVideos, AListOfFramesIsTheTinyModelsVideo) {
  DANLU_REQUIRES_SHARED();
  for (const char* model : {"qwen2_vl", "qwen2_5_vl"}) {
    SCOPED_TRACE(model);
    const auto folder = golden_dir() / model;
    const ImageProcessor processor = read_image_processor(folder);
    const Golden golden(folder / "golden.safetensors");
    std::vector<std::filesystem::path> files;
    while (true) {
      auto file = folder / ("video_frame" + std::to_string(files.size()) + ".png");
      if (!std::filesystem::exists(file)) break;
      files.push_back(file);
    }
    const VideoPatches video = test::process_frame_files(files, 2.0, processor);
    const Grid grid = video.patches.grid;
    EXPECT_EQ((std::vector<int64_t>{grid.t, grid.h, grid.w}),
              golden.values<int64_t>("video0.grid_thw"));
    const auto wanted = golden.values<float>("video0.pixel_values");
    ASSERT_EQ(video.patches.values.size(), wanted.size());
    float worst = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      worst = std::max(worst, std::abs(wanted[i] - video.patches.values[i]));
    }
    EXPECT_LE(worst, 1e-6f);
    EXPECT_EQ(video.second_per_grid, 1.0);
  }
}

/// The file with the matrix by which players turn a video that was filmed upright: a quarter to the
/// right (ISO 14496-12, tkhd).
std::string filmed_upright(std::string mp4) {
  const size_t tkhd = mp4.find("tkhd");
  const size_t at = tkhd + (mp4.at(tkhd + 4) == 1 ? 56 : 44);
  const std::string matrix(
      "\0\0\0\0\0\1\0\0\0\0\0\0\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
      "\0\0\0\0\x40\0\0\0",
      36);
  return mp4.replace(at, matrix.size(), matrix);
}

// decord, which qwen_vl_utils reads with, turns frames; PyAV does not.
TEST_F(GoldenVideos, FilmedUprightAreTurnedByTheRuleThatAsksForIt) {
  DANLU_REQUIRES_SHARED();
  const MappedFile map(dir / "clip.mp4");
  const std::string lying(map.text()), turned = filmed_upright(lying);
  const auto bytes = [](const std::string& file) { return std::as_bytes(std::span(file)); };
  VideoRule rule = VideoRule::qwen_utils();
  EXPECT_EQ(grid_of_video(bytes(turned), "clip", {}, rule).first, (Grid{2, 20, 28}));
  rule.upright = true;
  EXPECT_EQ(grid_of_video(bytes(lying), "clip", {}, rule).first, (Grid{2, 20, 28}));
  EXPECT_EQ(grid_of_video(bytes(turned), "clip", {}, rule).first, (Grid{2, 28, 20}));
  EXPECT_EQ(process_video(bytes(turned), "clip", {}, rule).patches.grid, (Grid{2, 28, 20}));
  // The upper row of the turned frame is the left column of the lying one, from below.
  const Picture from = std::move(video_frames(bytes(lying), "clip", rule).frames.at(0)),
                to = std::move(video_frames(bytes(turned), "clip", rule).frames.at(0));
  ASSERT_EQ(to.size, (Size{from.size.height, from.size.width}));
  for (int64_t x = 0; x < to.size.width; ++x) {
    const uint8_t* const want = from.rgb.data() + (from.size.height - 1 - x) * from.size.width * 3;
    EXPECT_TRUE(std::equal(want, want + 3, to.rgb.data() + x * 3)) << x;
  }
}

TEST_F(GoldenVideos, BecomePatchesOfThePromisedGrid) {
  DANLU_REQUIRES_SHARED();
  const ImageProcessor processor;
  for (const char* name : {"clip.mp4", "clip.webm", "clip.mkv", "clip.gif"}) {
    for (const VideoRule& rule :
         {VideoRule::qwen_utils(), VideoRule::llama_factory(), VideoRule::mindspeed21()}) {
      SCOPED_TRACE(name);
      const VideoPatches video = process_video(dir / name, processor, rule);
      const auto [grid, second_per_grid] = grid_of_video(dir / name, processor, rule);
      EXPECT_EQ(video.patches.grid, grid);
      EXPECT_EQ(video.second_per_grid, second_per_grid);
      EXPECT_EQ(video.patches.values.size(), static_cast<size_t>(grid.patches() * 1176));
    }
  }
}

}  // namespace
}  // namespace danlu::media
