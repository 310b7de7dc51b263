#include "eval/benchmarks/benchmark.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/yaml.h"
#include "eval/benchmarks/prompts.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::eval {
namespace {

using test::error_of;
using test::TemporaryDirectory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kOwnTask = R"(
task: colours
dataset_path: me/colours
test_split: test
training_split: train
output_type: multiple_choice
doc_to_text: "What is {{thing}}?"
doc_to_choice: [red, green]
doc_to_target: colour
fewshot_config: {sampler: first_n}
metadata: {version: 2}
)";

Benchmark parsed(const std::string& text) {
  return parse_benchmark(parse_yaml(text, "own.yaml", python_in_yaml_hint()), "own.yaml");
}

std::string parse_error(const std::string& text) {
  return error_of<UsageError>([&] { parsed(text); });
}

TEST(Benchmark, AFileAsOtherHarnessesHaveItNeedsNothingMore) {
  const Benchmark benchmark = parsed(kOwnTask);
  EXPECT_EQ(benchmark.where_from, "danlu download me/colours --repo-type dataset");
  ASSERT_EQ(benchmark.layouts.size(), 1u);
  EXPECT_THAT(benchmark.layouts[0].files.at("train"),
              ::testing::IsSupersetOf({"data/train-*.parquet", "train.jsonl"}));
  const std::vector<Task> tasks = leaves(benchmark, "whatever");
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].name, "colours");
  EXPECT_EQ(tasks[0].fewshot_split, "train");
  EXPECT_FALSE(tasks[0].leaves_question_out);
  EXPECT_EQ(tasks[0].version, 2);
  ASSERT_EQ(tasks[0].metrics.size(), 2u);
  EXPECT_EQ(tasks[0].metrics[1].name, "acc_norm");
}

TEST(Benchmark, GenerationRulesFiltersAndMetricsAreRead) {
  const Task task = leaves(parsed(R"(
task: sums
test_split: test
doc_to_text: "{{q}}"
doc_to_target: "{{a}}"
num_fewshot: 0
repeats: 3
generation_kwargs: {until: "\n", max_gen_toks: 7, do_sample: true, temperature: 0.5, top_k: 4}
filter_list:
  - name: last
    filter: [{function: regex, regex_pattern: '(\d+)', group_select: -1}, {function: take_first}]
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true}
)"),
                           "lm-eval")[0];
  EXPECT_EQ(task.output, OutputType::kGenerateUntil);
  EXPECT_TRUE(task.is_num_fewshot_fixed);
  EXPECT_TRUE(task.leaves_question_out);
  EXPECT_EQ(task.repeats, 3);
  EXPECT_THAT(task.generation.until, ElementsAre("\n"));
  EXPECT_EQ(task.generation.max_tokens, 7);
  EXPECT_TRUE(task.generation.do_sample);
  EXPECT_EQ(task.generation.temperature, 0.5);
  EXPECT_EQ(task.generation.top_k, 4);
  EXPECT_EQ(task.filters[0].steps[0].arguments,
            Json({{"regex_pattern", "(\\d+)"}, {"group_select", -1}}));
  EXPECT_EQ(task.metrics[0].arguments, Json({{"ignore_case", true}}));
}

TEST(Benchmark, ErrorsNameTheKeyAndTheNearest) {
  const std::string own = kOwnTask;
  EXPECT_EQ(parse_error(own + "doc_to_txt: x\n"),
            "own.yaml: the key 'doc_to_txt' is not known | did you mean 'doc_to_text'?");
  EXPECT_EQ(parse_error(own + "num_fewshot: five\n"),
            "own.yaml: 'num_fewshot' must be a whole number, got \"five\"");
  EXPECT_THAT(parse_error(own + "process_docs: !function utils.f\n"),
              HasSubstr("own.yaml:12: the tag !function is not known | Python code"));
  EXPECT_THAT(parse_error(own + "process_results: utils.f\n"),
              HasSubstr("own.yaml: 'process_results' asks for Python code"));
  EXPECT_THAT(parse_error(own + "metric_list: [{metric: acuracy}]\n"),
              HasSubstr("own.yaml: metric_list: there is no metric 'acuracy'"));
  EXPECT_EQ(parse_error(own + "filter_list: [{name: f, filter: [{function: regexp}]}]\n"),
            "own.yaml: filter_list: f: there is no filter 'regexp' | did you mean 'regex'?");
  EXPECT_EQ(parse_error(own + "chat_frame: turn\n"),
            "own.yaml: there is no chat_frame 'turn' | did you mean 'turns'?");
  EXPECT_EQ(parse_error(own + "generation_kwargs: {max_gen_tok: 3}\n"),
            "own.yaml: generation_kwargs: the key 'max_gen_tok' is not known | did you mean "
            "'max_gen_toks'?");
  EXPECT_THAT(parse_error(own + "description: '{{ x '\n"), HasSubstr("own.yaml: description:1:"));
  EXPECT_THAT(parse_error("task: x\n"), HasSubstr("own.yaml: 'doc_to_target' must be"));
  EXPECT_THAT(parse_error("- a\n"), HasSubstr("own.yaml: expected `name: value` lines"));
  EXPECT_EQ(parse_error(own + "subjects: [a, b]\ngroups: {g: {subjects: [a, c]}}\n"),
            "own.yaml: groups: g: there is no subject 'c' | did you mean 'a'?");
}

TEST(Benchmark, StylesAndKindsAreLaidOverWhatTheFileSays) {
  const Benchmark benchmark = parsed(R"(
benchmark: b
test_split: test
doc_to_target: t
metric_list: [{metric: exact_match}]
subjects: {one-x: {kind: k}, two: {title: The Second, kind: l}}
groups: {b: {subjects: all}}
styles:
  p:
    doc_to_text: "{{q}}"
    weight_by_size: false
    kinds: {k: {doc_to_text: "{{q}}k"}, l: {}}
  q: p
)");
  const std::vector<Task> tasks = leaves(benchmark, "q");
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].name, "b_one_x");
  EXPECT_EQ(tasks[0].subject, "one-x");
  EXPECT_EQ(tasks[0].doc_to_text, "{{q}}k");
  EXPECT_EQ(tasks[1].doc_to_text, "{{q}}");
  EXPECT_EQ(tasks[1].subject_title, "The Second");
  const std::vector<Group> all = groups(benchmark, "p");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_THAT(all[0].members, ElementsAre("b_one_x", "b_two"));
  EXPECT_FALSE(all[0].weight_by_size);
  EXPECT_THAT(all[0].metrics, ElementsAre("exact_match"));
  EXPECT_EQ(error_of<UsageError>([&] { leaves(benchmark, "r"); }),
            "[--style] b has no style 'r' | it has: p, q");
}

size_t count_of(const std::string& name, const std::string& style = "lm-eval") {
  static const Catalogue kCatalogue = Catalogue::built_in();
  return kCatalogue.select({name}, style).leaves.size();
}

TEST(Catalogue, NeedleBenchsLeavesAreChosenAsOthersAre) {
  EXPECT_EQ(count_of("needlebench"), 12u);
  EXPECT_EQ(count_of("needlebench_4k"), 3u);
  EXPECT_EQ(count_of("needlebench_32k_m_rs", "mindspeed"), 1u);
}

TEST(Catalogue, KnowsTheNamesOfOtherHarnesses) {
  for (const auto& [name, count] :
       std::vector<std::pair<std::string, size_t>>{{"mmlu", 57},
                                                   {"mmlu_stem", 19},
                                                   {"mmlu_humanities", 13},
                                                   {"mmlu_other", 13},
                                                   {"mmlu_social_sciences", 12},
                                                   {"mmlu_abstract_algebra", 1},
                                                   {"cmmlu", 67},
                                                   {"cmmlu_agronomy", 1},
                                                   {"ceval", 52},
                                                   {"ceval-valid", 52},
                                                   {"ceval-valid_law", 1},
                                                   {"ceval-valid_hard", 8},
                                                   {"agieval", 21},
                                                   {"agieval_en", 10},
                                                   {"agieval_cn", 11},
                                                   {"agieval_nous", 8},
                                                   {"agieval_lsat_ar", 1},
                                                   {"bbh", 27},
                                                   {"bbh_cot_fewshot", 27},
                                                   {"bbh_cot_fewshot_navigate", 1},
                                                   {"bbh_fewshot", 27},
                                                   {"boolq", 1},
                                                   {"humaneval", 1},
                                                   {"human_eval", 1},
                                                   {"humaneval_instruct", 1},
                                                   {"gsm8k", 1},
                                                   {"gsm8k_cot", 1},
                                                   {"hellaswag", 1},
                                                   {"mmlu_ppl", 57},
                                                   {"gsm8k*", 2},
                                                   {"cmmlu_*history", 2}}) {
    EXPECT_EQ(count_of(name), count) << name;
  }
}

TEST(Catalogue, EveryBenchmarkHasItsStyles) {
  for (const char* style : {"lm-eval", "mindspeed", "mindspeed-chat", "opencompass"}) {
    for (const char* name :
         {"mmlu", "cmmlu", "ceval", "agieval", "bbh", "boolq", "humaneval", "gsm8k", "hellaswag"}) {
      EXPECT_GT(count_of(name, style), 0u) << name << " " << style;
    }
  }
}

TEST(Catalogue, GroupsStandBehindTheirMembers) {
  const Selection chosen = Catalogue::built_in().select({"mmlu", "boolq", "mmlu"}, "lm-eval");
  EXPECT_EQ(chosen.leaves.size(), 58u);
  ASSERT_EQ(chosen.groups.size(), 5u);
  EXPECT_EQ(chosen.groups.back().name, "mmlu");
  EXPECT_EQ(chosen.groups.front().alias, "humanities");
  EXPECT_TRUE(chosen.groups.back().weight_by_size);
}

TEST(Catalogue, UnknownNamesAreAnsweredWithTheNearest) {
  const Catalogue catalogue = Catalogue::built_in();
  EXPECT_EQ(error_of<UsageError>([&] { catalogue.select({"hellaswg"}, "lm-eval"); }),
            "there is no task 'hellaswg' | did you mean 'hellaswag'?");
  EXPECT_THAT(error_of<UsageError>([&] { catalogue.select({"zzzzz*"}, "lm-eval"); }),
              HasSubstr("there is no task 'zzzzz*'"));
  for (const auto& [name, meant] : std::vector<std::pair<std::string, std::string>>{
           {"C-Eval", "'ceval'"},
           {"HumanEval", "'humaneval', 'human_eval'"},
           {"hella_swag", "'hellaswag'"},
           {"mmlu_anatomi", "'mmlu_anatomy'"},
           {"bbh_boolean_expressions",
            "'bbh_fewshot_boolean_expressions', 'bbh_cot_fewshot_boolean_expressions'"},
           {"ceval_law", "'ceval-valid_law'"},
           {"agieval_aqua", "'agieval_aqua_rat'"},
           {"needle", "'needlebench', 'needlebench_4k', 'needlebench_8k'"},
           {"mmlu_flan_n_shot_generative", "'mmlu'"}}) {
    EXPECT_EQ(error_of<UsageError>([&] { catalogue.select({name}, "lm-eval"); }),
              "there is no task '" + name + "' | did you mean " + meant + "?");
  }
  EXPECT_THAT(error_of<UsageError>([&] { catalogue.select({"arc_easy"}, "lm-eval"); }),
              HasSubstr("--tasks list"));
}

TEST(Catalogue, AStyleThatABenchmarkHasNotNamesTheFlag) {
  Catalogue catalogue;
  catalogue.add(parse_benchmark(
      parse_yaml("benchmark: b\ntest_split: test\ndoc_to_text: t\ndoc_to_target: t\n"
                 "styles: {p: {}, q: p}\n",
                 "b.yaml"),
      "b.yaml"));
  EXPECT_EQ(error_of<UsageError>([&] { catalogue.select({"b"}, "r", "--other-prompt"); }),
            "[--other-prompt] b has no style 'r' | it has: p, q");
}

TEST(Catalogue, ABrokenFileOfADirectoryIsPassedOverUnlessItIsAskedFor) {
  const TemporaryDirectory dir;
  write_file_atomic(dir / "a.yaml", kOwnTask);
  write_file_atomic(dir / "bad.yaml", "task: hues\ndoc_to_text: !function utils.text\n");
  write_file_atomic(dir / "g.yaml", "group: looks\ntask: [colours, hues]\n");
  write_file_atomic(dir / "none.yaml", "task: [\n");
  Catalogue catalogue = Catalogue::built_in();
  ::testing::internal::CaptureStderr();
  catalogue.include(dir.path());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("a task file is passed over: " + (dir / "bad.yaml").string() + ":2"),
                    HasSubstr("a task file is passed over: " + (dir / "none.yaml").string())));
  EXPECT_EQ(catalogue.select({"colours"}, "lm-eval").leaves.size(), 1u);
  for (const char* name : {"hues", "looks", "bad"}) {
    EXPECT_THAT(error_of<UsageError>([&] { catalogue.select({name}, "lm-eval"); }),
                HasSubstr("bad.yaml:2"))
        << name;
  }
  EXPECT_THAT(error_of<UsageError>([&] { catalogue.select({"hue"}, "lm-eval"); }),
              HasSubstr("there is no task 'hue'"));
  EXPECT_THAT(error_of<UsageError>([&] { catalogue.include(dir / "bad.yaml"); }),
              HasSubstr("bad.yaml:2"));
}

TEST(Catalogue, UsersFilesAreAddedAndMayIncludeOneAnother) {
  const TemporaryDirectory dir;
  write_file_atomic(dir / "a.yaml", kOwnTask);
  write_file_atomic(dir / "b.yaml", "include: a.yaml\ntask: hues\ndoc_to_choice: [pale, dark]\n");
  write_file_atomic(dir / "g.yaml", "group: looks\ntask: [colours, hues, boolq]\n");
  Catalogue catalogue = Catalogue::built_in();
  catalogue.include(dir.path());
  const Selection chosen = catalogue.select({"looks"}, "mindspeed");
  ASSERT_EQ(chosen.leaves.size(), 3u);
  EXPECT_EQ(chosen.leaves[1].name, "hues");
  EXPECT_EQ(chosen.leaves[1].doc_to_choice, "[\"pale\",\"dark\"]");
  EXPECT_EQ(chosen.groups.at(0).name, "looks");
  EXPECT_THAT(error_of<UsageError>([&] { catalogue.include(dir / "a.yaml"); }),
              HasSubstr("the task 'colours' is defined twice: in "));
  write_file_atomic(dir / "c.yaml", "include: c.yaml\n");
  EXPECT_THAT(error_of<UsageError>([&] { catalogue.include(dir / "c.yaml"); }),
              HasSubstr("more than 16 files include one another"));
  write_file_atomic(dir / "d.yaml", "group: d\ntask: [nobody]\n");
  catalogue.include(dir / "d.yaml");
  EXPECT_THAT(error_of<UsageError>([&] { catalogue.select({"d"}, "lm-eval"); }),
              HasSubstr("the group d names 'nobody', which there is not"));
}

// As lm-eval's own files have them: a metric without a list, the groups' key on a task's metric.
TEST(Catalogue, ForeignFilesMayWriteThemInOtherWays) {
  const TemporaryDirectory dir;
  write_file_atomic(dir / "g.yaml",
                    "group: looks\ntask: [boolq]\naggregate_metric_list:\n  metric: acc\n"
                    "  weight_by_size: false\n");
  write_file_atomic(dir / "a.yaml",
                    std::string(kOwnTask) +
                        "metric_list: [{metric: acc, aggregation: mean, weight_by_size: true}]\n");
  Catalogue catalogue = Catalogue::built_in();
  catalogue.include(dir.path());
  const Selection chosen = catalogue.select({"looks", "colours"}, "lm-eval");
  EXPECT_EQ(chosen.groups.at(0).metrics, std::vector<std::string>{"acc"});
  EXPECT_FALSE(chosen.groups.at(0).weight_by_size);
  const Task& own = chosen.leaves.at(1);
  ASSERT_EQ(own.metrics.size(), 1u);
  EXPECT_TRUE(own.metrics[0].arguments.empty()) << own.metrics[0].arguments;
}

/// All texts of a style that a user of its numbers must know.
TEST(Catalogue, DifferencesFromAProgramAreSaid) {
  const Catalogue catalogue = Catalogue::built_in();
  for (const char* name : {"mmlu", "cmmlu", "ceval", "agieval", "bbh", "gsm8k", "humaneval"}) {
    const std::vector<Task> tasks = catalogue.select({name}, "mindspeed").leaves;
    EXPECT_FALSE(tasks.front().differences.empty()) << name;
    EXPECT_TRUE(catalogue.select({name}, "lm-eval").leaves.front().differences.empty()) << name;
  }
}

}  // namespace
}  // namespace danlu::eval
