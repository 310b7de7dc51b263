#include "eval/compare/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>

#include "base/error.h"
#include "eval/compare/compare_match.h"
#include "eval/compare/compare_run.h"
#include "eval/results/wide_text.h"
#include "eval/scoring/aggregation.h"

namespace danlu::eval {
namespace {

/// A metric of a leaf with what its groups are made of.
struct LeafMetric {
  MetricComparison said;
  std::vector<double> differences;  ///< resampled
};

struct Leaf {
  std::string name, alias;
  std::vector<LeafMetric> metrics;
};

/// A value as numerator and denominator; false if it is not what is aggregated so: a number or, of
/// words or bytes, a pair.
bool read_value(const std::string& aggregation, const std::string& metric, const Json& value,
                double& number, double& weight) {
  if (aggregation != "weighted_perplexity" && aggregation != "bits_per_byte") {
    const auto single = item_number(metric, value);
    number = single.value_or(0), weight = 1;
    return single.has_value();
  }
  if (!value.is_array() || value.size() != 2 || !value[0].is_number() || !value[1].is_number())
    return false;
  number = value[0].get<double>(), weight = value[1].get<double>();
  return weight > 0;
}

std::string short_alias(const RunFiles& run, const std::string& name) {
  const Json numbers = run.at("results", name);
  std::string alias = name;
  if (numbers.is_object() && numbers.contains("alias") && numbers["alias"].is_string())
    alias = numbers["alias"].get<std::string>();
  const size_t begin = alias.find_first_not_of(" -");
  return begin == std::string::npos ? name : alias.substr(begin);
}

bool is_higher_better(const RunFiles& run, const std::string& task, const std::string& metric) {
  const Json of_task = run.at("higher_is_better", task);
  if (of_task.is_object() && of_task.contains(metric) && of_task[metric].is_boolean())
    return of_task[metric].get<bool>();
  return true;
}

/// How a run makes one number of a metric's values: what it says, else what is usual.
std::string aggregation_in(const RunFiles& run, const std::string& task,
                           const std::string& metric) {
  const Json config = run.at("configs", task);
  const Json list = config.is_object() ? config.value("metric_list", Json()) : Json();
  for (const Json& one : list.is_array() ? list : Json::array()) {
    if (!one.is_object() || one.value("metric", Json()) != metric) continue;
    const Json said = one.value("aggregation", Json());
    if (said.is_string()) return said.get<std::string>();
  }
  return aggregation_of({.name = metric});
}

/// The aggregation of both runs; nothing, and why, if there is none by which they can be compared.
std::optional<std::string> shared_aggregation(const RunFiles& a, const RunFiles& b,
                                              const std::string& task, const std::string& metric,
                                              std::vector<std::string>& warnings) {
  constexpr size_t kShown = 40;  // lm-eval writes the source text of a function
  const std::string of_a = aggregation_in(a, task, metric), of_b = aggregation_in(b, task, metric);
  const auto shown = [](const std::string& name) {
    return cut_to_width(name.substr(0, name.find('\n')), kShown);
  };
  if (of_a != of_b) {
    warnings.push_back(tr("{}: {} is left out: A aggregates it as '{}', B as '{}'", task, metric,
                          shown(of_a), shown(of_b)));
  } else if (!is_known_aggregation(of_a)) {
    warnings.push_back(tr("{}: {} is left out: its aggregation '{}' is none of {}", task, metric,
                          shown(of_a), fmt::format("{}", fmt::join(aggregation_names(), ", "))));
  } else {
    return of_a;
  }
  return std::nullopt;
}

/// Compares one metric on matched lines; nothing if one of them has no value for it, or none that
/// is aggregated so, which is said.
std::optional<LeafMetric> compare_metric(const std::string& task, const std::string& name,
                                         const std::string& aggregation, const MatchedLines& lines,
                                         bool higher_is_better,
                                         std::vector<std::string>& warnings) {
  LeafMetric metric;
  MetricComparison& said = metric.said;
  const PairedValue kind = paired_value_of(aggregation);
  // A perplexity is made of likelihoods, of which more is better whatever becomes of them.
  const double sign = kind != PairedValue::kMean || higher_is_better ? 1 : -1;
  std::vector<PairedItem> items;
  std::vector<Json> values_a, values_b;
  bool is_binary = kind == PairedValue::kMean;
  for (const auto& [line_a, line_b] : lines.pairs) {
    const auto a = line_a->values.find(name), b = line_b->values.find(name);
    if (a == line_a->values.end() || b == line_b->values.end()) return std::nullopt;
    PairedItem item;
    const bool is_read_a = read_value(aggregation, name, a->second, item.a, item.weight_a);
    if (!is_read_a || !read_value(aggregation, name, b->second, item.b, item.weight_b)) {
      warnings.push_back(tr("{}: {} is left out: as '{}' it cannot aggregate item {}: {}", task,
                            name, aggregation, line_a->doc_id.dump(),
                            cut_to_width(dump_text(is_read_a ? b->second : a->second), 40)));
      return std::nullopt;
    }
    for (const double value : {item.a, item.b}) is_binary = is_binary && (value == 0 || value == 1);
    said.num_better += sign * (item.b - item.a) > 0;
    said.num_worse += sign * (item.b - item.a) < 0;
    if (item.a != item.b)
      said.changed.push_back(
          {line_a->doc_id, line_a->target, line_a->answer, line_b->answer, item.a, item.b});
    items.push_back(item);
    values_a.push_back(a->second);
    values_b.push_back(b->second);
  }
  if (items.empty()) return std::nullopt;
  said.metric = name;
  said.filter = lines.filter;
  said.higher_is_better = higher_is_better;
  said.num_items = static_cast<int64_t>(items.size());
  said.a = value_of_a(kind, items);
  said.b = value_of_b(kind, items);
  said.stderr_a = standard_error(aggregation, name, values_a);
  said.stderr_b = standard_error(aggregation, name, values_b);
  metric.differences = bootstrap_differences(kind, items, hash_bytes(task));
  said.interval = middle_95(metric.differences);
  said.test = is_binary ? "sign_test" : "bootstrap";
  said.p_value = is_binary ? sign_test_p_value(said.num_better, said.num_worse)
                           : bootstrap_p_value(metric.differences);
  return metric;
}

void say_unmatched(const std::string& task, const MatchReport& report,
                   std::vector<std::string>& warnings) {
  if (report.only_a > 0 || report.only_b > 0) {
    warnings.push_back(tr("{}: {} items are in both, {} only in A, {} only in B", task,
                          report.num_items, report.only_a, report.only_b));
  }
  if (report.by_place > 0) {
    warnings.push_back(tr("{}: {} of {} rows matched by their place and right answer alone", task,
                          report.by_place, report.num_items));
  }
  if (report.other_prompts > 0)
    warnings.push_back(
        tr("{}: other prompts for {} of {} items", task, report.other_prompts, report.num_items));
  if (report.other_targets > 0)
    warnings.push_back(tr("{}: other right answers for {} of {} items", task, report.other_targets,
                          report.num_items));
}

/// "acc,none" of each metric and filter.
std::vector<std::string> metrics_in(const std::vector<SampleLine>& lines) {
  std::set<std::string> names;
  for (const SampleLine& line : lines) {
    for (const auto& [name, value] : line.values) names.insert(name + "," + line.filter);
  }
  return {names.begin(), names.end()};
}

/// At most a few of `all`.
std::string joined(const std::vector<std::string>& all, const char* separator = ", ") {
  constexpr size_t kNamed = 5;
  std::string text;
  for (size_t i = 0; i < std::min(all.size(), kNamed); ++i)
    text += (i > 0 ? separator : "") + all[i];
  return all.size() > kNamed ? tr("{} and {} more", text, all.size() - kNamed) : text;
}

void say_no_metric(const std::string& task, const std::vector<SampleLine>& a,
                   const std::vector<SampleLine>& b, std::vector<std::string>& warnings) {
  const std::vector<std::string> of_a = metrics_in(a), of_b = metrics_in(b);
  if (std::find_first_of(of_a.begin(), of_a.end(), of_b.begin(), of_b.end()) != of_a.end()) return;
  const auto named = [](const std::vector<std::string>& names) {
    return names.empty() ? std::string("-") : joined(names);
  };
  warnings.push_back(
      tr("{}: no metric is in both: A has {}; B has {}", task, named(of_a), named(of_b)));
}

Leaf compare_task(const RunFiles& a, const RunFiles& b, const std::string& task,
                  std::vector<std::string>& warnings) {
  Leaf leaf{task, short_alias(a, task), {}};
  const MatchReport report = match_lines(a.samples.at(task), b.samples.at(task));
  say_unmatched(task, report, warnings);
  say_no_metric(task, a.samples.at(task), b.samples.at(task), warnings);
  for (const MatchedLines& lines : report.filters) {
    std::set<std::string> names;
    for (const auto& [line_a, line_b] : lines.pairs) {
      for (const auto& [name, value] : line_a->values) {
        if (line_b->values.count(name)) names.insert(name);
      }
    }
    for (const std::string& name : names) {
      const auto aggregation = shared_aggregation(a, b, task, name, warnings);
      if (!aggregation) continue;
      auto metric = compare_metric(task, name, *aggregation, lines, is_higher_better(a, task, name),
                                   warnings);
      if (metric) leaf.metrics.push_back(*std::move(metric));
    }
  }
  return leaf;
}

/// `path` is of the groups that hold `name`; `sound` are those that were looked through.
/// Errors: DataError if a group is below itself.
void check_group(const RunFiles& run, const std::string& name, std::vector<std::string>& path,
                 std::set<std::string>& sound) {
  path.push_back(name);
  const auto above = std::find(path.begin(), path.end(), name);
  if (above != path.end() - 1) {
    throw DataError(tr("{}: group_subtasks: a group must not hold itself: {}",
                       run.results_path.string(),
                       fmt::format("{}", fmt::join(above, path.end(), " → "))));
  }
  if (sound.insert(name).second) {
    const Json members = run.at("group_subtasks", name);
    for (const Json& member : members.is_array() ? members : Json::array()) {
      if (member.is_string()) check_group(run, member.get<std::string>(), path, sound);
    }
  }
  path.pop_back();
}

/// Names of the leaves of a group, each once.
void add_leaves(const RunFiles& run, const std::string& name, std::set<std::string>& seen,
                std::vector<std::string>& leaves) {
  if (!seen.insert(name).second) return;
  const Json members = run.at("group_subtasks", name);
  if (!members.is_array() || members.empty()) {
    leaves.push_back(name);
    return;
  }
  for (const Json& member : members) {
    if (member.is_string()) add_leaves(run, member.get<std::string>(), seen, leaves);
  }
}

struct Part {
  const Leaf* leaf;
  const LeafMetric* metric;
  double weight;  ///< in the group's mean
};

/// Weights of leaves in a group that sum up to 1, in the way that A's results name: by their items,
/// the same for each, or those of its members.
std::map<std::string, double> leaf_weights(const RunFiles& run, const std::string& group,
                                           const std::map<std::string, int64_t>& sizes) {
  std::set<std::string> seen;
  std::vector<std::string> leaves;
  add_leaves(run, group, seen, leaves);
  const Json weighting = run.at("group_weighting", group),
             members = run.at("group_subtasks", group);
  std::map<std::string, double> weights;
  if (weighting.is_array() && members.is_array() && weighting.size() == members.size()) {
    for (size_t i = 0; i < members.size(); ++i) {
      const std::string member = members[i].is_string() ? members[i].get<std::string>() : "";
      if (member.empty() || !weighting[i].is_number()) continue;
      for (const auto& [leaf, weight] : leaf_weights(run, member, sizes))
        weights[leaf] += weighting[i].get<double>() * weight;
    }
  } else {
    for (const std::string& leaf : leaves) {
      const auto size = sizes.find(leaf);
      if (size == sizes.end()) continue;
      weights[leaf] = weighting == Json("equal") ? 1 : static_cast<double>(size->second);
    }
  }
  double sum = 0;
  for (const auto& [leaf, weight] : weights) sum += weight;
  for (auto& [leaf, weight] : weights) weight /= sum;
  return weights;
}

/// By items: errors are pooled, and the sign test looks at all of them.
MetricComparison compare_group_metric(const std::vector<Part>& parts, bool by_size) {
  MetricComparison said = parts[0].metric->said;
  said.changed.clear();
  said.num_items = said.num_better = said.num_worse = 0;
  said.a = said.b = 0;
  std::vector<double> differences(kResamples), errors_a, errors_b;
  std::vector<int64_t> sizes;
  double weights = 0, squares_a = 0, squares_b = 0;
  bool is_binary = by_size;
  for (const Part& part : parts) {
    const MetricComparison& one = part.metric->said;
    said.num_items += one.num_items;
    said.num_better += one.num_better;
    said.num_worse += one.num_worse;
    is_binary = is_binary && one.test == "sign_test";
    weights += part.weight;
    said.a += part.weight * one.a;
    said.b += part.weight * one.b;
    for (size_t i = 0; i < differences.size(); ++i)
      differences[i] += part.weight * part.metric->differences[i];
    if (!one.stderr_a || !one.stderr_b) continue;
    sizes.push_back(one.num_items);
    errors_a.push_back(*one.stderr_a);
    errors_b.push_back(*one.stderr_b);
    squares_a += std::pow(part.weight * *one.stderr_a, 2);
    squares_b += std::pow(part.weight * *one.stderr_b, 2);
  }
  for (double& difference : differences) difference /= weights;
  said.a /= weights, said.b /= weights;
  said.stderr_a = by_size ? pooled_standard_error(errors_a, sizes)
                          : std::optional(std::sqrt(squares_a) / weights);
  said.stderr_b = by_size ? pooled_standard_error(errors_b, sizes)
                          : std::optional(std::sqrt(squares_b) / weights);
  if (errors_a.size() != parts.size()) said.stderr_a = said.stderr_b = std::nullopt;
  said.interval = middle_95(differences);
  said.test = is_binary ? "sign_test" : "bootstrap";
  said.p_value = is_binary ? sign_test_p_value(said.num_better, said.num_worse)
                           : bootstrap_p_value(differences);
  return said;
}

TaskComparison compare_group(const RunFiles& a, const std::string& name,
                             const std::vector<Leaf>& leaves) {
  TaskComparison group{name, short_alias(a, name), {}};
  std::map<std::string, int64_t> sizes;
  for (const Leaf& leaf : leaves) sizes[leaf.name] = leaf.metrics[0].said.num_items;
  const std::map<std::string, double> weights = leaf_weights(a, name, sizes);
  const Json numbers = a.at("results", name), weighting = a.at("group_weighting", name);
  const bool by_size = !weighting.is_array() && weighting != Json("equal");
  std::map<std::pair<std::string, std::string>, std::vector<Part>> parts;
  for (const Leaf& leaf : leaves) {
    const auto weight = weights.find(leaf.name);
    if (weight == weights.end()) continue;
    for (const LeafMetric& metric : leaf.metrics) {
      const MetricComparison& said = metric.said;
      if (numbers.is_object() && numbers.contains(said.metric + "," + said.filter))
        parts[{said.metric, said.filter}].push_back({&leaf, &metric, weight->second});
    }
  }
  for (const auto& [key, of_metric] : parts)
    group.metrics.push_back(compare_group_metric(of_metric, by_size));
  return group;
}

std::vector<std::string> names_of(const RunFiles& run) {
  std::vector<std::string> names;
  for (const auto& [task, lines] : run.samples) names.push_back(task);
  return names;
}

/// Tasks of which only one of the runs has samples, as sentences.
void say_missing(const RunFiles& a, const RunFiles& b, std::vector<std::string>& warnings) {
  std::vector<std::string> only_a, only_b;
  for (const std::string& task : names_of(a)) {
    if (!b.samples.count(task)) only_a.push_back(task);
  }
  for (const std::string& task : names_of(b)) {
    if (!a.samples.count(task)) only_b.push_back(task);
  }
  if (!only_a.empty()) warnings.push_back(tr("only in A: {}", joined(only_a)));
  if (!only_b.empty()) warnings.push_back(tr("only in B: {}", joined(only_b)));
}

}  // namespace

RunComparison compare_runs(const fs::path& path_a, const fs::path& path_b) {
  const RunFiles a = read_run(path_a), b = read_run(path_b);
  RunComparison all{a.results_path, b.results_path, a.model_name(), b.model_name(), {}, {}, {}};
  all.warnings = unlike_settings(a, b);
  say_missing(a, b, all.warnings);
  const size_t num_general = all.warnings.size();
  std::vector<Leaf> leaves;
  for (const auto& [task, numbers] : a.results["results"].items()) {
    if (!a.samples.count(task) || !b.samples.count(task)) continue;
    Leaf leaf = compare_task(a, b, task, all.warnings);
    if (!leaf.metrics.empty()) leaves.push_back(std::move(leaf));
  }
  if (leaves.empty()) {
    const std::vector<std::string> reasons(
        all.warnings.begin() + static_cast<std::ptrdiff_t>(num_general), all.warnings.end());
    throw DataError(reasons.empty()
                        ? tr("the runs have nothing in common: A has {}, B has {}",
                             joined(names_of(a)), joined(names_of(b)))
                        : tr("the runs have nothing in common: {}", joined(reasons, "; ")),
                    tr("compare runs of the same tasks, rows and style; items are matched by "
                       "'doc_hash', else by 'doc_id' with 'prompt_hash' or 'target_hash'"));
  }
  const auto subtasks = a.results.find("group_subtasks");
  if (subtasks != a.results.end() && subtasks->is_object()) {
    std::vector<std::string> path;
    std::set<std::string> sound;
    for (const auto& [name, members] : subtasks->items()) check_group(a, name, path, sound);
    for (const auto& [name, members] : subtasks->items()) {
      TaskComparison group = compare_group(a, name, leaves);
      const bool is_group = members.is_array() && !members.empty();
      if (is_group && !group.metrics.empty()) all.groups.push_back(std::move(group));
    }
  }
  for (Leaf& leaf : leaves) {
    TaskComparison& task = all.tasks.emplace_back(TaskComparison{leaf.name, leaf.alias, {}});
    for (LeafMetric& metric : leaf.metrics) task.metrics.push_back(std::move(metric.said));
  }
  return all;
}

}  // namespace danlu::eval
