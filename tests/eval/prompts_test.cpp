#include "eval/benchmarks/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "eval/benchmarks/benchmark.h"
#include "eval/benchmarks/rows.h"
#include "eval/shown_chat.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::eval {
namespace {

using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Task choice_task() {
  Task task;
  task.name = "t";
  task.test_split = "test";
  task.fewshot_split = "dev";
  task.subject_title = "things";
  task.description = "About {{subject_title}}.\n\n";
  task.doc_to_text = "Q: {{q}}\nA:";
  task.doc_to_choice = "choices";
  task.doc_to_target = "gold";
  return task;
}

Rows rows_of(const std::string& letter, size_t count) {
  Rows rows{.rows = {}, .origin = "t, split " + letter, .head = ""};
  for (size_t i = 0; i < count; ++i) {
    rows.rows.push_back({{"q", letter + std::to_string(i)},
                         {"choices", {"x" + std::to_string(i), "y" + std::to_string(i)}},
                         {"gold", i % 2}});
  }
  return rows;
}

PromptSettings shots(int64_t count) {
  PromptSettings settings;
  settings.num_fewshot = count;
  return settings;
}

TEST(Prompts, DescriptionShotsAndQuestionAreJoinedByTheirDelimiters) {
  const std::vector<Item> items =
      make_items(choice_task(), rows_of("a", 2), rows_of("d", 3), shots(2));
  ASSERT_EQ(items.size(), 2u);
  ASSERT_EQ(items[1].calls.size(), 2u);
  EXPECT_EQ(items[1].calls[0].context,
            "About things.\n\nQ: d0\nA: x0\n\nQ: d1\nA: y1\n\nQ: a1\nA:");
  EXPECT_EQ(items[1].calls[0].continuation, " x1");
  EXPECT_EQ(items[1].calls[1].continuation, " y1");
  EXPECT_EQ(items[1].calls[1].kind, CallKind::kLikelihood);
  EXPECT_EQ(items[1].target, 1);
  EXPECT_EQ(items[1].doc_id, 1);
  EXPECT_THAT(items[1].choices, ElementsAre("x1", "y1"));
}

// python3.11: r = random.Random(1234); [r.sample(range(9), 2) for _ in range(3)]
TEST(Prompts, RandomShotsGoOnFromQuestionToQuestion) {
  Task task = choice_task();
  task.description = "";
  task.doc_to_text = "{{q}}";
  task.target_delimiter = "=";
  task.fewshot_delimiter = ",";
  task.sampler = FewShotSampler::kRandom;
  const std::vector<Item> items = make_items(task, rows_of("a", 3), rows_of("d", 9), shots(2));
  EXPECT_EQ(items[0].calls[0].context, "d7=y7,d1=y1,a0");
  EXPECT_EQ(items[1].calls[0].context, "d0=x0,d1=y1,a1");
  EXPECT_EQ(items[2].calls[0].context, "d0=x0,d1=y1,a2");
}

// r = random.Random(1234); for i in range(9): [x for x in r.sample(range(9), 3) if x != i][:2]
TEST(Prompts, TheQuestionItselfIsNoShotOfItsOwnSplit) {
  Task task = choice_task();
  task.description = "";
  task.doc_to_text = "{{q}}";
  task.target_delimiter = "";
  task.doc_to_choice = "[\"\", \"\"]";
  task.fewshot_delimiter = ",";
  task.fewshot_split = "test";
  task.leaves_question_out = true;
  task.sampler = FewShotSampler::kRandom;
  const Rows rows = rows_of("a", 9);
  std::vector<std::string> contexts;
  for (const Item& item : make_items(task, rows, rows, shots(2)))
    contexts.push_back(item.calls[0].context);
  EXPECT_THAT(contexts, ElementsAre("a7,a1,a0", "a0,a5,a1", "a1,a8,a2", "a5,a0,a3", "a0,a8,a4",
                                    "a7,a8,a5", "a1,a2,a6", "a1,a0,a7", "a7,a3,a8"));
  task.sampler = FewShotSampler::kFirst;
  EXPECT_EQ(make_items(task, rows, rows, shots(2))[1].calls[0].context, "a0,a2,a1");
}

TEST(Prompts, ChatTemplatesGetOneMessageOrATurnForEachShot) {
  const ShownChat model;
  PromptSettings settings = shots(1);
  settings.apply_chat_template = true;
  settings.fewshot_as_multiturn = false;
  settings.system_instruction = "Be brief.";
  std::vector<Item> items =
      make_items(choice_task(), rows_of("a", 1), rows_of("d", 3), settings, &model);
  EXPECT_EQ(
      items[0].calls[0].context,
      "<s>[system|Be brief.\n\nAbout things.\n\n][user|Q: d0\nA: x0\n\nQ: a0\nA:][assistant|");
  EXPECT_EQ(items[0].calls[0].continuation, "x0");  // the delimiter goes with a chat template
  EXPECT_TRUE(items[0].calls[0].has_own_bos);
  settings.fewshot_as_multiturn = true;
  items = make_items(choice_task(), rows_of("a", 1), rows_of("d", 3), settings, &model);
  EXPECT_EQ(items[0].calls[0].context,
            "<s>[system|Be brief.\n\nAbout things.\n\n][user|Q: d0\nA:][assistant|x0]"
            "[user|Q: a0\nA:][assistant|");
}

TEST(Prompts, AnAnswersBeginStandsBehindTheQuestion) {
  Task task = choice_task();
  task.output = OutputType::kGenerateUntil;
  task.doc_to_target = "{{ choices[gold] }}";
  task.gen_prefix = "I say";
  task.description = "";
  task.repeats = 2;
  std::vector<Item> items = make_items(task, rows_of("a", 1), rows_of("d", 1), shots(1));
  ASSERT_EQ(items[0].calls.size(), 2u);
  EXPECT_EQ(items[0].calls[1].context, "Q: d0\nA: I say x0\n\nQ: a0\nA: I say");
  EXPECT_EQ(items[0].calls[1].repeat, 1);
  EXPECT_EQ(items[0].target, "x0");
  const ShownChat model;
  PromptSettings settings;
  settings.apply_chat_template = true;
  items = make_items(task, rows_of("a", 1), rows_of("d", 1), settings, &model);
  EXPECT_EQ(items[0].calls[0].context, "<s>[user|Q: a0\nA:][assistant|I say");
}

TEST(Prompts, PerplexitiesAndSingleLikelihoodsAskForTheTarget) {
  Task task = choice_task();
  task.output = OutputType::kRollingLikelihood;
  task.doc_to_target = "{{q}}!";
  Item item = make_items(task, rows_of("a", 1), {}, {})[0];
  ASSERT_EQ(item.calls.size(), 1u);
  EXPECT_EQ(item.calls[0].kind, CallKind::kRolling);
  EXPECT_EQ(item.calls[0].context, "");
  EXPECT_EQ(item.calls[0].continuation, "a0!");
  task.output = OutputType::kLogLikelihood;
  item = make_items(task, rows_of("a", 1), {}, {})[0];
  EXPECT_EQ(item.calls[0].context, "About things.\n\nQ: a0\nA:");
  EXPECT_EQ(item.calls[0].continuation, "a0!");
}

TEST(Prompts, LimitsAreCountsOrPartsRoundedUp) {
  const auto count = [](double limit) {
    PromptSettings settings;
    settings.limit = limit;
    return make_items(choice_task(), rows_of("a", 10), {}, settings).size();
  };
  EXPECT_EQ(count(3), 3u);
  EXPECT_EQ(count(0.25), 3u);
  EXPECT_EQ(count(1), 1u);
  EXPECT_EQ(count(99), 10u);
  EXPECT_EQ(error_of<UsageError>([&] { count(0); }), "--limit must be above 0, got 0");
}

TEST(Prompts, TargetsAreIndicesWordsListsOrBooleans) {
  Task task = choice_task();
  const auto target = [&](const Json& gold, const char* source = "gold") {
    task.doc_to_target = source;
    Rows rows = rows_of("a", 1);
    rows.rows[0]["gold"] = gold;
    return make_items(task, rows, {}, {})[0].target;
  };
  EXPECT_EQ(target(1), 1);
  EXPECT_EQ(target("1"), 1);
  EXPECT_EQ(target("y0"), 1);
  EXPECT_EQ(target(true), 1);
  EXPECT_EQ(target(Json::array({0, 1})), Json::array({0, 1}));
  EXPECT_EQ(target(0,
                   "[{% for c in choices %}{{ loop.index0 }}{{ '' if loop.last else ', ' }}"
                   "{% endfor %}]"),
            Json::array({0, 1}));
  EXPECT_EQ(target(Json::array()), Json::array());
  EXPECT_THAT(error_of<DataError>([&] { target("z"); }),
              HasSubstr("t, split a, row 1: doc_to_target gives \"z\", which is none of the 2"));
  EXPECT_THAT(error_of<DataError>([&] { target(2); }), HasSubstr("none of the 2 choices"));
}

TEST(Prompts, ErrorsNameRowAndField) {
  Task task = choice_task();
  Rows rows = rows_of("a", 2);
  rows.rows[1].erase("q");
  EXPECT_EQ(error_of<DataError>([&] { make_items(task, rows, {}, {}); }),
            "t, split a, row 2: t: doc_to_text:1: 'q' is undefined; the row has: choices, gold, "
            "subject, subject_title, shots_head, number, eval_language");
  EXPECT_EQ(error_of<DataError>([&] {
              make_items(task, {.rows = {}, .origin = "t, split a", .head = ""}, {}, {});
            }),
            "t, split a: there are no rows");
  EXPECT_THAT(
      error_of<DataError>([&] { make_items(task, rows_of("a", 1), rows_of("d", 3), shots(5)); }),
      HasSubstr("t: 5 shots are asked for, and the split dev has 3 rows"));
  task.fewshot_split = "";
  EXPECT_THAT(error_of<DataError>([&] { make_items(task, rows_of("a", 1), {}, shots(8)); }),
              HasSubstr("t: 8 shots are asked for, and the task has none of its own"));
  task.doc_to_choice = "q";
  EXPECT_THAT(error_of<DataError>([&] { make_items(task, rows_of("a", 1), {}, {}); }),
              HasSubstr("doc_to_choice must give a list of choices, got \"a0\""));
}

TEST(Prompts, AZeroThatATaskStatesStands) {
  Task task = choice_task();
  task.is_num_fewshot_fixed = true;
  EXPECT_EQ(num_shots_of(task, shots(5)), 0);
  task.is_num_fewshot_fixed = false;
  task.num_fewshot = 3;
  EXPECT_EQ(num_shots_of(task, shots(5)), 5);
  EXPECT_EQ(num_shots_of(task, {}), 3);
}

TEST(Rows, QuestionsAndAnswersOfATextFile) {
  const Rows rows = question_answer_rows(
      "not for training\n-----\nSort words.\n\nQ: b a\nA: Let's think step by step.\na b.\n\nSo a "
      "b.\n\nQ: d\nc\nA: c d\n",
      "x.txt");
  EXPECT_EQ(rows.head, "Sort words.");
  ASSERT_EQ(rows.rows.size(), 2u);
  EXPECT_EQ(rows.rows[0], Json({{"input", "b a"}, {"target", "a b.\n\nSo a b."}}));
  EXPECT_EQ(rows.rows[1], Json({{"input", "d\nc"}, {"target", "c d"}}));
  EXPECT_THAT(error_of<DataError>([] { question_answer_rows("nothing", "x.txt"); }),
              HasSubstr("x.txt: holds no question"));
}

TEST(Rows, FieldsAreMadeUniformAndChecked) {
  Benchmark benchmark;
  benchmark.name = "b";
  benchmark.row = {
      {"question", "text"}, {"choices", "texts"}, {"answer", "integer"}, {"note", "text?"}};
  Layout layout;
  layout.files["test"] = {"test.jsonl"};
  layout.fields = {{"question", "=Question"},
                   {"choices", "{{ [A, B] }}"},
                   {"answer", "{{ 'AB'.index(Answer) }}"},
                   {"note", "=Note"}};
  Task task;
  task.name = "t";
  task.test_split = "test";
  const test::TemporaryDirectory dir;
  const fs::path file = dir / "test.jsonl";
  const Json raw = {{"Question", "q"}, {"A", "1"}, {"B", "2"}, {"Answer", "B"}};
  const auto rows = [&](const Json& last) {
    write_file_atomic(file, raw.dump() + "\n\n" + last.dump() + "\n");
    return read_rows(benchmark, task, layout, DataTree::from(dir.path()), 0).test.rows;
  };
  EXPECT_THAT(rows(raw),
              ElementsAre(Json({{"answer", 1}, {"choices", {"1", "2"}}, {"question", "q"}}),
                          Json({{"answer", 1}, {"choices", {"1", "2"}}, {"question", "q"}})));
  const auto error = [&](const char* field, const Json& value) {
    Json broken = raw;
    if (value.is_null()) {
      broken.erase(field);
    } else {
      broken[field] = value;
    }
    return error_of<DataError>([&] { rows(broken); });
  };
  // The line of the file, blank ones too, and the field as the file calls it.
  const std::string here = file.string() + ":3: ";
  EXPECT_EQ(error("Question", nullptr),
            here + "the field 'Question' is missing; the row has: A, B, Answer");
  EXPECT_EQ(error("Question", 5), here + "the field 'Question' must be text, got 5");
  EXPECT_EQ(error("A", 5),
            here + "the field 'choices = {{ [A, B] }}' must be texts, got [5,\"2\"]");
  EXPECT_THAT(error("Answer", "C"), HasSubstr(here + "b: answer:1: "));
  EXPECT_THAT(error("Answer", nullptr),
              HasSubstr("'answer' is made of the file's fields by {{ 'AB'"));
}

TEST(Rows, ErrorsNameTheLineOfACsvAndTheFileOfSeveral) {
  Benchmark benchmark;
  benchmark.row = {{"q", "text"}, {"n", "integer"}};
  Layout layout;
  layout.files["test"] = {"*.csv"};
  layout.fields = {{"q", "=q"}, {"n", "{{ n | int(7) }}"}};
  Task task;
  task.test_split = "test";
  const test::TemporaryDirectory dir;
  write_file_atomic(dir / "a.csv", "q,n\n\"two\nlines\",1\nb,2\n");
  write_file_atomic(dir / "b.csv", "q,m\n\"two\nlines\",1\nb,2\n");
  EXPECT_THAT(error_of<DataError>(
                  [&] { read_rows(benchmark, task, layout, DataTree::from(dir.path()), 0); }),
              HasSubstr((dir / "b.csv").string() + ":2: "));
}

TEST(Prompts, PicturesStandWhereTheQuestionSaysOrBeforeIt) {
  Task task = choice_task();
  task.description = "";
  task.image_fields = {"picture"};
  Rows rows = rows_of("a", 2);
  rows.rows[0]["picture"] = "a.png";
  rows.rows[1]["picture"] = {"b.png", "c.png"};
  const std::vector<Item> items = make_items(task, rows, {}, shots(0));
  EXPECT_EQ(items[0].calls[0].context, "<image>Q: a0\nA:");
  EXPECT_THAT(items[0].calls[1].images, ElementsAre("a.png"));
  EXPECT_EQ(items[1].calls[0].context, "<image><image>Q: a1\nA:");
  EXPECT_THAT(items[1].calls[0].images, ElementsAre("b.png", "c.png"));
  task.doc_to_text = "Q: {{q}} <image>\nA:";
  EXPECT_EQ(make_items(task, rows, {}, shots(0))[0].calls[0].context, "Q: a0 <image>\nA:");
  EXPECT_THAT(error_of([&] { make_items(task, rows, rows_of("d", 3), shots(1)); }),
              HasSubstr("questions with pictures have no shots"));
  rows.rows[0].erase("picture");
  EXPECT_THAT(error_of([&] { make_items(task, rows, {}, shots(0)); }),
              HasSubstr("'picture' must name the file of a picture, got null"));
}

}  // namespace
}  // namespace danlu::eval
