// tests/eval/evaluation.h: a small finished evaluation, and the files of one.
#pragma once
#include <fstream>
#include <string>
#include <vector>

#include "eval/results/results.h"
#include "eval/results/samples.h"

namespace danlu::eval::test_run {

inline Task leaf(const std::string& name, const std::string& alias) {
  Task task;
  task.name = name;
  task.alias = alias;
  task.style = "lm-eval";
  task.num_fewshot = 5;
  task.metrics = {{.name = "acc"}};
  return task;
}

inline TaskResult scored(const Task& task, const std::vector<double>& verdicts) {
  std::vector<std::vector<ItemScore>> scores;
  for (const double verdict : verdicts) {
    scores.emplace_back();
    for (const Filter& filter : task.filters) {
      scores.back().push_back({.filter = filter.name});
      for (const Metric& metric : task.metrics) scores.back().back().values[metric.name] = verdict;
    }
  }
  return aggregate(task, scores);
}

/// mmlu = stem (algebra, physics) and law.
inline Evaluation small() {
  Evaluation all;
  all.run.time_id = "2026-11-25T13-35-15.123456";
  all.run.model_name = "qwen/tiny";
  all.run.style = "lm-eval";
  all.run.version = "0.1.0";
  all.run.config = {{"model", "hf"}, {"model_args", "pretrained=qwen/tiny"}, {"limit", nullptr}};
  all.run.duration_s = 1.5;
  all.tasks = {leaf("mmlu_algebra", "algebra"), leaf("mmlu_physics", "物理"),
               leaf("mmlu_law", "law")};
  all.results = {scored(all.tasks[0], {1, 0, 1, 1, 0, 1, 0, 1}), scored(all.tasks[1], {1, 1, 1, 0}),
                 scored(all.tasks[2], {0, 0, 1})};
  all.groups = {
      {.name = "mmlu", .alias = "", .members = {"mmlu_stem", "mmlu_law"}, .metrics = {"acc"}},
      {.name = "mmlu_stem",
       .alias = "stem",
       .members = {"mmlu_algebra", "mmlu_physics"},
       .metrics = {"acc"}}};
  const TaskResult stem = aggregate_group(all.groups[1], {all.results[0], all.results[1]});
  all.group_results = {aggregate_group(all.groups[0], {stem, all.results[2]}), stem};
  return all;
}

inline Item choice_item(int64_t id, int64_t target) {
  Item item;
  item.doc_id = id;
  item.doc = {{"question", "q" + std::to_string(id)}, {"choices", {"a", "b"}}, {"answer", target}};
  item.target = target;
  item.choices = {"a", "b"};
  for (const std::string& choice : item.choices)
    item.calls.push_back({.context = "q" + std::to_string(id) + "\nAnswer:",
                          .continuation = " " + choice,
                          .rules = {}});
  return item;
}

/// The run of one task of two choices in which the first is right, `verdicts` saying which items
/// are answered so. `change` may alter results_….json, `shots` what stands before each question.
inline fs::path write_run(const fs::path& directory, const std::vector<double>& verdicts,
                          const std::string& time_id = "2026-01-02T03-04-05.000006",
                          const std::string& task_name = "boolq", const std::string& shots = "") {
  Evaluation all;
  all.run.time_id = time_id;
  all.run.style = "lm-eval";
  all.run.model_name = directory.filename().string();
  all.tasks = {leaf(task_name, task_name)};
  all.results = {scored(all.tasks[0], verdicts)};
  fs::create_directories(directory);
  SamplesFile file(directory, task_name, time_id);
  for (size_t i = 0; i < verdicts.size(); ++i) {
    Item item = choice_item(static_cast<int64_t>(i), 0);
    for (Call& call : item.calls) call.context = shots + call.context;
    const std::vector<Answer> answers = {{.log_likelihood = verdicts[i] > 0 ? -1.0 : -2.0},
                                         {.log_likelihood = -1.5}};
    file.add(
        sample_record(all.tasks[0], item, answers, score_item(all.tasks[0], item, answers).at(0)));
  }
  file.commit();
  return write_results(directory, all);
}

}  // namespace danlu::eval::test_run
