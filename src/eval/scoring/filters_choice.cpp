#include "eval/scoring/filters_choice.h"

#include <utf8proc.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "text/jinja/python_text.h"

namespace danlu::eval {
namespace {

namespace py = text::jinja;

bool is_punctuation(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return true;
    default:
      return false;
  }
}

std::string without_punctuation(std::string_view text) {
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!is_punctuation(py::next_code_point(text, at))) kept += text.substr(begin, at - begin);
  }
  return kept;
}

/// The pattern that matches `text` and nothing else.
std::string escaped(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const bool is_plain =
        (c & 0x80) || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!is_plain) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::string joined_alternatives(const std::vector<std::string>& patterns) {
  std::string all;
  for (const std::string& pattern : patterns) all += (all.empty() ? "" : "|") + pattern;
  return all;
}

}  // namespace

std::optional<std::string> selected_match(const Pattern& pattern, const std::string& text,
                                          int64_t select) {
  const std::vector<Pattern::Match> matches = pattern.find_all(text);
  const auto count = static_cast<int64_t>(matches.size());
  const int64_t place = select < 0 ? count + select : select;
  if (place < 0 || place >= count) return std::nullopt;
  const Pattern::Match& match = matches[static_cast<size_t>(place)];
  std::string found = text.substr(match.begin, match.end - match.begin);
  if (match.groups.size() == 1) {
    found = match.groups[0];
  } else if (!match.groups.empty()) {
    const auto filled = std::find_if(match.groups.begin(), match.groups.end(),
                                     [](const std::string& group) { return !group.empty(); });
    if (filled == match.groups.end()) return std::nullopt;
    found = *filled;
  }
  return std::string(text::jinja::strip(found));
}

std::vector<std::string> texts_of(const Json& object, const char* key) {
  const auto value = json_get<Json>(object, key);
  if (!value) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) throw_wrong_type(key, "a list of strings", *value);
  std::vector<std::string> texts;
  for (const Json& element : *value) {
    if (!element.is_string()) throw_wrong_type(key, "a list of strings", element);
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

ChoiceFinder::ChoiceFinder(const Json& arguments, const Item& item)
    : pattern_(
          json_get<std::string>(arguments, "regex_pattern").value_or(R"(#### (\-?[0-9\.\,]+))"),
          PatternUse::kText),
      select_(json_get<int64_t>(arguments, "group_select").value_or(0)),
      ignore_case_(json_get<bool>(arguments, "ignore_case").value_or(false)),
      ignore_punctuation_(json_get<bool>(arguments, "ignore_punctuation").value_or(false)) {
  for (const std::string& pattern : texts_of(arguments, "regexes_to_ignore"))
    ignored_.emplace_back(pattern, PatternUse::kText);
  const std::vector<std::string> choices =
      item.choices.empty() ? texts_of(item.doc, "choices") : item.choices;
  if (choices.empty()) {
    throw DataError(tr("item {}: multi_choice_regex needs choices", item.doc_id),
                    tr("give the task 'doc_to_choice', or its rows a field 'choices'"));
  }
  std::vector<std::string> texts, letters;
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string letter(1, static_cast<char>('A' + i));
    std::string text = without_ignored(std::string(py::strip(choices[i])));
    texts.push_back(escaped(text));
    letters.push_back(escaped(letter));
    letters_.emplace_back(std::move(text), "(" + letter + ")");
  }
  choice_texts_.emplace(joined_alternatives(texts), PatternUse::kText);
  choice_letters_.emplace(R"(:[\s]*()" + joined_alternatives(letters) + ")", PatternUse::kText);
}

std::string ChoiceFinder::without_ignored(std::string text) const {
  for (const Pattern& pattern : ignored_) text = pattern.removed_from(text);
  if (ignore_case_) text = text::jinja::to_lower(text);
  if (ignore_punctuation_) text = without_punctuation(text);
  return text;
}

std::optional<std::string> ChoiceFinder::find(const std::string& text) const {
  const auto not_empty = [](std::optional<std::string> found) {
    return found && found->empty() ? std::nullopt : std::move(found);
  };
  if (auto found = not_empty(selected_match(pattern_, text, select_))) return found;
  if (auto found = not_empty(selected_match(*choice_texts_, without_ignored(text), select_))) {
    // Where choices have the same text, the last one counts.
    for (size_t i = letters_.size(); i-- > 0;) {
      if (letters_[i].first == *found) return letters_[i].second;
    }
    return found;
  }
  auto letter = not_empty(selected_match(*choice_letters_, text, select_));
  if (letter) letter = "(" + *letter + ")";
  return letter;
}

}  // namespace danlu::eval
