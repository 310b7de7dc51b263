#include <fmt/format.h>

#include <algorithm>

#include "eval/results/results_tree.h"
#include "eval/results/wide_text.h"
#include "eval/scoring/python_str.h"

namespace danlu::eval {
namespace {

using Cells = std::vector<std::string>;
/// Version, n-shot, value and error.
const std::vector<bool> kIsRight = {false, true, false, true, false, false, true, false, true};

void add_cells(const TreeRow& row, const std::string& alias, std::vector<Cells>& rows) {
  std::vector<const MetricResult*> metrics;
  for (const MetricResult& metric : row.result->metrics) metrics.push_back(&metric);
  std::sort(metrics.begin(), metrics.end(), [](const auto* a, const auto* b) {
    return std::pair(a->metric, a->filter) < std::pair(b->metric, b->filter);
  });
  bool is_first = true;
  for (const MetricResult* metric : metrics) {
    Cells cells(9);
    if (is_first) cells[0] = alias;
    if (is_first && row.task) cells[1] = python_str(row.task->version);
    is_first = false;
    cells[2] = metric->filter;
    if (row.task) cells[3] = std::to_string(row.task->num_fewshot);
    cells[4] = metric->metric;
    cells[5] = metric->higher_is_better ? "↑" : "↓";
    cells[6] = fmt::format("{:.4f}", metric->value);
    cells[7] = "±";
    cells[8] = metric->stderr_value ? fmt::format("{:.4f}", *metric->stderr_value) : "N/A";
    rows.push_back(std::move(cells));
  }
}

Cells head(const char* first) {
  return {first, "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr"};
}

}  // namespace

std::string results_table(const Evaluation& evaluation) {
  std::vector<Cells> tasks = {head("Tasks")}, groups = {head("Groups")};
  for (const TreeRow& row : tree_rows(evaluation)) {
    add_cells(row, row.alias(), tasks);
    if (row.group) add_cells(row, row.alias(), groups);
  }
  std::string out = markdown_table(tasks, kIsRight);
  if (groups.size() > 1) out += "\n" + markdown_table(groups, kIsRight);
  return out;
}

}  // namespace danlu::eval
