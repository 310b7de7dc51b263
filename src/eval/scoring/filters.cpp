#include "eval/scoring/filters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/pattern.h"
#include "eval/scoring/filters_choice.h"
#include "eval/scoring/math_equal.h"
#include "text/jinja/python_text.h"

namespace danlu::eval {
namespace {

namespace py = text::jinja;
using Texts = std::vector<std::string>;

constexpr const char* kInvalid = "[invalid]";
constexpr const char* kFinalAnswer = R"(#### (\-?[0-9\.\,]+))";

template <typename Change>
void change_each(FilteredTexts& state, const Change& change) {
  for (std::string& text : state.texts) text = change(text);
}

std::string fallback_of(const FilterStep& step) {
  return json_get<std::string>(step.arguments, "fallback").value_or(kInvalid);
}

void regex(const FilterStep& step, const Item&, FilteredTexts& state) {
  const Pattern pattern(
      json_get<std::string>(step.arguments, "regex_pattern").value_or(kFinalAnswer),
      PatternUse::kText);
  const int64_t select = json_get<int64_t>(step.arguments, "group_select").value_or(0);
  const std::string fallback = fallback_of(step);
  change_each(state, [&](const std::string& text) {
    return selected_match(pattern, text, select).value_or(fallback);
  });
}

void pattern_list(const FilterStep& step, const Item&, FilteredTexts& state) {
  std::vector<Pattern> patterns;
  for (const std::string& pattern : texts_of(step.arguments, "patterns"))
    patterns.emplace_back(pattern, PatternUse::kText);
  const int64_t select = json_get<int64_t>(step.arguments, "group_select").value_or(0);
  const std::string fallback = fallback_of(step);
  change_each(state, [&](const std::string& text) {
    for (const Pattern& pattern : patterns) {
      if (auto found = selected_match(pattern, text, select)) return *std::move(found);
    }
    return fallback;
  });
}

void multi_choice_regex(const FilterStep& step, const Item& item, FilteredTexts& state) {
  const ChoiceFinder finder(step.arguments, item);
  const std::string fallback = fallback_of(step);
  change_each(state, [&](const std::string& text) { return finder.find(text).value_or(fallback); });
}

void take_first(const FilterStep&, const Item&, FilteredTexts& state) {
  state.texts.resize(1);
  state.is_one = true;
}

void take_first_k(const FilterStep& step, const Item& item, FilteredTexts& state) {
  const auto k = static_cast<size_t>(json_get<int64_t>(step.arguments, "k").value_or(1));
  if (state.texts.size() < k) {
    throw DataError(
        tr("item {}: take_first_k wants {} answers, got {}", item.doc_id, k, state.texts.size()),
        tr("'repeats' of the task says how many are drawn"));
  }
  state.texts.resize(k);
}

void majority_vote(const FilterStep&, const Item&, FilteredTexts& state) {
  std::map<std::string, size_t> votes;
  for (const std::string& text : state.texts) ++votes[text];
  // max_element keeps the first of equals: the one that was answered first.
  const auto winner =
      std::max_element(state.texts.begin(), state.texts.end(),
                       [&](const auto& a, const auto& b) { return votes[a] < votes[b]; });
  state.texts = {*winner};
}

void lowercase(const FilterStep&, const Item&, FilteredTexts& state) {
  change_each(state, [](const std::string& text) { return py::to_lower(text); });
}

void uppercase(const FilterStep&, const Item&, FilteredTexts& state) {
  change_each(state, [](const std::string& text) { return py::to_upper(text); });
}

std::string text_of_value(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : dump_text(value);
}

void map(const FilterStep& step, const Item&, FilteredTexts& state) {
  const Json mapping = json_get<Json>(step.arguments, "mapping_dict").value_or(Json::object());
  const auto otherwise = json_get<Json>(step.arguments, "default_value");
  change_each(state, [&](const std::string& text) {
    const auto found = mapping.find(text);
    if (found != mapping.end()) return text_of_value(*found);
    return otherwise ? text_of_value(*otherwise) : std::string(kInvalid);
  });
}

void remove_whitespace(const FilterStep&, const Item&, FilteredTexts& state) {
  change_each(state, [](const std::string& text) { return std::string(py::strip(text)); });
}

void first_line(const FilterStep&, const Item&, FilteredTexts& state) {
  change_each(state, [](const std::string& text) {
    const std::string_view whole = py::strip(text);
    return std::string(py::strip(whole.substr(0, whole.find('\n'))));
  });
}

void code_fence(const FilterStep&, const Item&, FilteredTexts& state) {
  change_each(state, [](const std::string& text) {
    const size_t fence = text.find("```");
    if (fence == std::string::npos) return text;
    // Behind the fence there may be a language; without a line's end there is nothing but it.
    const size_t begin = text.find('\n', fence);
    if (begin == std::string::npos) return std::string();
    const size_t end = text.find("```", begin);
    return text.substr(begin + 1, end == std::string::npos ? end : end - begin - 1);
  });
}

void math_answer(const FilterStep&, const Item&, FilteredTexts& state) {
  change_each(state,
              [](const std::string& text) { return final_math_answer(text).value_or(kInvalid); });
}

struct KnownStep {
  std::string_view name;
  void (*apply)(const FilterStep& step, const Item& item, FilteredTexts& state);
  std::initializer_list<std::string_view> arguments;
};

std::span<const KnownStep> known_steps() {
  static const KnownStep kSteps[] = {
      {"regex", regex, {"regex_pattern", "group_select", "fallback"}},
      {"pattern_list", pattern_list, {"patterns", "group_select", "fallback"}},
      {"multi_choice_regex",
       multi_choice_regex,
       {"regex_pattern", "group_select", "fallback", "ignore_case", "ignore_punctuation",
        "regexes_to_ignore"}},
      {"take_first", take_first, {}},
      {"take_first_k", take_first_k, {"k"}},
      {"majority_vote", majority_vote, {}},
      {"lowercase", lowercase, {}},
      {"uppercase", uppercase, {}},
      {"map", map, {"mapping_dict", "default_value"}},
      {"remove_whitespace", remove_whitespace, {}},
      {"first_line", first_line, {}},
      {"code_fence", code_fence, {}},
      {"math_answer", math_answer, {}},
  };
  return kSteps;
}

const KnownStep* known_step(std::string_view name) {
  for (const KnownStep& step : known_steps()) {
    if (step.name == name) return &step;
  }
  return nullptr;
}

void check_step(const FilterStep& step) {
  const KnownStep* known = known_step(step.function);
  if (!known) {
    throw DataError(tr("there is no filter step '{}'", step.function),
                    tr("there are: {}", fmt::format("{}", fmt::join(filter_names(), ", "))));
  }
  if (!step.arguments.is_object()) throw_wrong_type(step.function, "a mapping", step.arguments);
  for (const auto& [key, value] : step.arguments.items()) {
    if (std::find(known->arguments.begin(), known->arguments.end(), key) != known->arguments.end())
      continue;
    throw DataError(tr("the filter step '{}' has no argument '{}'", step.function, key));
  }
  if (step.function == "pattern_list" && texts_of(step.arguments, "patterns").empty())
    throw DataError(tr("the filter step 'pattern_list' needs 'patterns', a list"));
  if (const auto k = json_get<int64_t>(step.arguments, "k"); k && *k < 1)
    throw DataError(tr("'k' of take_first_k must be at least 1, got {}", *k));
  if (const auto mapping = json_get<Json>(step.arguments, "mapping_dict");
      mapping && !mapping->is_object())
    throw_wrong_type("mapping_dict", "a mapping", *mapping);
  // Compiles the patterns and reads the types of all arguments.
  FilteredTexts nothing;
  Item item;
  item.choices = {"a"};
  if (step.function != "take_first" && step.function != "take_first_k" &&
      step.function != "majority_vote")
    known->apply(step, item, nothing);
}

}  // namespace

FilteredTexts apply_filter(const Filter& filter, const Item& item, std::vector<std::string> texts) {
  FilteredTexts state{std::move(texts), false};
  if (state.texts.empty()) throw InternalError("[eval] a filter without answers");
  for (const FilterStep& step : filter.steps) {
    const KnownStep* known = known_step(step.function);
    if (!known) throw InternalError("[eval] an unchecked filter step " + step.function);
    known->apply(step, item, state);
  }
  return state;
}

std::vector<std::string> filter_names() {
  std::vector<std::string> names;
  for (const KnownStep& step : known_steps()) names.emplace_back(step.name);
  return names;
}

void check_filter(const Filter& filter) {
  for (const FilterStep& step : filter.steps) {
    try {
      check_step(step);
    } catch (const Error& error) {
      throw DataError(tr("filter '{}': {}", filter.name, error.what()), error.hint());
    }
  }
}

}  // namespace danlu::eval
