// Rows with several texts: their layouts, the segments that they become, and what keeps these
// together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/groups.h"
#include "data/megatron/indexed_dataset.h"
#include "data/preprocess.h"
#include "data/preprocess_run.h"
#include "data/tokenized_dataset.h"
#include "preprocess_fakes.h"
#include "support/throws.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SampleSpec group_spec(const TestDirectory& directory, const std::string& dataset) {
  SampleSpec spec;
  spec.kind = SampleKind::kGroups;
  spec.group_form.without_template = true;
  spec.datasets = {dataset};
  spec.tokenizer = std::make_shared<ByteTokenizer>();
  spec.cache_dir = directory / "cache";
  spec.num_workers = 2;
  spec.max_dropped_ratio = 1;
  return spec;
}

SampleSpec spec_of_rows(const TestDirectory& directory, const std::string& name,
                        const std::string& rows) {
  return group_spec(directory, directory.write(name, rows).string());
}

/// The letters of each segment; what the tokenizer adds to a text is left out.
std::vector<std::string> texts_of(const Batch& batch) {
  std::vector<std::string> texts;
  for (size_t s = 0; s + 1 < batch.segment_starts.size(); ++s) {
    std::string& text = texts.emplace_back();
    for (int32_t i = batch.segment_starts[s]; i < batch.segment_starts[s + 1]; ++i) {
      const int64_t id = batch.ids[static_cast<size_t>(i)];
      if (id >= 10) text += static_cast<char>(id - 10);
    }
  }
  return texts;
}

/// "anchor|positive,…|negative,…=label" of each group.
std::vector<std::string> shown(const Batch& batch) {
  const std::vector<std::string> texts = texts_of(batch);
  const auto of = [&](int64_t segment) { return texts[static_cast<size_t>(segment)]; };
  std::vector<std::string> all;
  for (const Group& group : groups_of(batch)) {
    std::string text = group.anchor < 0 ? "" : of(group.anchor);
    for (const auto* some : {&group.positives, &group.negatives}) {
      text += '|';
      for (const int64_t segment : *some) text += (text.back() == '|' ? "" : ",") + of(segment);
    }
    all.push_back(text + "=" + Json(group.label).dump());
  }
  return all;
}

std::vector<std::string> shown(const SampleSource& samples) {
  std::vector<std::string> all;
  for (int64_t i = 0; i < samples.size(); ++i)
    for (const std::string& group : shown(make_batch({samples.get(i)}))) all.push_back(group);
  return all;
}

TEST(GroupRows, OfEveryLayout) {
  const TestDirectory directory;
  const std::vector<std::pair<std::string, std::string>> layouts = {
      {R"({"messages":[{"role":"user","content":"aa"}],)"
       R"("positive_messages":[[{"role":"user","content":"bb"}]],)"
       R"("negative_messages":[[{"role":"user","content":"cc"}],[{"role":"user","content":"dd"}]]})",
       "aa|bb|cc,dd=1.0"},
      {R"({"messages":[{"role":"user","content":"aa"}],)"
       R"("positive_messages":[[{"role":"assistant","content":"bb"}]]})",
       "aa|bb|=1.0"},
      {R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"aa"}],)"
       R"("positive_messages":[[{"role":"system","content":"t"},{"role":"user","content":"bb"}]]})",
       "s aa|t bb|=1.0"},
      {R"({"messages":[{"role":"user","content":"aa"}],)"
       R"("positive_messages":[[{"role":"system","content":"t"},{"role":"assistant","content":"bb"}]]})",
       "aa|t bb|=1.0"},
      {R"({"query":"aa","response":"bb","rejected_response":["cc","dd"]})", "aa|bb|cc,dd=1.0"},
      {R"({"query":"aa","response":"bb","rejected_response":"cc"})", "aa|bb|cc=1.0"},
      {R"({"messages":[{"role":"user","content":"aa"},{"role":"assistant","content":"bb"}],)"
       R"("rejected_response":["cc"]})",
       "aa|bb|cc=1.0"},
      {R"({"query":"aa","pos":["bb","ee"],"neg":["cc"]})", "aa|bb,ee|cc=1.0"},
      {R"({"anchor":"aa","positive":"bb","negative":"cc"})", "aa|bb|cc=1.0"},
      {R"({"sentence1":"aa","sentence2":"bb","score":0.5})", "aa|bb|=0.5"}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    SCOPED_TRACE(layouts[i].first);
    SampleSpec spec =
        spec_of_rows(directory, "rows" + std::to_string(i) + ".jsonl", layouts[i].first + "\n");
    spec.group_form.label =
        i + 1 == layouts.size() ? GroupForm::Label::kNumber : GroupForm::Label::kNone;
    EXPECT_THAT(shown(*open_or_build_samples(spec).train), ElementsAre(layouts[i].second));
  }
}

TEST(GroupRows, AnswersBehindTheirAnchorAreSegmentsWithoutOne) {
  const TestDirectory directory;
  SampleSpec spec = spec_of_rows(
      directory, "rows.jsonl",
      R"({"messages":[{"role":"user","content":"aa"}],)"
      R"("positive_messages":[[{"role":"assistant","content":"bb"}]],"negative_messages":["cc"]})"
      "\n");
  spec.group_form.texts = GroupForm::Texts::kBehindAnchor;
  EXPECT_THAT(shown(*open_or_build_samples(spec).train), ElementsAre("|aabb|aacc=1.0"));
}

TEST(GroupRows, ADocumentsSystemMessageWinsOverItsQuerys) {
  const auto texts = [](GroupForm::Texts how) {
    GroupRow row;
    text::Conversation query, document;
    query.messages = {{.role = "system", .content = "s"}, {.role = "user", .content = "q"}};
    document.messages = {{.role = "system", .content = "t"}, {.role = "assistant", .content = "d"}};
    row.anchor.text = query;
    row.positives = {document};
    std::string reason, detail, shown;
    GroupForm form;
    form.texts = how;
    const auto all = texts_of_group(std::move(row), form, &reason, &detail);
    EXPECT_TRUE(all) << reason;
    if (!all) return shown;
    for (const text::Message& message :
         std::get<text::Conversation>(all->back().text.text).messages)
      shown += message.role + ":" + message.content + " ";
    return shown;
  };
  EXPECT_EQ(texts(GroupForm::Texts::kBehindAnchor), "system:t user:q assistant:d ");
  EXPECT_EQ(texts(GroupForm::Texts::kApart), "system:t user:d ") << "a text by itself is asked";
}

TEST(GroupRows, AQueryOfTokenIdsIsNotLeftOutBeforeADocument) {
  const auto reason_of = [](GroupForm::Texts how) {
    GroupRow row;
    row.anchor.text = TokenRow{{5, 6}, {5, 6}};
    row.positives.emplace_back().messages.push_back({"assistant", "d"});
    std::string reason, detail;
    GroupForm form;
    form.texts = how;
    const bool is_used = texts_of_group(std::move(row), form, &reason, &detail).has_value();
    EXPECT_EQ(is_used, reason.empty());
    return reason;
  };
  EXPECT_EQ(reason_of(GroupForm::Texts::kApart), "");
  EXPECT_THAT(reason_of(GroupForm::Texts::kBehindAnchor), HasSubstr("token ids"));
}

TEST(GroupRows, WhyAPairCannotBeRankedIsCountedAsThat) {
  const TestDirectory directory;
  SampleSpec spec = spec_of_rows(directory, "rows.jsonl",
                                 R"({"query":"q","pos":["d"]})"
                                 "\n"
                                 R"({"query":"qqqqqqqqqq","pos":["d"]})"
                                 "\n");
  spec.group_form.texts = GroupForm::Texts::kBehindAnchor;
  spec.max_length = 6;
  spec.truncation = Truncation::kRight;
  const TrainValSamples samples = open_or_build_samples(spec);
  EXPECT_EQ(samples.report.rows_dropped_for("the query alone is too long"), 1);
  EXPECT_EQ(samples.train->size(), 1);
  SampleSpec talks = spec;
  talks.datasets = {
      directory
          .write("talks.jsonl",
                 R"({"messages":[{"role":"user","content":"q"}],"positive_messages":["d"]})"
                 "\n"
                 R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},)"
                 R"({"role":"user","content":"q"}],"positive_messages":["d"]})"
                 "\n")
          .string()};
  EXPECT_EQ(open_or_build_samples(talks).report.rows_dropped_for("no query with one document"), 1);
}

TEST(GroupRows, OfMoreTextsThanAreWantedSomeAreDrawnTheSameEachTime) {
  const TestDirectory directory;
  std::string rows;
  for (int i = 0; i < 8; ++i)
    rows += R"({"query":"q","pos":["a","b","c"],"neg":["d","e","f","g","h"]})"
            "\n";
  SampleSpec spec = spec_of_rows(directory, "rows.jsonl", rows);
  spec.group_form.texts = GroupForm::Texts::kBehindAnchor;
  spec.group_form.most_positives = 1;
  spec.group_form.most_negatives = 2;
  const std::vector<std::string> drawn = shown(*open_or_build_samples(spec).train);
  EXPECT_THAT(drawn,
              ::testing::Each(::testing::MatchesRegex(R"(\|q[abc]\|q[defgh],q[defgh]=1\.0)")));
  EXPECT_GT(std::set<std::string>(drawn.begin(), drawn.end()).size(), 2u) << "by the row";
  spec.cache_dir = directory / "another";
  EXPECT_EQ(shown(*open_or_build_samples(spec).train), drawn);
  spec.group_form.most_negatives = 0;
  EXPECT_THAT(shown(*open_or_build_samples(spec).train),
              ::testing::Each(::testing::EndsWith("|=1.0")));
}

TEST(GroupRows, ATextIsLearntAtItsLastTokenAlone) {
  const TestDirectory directory;
  const SampleSpec spec = spec_of_rows(directory, "rows.jsonl",
                                       R"({"anchor":"aaa","positive":"bb"})"
                                       "\n");
  const Batch batch = make_batch({open_or_build_samples(spec).train->get(0)});
  ASSERT_EQ(batch.segment_starts.size(), 3u);
  EXPECT_EQ(batch.num_targets, 2);
  for (size_t s = 1; s < 3; ++s)
    EXPECT_NE(batch.targets[static_cast<size_t>(batch.segment_starts[s]) - 1], kIgnoreLabel);
}

TEST(GroupRows, WhatTheTrainingDoesNotTakeIsDroppedAndCounted) {
  const TestDirectory directory;
  SampleSpec spec = spec_of_rows(directory, "rows.jsonl",
                                 "{\"anchor\":\"a\",\"positive\":\"b\",\"label\":1}\n"
                                 "{\"anchor\":\"a\",\"positive\":[\"b\",\"c\"],\"label\":0}\n"
                                 "{\"anchor\":\"a\",\"positive\":\"b\",\"label\":0.5}\n"
                                 "{\"anchor\":\"a\",\"positive\":\"b\",\"negative\":\"c\"}\n"
                                 "{\"anchor\":\"a\",\"positive\":[]}\n");
  const auto kept = [&] { return open_or_build_samples(spec).train->size(); };
  EXPECT_EQ(kept(), 4);
  spec.group_form.max_positives = 1;
  EXPECT_EQ(kept(), 3);
  spec.group_form.label = GroupForm::Label::kBinary;
  spec.group_form.takes_negatives = false;
  EXPECT_EQ(kept(), 1);
  spec.group_form = {.without_template = true, .needs_negatives = true};
  EXPECT_EQ(kept(), 1);
}

TEST(GroupRows, PreprocessedOnesKeepTheirLabels) {
  const TestDirectory directory;
  const auto labels_with = [&](bool plainly) {
    PreprocessSpec spec;
    spec.inputs = {directory
                       .write("rows.jsonl", R"({"messages":[{"role":"user","content":"aa"}],)"
                                            R"("positive_messages":["bb"],"label":0.25})"
                                            "\n"
                                            R"({"messages":[{"role":"user","content":"cc"}],)"
                                            R"("positive_messages":["dd"],"label":null})"
                                            "\n")
                       .string()};
    spec.output_prefix = directory / (plainly ? "plain" : "written");
    spec.show_progress = false;
    PreprocessText text;
    text.load_tokenizer = [] { return std::make_shared<ByteTokenizer>(); };
    text.make_chat_encoder = [](auto) { return std::make_shared<ByteChatEncoder>(); };
    text.embeds_plainly = plainly;
    const PreprocessResult made = preprocess(spec, text);
    EXPECT_EQ(made.kind, SampleKind::kGroups);
    const IndexedDataset ids(made.outputs.at(0)), records(made.outputs.at(1));
    std::vector<float> labels;
    for (int64_t i = 0; i < ids.num_sequences(); ++i) {
      const std::vector<int32_t> record = records.tokens(i);
      const Sample sample = sample_of_group(ids.tokens(i), record, "row");
      EXPECT_EQ(sample.ids.size(), plainly ? 4u : 8u);
      labels.push_back(groups_of(make_batch({sample})).at(0).label);
    }
    return labels;
  };
  EXPECT_THAT(labels_with(false), ElementsAre(0.25F, 1.0F));
  EXPECT_THAT(labels_with(true), ElementsAre(0.25F, 1.0F));
}

TEST(GroupRows, PicturesOfOtherTextsAreRefused) {
  const TestDirectory directory;
  const SampleSpec spec =
      spec_of_rows(directory, "rows.jsonl",
                   R"({"anchor":"a","positive":"b","positive_images":[["a.png"]]})"
                   "\n");
  EXPECT_THAT(danlu::test::error_of([&] { open_or_build_samples(spec); }),
              HasSubstr("positive_images"));
  // A table has the column for every row.
  for (const char* empty : {"\"\"", "null", "[]", "[null, \"\"]", "\"[]\""}) {
    const std::string row = R"({"anchor":"a","positive":"b","positive_images":)";
    EXPECT_EQ(open_or_build_samples(spec_of_rows(directory, "empty.jsonl", row + empty + "}\n"))
                  .train->size(),
              1)
        << empty;
  }
}

TEST(GroupSamples, PacksAndBatchesKeepGroupsApart) {
  const TestDirectory directory;
  std::string rows;
  std::vector<std::string> expected;
  for (int i = 0; i < 6; ++i) {
    const std::string name(1, static_cast<char>('p' + i));
    Json row{{"anchor", name}, {"positive", name + name}, {"negative", Json::array()}};
    std::string negatives;
    for (int n = 0; n < i % 3; ++n) {
      row["negative"].push_back("n" + name);
      negatives += (n ? ",n" : "n") + name;
    }
    rows += row.dump() + "\n";
    expected.push_back(name + "|" + name + name + "|" + negatives + "=1.0");
  }
  SampleSpec spec = spec_of_rows(directory, "rows.jsonl", rows);
  spec.pack_sequences = true;
  spec.max_length = 100;
  const auto samples = open_or_build_samples(spec);
  ASSERT_EQ(samples.train->size(), 1);
  const Batch batch = make_batch({samples.train->get(0)});
  EXPECT_THAT(shown(batch), ::testing::UnorderedElementsAreArray(expected));
  EXPECT_EQ(part_of(batch, {{0, 4}}).segment_labels, batch.segment_labels);
  // A group that is longer than a pack is one by itself.
  spec.max_length = 4;
  EXPECT_THAT(shown(*open_or_build_samples(spec).train),
              ::testing::UnorderedElementsAreArray(expected));
}

TEST(GroupSamples, EachTextIsCutByItself) {
  const TestDirectory directory;
  SampleSpec spec = spec_of_rows(directory, "rows.jsonl",
                                 "{\"anchor\":\"abcdef\",\"positive\":\"uvwxyz\"}\n"
                                 "{\"anchor\":\"ab\",\"positive\":\"uv\"}\n");
  spec.max_length = 3;
  EXPECT_THAT(shown(*open_or_build_samples(spec).train), ElementsAre("ab|uv|=1.0"));
  spec.truncation = Truncation::kRight;
  EXPECT_THAT(shown(*open_or_build_samples(spec).train), ElementsAre("abc|uvw|=1.0", "ab|uv|=1.0"));
  spec.truncation = Truncation::kLeft;
  EXPECT_THAT(shown(*open_or_build_samples(spec).train), ElementsAre("def|xyz|=1.0", "ab|uv|=1.0"));
}

/// <s> before a text, </s> behind it.
class EndedByteTokenizer : public ByteTokenizer {
 public:
  void encode_append(std::string_view text, bool add_special,
                     std::vector<text::TokenId>& ids) const override {
    if (add_special) ids.push_back(1);
    ByteTokenizer::encode_append(text, false, ids);
    if (add_special) ids.push_back(2);
  }
};

// transformers' tokenizers cut before they put special tokens around, and so sentence-transformers.
TEST(GroupSamples, APlainTextThatIsCutKeepsTheTokenThatItsVectorIsOf) {
  const TestDirectory directory;
  SampleSpec spec =
      spec_of_rows(directory, "rows.jsonl", "{\"anchor\":\"abcdef\",\"positive\":\"uv\"}\n");
  spec.tokenizer = std::make_shared<EndedByteTokenizer>();
  spec.max_length = 5;
  const auto first_text = [&](Truncation truncation, int64_t most) {
    spec.truncation = truncation;
    spec.max_length = most;
    const Sample sample = open_or_build_samples(spec).train->get(0);
    return spec.tokenizer->decode(
        std::span(sample.ids).first(static_cast<size_t>(sample.segments.at(1))), false);
  };
  EXPECT_EQ(first_text(Truncation::kRight, 5), "<1>abc<2>");
  EXPECT_EQ(first_text(Truncation::kLeft, 5), "<1>def<2>");
  EXPECT_EQ(first_text(Truncation::kRight, 8), "<1>abcdef<2>");
  EXPECT_EQ(first_text(Truncation::kLeft, 2), "f<2>") << "no room for a text and both";
}

}  // namespace
}  // namespace danlu::data
