// The files of an evaluation, in the harness's form, and its table.
#include "eval/results/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "eval/results/samples.h"
#include "eval/results/sha256.h"
#include "eval/results/wide_text.h"
#include "eval/scoring/python_str.h"
#include "evaluation.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::eval {
namespace results_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// hashlib.sha256 of Python.
TEST(Results, HashesAreThoseOfPython) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1000, 'a')),
            "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
  const std::pair<size_t, const char*> beginnings[] = {
      {55, "d5e28568"}, {56, "04c26261"},  {63, "75220b47"}, {64, "7ce10097"},
      {65, "9537c5fd"}, {119, "000b48d4"}, {120, "13f05a0b"}};
  for (const auto& [size, beginning] : beginnings)
    EXPECT_EQ(sha256_hex(std::string(size, 'x')).substr(0, 8), beginning) << size;
  Sha256 pieces;
  for (int i = 0; i < 100; ++i) pieces.add("aaaaaaaaaa");
  EXPECT_EQ(pieces.hex(), sha256_hex(std::string(1000, 'a')));
}

TEST(Results, ValuesPrintAsPythons) {
  EXPECT_EQ(python_str({0, 2}), "[0, 2]");
  EXPECT_EQ(python_str(Json::array({"a'b", 1.0, nullptr, true})), R"(["a'b", 1.0, None, True])");
  EXPECT_EQ(python_str("as it is"), "as it is");
  EXPECT_EQ(python_str(-1.5), "-1.5");
}

// Hashes: hashlib.sha256 of json.dumps(doc, indent=2, ensure_ascii=False), of the context, of "1".
TEST(Results, ASampleHasTheHarnessesFieldsAndHashes) {
  Item item;
  item.doc_id = 3;
  item.doc = {{"question", "红色?"}, {"choices", {"a", "b"}}, {"answer", 1},
              {"score", 1.0},        {"x", nullptr},          {"t", "a\"\n\x7f\x01"}};
  item.target = 1;
  item.choices = {"a", "b"};
  for (const char* choice : {" a", " b"})
    item.calls.push_back({.context = "Q: 红色?\nA:", .continuation = choice, .rules = {}});
  const std::vector<Answer> answers = {{.log_likelihood = -1.5, .is_greedy = true},
                                       {.log_likelihood = -2, .num_cut_tokens = 9}};
  Task task = test_run::leaf("colours", "");
  const Json record = sample_record(task, item, answers, score_item(task, item, answers).at(0));
  std::vector<std::string> keys;
  for (const auto& [key, value] : record.items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("doc_id", "doc", "target", "arguments", "resps", "filtered_resps",
                                "filter", "metrics", "doc_hash", "prompt_hash", "target_hash",
                                "acc", "near_tie", "cut_tokens"));
  EXPECT_EQ(record["target"], "1");
  EXPECT_EQ(record["arguments"]["gen_args_1"], (Json{{"arg_0", "Q: 红色?\nA:"}, {"arg_1", " b"}}));
  EXPECT_EQ(record["resps"].dump(), R"([[["-1.5","True"]],[["-2.0","False"]]])");
  EXPECT_EQ(record["filtered_resps"].dump(), R"([["-1.5","True"],["-2.0","False"]])");
  EXPECT_EQ(record["metrics"].dump(), R"(["acc"])");
  EXPECT_EQ(record["doc_hash"], "fd50cd7cc48632049aa6809dfe14389fa5ce95b33f6aa5eb2573e0e0f9fb28b6");
  EXPECT_EQ(record["prompt_hash"],
            "b5a189e68ac1d47c902fb5400b0670ae3cf546cc6688c77990a2286c8f91b9c4");
  EXPECT_EQ(record["target_hash"],
            "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b");
  EXPECT_EQ(record["acc"], 0.0);
  EXPECT_EQ(record["cut_tokens"], 9);
  // The harness joins the three hashes of each sample; so does hashlib over "" , "a", "b".
  TaskHash hash;
  hash.add({{"doc_hash", sha256_hex("")},
            {"prompt_hash", sha256_hex("a")},
            {"target_hash", sha256_hex("b")}});
  EXPECT_EQ(hash.hex(), "d3a7add3a772731085c4ea8d3f630bfb9e086bf88ae3171f47c8616a54556a38");
}

TEST(Results, DrawsOfAContextAreOneRequestWithSeveralAnswers) {
  Task task = test_run::leaf("sums", "");
  task.output = OutputType::kGenerateUntil;
  task.metrics = {{.name = "exact_match"}};
  Item item;
  item.target = "4";
  for (int64_t repeat : {0, 1}) {
    item.calls.push_back({.kind = CallKind::kGeneration,
                          .context = "2+2=",
                          .continuation = "",
                          .rules = {.until = {"\n"}},
                          .repeat = repeat});
  }
  const std::vector<Answer> answers = {{.text = "4"}, {.text = "5"}};
  const Json record = sample_record(task, item, answers, score_item(task, item, answers).at(0));
  EXPECT_EQ(record["resps"].dump(), R"([["4","5"]])");
  EXPECT_EQ(record["filtered_resps"].dump(), R"(["4"])");
  EXPECT_EQ(record["arguments"].dump(),
            R"({"gen_args_0":{"arg_0":"2+2=","arg_1":{"until":["\n"],"max_gen_toks":256,)"
            R"("do_sample":false,"temperature":0.0}}})");
  EXPECT_EQ(record["exact_match"], 1.0);
}

// Values as in aggregation_test.cpp; the layout is the harness's (pytablewriter's Markdown).
TEST(Results, TheTableIndentsMembersAndAlignsWideCharacters) {
  EXPECT_EQ(results_table(test_run::small()),
            "|   Tasks   |Version|Filter|n-shot|Metric|   |Value |   |Stderr|\n"
            "|-----------|------:|------|-----:|------|---|-----:|---|-----:|\n"
            "|mmlu       |       |none  |      |acc   |↑  |0.6000|±  |0.1352|\n"
            "| - stem    |       |none  |      |acc   |↑  |0.6667|±  |0.1479|\n"
            "|  - algebra|      1|none  |     5|acc   |↑  |0.6250|±  |0.1830|\n"
            "|  - 物理   |      1|none  |     5|acc   |↑  |0.7500|±  |0.2500|\n"
            "| - law     |      1|none  |     5|acc   |↑  |0.3333|±  |0.3333|\n"
            "\n"
            "|Groups |Version|Filter|n-shot|Metric|   |Value |   |Stderr|\n"
            "|-------|------:|------|-----:|------|---|-----:|---|-----:|\n"
            "|mmlu   |       |none  |      |acc   |↑  |0.6000|±  |0.1352|\n"
            "| - stem|       |none  |      |acc   |↑  |0.6667|±  |0.1479|\n");
}

TEST(Results, MetricsOfATaskAreSortedAndAnErrorThatIsNoneSaysSo) {
  Evaluation all;
  all.tasks = {test_run::leaf("gsm8k", "")};
  all.tasks[0].version = "3.0";
  all.tasks[0].metrics = {{.name = "exact_match", .higher_is_better = false}};
  all.tasks[0].filters = {{"strict-match", {}}, {"flexible-extract", {}}};
  all.results = {test_run::scored(all.tasks[0], {1})};
  EXPECT_EQ(results_table(all),
            "|Tasks|Version|     Filter     |n-shot|  Metric   |   |Value |   |Stderr|\n"
            "|-----|------:|----------------|-----:|-----------|---|-----:|---|-----:|\n"
            "|gsm8k|    3.0|flexible-extract|     5|exact_match|↓  |1.0000|±  |   N/A|\n"
            "|     |       |strict-match    |     5|exact_match|↓  |1.0000|±  |   N/A|\n");
}

TEST(Results, TheFileSaysWhatTheHarnesssSays) {
  test::TemporaryDirectory directory;
  Evaluation all = test_run::small();
  all.results[0].num_original = 100;
  all.results[0].num_near_ties = 2;
  all.results[0].hash = "abc";
  all.tasks[2].differences = {"the shots are the first of the dev split"};
  const fs::path path = write_results(directory / "new", all);
  EXPECT_EQ(path.filename(), "results_2026-11-25T13-35-15.123456.json");
  const Json json = read_json_file(path);
  EXPECT_EQ(json["results"]["mmlu_algebra"].dump(),
            R"({"alias":"  - algebra","acc,none":0.625,"acc_stderr,none":0.18298126367784995})");
  EXPECT_EQ(json["groups"]["mmlu"], json["results"]["mmlu"]);
  EXPECT_EQ(json["group_subtasks"]["mmlu"].dump(), R"(["mmlu_stem","mmlu_law"])");
  EXPECT_EQ(json["n-samples"]["mmlu_algebra"].dump(), R"({"original":100,"effective":8})");
  EXPECT_EQ(json["versions"]["mmlu_law"], 1);
  EXPECT_EQ(json["n-shot"]["mmlu_law"], 5);
  EXPECT_EQ(json["higher_is_better"]["mmlu_law"]["acc"], true);
  EXPECT_EQ(json["config"]["model_args"], "pretrained=qwen/tiny");
  EXPECT_EQ(json["task_hashes"].dump(), R"({"mmlu_algebra":"abc"})");
  EXPECT_EQ(json["configs"]["mmlu_law"]["metric_list"][0]["aggregation"], "mean");
  EXPECT_EQ(json["style"], "lm-eval");
  EXPECT_EQ(json["near_ties"]["mmlu_algebra"], 2);
  EXPECT_EQ(json["differences"]["mmlu_law"][0], "the shots are the first of the dev split");
  EXPECT_EQ(json["group_weighting"]["mmlu"], "size");
  EXPECT_EQ(json["total_evaluation_time_seconds"], "1.5");
}

TEST(Results, AFullDiskIsAnErrorAndLeavesWhatWasThere) {
  test::TemporaryDirectory directory;
  Evaluation all = test_run::small();
  const fs::path path = write_results(directory, all);
  const std::string before = read_file(path);
  const int code = test::with_file_size_limit(1000, [&] {
    try {
      all.run.model_name = "another";
      write_results(directory, all);
    } catch (const IoError&) {
      return 8;
    }
    return 0;
  });
  EXPECT_EQ(code, 8);
  EXPECT_EQ(read_file(path), before);
  // Samples have no name before they are whole.
  const int samples = test::with_file_size_limit(1000, [&] {
    try {
      SamplesFile file(directory, "boolq", "t");
      for (int i = 0; i < 100; ++i) file.add({{"doc", std::string(100, 'x')}});
      file.commit();
    } catch (const IoError&) {
      return 8;
    }
    return 0;
  });
  EXPECT_EQ(samples, 8);
  EXPECT_FALSE(fs::exists(directory / samples_file_name("boolq", "t")));
}

TEST(Results, WidthsAreThoseOfATerminal) {
  EXPECT_EQ(display_width("物理 ab"), 7u);
  EXPECT_EQ(display_width("e\u0301"), 1u);
  EXPECT_EQ(cut_to_width("物理学", 6), "物理学");
  EXPECT_EQ(cut_to_width("物理学习", 6), "物理…");
  EXPECT_EQ(cut_to_width("abcdef", 4), "abc…");
}

TEST(Results, TimesInNamesSortByAge) {
  const auto at = [](int64_t micros) {
    return make_time_id(std::chrono::system_clock::time_point(std::chrono::microseconds(micros)));
  };
  EXPECT_THAT(at(1'700'000'000'000'042), HasSubstr("2023-11-"));
  EXPECT_THAT(at(1'700'000'000'000'042), ::testing::EndsWith(".000042"));
  EXPECT_LT(at(1'700'000'000'999'999), at(1'700'000'001'000'000));
}

}  // namespace results_test
}  // namespace danlu::eval
