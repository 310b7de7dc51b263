#include "eval/scoring/scores.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/pattern.h"
#include "eval/scoring/aggregation.h"
#include "eval/scoring/filters.h"
#include "eval/scoring/metrics.h"

namespace danlu::eval {
namespace {

void require_numbers(const Task& task, const Item& item, const std::vector<Answer>& answers) {
  for (const Answer& answer : answers) {
    for (const double value : {answer.log_likelihood, answer.whole_log_likelihood}) {
      if (!std::isnan(value)) continue;
      throw NumericError(
          tr("{}: item {}: the model's log-likelihood is not a number", task.name, item.doc_id),
          tr("fp16 overflows in some models: try --dtype bf16 or fp32; danlu inspect MODEL finds "
             "weights that are not finite"));
    }
  }
}

std::vector<std::string> texts_of_answers(const std::vector<Answer>& answers) {
  std::vector<std::string> texts;
  for (const Answer& answer : answers) texts.push_back(answer.text);
  return texts;
}

/// Likelihoods as the harness has them: a pair, or for a rolling text its likelihood alone.
Json likelihoods_of(const Task& task, const std::vector<Answer>& answers) {
  Json all = Json::array();
  for (const Answer& answer : answers) {
    all.push_back(task.output == OutputType::kRollingLikelihood
                      ? Json(answer.log_likelihood)
                      : Json::array({answer.log_likelihood, answer.is_greedy}));
  }
  return all;
}

void score_texts(const Task& task, const Filter& filter, const Item& item,
                 const std::vector<Answer>& answers, ItemScore& score) {
  const bool has_programs =
      std::any_of(task.metrics.begin(), task.metrics.end(), is_measured_elsewhere);
  const FilteredTexts all = apply_filter(filter, item, texts_of_answers(answers));
  // lm-eval's default is the first; who runs programs runs them all.
  const FilteredTexts read = filter.steps.empty() ? FilteredTexts{{all.texts[0]}, true} : all;
  const FilteredTexts& kept = has_programs || task.metrics.empty() ? all : read;
  score.filtered = Json::array();
  if (kept.is_one) {
    score.filtered.push_back(kept.texts[0]);
  } else {
    score.filtered.push_back(kept.texts);
  }
  for (const Metric& metric : task.metrics) {
    if (!is_measured_elsewhere(metric))
      score.values[reported_names(metric)[0]] = text_metric(metric, item, read);
  }
}

/// An error of one item says of which task it is.
template <typename Kind, typename Work>
auto of_task(const Task& task, const Work& work) {
  try {
    return work();
  } catch (const PatternError& error) {
    throw Kind(fmt::format("{}: {}", task.name, error.what()), error.hint());
  } catch (const DataError& error) {
    throw Kind(fmt::format("{}: {}", task.name, error.what()), error.hint());
  }
}

std::vector<Json> values_of(const Task& task, const Metric& metric,
                            const std::vector<std::vector<ItemScore>>& scores, size_t filter) {
  const std::string name = is_measured_elsewhere(metric) ? metric.name : reported_names(metric)[0];
  std::vector<Json> values;
  for (const auto& of_item : scores) {
    const auto found = of_item.at(filter).values.find(name);
    if (found == of_item[filter].values.end())
      throw InternalError("[eval] " + task.name + ": nobody measured " + name);
    values.push_back(found->second);
  }
  return values;
}

const MetricResult* find_metric(const TaskResult& result, const MetricResult& wanted) {
  for (const MetricResult& metric : result.metrics) {
    if (metric.metric == wanted.metric && metric.filter == wanted.filter) return &metric;
  }
  return nullptr;
}

MetricResult metric_of_group(const MetricResult& like, const std::vector<TaskResult>& leaves,
                             bool weight_by_size) {
  MetricResult result = like;
  std::vector<double> errors;
  std::vector<int64_t> sizes;
  double sum = 0, weights = 0, squares = 0;
  for (const TaskResult& leaf : leaves) {
    const MetricResult* metric = find_metric(leaf, like);
    if (!metric) continue;
    const double weight = weight_by_size ? static_cast<double>(leaf.num_items) : 1;
    sum += weight * metric->value;
    weights += weight;
    sizes.push_back(leaf.num_items);
    if (!metric->stderr_value) continue;
    errors.push_back(*metric->stderr_value);
    squares += errors.back() * errors.back();
  }
  result.value = sum / weights;
  result.stderr_value.reset();
  if (errors.size() != sizes.size()) return result;
  result.stderr_value = weight_by_size ? pooled_standard_error(errors, sizes)
                                       : std::optional(std::sqrt(squares) / weights);
  return result;
}

/// The weighted mean of members; nothing if one of them lacks the metric.
std::optional<MetricResult> weighted_metric(const MetricResult& like, const Group& group,
                                            const std::vector<TaskResult>& members) {
  MetricResult result = like;
  double sum = 0, weights = 0, squares = 0;
  bool have_errors = true;
  for (size_t i = 0; i < group.members.size(); ++i) {
    const auto member = std::find_if(members.begin(), members.end(), [&](const TaskResult& one) {
      return one.name == group.members[i];
    });
    const MetricResult* metric = member == members.end() ? nullptr : find_metric(*member, like);
    if (!metric || i >= group.weights.size()) return std::nullopt;
    const double weight = group.weights[i];
    sum += weight * metric->value;
    weights += weight;
    have_errors = have_errors && metric->stderr_value;
    const double error = weight * metric->stderr_value.value_or(0);
    squares += error * error;
  }
  result.value = sum / weights;
  result.stderr_value.reset();
  if (have_errors) result.stderr_value = std::sqrt(squares) / weights;
  return result;
}

bool is_wanted(const Group& group, const std::string& metric) {
  return std::any_of(group.metrics.begin(), group.metrics.end(), [&](const std::string& name) {
    return name == metric || (name == kPassAtAny && pass_at(metric) > 0);
  });
}

}  // namespace

bool wants_whole(const Task& task) {
  return std::any_of(task.metrics.begin(), task.metrics.end(),
                     [](const Metric& metric) { return metric.name == "ppl_acc"; });
}

void check_scoring(const Task& task) {
  of_task<UsageError>(task, [&] {
    if (task.metrics.empty()) throw DataError(tr("a task needs at least one metric"));
    std::set<std::string> names;
    for (const Metric& metric : task.metrics) {
      check_metric(metric, task.output);
      if (!names.insert(metric.name).second)
        throw DataError(tr("the metric '{}' is there twice", metric.name));
    }
    names.clear();
    for (const Filter& filter : task.filters) {
      check_filter(filter);
      if (!names.insert(filter.name).second)
        throw DataError(tr("the filter '{}' is there twice", filter.name));
      const auto is_for_texts = [](const FilterStep& step) {
        return step.function != "take_first";
      };
      if (task.output != OutputType::kGenerateUntil &&
          std::any_of(filter.steps.begin(), filter.steps.end(), is_for_texts))
        throw DataError(tr("filter '{}': only generated texts are filtered", filter.name));
    }
  });
}

std::vector<ItemScore> score_item(const Task& task, const Item& item,
                                  const std::vector<Answer>& answers) {
  if (answers.empty() || answers.size() != item.calls.size())
    throw InternalError("[eval] " + task.name + ": answers and calls differ in number");
  require_numbers(task, item, answers);
  return of_task<DataError>(task, [&] {
    std::vector<ItemScore> scores;
    for (const Filter& filter : task.filters) {
      ItemScore& score = scores.emplace_back();
      score.filter = filter.name;
      if (task.output == OutputType::kGenerateUntil) {
        score_texts(task, filter, item, answers, score);
        continue;
      }
      score.filtered = likelihoods_of(task, answers);
      for (const Metric& metric : task.metrics) {
        score.values[reported_names(metric)[0]] =
            task.output == OutputType::kMultipleChoice
                ? Json(choice_metric(metric, item, answers, score.is_near_tie))
                : likelihood_metric(metric, item, answers[0]);
      }
    }
    return scores;
  });
}

TaskResult aggregate(const Task& task, const std::vector<std::vector<ItemScore>>& scores) {
  if (scores.empty()) throw DataError(tr("{}: there is no item to score", task.name));
  TaskResult result;
  result.name = task.name;
  result.alias = task.alias.empty() ? task.name : task.alias;
  result.num_items = result.num_original = static_cast<int64_t>(scores.size());
  for (const auto& of_item : scores)
    result.num_near_ties += std::any_of(of_item.begin(), of_item.end(),
                                        [](const ItemScore& score) { return score.is_near_tie; });
  for (size_t f = 0; f < task.filters.size(); ++f) {
    for (const Metric& metric : task.metrics) {
      const std::vector<Json> values = values_of(task, metric, scores, f);
      const std::string aggregation = aggregation_of(metric);
      for (const std::string& name : reported_names(metric)) {
        if (std::any_of(values.begin(), values.end(),
                        [&](const Json& value) { return is_short_of_draws(name, value); }))
          continue;
        result.metrics.push_back({name, task.filters[f].name, aggregated(aggregation, name, values),
                                  standard_error(aggregation, name, values),
                                  metric.higher_is_better});
      }
    }
  }
  return result;
}

TaskResult aggregate_group(const Group& group, const std::vector<TaskResult>& members) {
  TaskResult result;
  result.name = group.name;
  result.alias = group.alias.empty() ? group.name : group.alias;
  std::set<std::string> seen;
  const auto add_leaf = [&](const TaskResult& leaf) {
    if (!seen.insert(leaf.name).second) return;
    result.leaves.push_back(leaf);
    result.num_items += leaf.num_items;
    result.num_original += leaf.num_original;
    result.num_near_ties += leaf.num_near_ties;
    result.num_cut_contexts += leaf.num_cut_contexts;
  };
  for (const TaskResult& member : members) {
    if (member.leaves.empty()) add_leaf(member);
    for (const TaskResult& leaf : member.leaves) add_leaf(leaf);
  }
  for (const TaskResult& leaf : result.leaves) {
    for (const MetricResult& metric : leaf.metrics) {
      if (!is_wanted(group, metric.metric) || find_metric(result, metric)) continue;
      if (group.weights.empty()) {
        result.metrics.push_back(metric_of_group(metric, result.leaves, group.weight_by_size));
      } else if (auto weighted = weighted_metric(metric, group, members)) {
        result.metrics.push_back(*std::move(weighted));
      }
    }
  }
  if (result.metrics.empty()) {
    throw DataError(tr("group '{}': none of its members has a metric that it names", group.name));
  }
  return result;
}

}  // namespace danlu::eval
