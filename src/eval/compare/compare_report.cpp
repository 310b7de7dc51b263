#include <fmt/format.h>

#include <cmath>

#include "eval/compare/compare.h"
#include "eval/results/wide_text.h"
#include "eval/scoring/python_str.h"

namespace danlu::eval {
namespace {

using Row = std::vector<std::string>;

std::string with_sign(double value) {
  return fmt::format("{:+.4f}", value == 0 ? 0.0 : value);  // no -0
}

std::string p_text(double p) { return p < 0.0001 ? "<0.0001" : fmt::format("{:.4f}", p); }

void add_rows_of_task(const TaskComparison& task, std::vector<Row>& rows) {
  bool is_first = true;
  for (const MetricComparison& metric : task.metrics) {
    rows.push_back(
        {is_first ? task.name : "", metric.filter,
         metric.metric + (metric.higher_is_better ? "↑" : "↓"), std::to_string(metric.num_items),
         fmt::format("{:.4f}", metric.a), fmt::format("{:.4f}", metric.b),
         with_sign(metric.b - metric.a),
         fmt::format("{} … {}", with_sign(metric.interval.low), with_sign(metric.interval.high)),
         std::to_string(metric.num_better), std::to_string(metric.num_worse),
         p_text(metric.p_value)});
    is_first = false;
  }
}

std::string table(const RunComparison& comparison) {
  std::vector<Row> rows = {{"Tasks", "Filter", "Metric", "Items", "A", "B", "B - A",
                            "95 % of B - A", "better", "worse", "p"}};
  for (const TaskComparison& group : comparison.groups) add_rows_of_task(group, rows);
  for (const TaskComparison& task : comparison.tasks) add_rows_of_task(task, rows);
  return markdown_table(rows,
                        {false, false, false, true, true, true, true, true, true, true, true});
}

/// On one line.
std::string cell_of(const std::string& text) {
  constexpr size_t kWidth = 36;
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += "\\n";
    } else if (c == '|') {
      line += "\\|";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      line += c;
    }
  }
  return cut_to_width(line, kWidth);
}

std::string changes(const RunComparison& comparison, int64_t max_shown) {
  std::vector<Row> rows = {{"Changed", "Metric", "doc_id", "Right", "A said", "B said", "A", "B"}};
  int64_t count = 0;
  for (const TaskComparison& task : comparison.tasks) {
    for (const MetricComparison& metric : task.metrics) {
      for (const ChangedItem& item : metric.changed) {
        ++count;
        if (max_shown > 0 && count > max_shown) continue;
        rows.push_back({task.name, metric.metric + "," + metric.filter, python_str(item.doc_id),
                        cell_of(item.target), cell_of(item.answer_a), cell_of(item.answer_b),
                        fmt::format("{:g}", item.a), fmt::format("{:g}", item.b)});
      }
    }
  }
  if (count == 0) return "no item changed\n";
  std::string out = markdown_table(rows, {false, false, true, false, false, false, true, true});
  if (max_shown > 0 && count > max_shown)
    out += fmt::format("… and {} more (--show 0 prints all)\n", count - max_shown);
  return out;
}

Json metric_json(const MetricComparison& metric) {
  const auto or_null = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  Json json = {{"metric", metric.metric},
               {"filter", metric.filter},
               {"higher_is_better", metric.higher_is_better},
               {"items", metric.num_items},
               {"a", metric.a},
               {"a_stderr", or_null(metric.stderr_a)},
               {"b", metric.b},
               {"b_stderr", or_null(metric.stderr_b)},
               {"difference", metric.b - metric.a},
               {"interval_95", {metric.interval.low, metric.interval.high}},
               {"better", metric.num_better},
               {"worse", metric.num_worse},
               {"p_value", metric.p_value},
               {"test", metric.test}};
  Json changed = Json::array();
  for (const ChangedItem& item : metric.changed) {
    changed.push_back({{"doc_id", item.doc_id},
                       {"target", item.target},
                       {"answer_a", item.answer_a},
                       {"answer_b", item.answer_b},
                       {"a", item.a},
                       {"b", item.b}});
  }
  if (!changed.empty()) json["changed"] = changed;
  return json;
}

Json tasks_json(const std::vector<TaskComparison>& tasks) {
  Json all = Json::object();
  for (const TaskComparison& task : tasks) {
    Json metrics = Json::array();
    for (const MetricComparison& metric : task.metrics) metrics.push_back(metric_json(metric));
    all[task.name] = metrics;
  }
  return all;
}

std::string named(const fs::path& path, const std::string& model) {
  return path.string() + (model.empty() ? "" : "  (" + model + ")");
}

}  // namespace

std::string comparison_text(const RunComparison& comparison, int64_t max_shown) {
  return fmt::format("A  {}\nB  {}\n\n{}\n{}", named(comparison.path_a, comparison.model_a),
                     named(comparison.path_b, comparison.model_b), table(comparison),
                     changes(comparison, max_shown));
}

Json comparison_json(const RunComparison& comparison) {
  return {{"a", comparison.path_a.string()},         {"b", comparison.path_b.string()},
          {"model_a", comparison.model_a},           {"model_b", comparison.model_b},
          {"warnings", comparison.warnings},         {"resamples", kResamples},
          {"groups", tasks_json(comparison.groups)}, {"tasks", tasks_json(comparison.tasks)}};
}

}  // namespace danlu::eval
