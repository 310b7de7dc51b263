// Pictures of samples on their way: records, caches, packs, limits, files of `danlu preprocess`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "data/batch.h"
#include "data/limited_source.h"
#include "data/media_record.h"
#include "data/megatron/instruction_dataset.h"
#include "data/preprocess.h"
#include "data/preprocess_manifest.h"
#include "data/sample_views.h"
#include "media_rows.h"
#include "preprocess_fakes.h"
#include "support/throws.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MediaSpan span_at(int64_t begin, int64_t count, const std::string& path = "a.png") {
  MediaSpan span;
  span.grid = {1, 2, 2 * count};
  span.begin = begin;
  span.count = count;
  span.files = {{path}};
  span.row = "rows.jsonl: row 1";
  return span;
}

std::vector<std::pair<int64_t, int64_t>> places(const std::vector<MediaSpan>& spans) {
  std::vector<std::pair<int64_t, int64_t>> all;
  for (const MediaSpan& span : spans) all.emplace_back(span.begin, span.count);
  return all;
}

TEST(MediaRecord, GivesBackWhatWentIn) {
  EXPECT_TRUE(media_record({}).empty());
  EXPECT_TRUE(read_media_record({}, "x").empty());
  std::vector<MediaSpan> spans{span_at(3, 4), span_at(9, 2, "bytes")};
  spans[1].kind = text::MediaKind::kVideo;
  spans[1].grid = {2, 2, 2};
  spans[1].second_per_grid = 0.3;
  spans[1].is_frame_list = true;
  spans[1].files = {{"f0", std::make_shared<const std::string>("\0\1ab\xff", 5)}, {"f1"}};
  const auto back = read_media_record(media_record(spans), "x");
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].files[0].path, "a.png");
  EXPECT_EQ(back[0].files[0].bytes, nullptr);
  EXPECT_EQ(back[0].grid, spans[0].grid);
  EXPECT_EQ(back[0].row, "rows.jsonl: row 1");
  EXPECT_EQ(places(back), places(spans));
  EXPECT_EQ(back[1].kind, text::MediaKind::kVideo);
  EXPECT_EQ(back[1].second_per_grid, 0.3);
  EXPECT_TRUE(back[1].is_frame_list);
  EXPECT_EQ(*back[1].files[0].bytes, *spans[1].files[0].bytes);
  EXPECT_EQ(back[1].files[1].path, "f1");
  const auto heads = read_media_heads(media_record(spans), "x");
  ASSERT_EQ(heads.size(), 2u);
  for (size_t i = 0; i < heads.size(); ++i) {
    EXPECT_EQ(heads[i].grid, spans[i].grid);
    EXPECT_TRUE(heads[i].files.empty());
  }
  EXPECT_EQ(places(heads), places(spans));
}

TEST(MediaRecord, DamageIsNamed) {
  std::vector<int32_t> record = media_record({span_at(0, 1)});
  record.pop_back();
  EXPECT_THAT(error_text<DataError>([&] { read_media_record(record, "x.bin: sample 3"); }),
              HasSubstr("x.bin: sample 3: damaged record"));
  EXPECT_THAT(error_text<DataError>([&] { read_media_record(std::vector<int32_t>{-1}, "x"); }),
              HasSubstr("damaged record"));
  EXPECT_THAT(error_text<DataError>([&] {
                read_media_record(std::vector<int32_t>{4, 0x5d7b5b}, "x");  // "[{]"
              }),
              HasSubstr("damaged record"));
}

Sample sample_of(int32_t length, std::vector<MediaSpan> media) {
  Sample sample;
  sample.ids.assign(static_cast<size_t>(length), 7);
  sample.labels = sample.ids;
  sample.media = std::move(media);
  return sample;
}

TEST(MediaBatch, PlacesCountTheTokensOfTheBatch) {
  const Sample first = sample_of(5, {span_at(1, 2)}), second = sample_of(4, {}),
               third = sample_of(6, {span_at(0, 1), span_at(3, 2)});
  const Batch batch = make_batch({first, second, third});
  EXPECT_THAT(places(batch.media), ElementsAre(std::pair(1, 2), std::pair(9, 1), std::pair(12, 2)));
  const Batch part = part_of(batch, {{2, 4}});
  EXPECT_EQ(places(part.media), places(batch.media));
  EXPECT_TRUE(make_batch({second}).media.empty());
}

TEST(MediaBatch, PacksKeepThem) {
  auto base = std::make_shared<VectorSource>(
      std::vector<Sample>{sample_of(5, {span_at(1, 2)}), sample_of(6, {span_at(3, 2)})});
  const auto packed = packs_of(base, pack_greedy(std::vector<int32_t>{5, 6}, 20));
  // The longer sample comes first.
  EXPECT_THAT(places(packed->get(0).media), ElementsAre(std::pair(3, 2), std::pair(7, 2)));
  EXPECT_EQ(places(packed->spans(0)), places(packed->get(0).media));
  const auto both = joined({base, base});
  EXPECT_EQ(places(both->spans(3)), places(both->get(3).media));
}

TEST(MediaLimits, NoPictureIsCutInTwo) {
  // Tokens 3 … 6 stand for a picture, 2 and 7 enclose it.
  const std::vector<MediaSpan> spans{span_at(3, 4)};
  EXPECT_EQ(uncut_length(spans, 2), 2);
  for (int64_t within = 3; within <= 7; ++within) EXPECT_EQ(uncut_length(spans, within), 2);
  EXPECT_EQ(uncut_length(spans, 8), 8);
  const auto limited = [&](Truncation truncation, int64_t most, PreprocessReport* report) {
    auto base = std::make_shared<VectorSource>(
        std::vector<Sample>{sample_of(12, spans), sample_of(12, {})});
    return limit_samples(base, {most, truncation, false, 1.0}, "x", report);
  };
  PreprocessReport report;
  const auto right = limited(Truncation::kRight, 5, &report);
  EXPECT_EQ(right->get(0).ids.size(), 2u);
  EXPECT_TRUE(right->get(0).media.empty());
  EXPECT_EQ(right->get(1).ids.size(), 5u);
  EXPECT_THAT(places(limited(Truncation::kRight, 9, &report)->get(0).media),
              ElementsAre(std::pair(3, 4)));
  EXPECT_TRUE(right->spans(0).empty());
  EXPECT_THAT(places(limited(Truncation::kRight, 9, &report)->spans(0)),
              ElementsAre(std::pair(3, 4)));
  PreprocessReport of_left;
  EXPECT_EQ(limited(Truncation::kLeft, 9, &of_left)->size(), 1);
  EXPECT_EQ(of_left.dropped.at(0).reason,
            "longer than 9 tokens, and a cut at its front would take pictures");
}

TEST(MediaLimits, RowsAreHeldToThemAlike) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  // Row 4: 72 tokens; its second picture begins at 42.
  SampleSpec spec = media_spec(golden_rows() / "mllm.json", "hf", directory / "cache");
  spec.truncation = Truncation::kRight;
  spec.max_length = 45;
  const auto samples = open_or_build_samples(spec);
  EXPECT_EQ(samples.report.rows_dropped(), 2);  // 2 and 6: all that is left are pictures
  for (int64_t i = 0; i < samples.train->size(); ++i) {
    const Sample sample = samples.train->get(i);
    EXPECT_LE(sample.ids.size(), 45u);
    for (const MediaSpan& span : sample.media)
      EXPECT_LT(span.end(), static_cast<int64_t>(sample.ids.size()));
  }
  spec.truncation = Truncation::kLeft;
  spec.max_dropped_ratio = 1;
  EXPECT_EQ(open_or_build_samples(spec).report.rows_dropped(), 5);
}

TEST(MediaRowText, MayNotHoldThePlaceholderItself) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  directory.write("a.jsonl", R"({"messages":[{"role":"user","content":"what is <|image_pad|>?"},)"
                             R"({"role":"assistant","content":"a token"}]})"
                             "\n"
                             R"({"messages":[{"role":"user","content":"<image>?"},)"
                             R"({"role":"assistant","content":"a"}],"images":["media/a.png"]})"
                             "\n");
  SampleSpec spec = media_spec(directory / "a.jsonl", "hf", directory / "cache");
  spec.media->media_dir = golden_rows();
  const auto samples = open_or_build_samples(spec);
  EXPECT_EQ(samples.train->size(), 1);
  EXPECT_EQ(samples.report.dropped.at(0).reason, "the text holds a token that stands for pictures");
  // To a model without pictures it is a token like others.
  spec.media.reset();
  directory.write("b.jsonl", R"({"messages":[{"role":"user","content":"what is <|image_pad|>?"},)"
                             R"({"role":"assistant","content":"a token"}]})");
  spec.datasets = {directory / "b.jsonl"};
  EXPECT_EQ(open_or_build_samples(spec).train->size(), 1);
}

TEST(MediaCache, KeepsEncodedBytesAndNoPixels) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  SampleSpec spec = media_spec(golden_rows() / "openai.jsonl", "hf", directory / "cache");
  open_or_build_samples(spec);
  const auto samples = open_or_build_samples(spec);  // from the cache
  const std::string file = read_file(golden_rows() / "media/a.png");
  const Sample first = samples.train->get(0);
  ASSERT_TRUE(first.media.at(0).files.at(0).bytes);
  EXPECT_EQ(*first.media[0].files[0].bytes, file);
  EXPECT_EQ(first.media[0].row, "openai.jsonl: row 1");
  EXPECT_EQ(samples.report.visual.pictures, 11);
  EXPECT_EQ(samples.report.visual.videos, 0);
}

TEST(MediaCache, DependsOnWhatGridsDependOn) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  const auto entries = [&] {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(directory / "cache/samples"))
      count += entry.is_directory();
    return count;
  };
  SampleSpec spec = media_spec(golden_rows() / "mllm.json", "hf", directory / "cache");
  open_or_build_samples(spec);
  open_or_build_samples(spec);
  EXPECT_EQ(entries(), 1u);
  spec.media->processor.max_pixels = 5000;
  open_or_build_samples(spec);
  spec.media->media_dir = golden_rows() / "media";
  open_or_build_samples(spec);
  spec.media->add_vision_id = true;
  open_or_build_samples(spec);
  EXPECT_EQ(entries(), 4u);
}

/// Rows of one picture each.
std::string rows_about(const std::vector<std::string>& images) {
  std::string rows;
  for (const std::string& image : images) {
    rows += R"({"messages":[{"role":"user","content":"<image>?"},)"
            R"({"role":"assistant","content":"a"}],"images":[")" +
            image + "\"]}\n";
  }
  return rows;
}

/// A hint says that a host may be added.
TEST(MediaCache, ADomainMoreGivesTheRowsThatWereDropped) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  directory.write("a.jsonl", rows_about({"http://a.com/a.png", "http://b.com/a.png"}));
  SampleSpec spec = media_spec(directory / "a.jsonl", "hf", directory / "cache");
  const auto rows_from = [&](const std::vector<std::string>& domains) {
    spec.media->domains = domains;
    spec.media->fetch = [domains](const std::string& url) {
      for (const std::string& domain : domains) {
        if (url.find(domain) != url.npos) return read_file(golden_rows() / "media/a.png");
      }
      throw UsageError(url);
    };
    return open_or_build_samples(spec).train->size();
  };
  EXPECT_EQ(rows_from({"a.com"}), 1);
  EXPECT_EQ(rows_from({"a.com", "b.com"}), 2);
}

TEST(MediaCache, RowsWhosePicturesWereRepairedAreBack) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  const std::string picture = read_file(golden_rows() / "media/a.png");
  directory.write("a.jsonl", rows_about({"whole.png", "missing.png", "broken.png"}));
  directory.write("whole.png", picture);
  directory.write("broken.png", picture.substr(0, 100));
  SampleSpec spec = media_spec(directory / "a.jsonl", "hf", directory / "cache");
  spec.max_dropped_ratio = 1;
  const auto opened = [&] {
    testing::internal::CaptureStderr();
    const int64_t rows = open_or_build_samples(spec).train->size();
    return std::pair(rows, testing::internal::GetCapturedStderr());
  };
  EXPECT_EQ(opened().first, 1);
  EXPECT_THAT(opened().second, HasSubstr("tokens from the cache"));
  spec.media->media_dir = directory / "elsewhere";
  EXPECT_EQ(opened().first, 1);
  directory.write("missing.png", picture);  // not where it is looked for first
  const auto [rows, said] = opened();
  EXPECT_EQ(rows, 2);
  EXPECT_THAT(said, HasSubstr("pictures whose rows were dropped have changed"));
  directory.write("broken.png", picture);
  EXPECT_EQ(opened().first, 3);
  const auto [all, at_last] = opened();
  EXPECT_EQ(all, 3);
  EXPECT_THAT(at_last, HasSubstr("tokens from the cache"));
}

TEST(MediaCache, WhatCouldNotBeFetchedIsNamedAgain) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  directory.write("a.jsonl", rows_about({"http://a.com/a.png", "http://a.com/gone.png"}));
  SampleSpec spec = media_spec(directory / "a.jsonl", "hf", directory / "cache");
  bool is_gone = true;
  spec.media->fetch = [&](const std::string& url) {
    if (is_gone && url.ends_with("gone.png")) throw DataError("status 404");
    return read_file(golden_rows() / "media/a.png");
  };
  EXPECT_EQ(open_or_build_samples(spec).train->size(), 1);
  is_gone = false;
  testing::internal::CaptureStderr();
  EXPECT_EQ(open_or_build_samples(spec).train->size(), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("1 rows are missing whose pictures could not be fetched; "
                        "--overwrite_cache fetches them again"));
  spec.overwrite_cache = true;
  EXPECT_EQ(open_or_build_samples(spec).train->size(), 2);
}

TEST(MediaFiles, AreLookedForInTheDocumentedOrder) {
  const TestDirectory directory;
  MediaSettings settings;
  settings.media_dir = directory / "first";
  EXPECT_EQ(locate_media("x.png", settings, directory / "rows"), directory / "first/x.png");
  directory.write("rows/x.png", "");
  EXPECT_EQ(locate_media("x.png", settings, directory / "rows"), directory / "rows/x.png");
  directory.write("first/x.png", "");
  EXPECT_EQ(locate_media("x.png", settings, directory / "rows"), directory / "first/x.png");
  EXPECT_EQ(locate_media("/abs/x.png", settings, directory / "rows"), "/abs/x.png");
}

PreprocessResult preprocess_rows(const fs::path& rows, const TestDirectory& directory,
                                 PreprocessSpec spec, bool reads_media) {
  spec.inputs = {rows.string()};
  spec.output_prefix = directory / "out/x";
  spec.num_workers = 1;
  spec.show_progress = false;
  if (reads_media) spec.media = golden_media_settings("hf");
  PreprocessText text;
  text.load_tokenizer = [] { return qwen_tokenizer(); };
  text.make_chat_encoder = [](auto tokenizer) {
    return text::ChatEncoder::create(tokenizer, "qwen2_vl");
  };
  return preprocess(spec, text);
}

TEST(MediaPreprocess, WritesAFieldOfItsOwnAndTakesItAway) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  const auto result = preprocess_rows(golden_rows() / "mllm.json", directory, {}, true);
  EXPECT_EQ(result.outputs.size(), 4u);
  EXPECT_EQ(result.report.visual.pictures, 11);
  EXPECT_EQ(result.report.visual.tokens.count, 7);
  EXPECT_THAT(result.report.text(), HasSubstr("11 pictures, 0 videos in 7 samples"));
  EXPECT_THAT(result.report.text(), HasSubstr("samples by visual tokens: ≤ 64: 7"));
  EXPECT_THAT(result.report.sample, HasSubstr("<|vision_start|>[<|image_pad|> * 9]<|vision_end|>"));
  EXPECT_THAT(result.report.sample, HasSubstr("a.png: grid 1 x 6 x 6, 9 tokens at 15"));
  const InstructionDataset whole((directory / "out/x"));
  EXPECT_THAT(places(whole.get(0).media), ElementsAre(std::pair(15, 9)));
  EXPECT_TRUE(whole.get(3).media.empty());
  EXPECT_TRUE(preprocess_rows(golden_rows() / "mllm.json", directory, {}, true).up_to_date);

  PreprocessSpec packed;
  packed.overwrite = true;
  packed.pack = PackMode::kNeat;
  packed.seq_length = 256;
  const auto packs = preprocess_rows(golden_rows() / "mllm.json", directory, packed, true);
  EXPECT_LT(packs.report.packed_sequences, 8);
  size_t pictures = 0;
  const InstructionDataset in_packs((directory / "out/x"));
  for (int64_t i = 0; i < in_packs.size(); ++i) {
    const Sample sample = in_packs.get(i);
    for (const MediaSpan& span : sample.media) {
      ++pictures;
      for (int64_t at = span.begin; at < span.end(); ++at)
        EXPECT_EQ(sample.ids.at(static_cast<size_t>(at)), 151655);
    }
  }
  EXPECT_EQ(pictures, 11u);

  directory.write("t.jsonl", R"({"query":"a","response":"b"})");
  PreprocessSpec over;
  over.overwrite = true;
  preprocess_rows(directory / "t.jsonl", directory, over, false);
  EXPECT_FALSE(fs::exists(index_path(media_output_of(directory / "out/x"))));
  EXPECT_TRUE(InstructionDataset(directory / "out/x").get(0).media.empty());
}

TEST(MediaPreprocess, ARepairedPictureIsNotUpToDate) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  const std::string picture = read_file(golden_rows() / "media/a.png");
  directory.write("whole.png", picture);
  directory.write("a.jsonl", rows_about({"whole.png", "missing.png"}));
  const auto made = [&] { return preprocess_rows(directory / "a.jsonl", directory, {}, true); };
  EXPECT_EQ(made().report.rows_kept, 1);
  EXPECT_TRUE(made().up_to_date);
  directory.write("missing.png", picture);
  const PreprocessResult again = made();
  EXPECT_FALSE(again.up_to_date);
  EXPECT_EQ(again.report.rows_kept, 2);
}

TEST(MediaPreprocess, ATrainingThatReadsPicturesOtherwiseIsRefused) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  preprocess_rows(golden_rows() / "mllm.json", directory, {}, true);
  SampleSpec spec = media_spec(directory / "out/x", "hf", directory / "cache");
  const auto refusal = [&](const std::function<void(MediaSettings*)>& change) {
    spec.media = golden_media_settings("hf");
    change(&*spec.media);
    return error_text<UsageError>([&] { open_or_build_samples(spec); });
  };
  EXPECT_THAT(refusal([](MediaSettings* media) { media->upright = true; }),
              HasSubstr("out/x: its pictures were read otherwise when its samples were made: "
                        "--exif \"ignore\" then, \"transpose\" now"));
  EXPECT_THAT(refusal([](MediaSettings* media) { media->processor.max_pixels = 5000; }),
              HasSubstr("--max_pixels 9408 then, 5000 now"));
  EXPECT_THAT(refusal([](MediaSettings* media) {
                media->image_resize = media::PreResize::llama_factory();
                media->video = media::VideoRule::llama_factory();
              }),
              HasSubstr("made: --pre_resize \"none\" then, \"llamafactory\" now"));
  const auto accepted = [&](const std::function<void(MediaSettings*)>& change) {
    spec.media = golden_media_settings("hf");
    change(&*spec.media);
    return open_or_build_samples(spec).train->size();
  };
  EXPECT_EQ(accepted([](MediaSettings*) {}), 8);
  EXPECT_EQ(accepted([](MediaSettings* media) { media->video.fps = 1; }), 8) << "there is no video";
  EXPECT_EQ(accepted([](MediaSettings* media) { media->media_dir = "elsewhere"; }), 8);
  Json manifest = read_json_file(manifest_path(directory / "out/x"));
  manifest.erase("media");
  write_json_file(manifest_path(directory / "out/x"), manifest);
  EXPECT_EQ(accepted([](MediaSettings* media) { media->upright = true; }), 8)
      << "older versions record nothing";
}

TEST(MediaPreprocess, AModelOfTextRefusesThem) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  EXPECT_THAT(
      error_text<DataError>(
          [&] { preprocess_rows(golden_rows() / "mllm.json", directory, {}, false); }),
      HasSubstr("mllm.json:2: column \"images\" holds pictures: the model reads text alone"));
}

TEST(RowsOfAll, AreTheFirstOfTheDataSetsTogether) {
  const TestDirectory directory;
  directory.write("a.jsonl", R"({"query":"a","response":"1"})"
                             "\n"
                             R"({"query":"b","response":"2"})"
                             "\n");
  directory.write("b.jsonl", R"({"query":"c","response":"3"})"
                             "\n"
                             R"({"query":"d","response":"4"})"
                             "\n");
  SampleSpec spec;
  spec.datasets = {directory / "a.jsonl", directory / "b.jsonl"};
  spec.tokenizer = std::make_shared<ByteTokenizer>();
  spec.chat_encoder = std::make_shared<ByteChatEncoder>();
  spec.cache_dir = directory / "cache";
  const auto kept = [&](int64_t most) {
    spec.max_rows_of_all = most;
    return open_or_build_samples(spec).train->size();
  };
  EXPECT_EQ(kept(-1), 4);
  EXPECT_EQ(kept(3), 3);
  EXPECT_EQ(kept(1), 1);
  EXPECT_EQ(kept(9), 4);
}

}  // namespace
}  // namespace danlu::data
