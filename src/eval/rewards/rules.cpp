#include "eval/rewards/rules.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "base/pattern.h"
#include "eval/scoring/answers_agree.h"
#include "text/jinja/python_text.h"

namespace danlu::eval {
namespace {

double agrees(const std::string& reference, const std::optional<std::string>& answer,
              double otherwise) {
  if (!answer) return otherwise;
  if (answers_agree(reference, *answer)) return 1;
  const auto within = answer_in_reference(reference);
  return within && answers_agree(*within, *answer) ? 1 : otherwise;
}

std::string last_characters(const std::string& text, size_t count) {
  const auto offsets = text::jinja::code_point_offsets(text);
  return offsets.size() <= count + 1 ? text : text.substr(offsets[offsets.size() - 1 - count]);
}

std::optional<std::string> last_group_found(const Pattern& pattern, const std::string& text) {
  const auto all = pattern.find_all(text);
  if (all.empty()) return std::nullopt;
  return std::string(text::jinja::strip(all.back().groups[0]));
}

size_t count_of(const std::string& text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size()))
    ++count;
  return count;
}

/// What stands after the last "####" of a reference, as GSM8K writes them.
std::string behind_hashes(const std::string& reference) {
  const size_t hashes = reference.rfind("####");
  return hashes == reference.npos ? reference : reference.substr(hashes + 4);
}

std::optional<std::string> chosen_letter(const std::string& text) {
  static const Pattern kLetter(R"((?:^|[^A-Za-z])\(?([A-Z])\)?(?:$|[^A-Za-z]))");
  return last_group_found(kLetter, text);
}

}  // namespace

double accuracy_rule(const std::string& reference, const std::string& text) {
  return agrees(reference, stated_answer(text), 0);
}

double boxed_rule(const std::string& reference, const std::string& text) {
  const auto boxed = last_boxed(text);
  return boxed ? agrees(reference, boxed, -0.5) : -1;
}

double last_boxed_rule(const std::string& reference, const std::string& text) {
  return agrees(reference, last_boxed(text), 0);
}

double tagged_boxed_rule(const std::string& reference, const std::string& text) {
  static const Pattern kTagged(R"((?s)<think>.*?</think>.*?<answer>(.*?\\boxed.*?)</answer>)");
  if (!kTagged.matches(text)) return 0;
  return last_boxed_rule(reference, *kTagged.last_group(text));
}

double answer_line_rule(const std::string& reference, const std::string& text) {
  static const Pattern kLine(R"((?i)answer\s*:\s*([^\n]+))");
  return agrees(reference, last_group_found(kLine, last_characters(text, 300)), -1);
}

double gsm8k_rule(const std::string& reference, const std::string& text) {
  static const Pattern kNumber(R"(#### *(\-?[0-9.,]+))");
  return agrees(behind_hashes(reference), last_group_found(kNumber, last_characters(text, 300)), 0);
}

double choice_rule(const std::string& reference, const std::string& text) {
  const auto stated = stated_answer(text);
  const auto chosen = chosen_letter(stated ? *stated : text), right = chosen_letter(reference);
  return chosen && right && *chosen == *right ? 1 : 0;
}

double format_rule(const std::string& text) {
  static const Pattern kFormat(R"((?s)<think>.*?</think>\s*<answer>.*?</answer>)");
  return kFormat.matches(text) ? 1 : 0;
}

double loose_format_rule(const std::string& text) {
  const bool has_break = text.ends_with('\n');
  return format_rule(has_break ? text.substr(0, text.size() - 1) : text);
}

double strict_format_rule(const std::string& text) {
  const auto once = [&](std::string_view what) { return count_of(text, what) == 1; };
  const bool is_strict = format_rule(text) == 1 && once("<think>") && once("</think>") &&
                         once("<answer>") && once("</answer>") && once("\\boxed");
  return is_strict ? 1 : -0.5;
}

double think_format_rule(const std::string& text) {
  static const Pattern kThink(R"((?s)<think>(?!.*<think>).*?</think>.*)");
  return kThink.matches(text) ? 1 : 0;
}

double react_format_rule(const std::string& text) {
  static const Pattern kReact(R"((?s)<think>.*?</think>\s*Action:.*?Action Input:.*)");
  return kReact.matches(text) ? 1 : 0;
}

double steps_rule(const std::string& text) {
  static const Pattern kStep(R"((?m)Step \d+:|^\d+\.|\n-|\n\*|First,|Second,|Next,|Finally,)");
  return std::min(1.0, static_cast<double>(kStep.find_all(text).size()) / 3);
}

double cosine_rule(bool is_right, int64_t tokens, const RewardSettings& settings) {
  const double at_first = is_right ? settings.cosine_short_right : settings.cosine_short_wrong,
               at_last = is_right ? settings.cosine_long_right : settings.cosine_long_wrong;
  const double share =
      std::min(1.0, static_cast<double>(tokens) / static_cast<double>(settings.cosine_length));
  return at_last + (at_first - at_last) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

double repetition_rule(const std::string& text, const RewardSettings& settings) {
  static const Pattern kWord(R"(\S+)", PatternUse::kText);
  std::vector<std::string> words;
  for (const auto& word : kWord.find_all(text::jinja::to_lower(text)))
    words.push_back(text::jinja::to_lower(text).substr(word.begin, word.end - word.begin));
  const auto length = static_cast<size_t>(settings.repetition_words);
  if (words.size() < length) return 0;
  std::set<std::vector<std::string>> runs;
  const size_t count = words.size() - length + 1;
  for (size_t i = 0; i < count; ++i) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(i);
    runs.emplace(begin, begin + static_cast<std::ptrdiff_t>(length));
  }
  const double share = static_cast<double>(runs.size()) / static_cast<double>(count);
  return (1 - share) * settings.repetition_penalty;
}

double overlong_rule(int64_t tokens, const RewardSettings& settings) {
  const int64_t begin = settings.overlong_length - settings.overlong_buffer;
  if (tokens <= begin) return 0;
  return -static_cast<double>(tokens - begin) / static_cast<double>(settings.overlong_buffer);
}

}  // namespace danlu::eval
