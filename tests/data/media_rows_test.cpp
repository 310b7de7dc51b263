// Rows with pictures and videos in every layout: ids, targets and grids as the systems make them
// whose layouts these are (golden/vl/rows).
#include "media_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/file.h"
#include "media/media_error.h"
#include "preprocess_fakes.h"
#include "text/media.h"
#include "text/trained_part.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Json& expected_rows() {
  static const Json json = read_json_file(golden_rows() / "expected.json");
  return json;
}

/// [begin, end) of each run of targets.
std::vector<std::vector<int>> target_runs(const Sample& sample) {
  std::vector<std::vector<int>> runs;
  for (int i = 0; i < std::ssize(sample.labels); ++i) {
    const auto at = static_cast<size_t>(i);
    if (sample.labels[at] == kIgnoreLabel) continue;
    EXPECT_EQ(sample.labels[at], sample.ids[at]);
    if (runs.empty() || runs.back()[1] != i) runs.push_back({i, i});
    runs.back()[1] = i + 1;
  }
  return runs;
}

std::vector<std::vector<int64_t>> grids(const Sample& sample, text::MediaKind kind) {
  std::vector<std::vector<int64_t>> all;
  for (const MediaSpan& span : sample.media) {
    if (span.kind == kind) all.push_back({span.grid.t, span.grid.h, span.grid.w});
  }
  return all;
}

int64_t targets_of(const Sample& sample) {
  return std::count_if(sample.labels.begin(), sample.labels.end(),
                       [](int32_t label) { return label != kIgnoreLabel; });
}

/// Every placeholder belongs to exactly one span, and none is a target.
void expect_spans_cover_placeholders(const Sample& sample) {
  constexpr int32_t kImage = 151655, kVideo = 151656;
  std::vector<int32_t> ids = sample.ids;
  for (const MediaSpan& span : sample.media) {
    EXPECT_EQ(span.count, span.grid.visual_tokens(2));
    for (int64_t i = span.begin; i < span.end(); ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_EQ(ids[at], span.kind == text::MediaKind::kImage ? kImage : kVideo);
      EXPECT_EQ(sample.labels[at], kIgnoreLabel);
      ids[at] = 0;
    }
  }
  EXPECT_EQ(std::count(ids.begin(), ids.end(), kImage), 0);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), kVideo), 0);
}

struct Layout {
  const char *name, *file;
};
constexpr Layout kLayouts[] = {{"llava", "llava.json"},
                               {"sharegpt4v", "sharegpt4v.json"},
                               {"llamafactory", "llamafactory.json"},
                               {"mllm", "mllm.json"},
                               {"swift", "swift.jsonl"},
                               {"openai", "openai.jsonl"}};

TEST(MediaRows, EveryLayoutGivesTheRecordedIdsTargetsAndGrids) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  int lists = 0;
  for (const char* settings : {"hf", "lf", "mm20"}) {
    for (const Layout& layout : kLayouts) {
      SampleSpec spec = media_spec(golden_rows() / layout.file, settings, directory / "cache");
      if (layout.name == std::string("llava")) spec.media->media_dir = golden_rows() / "media";
      const TrainValSamples samples = open_or_build_samples(spec);
      const auto rows = expected_rows()["row_of_line"][layout.name].get<std::vector<int>>();
      ASSERT_EQ(samples.train->size(), std::ssize(rows)) << layout.name;
      for (size_t line = 0; line < rows.size(); ++line, ++lists) {
        SCOPED_TRACE(fmt::format("{} line {} by {}", layout.name, line, settings));
        const Json& want = expected_rows()["rows"][std::to_string(rows[line])][settings];
        const Sample got = samples.train->get(static_cast<int64_t>(line));
        EXPECT_EQ(Json(got.ids), want["input_ids"]);
        EXPECT_EQ(Json(target_runs(got)), want["label_spans"]);
        EXPECT_EQ(Json(targets_of(got)), want["targets"]);
        EXPECT_EQ(Json(grids(got, text::MediaKind::kImage)), want["image_grid_thw"]);
        EXPECT_EQ(Json(grids(got, text::MediaKind::kVideo)), want["video_grid_thw"]);
        expect_spans_cover_placeholders(got);
      }
    }
  }
  EXPECT_EQ(lists, 156);
}

/// What Qwen2-VL's template does, for messages whose content may be a list of parts.
constexpr const char* kPartsTemplate =
    "{% set seen = namespace(p=0, v=0) %}{% for m in messages %}"
    "{% if loop.first and m['role'] != 'system' %}<|im_start|>system\nYou are a helpful "
    "assistant.<|im_end|>\n{% endif %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}{% set seen.p = seen.p + 1 %}"
    "{% if add_vision_id %}Picture {{ seen.p }}: {% endif %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' %}{% set seen.v = seen.v + 1 %}"
    "{% if add_vision_id %}Video {{ seen.v }}: {% endif %}"
    "<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// Placeholders are written into the text before the template sees it: the text is the same as of a
// template that writes them itself.
TEST(MediaRows, TextIsTheRecordedOneByNamedTemplatesAndByTheModelsOwn) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  directory.write("own.jinja", kPartsTemplate);
  const auto named = text::ChatEncoder::create(qwen_tokenizer(), "qwen2vl");
  const std::string lines = read_file(golden_rows() / "swift.jsonl");
  std::istringstream stream(lines);
  FormatOptions options;
  options.reads_media = true;
  int row_number = 0, with_parts = 0;
  for (std::string line; std::getline(stream, line); ++row_number) {
    const Json row = parse_json(line, "swift.jsonl");
    const auto handler = make_row_handler(options, {row}, false);
    const auto conversation = std::get<text::Conversation>(std::get<Row>(handler->read(row)));
    const Json& want = expected_rows()["rows"][std::to_string(row_number)];
    const std::string text = want["text"], numbered = want["text_add_vision_id"];
    for (const bool ids : {false, true}) {
      const auto own = text::ChatEncoder::create(qwen_tokenizer(), directory / "own.jinja", {},
                                                 Json{{"add_vision_id", ids}});
      const auto written = text::with_placeholders(conversation, ids);
      EXPECT_EQ(named->render(written, false), ids ? numbered : text) << row_number;
      EXPECT_EQ(own->render(written, false), ids ? numbered : text) << row_number;
      // As the template is given the parts by others.
      const bool has_parts = std::ranges::any_of(
          row["messages"], [](const Json& message) { return message["content"].is_array(); });
      if (!has_parts) continue;
      ++with_parts;
      EXPECT_EQ(own->render(text::parse_conversation(row, "row"), false), ids ? numbered : text);
    }
  }
  EXPECT_EQ(row_number, 12);
  EXPECT_EQ(with_parts, 8);
}

TEST(MediaRows, TheLastRoundAloneIsTrained) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  SampleSpec spec = media_spec(golden_rows() / "mllm.json", "mm20", directory / "cache");
  text::TrainedPart last;
  last.base = text::TrainedPart::Base::kLastRound;
  spec.chat_encoder = text::with_trained_part(spec.chat_encoder, spec.tokenizer, last);
  const TrainValSamples samples = open_or_build_samples(spec);
  for (int64_t i = 0; i < samples.train->size(); ++i) {
    EXPECT_EQ(Json(targets_of(samples.train->get(i))),
              expected_rows()["rows"][std::to_string(i)]["mm20"]["last_turn_targets"]);
  }
}

// Everything is trained, and pictures still are not.
TEST(MediaRows, PlaceholdersAreNeverTargets) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  SampleSpec spec = media_spec(golden_rows() / "mllm.json", "hf", directory / "cache");
  text::TrainedPart all;
  all.base = text::TrainedPart::Base::kAll;
  spec.chat_encoder = text::with_trained_part(spec.chat_encoder, spec.tokenizer, all);
  const Sample first = open_or_build_samples(spec).train->get(0);
  // Nine pads, and the tokens before and behind them.
  EXPECT_EQ(targets_of(first), 43 - 9 - 2);
  directory.write("a.jsonl",
                  R"({"messages": [{"role": "user", "content": "draw"}, {"role": "assistant",)"
                  R"( "content": "<image> there"}], "images": ["a.png"]})"
                  "\n");
  SampleSpec drawn = media_spec(directory / "a.jsonl", "hf", directory / "cache");
  drawn.media->media_dir = golden_rows() / "media";
  const Sample sample = open_or_build_samples(drawn).train->get(0);
  ASSERT_EQ(sample.media.size(), 1u);
  expect_spans_cover_placeholders(sample);
  // A model that learnt them would open pictures in its answers.
  for (const int64_t at : {sample.media[0].begin - 1, sample.media[0].end()})
    EXPECT_EQ(sample.labels.at(static_cast<size_t>(at)), kIgnoreLabel) << at;
  EXPECT_GT(targets_of(sample), 0);
}

TEST(MediaRows, BadRowsAreDroppedAndNamed) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  SampleSpec spec = media_spec(golden_rows() / "bad_mllm.json", "mm20", directory / "cache");
  spec.format.map_keys = {{"messages", "messages"}, {"images", "images"}};
  spec.max_dropped_ratio = 1;
  const TrainValSamples samples = open_or_build_samples(spec);
  EXPECT_EQ(samples.train->size(), 2) << "two questions in a row are one";
  std::vector<std::string> dropped;
  for (const ReasonCount& reason : samples.report.dropped) {
    for (const std::string& example : reason.examples)
      dropped.push_back(fs::path(example).filename().string() + " | " + reason.reason);
  }
  const std::string all = fmt::format("{}", fmt::join(dropped, "\n"));
  EXPECT_EQ(samples.report.rows_dropped(), 4) << all;
  ASSERT_EQ(samples.report.dropped.size(), 3u) << all;
  const auto reason_of = [&](const char* detail) -> std::string {
    for (const ReasonCount& reason : samples.report.dropped) {
      for (const std::string& example : reason.examples) {
        if (example.find(detail) != example.npos) return reason.reason;
      }
    }
    return "";
  };
  EXPECT_EQ(reason_of("2 tags, 1 picture"), "<image> and pictures differ in number");
  EXPECT_EQ(reason_of("0 tags, 1 picture"), "<image> and pictures differ in number");
  EXPECT_EQ(reason_of("nope.png"), media::reason_of(media::MediaFault::kMissing));
  EXPECT_EQ(reason_of("truncated.png"), media::reason_of(media::MediaFault::kTruncated));
  spec.strict = true;
  EXPECT_THAT(error_text<DataError>([&] { open_or_build_samples(spec); }),
              HasSubstr("bad_mllm.json:2: <image> and pictures differ in number"));
}

}  // namespace
}  // namespace danlu::data
