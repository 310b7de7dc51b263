// Pixels of batches: the same values whoever makes them, in order, with errors that name the row.
#include "data/media_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/batch_stream.h"
#include "media/media_error.h"
#include "media/patches.h"
#include "media/video.h"
#include "media_rows.h"
#include "preprocess_fakes.h"
#include "support/frame_files.h"

namespace danlu::data {
namespace {

using ::testing::HasSubstr;

/// The golden rows, read by `settings`.
std::shared_ptr<const SampleSource> rows_of(const std::string& settings,
                                            const TestDirectory& directory) {
  return open_or_build_samples(
             media_spec(golden_rows() / "llamafactory.json", settings, directory / "cache"))
      .train;
}

std::vector<float> values_of(const MediaPixels& pixels) {
  return {pixels.values.get(), pixels.values.get() + pixels.patches * pixels.patch_values};
}

std::vector<MediaSpan> all_spans(const SampleSource& source) {
  std::vector<MediaSpan> spans;
  for (int64_t i = 0; i < source.size(); ++i) append_spans(source.get(i).media, 0, &spans);
  return spans;
}

TEST(MediaLoader, GivesWhatTheProcessorGivesInOrder) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  for (const char* name : {"hf", "lf"}) {
    const MediaSettings settings = golden_media_settings(name);
    const std::vector<MediaSpan> spans = all_spans(*rows_of(name, directory));
    ASSERT_EQ(spans.size(), 18u);
    std::vector<float> expected;
    for (const MediaSpan& span : spans) {
      const auto patches =
          span.is_frame_list
              ? test::process_frame_files(
                    [&] {
                      std::vector<fs::path> files;
                      for (const MediaFile& file : span.files) files.emplace_back(file.path);
                      return files;
                    }(),
                    2, settings.processor, settings.frame_resize)
                    .patches
              : media::process_picture(fs::path(span.files[0].path), settings.processor,
                                       settings.image_resize, {.exif = media::Exif::kIgnore});
      expected.insert(expected.end(), patches.values.begin(), patches.values.end());
    }
    for (const size_t workers : {size_t{1}, size_t{3}}) {
      MediaLoader loader(settings, workers);
      const auto pending = loader.start(spans);
      const MediaPixels pixels = pending->take();
      EXPECT_EQ(pixels.patch_values, 1176);
      EXPECT_EQ(values_of(pixels), expected);
      EXPECT_EQ(values_of(pending->take()), expected) << "taken again";
    }
  }
}

TEST(MediaLoader, WorksInAnyMemoryAndAnyOrderOfTaking) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  const MediaSettings settings = golden_media_settings("hf");
  const std::vector<MediaSpan> spans = all_spans(*rows_of("hf", directory));
  MediaLoader loader(settings, 2, /*max_bytes=*/1);
  std::vector<std::shared_ptr<PendingPixels>> pending;
  for (const MediaSpan& span : spans) pending.push_back(loader.start({span}));
  EXPECT_EQ(loader.start({}), nullptr);
  pending[3].reset();
  for (const size_t at : {size_t{17}, size_t{0}, size_t{5}, size_t{4}, size_t{1}}) {
    double wait_s = -1;
    const MediaPixels pixels = pending[at]->take(&wait_s);
    EXPECT_EQ(pixels.patches, spans[at].grid.patches());
    EXPECT_GE(wait_s, 0);
  }
}

TEST(MediaLoader, GoesOnWithoutItsThreads) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  const std::vector<MediaSpan> spans = all_spans(*rows_of("hf", directory));
  std::shared_ptr<PendingPixels> pending;
  {
    MediaLoader loader(golden_media_settings("hf"), 1);
    pending = loader.start(spans);
  }
  EXPECT_GT(pending->take().patches, 0);
}

TEST(MediaLoader, WithoutWorkersNothingIsMadeAhead) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  MediaSpan span = rows_of("hf", directory)->get(0).media.at(0);
  const fs::path copy = directory / "copy.png";
  fs::copy_file(span.files[0].path, copy);
  const auto expected =
      values_of(MediaLoader(golden_media_settings("hf"), 1).start({span})->take());
  span.files[0].path = copy;
  MediaLoader loader(golden_media_settings("hf"), 0);
  const auto pending = loader.start({span}), other = loader.start({span});
  double wait_s = -1;
  EXPECT_EQ(values_of(pending->take(&wait_s)), expected);
  EXPECT_GT(wait_s, 0) << "making them is waiting";
  fs::remove(copy);
  EXPECT_THAT(error_text<DataError>([&] { other->take(); }), HasSubstr("copy.png"));
}

TEST(MediaLoader, WhatIsAskedForAgainIsKeptWhereThereIsRoom) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  MediaSpan span = rows_of("hf", directory)->get(0).media.at(0);
  const std::string original = span.files[0].path;
  const fs::path copy = directory / "copy.png";
  for (const size_t workers : {size_t{0}, size_t{1}}) {
    for (const int64_t room : {MediaLoader::kMaxBytes, int64_t{1}}) {
      fs::copy_file(original, copy, fs::copy_options::overwrite_existing);
      span.files[0].path = copy;
      MediaLoader loader(golden_media_settings("hf"), workers, room);
      const auto pending = loader.start({span});
      const std::vector<float> first = values_of(pending->take(nullptr, /*again=*/true));
      fs::remove(copy);
      if (room > 1) {
        EXPECT_EQ(values_of(pending->take()), first);
      }
      EXPECT_THAT(error_text<DataError>([&] { pending->take(); }), HasSubstr("copy.png"));
    }
  }
}

TEST(MediaLoader, ErrorsNameTheRowAndTheFile) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  const auto source = rows_of("hf", directory);
  MediaSpan span = source->get(0).media.at(0);
  MediaLoader loader(golden_media_settings("hf"), 1);
  const auto error_of_take = [&](const MediaSpan& wanted) {
    return error_text<DataError>([&] { loader.start({wanted})->take(); });
  };
  MediaSpan gone = span;
  gone.files[0].path = directory / "gone.png";
  EXPECT_THAT(error_of_take(gone), HasSubstr("llamafactory.json: row 1: "));
  EXPECT_THAT(error_of_take(gone), HasSubstr("gone.png"));
  MediaSpan other = span;
  other.grid.h = 8;
  EXPECT_THAT(error_of_take(other),
              HasSubstr("a.png: now a grid of 1 x 6 x 6, and 1 x 8 x 6 when its tokens were made"));
  // One that fails keeps nobody else from theirs.
  EXPECT_EQ(loader.start({span})->take().patches, 36);
}

TEST(MediaLoader, BatchesBringTheirPixels) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  BatchStreamOptions options;
  options.micro_batch_size = 4;
  options.accumulation_steps = 3;
  options.media_loader = std::make_shared<MediaLoader>(golden_media_settings("hf"), 2);
  BatchStream stream(rows_of("hf", directory), [](int64_t index) { return index % 12; }, options);
  for (int step = 0; step < 2; ++step) {
    StepBatches batches = stream.next();
    if (step == 0) {
      stream.put_back(batches);
      batches = stream.next();
    }
    for (const Batch& batch : batches.micro_batches) {
      int64_t patches = 0;
      for (const MediaSpan& span : batch.media) patches += span.grid.patches();
      ASSERT_TRUE(batch.pixels);
      EXPECT_EQ(batch.pixels->take().patches, patches);
    }
  }
}

}  // namespace
}  // namespace danlu::data
