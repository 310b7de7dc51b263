// Samples of preference training, process rewards and reinforcement learning, from rows and from
// preprocessed files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "data/answer_cut.h"
#include "data/batch_stream.h"
#include "data/megatron/indexed_dataset.h"
#include "data/megatron/indexed_writer.h"
#include "data/megatron/instruction_dataset.h"
#include "data/preprocess.h"
#include "data/step_text.h"
#include "data/tokenized_dataset.h"
#include "preprocess_fakes.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SampleSpec kind_spec(const TestDirectory& directory, const std::string& dataset, SampleKind kind) {
  SampleSpec spec;
  spec.kind = kind;
  spec.datasets = {dataset};
  spec.tokenizer = std::make_shared<ByteTokenizer>();
  spec.chat_encoder = std::make_shared<ByteChatEncoder>();
  spec.cache_dir = directory / "cache";
  spec.num_workers = 2;
  spec.steps.placeholder = "#";
  return spec;
}

PreprocessResult preprocessed(const std::string& input, const std::string& prefix,
                              const std::function<void(PreprocessSpec*)>& change = {}) {
  PreprocessSpec spec;
  spec.inputs = {input};
  spec.output_prefix = prefix;
  spec.show_progress = false;
  spec.num_workers = 2;
  spec.steps.placeholder = "#";
  if (change) change(&spec);
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  return preprocess(spec, {[tokenizer] { return tokenizer; },
                           [](auto) { return std::make_shared<ByteChatEncoder>(); }});
}

/// Ids of a text, "$" standing for </s>.
std::vector<int32_t> ids_of(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(c == '$' ? 2 : static_cast<unsigned char>(c) + 10);
  return ids;
}

/// Labels of a text: those of its last `learnt` tokens, the others masked.
std::vector<int32_t> labels_of(const std::string& text, size_t learnt) {
  std::vector<int32_t> labels = ids_of(text);
  std::fill(labels.begin(), labels.end() - static_cast<std::ptrdiff_t>(learnt), kIgnoreLabel);
  return labels;
}

std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<std::vector<int32_t>> field(const std::string& prefix, const std::string& name) {
  const IndexedDataset dataset(instruction_field_prefix(prefix, name));
  std::vector<std::vector<int32_t>> sequences;
  for (int64_t i = 0; i < dataset.num_sequences(); ++i) sequences.push_back(dataset.tokens(i));
  return sequences;
}

constexpr const char* kTwoPairs =
    R"({"instruction":"q","input":"","chosen":"yes","rejected":"no"})"
    "\n"
    R"({"instruction":"r","input":"","chosen":"a","rejected":"bcd","margin":2})"
    "\n";

void expect_two_pairs(const SampleSource& pairs) {
  ASSERT_EQ(pairs.size(), 2);
  const Sample first = pairs.get(0), second = pairs.get(1);
  EXPECT_EQ(first.ids, ids_of("uqayes$uqano$"));
  EXPECT_EQ(first.labels, labels_of("uqayes$", 4) + labels_of("uqano$", 3));
  EXPECT_THAT(first.segments, ElementsAre(0, 7));
  EXPECT_THAT(first.segment_values, ElementsAre(0, 0));
  EXPECT_EQ(second.ids, ids_of("uraa$urabcd$"));
  EXPECT_THAT(second.segments, ElementsAre(0, 5));
  EXPECT_THAT(second.segment_values, ElementsAre(2, 0));
  EXPECT_EQ(pairs.length(1), 12);
}

// --- pairs ---------------------------------------------------------------------------------------

TEST(Pairs, AreTwoSegmentsWithTheMaskOfTheAnswers) {
  const TestDirectory directory;
  directory.write("a.jsonl", kTwoPairs);
  const SampleSpec spec = kind_spec(directory, directory / "a.jsonl", SampleKind::kPairs);
  const TrainValSamples samples = open_or_build_samples(spec);
  expect_two_pairs(*samples.train);
  EXPECT_EQ(samples.report.target_tokens, 4 + 3 + 2 + 4);
  EXPECT_EQ(samples.report.lengths.sum, 13 + 12);
  EXPECT_THAT(samples.report.sample, HasSubstr("[CHOSEN]\n[INPUT]  uqayes<2>\n"
                                               "[LABELS] [-100 * 3]yes<2>\n"
                                               "[REJECTED]\n[INPUT]  uqano<2>\n"
                                               "[LABELS] [-100 * 3]no<2>\n"));
  // The same from the cache.
  expect_two_pairs(*open_or_build_samples(spec).train);
}

TEST(Pairs, PreprocessWritesMindSpeedsFilesAndTrainingReadsThem) {
  const TestDirectory directory;
  directory.write("a.jsonl", kTwoPairs);
  const std::string prefix = directory / "out/p";
  const PreprocessResult result = preprocessed(directory / "a.jsonl", prefix);
  EXPECT_EQ(result.kind, SampleKind::kPairs);
  EXPECT_THAT(field(prefix, "chosen_input_ids"), ElementsAre(ids_of("uqayes$"), ids_of("uraa$")));
  EXPECT_THAT(field(prefix, "chosen_labels"),
              ElementsAre(labels_of("uqayes$", 4), labels_of("uraa$", 2)));
  EXPECT_THAT(field(prefix, "rejected_input_ids"),
              ElementsAre(ids_of("uqano$"), ids_of("urabcd$")));
  EXPECT_THAT(field(prefix, "rejected_labels"),
              ElementsAre(labels_of("uqano$", 3), labels_of("urabcd$", 4)));
  expect_two_pairs(*open_or_build_samples(kind_spec(directory, prefix, SampleKind::kPairs)).train);
  EXPECT_TRUE(preprocessed(directory / "a.jsonl", prefix).up_to_date);
  // Files of MindSpeed's have no manifest and no margins.
  for (const char* ending : {"_preprocess.json", "_packed_margin_document.idx"})
    fs::remove(prefix + ending);
  const auto bare = open_or_build_samples(kind_spec(directory, prefix, SampleKind::kPairs));
  EXPECT_THAT(bare.train->get(1).segment_values, ElementsAre(0, 0));
}

TEST(Pairs, OfNoUseAreDroppedAndCountedByReason) {
  const TestDirectory directory;
  std::string rows;
  for (const char* answers : {R"("a","rejected":"b")", R"("a","rejected":"a")",
                              R"("a","rejected":"")", R"("aaaaaaaaaaaa","rejected":"b")"})
    rows += std::string(R"({"prompt":"q","chosen":)") + answers + "}\n";
  directory.write("a.jsonl", rows);
  SampleSpec spec = kind_spec(directory, directory / "a.jsonl", SampleKind::kPairs);
  spec.max_length = 10;
  spec.max_dropped_ratio = 1;
  const TrainValSamples samples = open_or_build_samples(spec);
  EXPECT_EQ(samples.train->size(), 1);
  std::vector<std::string> reasons;
  for (const ReasonCount& item : samples.report.dropped) reasons.push_back(item.reason);
  EXPECT_THAT(reasons, testing::UnorderedElementsAre("chosen and rejected do not differ",
                                                     "empty answer", "longer than 10 tokens"));
  spec.strict = true;
  EXPECT_THAT(error_text<DataError>([&] { open_or_build_samples(spec); }),
              HasSubstr("a.jsonl:2: chosen and rejected do not differ"));
}

TEST(Pairs, AreCutInSharesOfPromptAndAnswer) {
  // Half of the limit is 5. Short answers stay whole, then short prompts; else 10·6/(6+6).
  const auto shares = [](int64_t prompt, int64_t answer) {
    const AnswerShares kept = shares_within(prompt, answer, 10);
    return std::pair(kept.prompt, kept.answer);
  };
  EXPECT_EQ(shares(20, 4), std::pair(int64_t{6}, int64_t{4}));
  EXPECT_EQ(shares(4, 20), std::pair(int64_t{4}, int64_t{6}));
  EXPECT_EQ(shares(6, 6), std::pair(int64_t{5}, int64_t{5}));
  EXPECT_EQ(shares(5, 1000), std::pair(int64_t{1}, int64_t{9}));
  EXPECT_EQ(shares(3, 2), std::pair(int64_t{3}, int64_t{2}));

  const TestDirectory directory;
  // Prompt u12345678a: 10 tokens; the longer answer with its end: 5.
  directory.write("a.jsonl", R"({"prompt":"12345678","chosen":"y","rejected":"nnno"})");
  const auto cut = [&](const std::string& dataset, Truncation truncation) {
    SampleSpec spec = kind_spec(directory, dataset, SampleKind::kPairs);
    spec.max_length = 8;
    spec.truncation = truncation;
    const TrainValSamples samples = open_or_build_samples(spec);
    EXPECT_EQ(samples.report.truncated.at(0).reason, "longer than 8 tokens");
    return samples.train->get(0);
  };
  preprocessed(directory / "a.jsonl", directory / "p");
  // 8·5/15 = 2 of the answers, 6 of the prompt.
  for (const char* dataset : {"a.jsonl", "p"}) {
    EXPECT_EQ(cut(directory / dataset, Truncation::kRight).ids, ids_of("u12345y$u12345nn"));
    const Sample end_kept = cut(directory / dataset, Truncation::kLeft);
    EXPECT_EQ(end_kept.ids, ids_of("45678ay$45678ann"));
    EXPECT_EQ(end_kept.labels, labels_of("45678ay$", 2) + labels_of("45678ann", 2));
    EXPECT_THAT(end_kept.segments, ElementsAre(0, 8));
  }
}

std::string pair_rows(int count) {
  std::string rows;
  for (int i = 0; i < count; ++i) {
    rows += fmt::format(R"({{"prompt":"{}","chosen":"{}","rejected":"{}"}})"
                        "\n",
                        std::string(static_cast<size_t>(1 + i * 5 % 9), 'p'),
                        std::string(static_cast<size_t>(1 + i * 7 % 19), 'c'),
                        std::string(static_cast<size_t>(1 + i * 3 % 11), 'r'));
  }
  return rows;
}

// However a step is cut, and also in packs: both sides of a pair lie in the same micro-batch,
// chosen first.
TEST(Pairs, AreNeverParted) {
  const TestDirectory directory;
  directory.write("a.jsonl", pair_rows(60));
  for (const bool packed : {false, true}) {
    SampleSpec spec = kind_spec(directory, directory / "a.jsonl", SampleKind::kPairs);
    spec.pack_sequences = packed;
    spec.max_length = 40;
    const auto source = open_or_build_samples(spec).train;
    for (const int64_t tokens : {0, 30, 70}) {
      BatchStreamOptions options;
      options.micro_batch_size = 3;
      options.accumulation_steps = 2;
      options.max_tokens_per_micro_batch = tokens;
      options.prefetch_steps = 0;
      BatchStream stream(source, [&](int64_t i) { return i % source->size(); }, options);
      int64_t pairs = 0;
      for (int64_t step = 0; step < stream.steps_per_epoch(); ++step) {
        for (const Batch& batch : stream.next().micro_batches) {
          const std::vector<int32_t>& starts = batch.segment_starts;
          ASSERT_EQ(starts.size() % 2, 1u);
          ASSERT_EQ(batch.segment_values.size(), starts.size() - 1);
          for (size_t s = 0; s + 1 < starts.size(); s += 2) {
            const auto last = [&](size_t segment) {
              return batch.ids[static_cast<size_t>(starts[segment + 1]) - 2];
            };
            EXPECT_EQ(last(s), 'c' + 10);
            EXPECT_EQ(last(s + 1), 'r' + 10);
            ++pairs;
          }
        }
      }
      EXPECT_EQ(pairs, 60) << packed << " " << tokens;
    }
  }
}

// --- answers that are liked or not
// -----------------------------------------------------------------

std::string judged_rows(int count) {
  std::string rows;
  for (int i = 0; i < count; ++i) {
    rows += fmt::format(R"({{"prompt":"{}","completion":"{}","label":{}}})"
                        "\n",
                        std::string(static_cast<size_t>(1 + i * 5 % 7), static_cast<char>('A' + i)),
                        std::string(static_cast<size_t>(1 + i * 3 % 8), static_cast<char>('a' + i)),
                        i % 3 == 0);
  }
  return rows;
}

TEST(Unpaired, TheSecondSegmentIsThePromptWithTheAnswerBefore) {
  const TestDirectory directory;
  directory.write("a.jsonl", judged_rows(26));
  const auto expected = [](int i) {
    const int before = (i + 25) % 26;
    const auto prompt = [](int row) {
      return "u" + std::string(static_cast<size_t>(1 + row * 5 % 7), static_cast<char>('A' + row)) +
             "a";
    };
    const auto answer = [](int row) {
      return std::string(static_cast<size_t>(1 + row * 3 % 8), static_cast<char>('a' + row)) + "$";
    };
    Sample sample;
    sample.ids = ids_of(prompt(i) + answer(i) + prompt(i) + answer(before));
    sample.labels = labels_of(prompt(i) + answer(i), answer(i).size()) +
                    labels_of(prompt(i) + answer(before), answer(before).size());
    sample.segments = {0, static_cast<int32_t>(prompt(i).size() + answer(i).size())};
    sample.segment_values = {i % 3 == 0 ? 1.0F : 0.0F, 0.0F};
    return sample;
  };
  preprocessed(directory / "a.jsonl", directory / "p");
  for (const char* dataset : {"a.jsonl", "p"}) {
    for (const size_t workers : {1, 2, 5}) {
      SampleSpec spec = kind_spec(directory, directory / dataset, SampleKind::kUnpaired);
      spec.num_workers = workers;
      spec.overwrite_cache = true;
      const auto source = open_or_build_samples(spec).train;
      ASSERT_EQ(source->size(), 26);
      for (int i = 0; i < 26; ++i) {
        const Sample sample = source->get(i);
        EXPECT_EQ(sample.ids, expected(i).ids) << i;
        EXPECT_EQ(sample.labels, expected(i).labels) << i;
        EXPECT_EQ(sample.segments, expected(i).segments) << i;
        EXPECT_EQ(sample.segment_values, expected(i).segment_values) << i;
        EXPECT_EQ(source->length(i), std::ssize(sample.ids)) << i;
      }
    }
  }
}

// What is held out neither lends answers to training nor borrows them.
TEST(Unpaired, TrainingAndValidationShareNoAnswer) {
  const TestDirectory directory;
  directory.write("a.jsonl", judged_rows(26));
  SampleSpec spec = kind_spec(directory, directory / "a.jsonl", SampleKind::kUnpaired);
  spec.val_ratio = 0.3;
  const TrainValSamples samples = open_or_build_samples(spec);
  const auto letters = [](const SampleSource& source, bool of_second) {
    std::set<int32_t> found;
    for (int64_t i = 0; i < source.size(); ++i) {
      const Sample sample = source.get(i);
      found.insert(of_second ? sample.ids[sample.ids.size() - 2]
                             : sample.ids[static_cast<size_t>(sample.segments[1]) - 2]);
    }
    return found;
  };
  EXPECT_EQ(samples.val->size(), 8);
  for (const auto& side : {samples.train, samples.val})
    EXPECT_EQ(letters(*side, false), letters(*side, true));
}

TEST(Unpaired, ASecondSegmentTooLongIsCutInShares) {
  const TestDirectory directory;
  // The first row fits alone (2 + 6 + 2 = 10), as does the second; their cross does not.
  directory.write("a.jsonl", R"({"prompt":"PPPPPP","completion":"x","label":true})"
                             "\n"
                             R"({"prompt":"Q","completion":"yyyyyy","label":false})"
                             "\n");
  SampleSpec spec = kind_spec(directory, directory / "a.jsonl", SampleKind::kUnpaired);
  spec.max_length = 10;
  const auto source = open_or_build_samples(spec).train;
  // uPPPPPPa and yyyyyy$: 10·7/15 = 4 of the answer, 6 of the prompt.
  EXPECT_EQ(source->get(0).ids, ids_of("uPPPPPPax$uPPPPPyyyy"));
  EXPECT_EQ(source->length(0), 20);
  EXPECT_EQ(source->get(1).ids, ids_of("uQayyyyyy$uQax$"));
}

// --- steps
// -----------------------------------------------------------------------------------------

TEST(Steps, HaveTheRewardTokenAtTheirPlaceholders) {
  const TestDirectory directory;
  directory.write("ms.jsonl", R"({"input":"q a# b#","value":["+","-"]})");
  directory.write("trl.jsonl", R"({"prompt":"q","completions":["a","b"],"labels":[true,false]})");
  preprocessed(directory / "ms.jsonl", directory / "p");
  const std::string text = "q a# b#";
  std::vector<int32_t> labels(text.size(), kIgnoreLabel);
  labels[3] = '+' + 10;
  labels[6] = '-' + 10;
  for (const char* dataset : {"ms.jsonl", "p"}) {
    SampleSpec spec = kind_spec(directory, directory / dataset, SampleKind::kSteps);
    const TrainValSamples samples = open_or_build_samples(spec);
    const Sample sample = samples.train->get(0);
    EXPECT_EQ(sample.ids, ids_of(text));
    EXPECT_EQ(sample.labels, labels);
    EXPECT_TRUE(sample.labels_are_targets);
    const Batch batch = make_batch({sample});
    EXPECT_EQ(batch.targets[3], '+' + 10);
    EXPECT_EQ(batch.num_targets, 2);
    spec.pack_sequences = true;
    spec.max_length = 20;
    EXPECT_TRUE(open_or_build_samples(spec).train->get(0).labels_are_targets);
  }
  const auto trl =
      open_or_build_samples(kind_spec(directory, directory / "trl.jsonl", SampleKind::kSteps));
  EXPECT_EQ(trl.train->get(0).ids, ids_of("q\na\n#\nb\n#"));
  EXPECT_THAT(field(directory / "p", "attention_mask"),
              ElementsAre(std::vector<int32_t>(text.size(), 1)));
  EXPECT_THAT(field(directory / "p", "labels"), ElementsAre(labels));
}

/// Makes one token of "ki", and one of " k", as a BPE whose merges go by their frequency does.
class MergingTokenizer : public ByteTokenizer {
 public:
  void encode_append(std::string_view text, bool, std::vector<text::TokenId>& ids) const override {
    for (size_t at = 0; at < text.size(); ++at) {
      const std::string_view two = text.substr(at, 2);
      if (two == " k" || two == "ki") {
        ids.push_back(two == "ki" ? 267 : 266);
        ++at;
      } else {
        ids.push_back(static_cast<unsigned char>(text[at]) + 10);
      }
    }
  }
  size_t size() const override { return 268; }
};

TEST(Steps, APlaceholderThatTheTokenizerJoinsWithTheSpaceBeforeItStandsByItself) {
  const StepTexts texts(std::make_shared<MergingTokenizer>(), "ki");
  // A question with the letters of the placeholder has no more steps for it.
  const StepText cut = texts.read({"skin? a ki\nb  ki", {}, {"+", "-"}});
  EXPECT_EQ(cut.ids, ids_of("s") + std::vector<int32_t>{267} + ids_of("n? a") +
                         std::vector<int32_t>{267} + ids_of("\nb") + std::vector<int32_t>{267});
  EXPECT_THAT(cut.places, ElementsAre(6, 9));
  EXPECT_EQ(cut.written, 2u);
  // Nobody says how many there are: all that are written count.
  EXPECT_THAT(texts.read({"a ki\nb ki"}).places, ElementsAre(1, 4));
  EXPECT_THAT(texts.read({"skin? a ki"}).places, ElementsAre(1));
  // Tokens of their own stay where they are.
  EXPECT_EQ(texts.read({"aki\nb", {}, {"+"}}).ids,
            ids_of("a") + std::vector<int32_t>{267} + ids_of("\nb"));
  EXPECT_EQ(texts.read({"a ki", {}, {"+", "+"}}).places.size(), 0u);
}

TEST(Steps, BadOnesAreDroppedByReason) {
  const TestDirectory directory;
  directory.write("a.jsonl", R"({"input":"q a#","value":["+"]})"
                             "\n"
                             R"({"input":"q a# b#","value":["+"]})"
                             "\n"
                             R"({"input":"q a#","value":["good"]})"
                             "\n"
                             R"({"input":"q a#","value":["?"]})"
                             "\n");
  SampleSpec spec = kind_spec(directory, directory / "a.jsonl", SampleKind::kSteps);
  spec.max_dropped_ratio = 1;
  spec.steps.reward_tokens = {"+", "-"};
  const TrainValSamples samples = open_or_build_samples(spec);
  EXPECT_EQ(samples.train->size(), 1);
  ASSERT_EQ(samples.report.dropped.size(), 2u);
  EXPECT_EQ(samples.report.dropped[0].reason, kUnequalSteps);
  EXPECT_EQ(samples.report.dropped[1].reason, "a step's value is no reward token");
  EXPECT_EQ(samples.report.dropped[1].count, 2);
  spec.steps.placeholder = "ки";
  EXPECT_THAT(error_text<ModelError>([&] { open_or_build_samples(spec); }),
              HasSubstr("\"ки\" is no single token of this tokenizer"));
}

// --- prompts
// ---------------------------------------------------------------------------------------

constexpr const char* kProblems = R"({"problem":"q","answer":"42","id":"x"})"
                                  "\n"
                                  R"({"problem":"rs","answer":"7","id":"y"})"
                                  "\n";

FormatOptions of_orz() {
  FormatOptions format;
  format.handler_name = "R1AlpacaStyleInstructionHandler";
  format.map_keys =
      parse_json(R"({"prompt":"problem","query":"","response":"answer","system":""})", "map");
  return format;
}

TEST(Prompts, AreIdsWithTheRowsColumnsBeside) {
  const TestDirectory directory;
  directory.write("a.jsonl", kProblems);
  for (const bool named : {false, true}) {
    SampleSpec spec = kind_spec(directory, directory / "a.jsonl", SampleKind::kPrompts);
    if (named) spec.format = of_orz();
    spec.val_ratio = 0.5;
    const TrainValSamples samples = open_or_build_samples(spec);
    std::map<std::string, std::string> columns;
    for (const auto& source : {samples.train, samples.val}) {
      const Sample sample = source->get(0);
      EXPECT_EQ(sample.labels, std::vector<int32_t>(sample.ids.size(), kIgnoreLabel));
      columns[ByteTokenizer().decode(sample.ids, false)] = source->columns(0);
    }
    EXPECT_EQ(columns["uqa"], R"({"answer":"42","id":"x","labels":"42"})");
    EXPECT_EQ(columns["ursa"], R"({"answer":"7","id":"y","labels":"7"})");
  }
}

TEST(Prompts, PreprocessWritesMindSpeedsFilesAndTrainingReadsThem) {
  const TestDirectory directory;
  directory.write("a.jsonl", kProblems);
  const std::string prefix = directory / "p";
  preprocessed(directory / "a.jsonl", prefix, [](PreprocessSpec* spec) {
    spec->format = of_orz();
    spec->additional_keys = {"labels", "id"};
  });
  EXPECT_THAT(field(prefix, "input_ids"), ElementsAre(ids_of("uqa"), ids_of("ursa")));
  EXPECT_THAT(field(prefix, "attention_mask"),
              ElementsAre(std::vector<int32_t>{1, 1, 1}, std::vector<int32_t>{1, 1, 1, 1}));
  EXPECT_THAT(field(prefix, "labels"), ElementsAre(ids_of("42"), ids_of("7")));
  EXPECT_THAT(field(prefix, "id"), ElementsAre(ids_of("x"), ids_of("y")));
  const SampleSpec spec = kind_spec(directory, prefix, SampleKind::kPrompts);
  EXPECT_EQ(open_or_build_samples(spec).train->columns(1),
            R"({"answer":"7","id":"y","labels":"7"})");
  // MindSpeed's own files: no manifest, no columns.
  fs::remove(prefix + "_preprocess.json");
  fs::remove(prefix + "_packed_columns_document.idx");
  const auto bare = open_or_build_samples(spec).train;
  EXPECT_EQ(bare->get(1).ids, ids_of("ursa"));
  EXPECT_EQ(bare->columns(1), R"({"id":"y","labels":"7"})");
}

TEST(Prompts, OfInstructionFilesAreTheirQuestions) {
  const TestDirectory directory;
  directory.write("a.jsonl", R"({"instruction":"q","input":"","output":"yes"})");
  preprocessed(directory / "a.jsonl", directory / "p");
  for (const char* ending : {"", "_preprocess.json"}) {
    if (*ending) fs::remove((directory / "p") + ending);
    const SampleSpec spec = kind_spec(directory, directory / "p", SampleKind::kPrompts);
    const auto source = open_or_build_samples(spec).train;
    EXPECT_EQ(source->get(0).ids, ids_of("uqa"));
    EXPECT_EQ(source->columns(0), R"({"labels":"yes<2>"})");
  }
}

TEST(Prompts, TooLongOnesAreDroppedOrCut) {
  const TestDirectory directory;
  directory.write("a.jsonl", kProblems);
  SampleSpec spec = kind_spec(directory, directory / "a.jsonl", SampleKind::kPrompts);
  spec.max_length = 3;
  spec.max_dropped_ratio = 1;
  EXPECT_EQ(open_or_build_samples(spec).train->size(), 1);
  spec.truncation = Truncation::kLeft;
  EXPECT_EQ(open_or_build_samples(spec).train->get(1).ids, ids_of("rsa"));
  spec.pack_sequences = true;
  EXPECT_THAT(error_text<UsageError>([&] { open_or_build_samples(spec); }),
              HasSubstr("prompts are not packed"));
}

// --- kinds
// -----------------------------------------------------------------------------------------

TEST(SampleKinds, FilesOfAnotherKindAreRefused) {
  const TestDirectory directory;
  directory.write("pairs.jsonl", kTwoPairs);
  directory.write("sft.jsonl", R"({"instruction":"q","input":"","output":"yes"})");
  directory.write("steps.jsonl", R"({"input":"q a#","value":["+"]})");
  directory.write("r1.jsonl", kProblems);
  for (const char* name : {"pairs", "sft", "steps"})
    preprocessed(directory / (std::string(name) + ".jsonl"), directory / name);
  preprocessed(directory / "r1.jsonl", directory / "r1", [](PreprocessSpec* spec) {
    spec->format = of_orz();
    spec->additional_keys = {"labels"};
  });
  const auto refused = [&](const char* prefix, SampleKind kind) -> std::string {
    try {
      open_or_build_samples(kind_spec(directory, directory / prefix, kind));
    } catch (const UsageError& error) {
      return std::string(error.what()) + " hint: " + error.hint();
    }
    return "";
  };
  EXPECT_THAT(refused("pairs", SampleKind::kTokens),
              testing::AllOf(HasSubstr("these samples are preference pairs, and texts or "
                                       "conversations are needed here"),
                             HasSubstr("hint: danlu rlhf --rlhf_type dpo")));
  EXPECT_THAT(refused("sft", SampleKind::kPairs), HasSubstr("hint: danlu sft"));
  EXPECT_THAT(refused("steps", SampleKind::kTokens), HasSubstr("danlu posttrain --stage prm"));
  EXPECT_THAT(refused("r1", SampleKind::kTokens), HasSubstr("danlu rlhf --rlhf_type grpo"));
}

TEST(SampleKinds, RowsOfTwoKindsDoNotFitIntoTheSameFiles) {
  const TestDirectory directory;
  directory.write("pairs.jsonl", kTwoPairs);
  directory.write("sft.jsonl", R"({"instruction":"q","input":"","output":"yes"})");
  EXPECT_THAT(error_text<UsageError>([&] {
                preprocessed(directory / "pairs.jsonl", directory / "p", [&](PreprocessSpec* spec) {
                  spec->inputs.push_back(directory / "sft.jsonl");
                });
              }),
              HasSubstr("do not fit into the same files"));
  EXPECT_THAT(error_text<UsageError>([&] {
                preprocessed(directory / "pairs.jsonl", directory / "p", [](PreprocessSpec* spec) {
                  spec->pack = PackMode::kPack;
                  spec->seq_length = 32;
                });
              }),
              HasSubstr("[pack] preference pairs are not packed in files"));
  EXPECT_THAT(error_text<UsageError>([&] {
                preprocessed(directory / "sft.jsonl", directory / "p",
                             [](PreprocessSpec* spec) { spec->additional_keys = {"labels"}; });
              }),
              HasSubstr("[dataset_additional_keys] belong to prompts"));
}

TEST(SampleKinds, DatasetInfoSaysWhatRowsAre) {
  const TestDirectory directory;
  directory.write("dataset_info.json", R"({
    "ranked": {"file_name": "r.json", "ranking": true,
               "columns": {"prompt": "ask", "chosen": "yes", "rejected": "no"}},
    "talks": {"file_name": "t.json", "ranking": true, "formatting": "sharegpt",
              "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"}},
    "judged": {"file_name": "j.json", "columns": {"prompt": "ask", "response": "say",
               "kto_tag": "good"}}})");
  directory.write("r.json", R"([{"ask":"q","yes":"yes","no":"no"}])");
  directory.write("t.json", R"([{"conversations":[{"from":"human","value":"q"}],
      "chosen":{"from":"gpt","value":"yes"},"rejected":{"from":"gpt","value":"no"}}])");
  directory.write("j.json", R"([{"ask":"q","say":"yes","good":true}])");
  const auto first = [&](const char* name, SampleKind kind) {
    SampleSpec spec = kind_spec(directory, name, kind);
    spec.dataset_info_dir = directory.path();
    return open_or_build_samples(spec).train->get(0);
  };
  EXPECT_EQ(first("ranked", SampleKind::kPairs).ids, ids_of("uqayes$uqano$"));
  EXPECT_EQ(first("talks", SampleKind::kPairs).ids, ids_of("uqayes$uqano$"));
  EXPECT_EQ(first("judged", SampleKind::kUnpaired).ids, ids_of("uqayes$uqayes$"));
  EXPECT_THAT(error_text<UsageError>([&] { first("ranked", SampleKind::kTokens); }),
              HasSubstr("the rows are preference pairs"));
}

}  // namespace
}  // namespace danlu::data
