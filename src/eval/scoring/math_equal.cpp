#include "eval/scoring/math_equal.h"

#include <charconv>
#include <limits>
#include <system_error>
#include <vector>

#include "base/pattern.h"
#include "text/jinja/python_text.h"

namespace danlu::eval {
namespace {

void replace(std::string& text, std::string_view from, std::string_view to) {
  text = text::jinja::replace_all(text, from, to);
}

std::vector<std::string> split(const std::string& text, std::string_view at) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(at, begin)) != std::string::npos; begin = end + at.size())
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

/// The code point that begins `text`.
std::string first_symbol(const std::string& text) {
  return text.substr(0, text::jinja::byte_offset(text, 1));
}

/// Braces around what \sqrt is of. Nothing if it stands at the end.
std::optional<std::string> with_sqrt_braces(const std::string& text) {
  const std::vector<std::string> parts = split(text, "\\sqrt");
  std::string out = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].empty()) return std::nullopt;
    const std::string symbol = first_symbol(parts[i]);
    out += "\\sqrt";
    out += symbol == "{" ? parts[i] : "{" + symbol + "}" + parts[i].substr(symbol.size());
  }
  return out;
}

/// Braces around numerator and denominator of one symbol each. Nothing if \frac stands at the end.
std::optional<std::string> with_frac_braces(const std::string& text) {
  const std::vector<std::string> parts = split(text, "\\frac");
  std::string out = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    if (part.empty()) return std::nullopt;
    out += "\\frac";
    const std::string above = first_symbol(part);
    if (above == "{") {
      out += part;
      continue;
    }
    const std::string rest = part.substr(above.size());
    if (rest.empty()) return text;
    const std::string below = first_symbol(rest);
    out += "{" + above + "}";
    out += below == "{" ? rest : "{" + below + "}" + rest.substr(below.size());
  }
  return out;
}

/// "-12" and such, as an integer would be printed.
bool is_plain_integer(std::string_view text) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos)
    return false;
  return digits == "0" ? text == "0" : digits[0] != '0';
}

std::string as_fraction(const std::string& text) {
  const std::vector<std::string> parts = split(text, "/");
  if (parts.size() != 2 || !is_plain_integer(parts[0]) || !is_plain_integer(parts[1])) return text;
  return "\\frac{" + parts[0] + "}{" + parts[1] + "}";
}

std::string behind_last_equals(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos) return text;
  return std::string(text::jinja::strip(text.substr(equals + 1), " ", true, false));
}

/// What the last \boxed{…} holds. Nothing if its braces do not close, or it has none.
std::optional<std::string> boxed(const std::string& text) {
  constexpr std::string_view kOpening = "\\boxed{";
  const size_t begin = text.rfind("\\boxed");
  int64_t depth = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    if (text[at] == '{') ++depth;
    if (text[at] != '}' || --depth != 0) continue;
    if (text.compare(begin, kOpening.size(), kOpening) != 0) return std::nullopt;
    const size_t inner = begin + kOpening.size();
    return behind_last_equals(text.substr(inner, at - inner));
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> normal_math_text(std::string text) {
  replace(text, "\n", "");
  replace(text, "\\!", "");
  replace(text, "\\\\", "\\");
  replace(text, "tfrac", "frac");
  replace(text, "dfrac", "frac");
  for (const char* without : {"\\left", "\\right", "^{\\circ}", "^\\circ", "\\$"})
    replace(text, without, "");
  // Behind "\text{ " there is a unit.
  const std::vector<std::string> units = split(text, "\\text{ ");
  if (units.size() > 2) return std::nullopt;
  text = units[0];
  replace(text, "\\%", "");
  replace(text, " .", " 0.");
  replace(text, "{.", "{0.");
  if (text.empty()) return text;
  if (text[0] == '.') text = "0" + text;
  const std::vector<std::string> sides = split(text, "=");
  if (sides.size() == 2 && text::jinja::code_point_count(sides[0]) <= 2) text = sides[1];
  std::optional<std::string> fixed = with_sqrt_braces(text);
  if (!fixed) return std::nullopt;
  replace(*fixed, " ", "");
  fixed = with_frac_braces(*fixed);
  if (!fixed) return std::nullopt;
  if (*fixed == "0.5") return "\\frac{1}{2}";
  return as_fraction(*fixed);
}

bool math_equal(const std::string& a, const std::string& b) {
  const std::optional<std::string> normal_a = normal_math_text(a), normal_b = normal_math_text(b);
  return normal_a && normal_b ? *normal_a == *normal_b : a == b;
}

std::optional<std::string> final_math_answer(const std::string& text) {
  static const Pattern kDollars(R"(\$(.*)\$)", PatternUse::kText);
  static const Pattern kNumber(R"((?:\$)?\d+(?:\.\d+)?(?![\w\d]))", PatternUse::kText);
  if (text.find("\\boxed") != std::string::npos) return boxed(text);
  const auto dollars = kDollars.find_all(text);
  if (!dollars.empty()) {
    std::string answer = behind_last_equals(dollars.back().groups[0]);
    if (!answer.empty()) return answer;
  }
  if (text.find('=') != std::string::npos) {
    std::string answer(text::jinja::strip(behind_last_equals(text), ".", false, true));
    // A line break that was written as two characters ends it.
    return answer.substr(0, answer.find("\\n"));
  }
  const auto numbers = kNumber.find_all(text);
  if (numbers.empty()) return std::nullopt;
  return text.substr(numbers.back().begin, numbers.back().end - numbers.back().begin);
}

std::optional<double> last_number(const std::string& text, bool thousands_separators) {
  static const Pattern kPlain(R"(-?[0-9]+(?:\.[0-9]+)?)");
  static const Pattern kGrouped(
      R"(-?[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|-?[0-9]+(?:\.[0-9]+)?)");
  const auto all = (thousands_separators ? kGrouped : kPlain).find_all(text);
  if (all.empty()) return std::nullopt;
  std::string number;
  for (const char c : text.substr(all.back().begin, all.back().end - all.back().begin)) {
    if (c != ',') number += c;
  }
  double value = 0;
  const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (problem == std::errc::result_out_of_range) return std::numeric_limits<double>::infinity();
  return value;
}

}  // namespace danlu::eval
