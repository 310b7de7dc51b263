#include "eval/results/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "eval/results/results_tree.h"
#include "eval/results/sha256.h"
#include "eval/scoring/aggregation.h"

namespace danlu::eval {
namespace {

std::string output_name(OutputType output) {
  switch (output) {
    case OutputType::kMultipleChoice:
      return "multiple_choice";
    case OutputType::kGenerateUntil:
      return "generate_until";
    case OutputType::kLogLikelihood:
      return "loglikelihood";
    case OutputType::kRollingLikelihood:
      break;
  }
  return "loglikelihood_rolling";
}

Json filters_json(const std::vector<Filter>& filters) {
  Json list = Json::array();
  for (const Filter& filter : filters) {
    Json steps = Json::array();
    for (const FilterStep& step : filter.steps) {
      Json of_step = {{"function", step.function}};
      of_step.update(step.arguments);
      steps.push_back(of_step);
    }
    list.push_back({{"name", filter.name}, {"filter", steps}});
  }
  return list;
}

Json metrics_json(const std::vector<Metric>& metrics) {
  Json list = Json::array();
  for (const Metric& metric : metrics) {
    Json of_metric = {{"metric", metric.name},
                      {"aggregation", aggregation_of(metric)},
                      {"higher_is_better", metric.higher_is_better}};
    of_metric.update(metric.arguments);
    list.push_back(of_metric);
  }
  return list;
}

Json config_json(const Task& task) {
  Json config = {{"task", task.name},
                 {"task_alias", task.alias},
                 {"test_split", task.test_split},
                 {"fewshot_split", task.fewshot_split},
                 {"description", task.description},
                 {"doc_to_text", task.doc_to_text},
                 {"doc_to_target", task.doc_to_target},
                 {"doc_to_choice", task.doc_to_choice},
                 {"target_delimiter", task.target_delimiter},
                 {"fewshot_delimiter", task.fewshot_delimiter},
                 {"fewshot_config",
                  {{"sampler", task.sampler == FewShotSampler::kFirst ? "first_n" : "default"}}},
                 {"num_fewshot", task.num_fewshot},
                 {"metric_list", metrics_json(task.metrics)},
                 {"output_type", output_name(task.output)},
                 {"repeats", task.repeats},
                 {"filter_list", filters_json(task.filters)},
                 {"style", task.style},
                 {"metadata", {{"version", task.version}}}};
  if (!task.image_fields.empty()) config["doc_to_image"] = task.image_fields;
  if (task.output == OutputType::kGenerateUntil) {
    config["generation_kwargs"] = {{"until", task.generation.until},
                                   {"max_gen_toks", task.generation.max_tokens},
                                   {"do_sample", task.generation.do_sample}};
  }
  return config;
}

Json numbers_json(const TreeRow& row) {
  Json numbers = {{"alias", row.alias()}};
  for (const MetricResult& metric : row.result->metrics) {
    numbers[metric.metric + "," + metric.filter] = metric.value;
    numbers[metric.metric + "_stderr," + metric.filter] =
        metric.stderr_value ? Json(*metric.stderr_value) : Json("N/A");
  }
  return numbers;
}

void add_leaf(const TreeRow& row, Json& all) {
  const std::string& name = row.task->name;
  all["configs"][name] = config_json(*row.task);
  all["versions"][name] = row.task->version;
  all["n-shot"][name] = row.task->num_fewshot;
  if (!row.result->hash.empty()) all["task_hashes"][name] = row.result->hash;
  if (!row.task->differences.empty()) all["differences"][name] = row.task->differences;
}

void add_row(const TreeRow& row, Json& all) {
  const std::string& name = row.result->name;
  all["results"][name] = numbers_json(row);
  for (const MetricResult& metric : row.result->metrics)
    all["higher_is_better"][name][metric.metric] = metric.higher_is_better;
  if (row.task) {
    add_leaf(row, all);
    all["n-samples"][name] = {{"original", row.result->num_original},
                              {"effective", row.result->num_items}};
    all["near_ties"][name] = row.result->num_near_ties;
    all["cut_contexts"][name] = row.result->num_cut_contexts;
  } else {
    all["groups"][name] = all["results"][name];
    all["group_subtasks"][name] = row.group->members;
    all["group_weighting"][name] = row.group->weight_by_size ? "size" : "equal";
    if (!row.group->weights.empty()) all["group_weighting"][name] = row.group->weights;
    if (row.group->num_asked > 0) {
      all["group_subjects"][name] = {{"asked", row.group->num_asked},
                                     {"of", row.group->num_leaves}};
    }
  }
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

void add_run(const RunInfo& run, Json& all) {
  all["config"] = run.config;
  all["style"] = run.style;
  all["date"] = run.start_time_s;
  all["danlu"] = {{"version", run.version}, {"commit", text_or_null(run.commit)}};
  all["git_hash"] = text_or_null(run.commit);
  all["model_source"] = "danlu";
  all["model_name"] = run.model_name;
  all["system_instruction"] = text_or_null(run.system_instruction);
  all["fewshot_as_multiturn"] = run.fewshot_as_multiturn;
  all["chat_template"] = text_or_null(run.chat_template);
  all["chat_template_sha"] =
      run.chat_template.empty() ? Json() : Json(sha256_hex(run.chat_template));
  all["total_evaluation_time_seconds"] = fmt::format("{}", run.duration_s);
}

}  // namespace

std::string make_time_id(std::chrono::system_clock::time_point now) {
  const auto since = now.time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(since).count();
  const std::time_t seconds = static_cast<std::time_t>(micros / 1'000'000);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H-%M-%S", &local);
  return fmt::format("{}.{:06}", text, micros % 1'000'000);
}

Json results_json(const Evaluation& evaluation) {
  Json all = Json::object();
  for (const char* key : {"results", "groups", "group_subtasks", "configs", "versions", "n-shot",
                          "higher_is_better", "n-samples", "config", "task_hashes"})
    all[key] = Json::object();
  for (const TreeRow& row : tree_rows(evaluation)) add_row(row, all);
  if (evaluation.groups.empty()) all.erase("groups");
  add_run(evaluation.run, all);
  return all;
}

fs::path write_results(const fs::path& directory, const Evaluation& evaluation) {
  require_writable_directory(directory);
  const fs::path path = directory / ("results_" + evaluation.run.time_id + ".json");
  write_json_file(path, results_json(evaluation));
  return path;
}

}  // namespace danlu::eval
