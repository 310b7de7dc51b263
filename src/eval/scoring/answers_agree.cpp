#include "eval/scoring/answers_agree.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/pattern.h"
#include "eval/scoring/math_expression.h"
#include "text/jinja/python_text.h"

namespace danlu::eval {
namespace {

constexpr size_t kMaxComparedBytes = 2000;
constexpr const char* kRowEnd = "\x1e";  // for \\, whose second half is no space before an entry

std::string without(std::string text, std::string_view what, std::string_view by = "") {
  return text::jinja::replace_all(text, what, by);
}

std::string without_margins(std::string_view text) { return std::string(text::jinja::strip(text)); }

/// The end of the group that opens at text[begin], after its closing bracket; npos if it has none.
/// Every kind of bracket counts alike, because intervals close with another one.
size_t group_end(std::string_view text, size_t begin) {
  int64_t depth = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '(' || c == '[' || c == '{') ++depth;
    if ((c == ')' || c == ']' || c == '}') && --depth == 0) return at + 1;
  }
  return std::string_view::npos;
}

/// The parts between `separator`s that stand in no bracket.
std::vector<std::string> parts_of(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  int64_t depth = 0;
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (depth != 0 || !text.substr(at).starts_with(separator)) continue;
    parts.push_back(without_margins(text.substr(begin, at - begin)));
    begin = at + separator.size();
    at = begin - 1;
  }
  parts.push_back(without_margins(text.substr(begin)));
  return parts;
}

/// Without what only changes the looks: spaces of TeX, dollars, \text, a full stop at the end.
std::string plain(const std::string& answer) {
  static const Pattern kWords(R"(\\(?:text|mbox|textbf|textit|mathrm|mathbf)\s*\{([^{}]*)\})");
  std::string text = without(without(answer, "\n", " "), "\\\\", kRowEnd);
  for (const char* looks : {"\\left", "\\right", "\\displaystyle", "\\!", "\\;", "\\:", "\\$", "$"})
    text = without(std::move(text), looks);
  for (const char* space : {"\\,", "\\ ", "~", "\t", "\\quad"})
    text = without(std::move(text), space, " ");
  for (const auto& [long_name, name] :
       std::array<std::pair<const char*, const char*>, 6>{{{"\\leq", "\\le"},
                                                           {"\\geq", "\\ge"},
                                                           {"\\neq", "\\ne"},
                                                           {"≤", "\\le"},
                                                           {"≥", "\\ge"},
                                                           {"∪", "\\cup"}}})
    text = without(std::move(text), long_name, name);
  text = kWords.replaced(text, R"( \1 )");
  text = without_margins(text);
  while (text.ends_with('.') || text.ends_with(',') || text.ends_with(';')) text.pop_back();
  return without_margins(text);
}

bool is_digit_at(const std::string& text, size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

/// Whether the three characters at `at` are digits and a fourth is none: "000" of "10 000".
bool is_group_at(const std::string& text, size_t at) {
  for (const size_t digit : {at, at + 1, at + 2}) {
    if (!is_digit_at(text, digit)) return false;
  }
  return !is_digit_at(text, at + 3);
}

/// Without spaces, but for those that part two numbers: "2 3" is not 23, "10 000" is 10000.
std::string without_spaces(const std::string& text) {
  std::string joined;
  bool parted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') {
      parted = true;
      continue;
    }
    const bool parts_numbers = parted && !joined.empty() &&
                               is_digit_at(joined, joined.size() - 1) && is_digit_at(text, i) &&
                               !is_group_at(text, i);
    if (parts_numbers) joined += ' ';
    joined += text[i];
    parted = false;
  }
  return joined;
}

std::string as_words(const std::string& text) {
  std::string words = text::jinja::to_lower(text);
  for (const char* looks : {"\\", "'", "\""}) words = without(std::move(words), looks);
  return without_spaces(words);
}

/// Digits alone, of which a double would forget some: without groups, zeros in front and after the
/// point. Nothing for any other text.
std::optional<std::string> numeral(const std::string& text) {
  static const Pattern kNumeral(R"(([+-]?)(\d{1,3}(?:,\d{3})+|\d+)(\.\d*)?)");
  if (!kNumeral.matches(text)) return std::nullopt;
  std::string sign, digits;
  for (const char c : text) {
    if (c == '-') sign = "-";
    if (c != ',' && c != '+' && c != '-') digits += c;
  }
  if (digits.find('.') != std::string::npos) {
    while (digits.back() == '0') digits.pop_back();
    if (digits.back() == '.') digits.pop_back();
  }
  const size_t first = digits.find_first_not_of('0');
  if (first == std::string::npos) return "0";
  digits.erase(0, digits[first] == '.' ? first - 1 : first);
  return sign + digits;
}

/// A number and the unit after it: "10 cm" is "10". Nothing if that is not what it is.
std::optional<std::string> without_unit(const std::string& text) {
  static const Pattern kMeasure(R"(([+-]?[\d.,]*\d)\s*(?:[A-Za-z][A-Za-z. ]*?(?:\^?[23])?)\s*)");
  return kMeasure.matches(text) ? kMeasure.last_group(text) : std::nullopt;
}

std::optional<std::string> choice_of(const std::string& text) {
  static const Pattern kChoice(R"(\(?([A-Z])[).:]?)");
  if (!kChoice.matches(text)) return std::nullopt;
  return kChoice.last_group(text);
}

/// The right side of "x = 5", where the left one is a name.
std::string without_name(const std::string& text) {
  static const Pattern kNamed(R"(\s*\\?[A-Za-z]+(?:_\{?\w+\}?)?(?:\([A-Za-z]\))?\s*)");
  const std::vector<std::string> sides = parts_of(text, "=");
  if (sides.size() != 2 || !kNamed.matches(sides[0]) || sides[1].empty()) return text;
  return sides[1];
}

class Comparison {
 public:
  bool agree(const std::string& reference, const std::string& answer) {
    if (++depth_ > 8) return false;
    const bool result = agree_plain(plain(reference), plain(answer));
    --depth_;
    return result;
  }

 private:
  bool agree_plain(const std::string& a, const std::string& b) {
    if (as_words(a) == as_words(b)) return true;
    if (const auto decided = as_numerals(a, b)) return *decided;
    if (const auto decided = as_matrices(a, b)) return *decided;
    if (const auto decided = as_relations(a, b)) return *decided;
    const std::string value_a = without_name(a), value_b = without_name(b);
    if (value_a != a || value_b != b) return equations_agree(a, b, value_a, value_b);
    if (const auto decided = as_collections(a, b)) return *decided;
    return values_agree(a, b);
  }

  static std::optional<bool> as_numerals(const std::string& a, const std::string& b) {
    const auto numeral_a = numeral(a), numeral_b = numeral(b);
    if (!numeral_a || !numeral_b) return std::nullopt;
    return *numeral_a == *numeral_b;
  }

  bool equations_agree(const std::string& a, const std::string& b, const std::string& value_a,
                       const std::string& value_b) {
    if (agree(value_a, value_b)) return true;
    const bool both = value_a != a && value_b != b;
    return both && same_equation(a, b);
  }

  /// Whether the differences of the equations' sides are the same but for a factor.
  static bool same_equation(const std::string& a, const std::string& b) {
    const std::vector<std::string> sides_a = parts_of(a, "="), sides_b = parts_of(b, "=");
    if (sides_a.size() != 2 || sides_b.size() != 2) return false;
    const auto quotient = MathExpression::parse("((" + sides_a[0] + ")-(" + sides_a[1] + "))/((" +
                                                sides_b[0] + ")-(" + sides_b[1] + "))");
    if (!quotient || !quotient->has_variables()) return false;
    const std::complex<double> first = quotient->value(0);
    if (!std::isfinite(first.real()) || std::abs(first) == 0) return false;
    for (uint64_t sample = 1; sample < 4; ++sample) {
      if (!(std::abs(quotient->value(sample) - first) <= 1e-9 * std::abs(first))) return false;
    }
    return true;
  }

  std::optional<bool> as_relations(const std::string& a, const std::string& b) {
    for (const char* sign : {"\\le", "\\ge", "\\ne", "<", ">"}) {
      const std::vector<std::string> sides_a = parts_of(a, sign), sides_b = parts_of(b, sign);
      if (sides_a.size() == 1 && sides_b.size() == 1) continue;
      if (sides_a.size() != sides_b.size()) return false;
      return all_agree(sides_a, sides_b);
    }
    if (parts_of(a, "=").size() == 2 && parts_of(b, "=").size() == 2 && same_equation(a, b))
      return true;
    return std::nullopt;
  }

  std::optional<bool> as_matrices(const std::string& a, const std::string& b) {
    static const Pattern kMatrix(R"(\\begin\{([pbvBV]?)matrix\}(.*)\\end\{[pbvBV]?matrix\})");
    const auto matrix_a = kMatrix.find(a), matrix_b = kMatrix.find(b);
    if (!matrix_a && !matrix_b) return std::nullopt;
    if (!matrix_a || !matrix_b) return false;
    const auto entries = [](const std::string& inside) {
      std::vector<std::vector<std::string>> rows;
      for (const std::string& row : parts_of(inside, kRowEnd)) {
        if (!row.empty()) rows.push_back(parts_of(row, "&"));
      }
      return rows;
    };
    const auto rows_a = entries(matrix_a->groups[1]), rows_b = entries(matrix_b->groups[1]);
    if (rows_a.size() != rows_b.size()) return false;
    for (size_t i = 0; i < rows_a.size(); ++i) {
      if (!all_agree(rows_a[i], rows_b[i])) return false;
    }
    return true;
  }

  bool all_agree(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!agree(a[i], b[i])) return false;
    }
    return true;
  }

  bool agree_in_any_order(const std::vector<std::string>& a, std::vector<std::string> b) {
    if (a.size() != b.size() || a.size() > 64) return false;
    return std::all_of(a.begin(), a.end(), [&](const std::string& element) {
      const auto same = std::find_if(
          b.begin(), b.end(), [&](const std::string& other) { return agree(element, other); });
      if (same == b.end()) return false;
      b.erase(same);
      return true;
    });
  }

  struct Collection {
    std::string opening, closing;
    std::vector<std::string> elements;
  };

  /// \{1,2\}, (1,2), [0,1) and "1, 2". Nothing for a formula in brackets.
  static std::optional<Collection> collection(const std::string& text) {
    if (text.starts_with("\\{") && text.ends_with("\\}")) {
      const std::string_view inside = std::string_view(text).substr(2, text.size() - 4);
      return Collection{"{", "}", parts_of(inside, ",")};
    }
    const bool is_bracketed =
        !text.empty() && (text[0] == '(' || text[0] == '[') && group_end(text, 0) == text.size();
    const std::string_view inside =
        is_bracketed ? std::string_view(text).substr(1, text.size() - 2) : std::string_view(text);
    std::vector<std::string> elements = parts_of(inside, ",");
    if (elements.size() < 2) return std::nullopt;
    if (!is_bracketed) return Collection{"", "", std::move(elements)};
    return Collection{text.substr(0, 1), text.substr(text.size() - 1), std::move(elements)};
  }

  std::optional<bool> as_collections(const std::string& a, const std::string& b) {
    const std::vector<std::string> union_a = parts_of(a, "\\cup"), union_b = parts_of(b, "\\cup");
    if (union_a.size() > 1 || union_b.size() > 1) return agree_in_any_order(union_a, union_b);
    // 1,234 is a number, and a list of two only where the other is a list.
    if (numeral(a) || numeral(b)) return std::nullopt;
    const auto collection_a = collection(a), collection_b = collection(b);
    if (!collection_a && !collection_b) return std::nullopt;
    if (!collection_a || !collection_b) return false;
    const bool is_ordered = collection_a->opening == "(" || collection_a->opening == "[";
    if (is_ordered) {
      return collection_a->opening == collection_b->opening &&
             collection_a->closing == collection_b->closing &&
             all_agree(collection_a->elements, collection_b->elements);
    }
    if (collection_b->opening == "(" || collection_b->opening == "[") return false;
    return agree_in_any_order(collection_a->elements, collection_b->elements);
  }

  static std::optional<std::string> without_percent(const std::string& text) {
    for (const char* sign : {"\\%", "%"}) {
      if (text.ends_with(sign))
        return without_margins(
            std::string_view(text).substr(0, text.size() - std::string_view(sign).size()));
    }
    return std::nullopt;
  }

  bool values_agree(const std::string& a, const std::string& b) {
    const auto percent_a = without_percent(a), percent_b = without_percent(b);
    if (percent_a && percent_b) return agree(*percent_a, *percent_b);
    if (percent_a) return agree(*percent_a, b) || agree("(" + *percent_a + ")/100", b);
    if (percent_b) return agree(a, *percent_b) || agree(a, "(" + *percent_b + ")/100");
    const auto choice_a = choice_of(a), choice_b = choice_of(b);
    if (choice_a && choice_b) return *choice_a == *choice_b;
    const std::string number_a = without_unit(a).value_or(a),
                      number_b = without_unit(b).value_or(b);
    // A unit may be missing, but two are to be the same.
    const bool both = number_a != a && number_b != b;
    if (!both && (number_a != a || number_b != b)) {
      if (const auto decided = as_numerals(number_a, number_b)) return *decided;
    }
    const auto formula_a = MathExpression::parse(both ? a : number_a);
    const auto formula_b = MathExpression::parse(both ? b : number_b);
    return formula_a && formula_b && same_values(*formula_a, *formula_b);
  }

  int depth_ = 0;
};

std::optional<std::string> last_line_after(std::string_view text, const Pattern& words) {
  const auto all = words.find_all(text);
  if (all.empty()) return std::nullopt;
  std::string_view rest = text.substr(all.back().end);
  rest = rest.substr(0, rest.find('\n'));
  // What stands before the end of a sentence counts; a point between digits ends none.
  static const Pattern kEnd(R"([.。](?:\s|$)|。)", PatternUse::kText);
  if (const auto end = kEnd.find(rest)) rest = rest.substr(0, end->begin);
  std::string answer = without_margins(rest);
  if (answer.empty()) return std::nullopt;
  return answer;
}

const Pattern& hashes() {
  static const Pattern kHashes(R"(####)");
  return kHashes;
}

const Pattern& formulas() {
  static const Pattern kDollars(R"((?<!\\)\$((?:[^$\\]|\\.)+)\$)");
  return kDollars;
}

const Pattern& sayings() {
  static const Pattern kSays(R"((?:[Aa]nswer is|[Aa]nswer:|答案是|答案为|答案：)\s*:?)",
                             PatternUse::kText);
  return kSays;
}

std::string_view behind_thoughts(std::string_view text) {
  const size_t thought = text.rfind("</think>");
  return thought == std::string_view::npos ? text : text.substr(thought + 8);
}

bool has_box(std::string_view text) {
  return text.find("\\boxed") != std::string_view::npos ||
         text.find("\\fbox") != std::string_view::npos;
}

/// What the last <answer>…</answer> holds.
std::optional<std::string_view> last_tagged(std::string_view text) {
  const size_t end = text.rfind("</answer>");
  const size_t begin = end == std::string_view::npos ? end : text.rfind("<answer>", end);
  if (begin == std::string_view::npos) return std::nullopt;
  return text.substr(begin + 8, end - begin - 8);
}

}  // namespace

bool answers_agree(const std::string& reference, const std::string& answer) {
  if (reference.size() > kMaxComparedBytes || answer.size() > kMaxComparedBytes)
    return reference == answer;
  try {
    return Comparison().agree(reference, answer);
  } catch (const PatternError&) {
    return reference == answer;  // too many steps
  }
}

std::optional<std::string> last_boxed(std::string_view text) {
  const size_t boxed = text.rfind("\\boxed"), fbox = text.rfind("\\fbox");
  const bool is_fbox =
      boxed == std::string_view::npos || (fbox != std::string_view::npos && fbox > boxed);
  const size_t begin = is_fbox ? fbox : boxed;
  if (begin == std::string_view::npos) return std::nullopt;
  size_t at = begin + (is_fbox ? 5 : 6);
  while (at < text.size() && text[at] == ' ') ++at;
  if (at == text.size()) return std::nullopt;
  if (text[at] != '{') {
    const std::string_view rest = text.substr(at);
    return without_margins(rest.substr(0, rest.find_first_of("$\n ")));
  }
  int64_t depth = 0;
  for (size_t end = at; end < text.size(); ++end) {
    if (text[end] == '{') ++depth;
    if (text[end] == '}' && --depth == 0) return without_margins(text.substr(at + 1, end - at - 1));
  }
  return std::nullopt;
}

std::optional<std::string> stated_answer(std::string_view text) {
  static const Pattern kNumber(R"(\A\s*[-+]?\d[\d,]*(?:\.\d+)?(?:/\d+)?\s*%?\s*\z)");
  text = behind_thoughts(text);
  if (has_box(text)) return last_boxed(text);
  if (auto answer = last_line_after(text, hashes())) return answer;
  if (const auto inside = last_tagged(text)) {
    const auto stated = stated_answer(*inside);
    return stated ? stated : without_margins(*inside);
  }
  const auto found = formulas().find_all(text);
  if (!found.empty()) return without_margins(found.back().groups[0]);
  if (auto answer = last_line_after(text, sayings())) return answer;
  if (kNumber.matches(text)) return without_margins(text);
  return std::nullopt;
}

std::optional<std::string> answer_in_reference(std::string_view reference) {
  reference = behind_thoughts(reference);
  if (has_box(reference)) return last_boxed(reference);
  if (auto answer = last_line_after(reference, hashes())) return answer;
  if (const auto inside = last_tagged(reference)) {
    const auto within = answer_in_reference(*inside);
    return within ? within : without_margins(*inside);
  }
  if (auto answer = last_line_after(reference, sayings())) return answer;
  // Several formulas may be an answer of several parts.
  const auto found = formulas().find_all(reference);
  return found.size() == 1 ? std::optional(without_margins(found.front().groups[0])) : std::nullopt;
}

}  // namespace danlu::eval
