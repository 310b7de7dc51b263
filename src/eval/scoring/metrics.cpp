#include "eval/scoring/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/pattern.h"
#include "eval/scoring/aggregation.h"
#include "eval/scoring/filters_choice.h"
#include "eval/scoring/math_equal.h"
#include "eval/scoring/python_str.h"
#include "eval/scoring/scores.h"
#include "text/jinja/python_text.h"

namespace danlu::eval {
namespace {

namespace py = text::jinja;

constexpr std::string_view kNeedleScore = "needle_score";

/// By what choices are ranked: the higher the better.
double rank_value(std::string_view function, const std::string& choice, const Answer& answer) {
  if (function == "ppl_acc") {
    if (answer.num_whole_tokens == 0) throw InternalError("[eval] nobody asked for the whole text");
    return answer.whole_log_likelihood / static_cast<double>(answer.num_whole_tokens);
  }
  if (function != "acc_norm" && function != "acc_bytes") return answer.log_likelihood;
  const size_t length = function == "acc_norm" ? py::code_point_count(choice) : choice.size();
  if (length == 0) return -std::numeric_limits<double>::infinity();
  return answer.log_likelihood / static_cast<double>(length);
}

bool is_close(double a, double b) {
  return a == b || std::abs(a - b) <= kNearTie * std::max(std::abs(a), std::abs(b));
}

std::string without_bytes(const std::string& text, std::string_view unwanted) {
  std::string kept;
  for (const char c : text) {
    if (unwanted.find(c) == std::string_view::npos) kept += c;
  }
  return kept;
}

class ExactMatch {
 public:
  explicit ExactMatch(const Json& arguments)
      : ignore_case_(json_get<bool>(arguments, "ignore_case").value_or(false)) {
    for (const std::string& pattern : texts_of(arguments, "regexes_to_ignore"))
      ignored_.emplace_back(pattern, PatternUse::kText);
    if (json_get<bool>(arguments, "ignore_punctuation").value_or(false))
      unwanted_ += "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    if (json_get<bool>(arguments, "ignore_numbers").value_or(false)) unwanted_ += "0123456789";
  }
  bool operator()(const std::string& answer, const std::string& target) const {
    return plain(answer) == plain(target);
  }

 private:
  std::string plain(std::string text) const {
    for (const Pattern& pattern : ignored_) text = pattern.removed_from(text);
    if (ignore_case_) text = py::to_lower(text);
    return without_bytes(text, unwanted_);
  }
  bool ignore_case_;
  std::string unwanted_;
  std::vector<Pattern> ignored_;
};

bool number_equal(const std::string& answer, const std::string& target, const Json& arguments) {
  const bool separators = json_get<bool>(arguments, "thousands_separators").value_or(true);
  const auto a = last_number(answer, separators), b = last_number(target, separators);
  return a && b && (*a == *b || std::abs(*a - *b) < 1e-6);
}

template <typename IsRight>
double share_right(const FilteredTexts& answers, const std::vector<std::string>& targets,
                   const IsRight& is_right) {
  const auto right =
      std::count_if(answers.texts.begin(), answers.texts.end(), [&](const std::string& answer) {
        return std::any_of(targets.begin(), targets.end(),
                           [&](const std::string& target) { return is_right(answer, target); });
      });
  return static_cast<double>(right) / static_cast<double>(answers.texts.size());
}

struct KnownMetric {
  std::string_view name;
  OutputType output;
  std::initializer_list<std::string_view> arguments;
};

std::span<const KnownMetric> known_metrics() {
  using enum OutputType;
  static const KnownMetric kMetrics[] = {
      {"acc", kMultipleChoice, {}},
      {"acc_norm", kMultipleChoice, {}},
      {"acc_bytes", kMultipleChoice, {}},
      {"ppl_acc", kMultipleChoice, {}},
      {"exact_match", kMultipleChoice, {}},
      {"exact_match",
       kGenerateUntil,
       {"ignore_case", "ignore_punctuation", "ignore_numbers", "regexes_to_ignore"}},
      {"math_equal", kGenerateUntil, {"parse_target"}},
      {"number_equal", kGenerateUntil, {"thousands_separators"}},
      {"acc", kLogLikelihood, {}},
      {"perplexity", kLogLikelihood, {}},
      {"word_perplexity", kRollingLikelihood, {}},
      {"byte_perplexity", kRollingLikelihood, {}},
      {"bits_per_byte", kRollingLikelihood, {}},
  };
  return kMetrics;
}

const KnownMetric* known_metric(std::string_view name, OutputType output) {
  for (const KnownMetric& metric : known_metrics()) {
    if (metric.output == output && metric.name == name) return &metric;
  }
  return nullptr;
}

std::string names_for(OutputType output) {
  std::string all;
  for (const KnownMetric& metric : known_metrics()) {
    if (metric.output == output) all += (all.empty() ? "" : ", ") + std::string(metric.name);
  }
  return all;
}

}  // namespace

std::vector<std::string> reported_names(const Metric& metric) {
  const auto ks = json_get<Json>(metric.arguments, "k");
  if (metric.name != kPassAtAny) return {metric.report_as.empty() ? metric.name : metric.report_as};
  std::vector<std::string> names;
  for (const Json& k : ks && ks->is_array() ? *ks : Json::array({ks.value_or(1)})) {
    if (!k.is_number_integer() || k.get<int64_t>() < 1) throw_wrong_type("k", "a whole number", k);
    names.push_back("pass@" + std::to_string(k.get<int64_t>()));
  }
  return names;
}

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  for (const KnownMetric& metric : known_metrics()) add(metric.name);
  add(kPassAtAny);
  add(kNeedleScore);
  return names;
}

bool runs_answers(const Metric& metric) {
  return metric.name == kPassAtAny || pass_at(metric.name) > 0;
}

bool is_measured_elsewhere(const Metric& metric) {
  return runs_answers(metric) || metric.name == kNeedleScore;
}

std::vector<size_t> target_choices(const Item& item) {
  std::vector<size_t> right;
  const auto add = [&](const Json& target) {
    if (target.is_number_integer()) {
      const int64_t place = target.get<int64_t>();
      if (place >= 0 && static_cast<size_t>(place) < item.choices.size()) {
        right.push_back(static_cast<size_t>(place));
        return;
      }
    } else if (target.is_string()) {
      const auto found =
          std::find(item.choices.begin(), item.choices.end(), target.get<std::string>());
      if (found != item.choices.end()) {
        right.push_back(static_cast<size_t>(found - item.choices.begin()));
        return;
      }
    }
    throw DataError(tr("item {}: the right answer must be one of {} choices, got {}", item.doc_id,
                       item.choices.size(), python_str(target)),
                    tr("rows without a label, as in C-Eval's test split, cannot be scored"));
  };
  if (item.target.is_array()) {
    for (const Json& target : item.target) add(target);
  } else {
    add(item.target);
  }
  return right;  // an empty list: no choice is right, as in a row of AGIEval
}

std::vector<std::string> target_texts(const Item& item) {
  std::vector<std::string> texts;
  const auto names_a_choice = [&](const Json& target) {
    return !item.choices.empty() && target.is_number_integer();
  };
  const bool is_list = item.target.is_array();
  if (is_list ? !item.target.empty() && names_a_choice(item.target[0])
              : names_a_choice(item.target)) {
    for (const size_t place : target_choices(item)) texts.push_back(item.choices[place]);
  } else if (is_list) {
    for (const Json& target : item.target) texts.push_back(python_str(target));
  } else if (!item.target.is_null()) {
    texts.push_back(python_str(item.target));
  }
  if (texts.empty()) throw DataError(tr("item {}: there is no right answer", item.doc_id));
  return texts;
}

double choice_metric(const Metric& metric, const Item& item, const std::vector<Answer>& answers,
                     bool& is_near_tie) {
  const std::vector<size_t> right = target_choices(item);
  const std::string& function = metric.name;
  if (function == "exact_match")
    return std::any_of(right.begin(), right.end(), [&](size_t i) { return answers[i].is_greedy; });
  std::vector<double> ranks;
  for (size_t i = 0; i < answers.size(); ++i)
    ranks.push_back(rank_value(function, item.choices[i], answers[i]));
  // max_element keeps the first of equals.
  const size_t best =
      static_cast<size_t>(std::max_element(ranks.begin(), ranks.end()) - ranks.begin());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i != best && is_close(ranks[i], ranks[best])) is_near_tie = true;
  }
  return std::find(right.begin(), right.end(), best) != right.end();
}

Json likelihood_metric(const Metric& metric, const Item& item, const Answer& answer) {
  const std::string& function = metric.name;
  if (function == "acc") return answer.is_greedy ? 1.0 : 0.0;
  if (function == "perplexity") return answer.log_likelihood;
  const std::string text =
      item.target.is_string() ? item.target.get<std::string>() : item.calls.at(0).continuation;
  if (function != "word_perplexity") return Json::array({answer.log_likelihood, text.size()});
  // Python's split at white space: one piece more than there are gaps.
  static const Pattern kGap(R"([\s\x1c-\x1f]+)", PatternUse::kText);
  return Json::array({answer.log_likelihood, kGap.find_all(text).size() + 1});
}

double text_metric(const Metric& metric, const Item& item, const FilteredTexts& answers) {
  const std::string& function = metric.name;
  std::vector<std::string> targets = target_texts(item);
  if (function == "exact_match") return share_right(answers, targets, ExactMatch(metric.arguments));
  if (function == "number_equal") {
    return share_right(answers, targets, [&](const std::string& answer, const std::string& target) {
      return number_equal(answer, target, metric.arguments);
    });
  }
  if (function != "math_equal") throw InternalError("[eval] an unchecked metric " + metric.name);
  if (json_get<bool>(metric.arguments, "parse_target").value_or(false)) {
    for (std::string& target : targets) target = final_math_answer(target).value_or(target);
  }
  return share_right(answers, targets, math_equal);
}

void check_metric(const Metric& metric, OutputType output) {
  if (!metric.arguments.is_object()) throw_wrong_type(metric.name, "a mapping", metric.arguments);
  const std::string& function = metric.name;
  if (!is_known_aggregation(metric.aggregation)) {
    throw DataError(
        tr("metric '{}': there is no aggregation '{}'", metric.name, metric.aggregation),
        tr("there are: {}", fmt::format("{}", fmt::join(aggregation_names(), ", "))));
  }
  if (is_measured_elsewhere(metric) && output == OutputType::kGenerateUntil) {
    if (reported_names(metric).empty()) throw_wrong_type("k", "a whole number", Json::array());
    return;
  }
  const auto* known = known_metric(function, output);
  if (!known) {
    throw DataError(tr("there is no metric '{}' for this kind of output", function),
                    tr("there are: {}", names_for(output)));
  }
  const auto takes = [&](std::string_view key) {
    return std::find(known->arguments.begin(), known->arguments.end(), key) !=
           known->arguments.end();
  };
  for (const auto& [key, value] : metric.arguments.items()) {
    if (!takes(key)) throw DataError(tr("the metric '{}' has no argument '{}'", function, key));
  }
  if (output != OutputType::kGenerateUntil) return;
  Item item;  // reads the types of all arguments and compiles the patterns
  item.target = "1";
  text_metric(metric, item, {{"1"}, true});
}

}  // namespace danlu::eval
