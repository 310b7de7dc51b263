#include "base/option_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/json_text.h"
#include "base/nearest_name.h"
#include "base/option_elements.h"

namespace danlu::option_text {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) {
    text.remove_suffix(1);
  }
  return text;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

[[noreturn]] void refuse(const std::string& where, std::string_view rule, std::string_view text) {
  throw UsageError(tr("{}: expected {}, got '{}'", where, rule, text));
}

std::string rule_of(const OptionSpec& spec, std::string_view noun) {
  return spec.range ? spec.range->rule(noun) : std::string(noun);
}

/// Integral, and small enough that a double holds it exactly.
std::optional<int64_t> integer_of(double wide) {
  if (std::trunc(wide) != wide || std::abs(wide) > 9007199254740992.0) return {};
  return static_cast<int64_t>(wide);
}

/// What 8k, 25.6k and 8K are: as vLLM reads them, k, m and g are thousands, K, M and G of 1024.
std::optional<int64_t> multiple_of(std::string_view word) {
  if (word.size() < 2 || std::isdigit(static_cast<unsigned char>(word[word.size() - 2])) == 0)
    return {};
  constexpr std::string_view kUnits = "kmgKMG";
  const size_t unit = kUnits.find(word.back());
  const auto count = parse_number<double>(word.substr(0, word.size() - 1));
  if (unit == kUnits.npos || !count) return {};
  const bool is_binary = unit >= 3;
  if (is_binary && std::trunc(*count) != *count) return {};
  // 25.6 is a little less in binary; its thousands are not.
  const double all =
      *count * std::pow(is_binary ? 1024.0 : 1000.0, static_cast<double>(unit % 3 + 1));
  const double whole = std::round(all);
  return std::abs(all - whole) <= 1e-9 * std::abs(whole) ? integer_of(whole) : std::nullopt;
}

std::optional<int64_t> integer_of(std::string_view word) {
  if (const auto exact = parse_number<int64_t>(word)) return exact;
  if (const auto wide = parse_number<double>(word)) return integer_of(*wide);  // 2e8 and 1.0
  return multiple_of(word);
}

std::string canonical_int(const OptionSpec& spec, const std::string& text,
                          const std::string& where) {
  const auto value = integer_of(trim(text));
  const bool fits = value && (!spec.range || spec.range->contains(static_cast<double>(*value)));
  const bool is_beyond = !value && parse_number<double>(trim(text)) &&
                         trim(text).find_first_not_of("+-0123456789") == std::string_view::npos;
  if (is_beyond) refuse(where, tr("an integer of at most 9223372036854775807 in size"), text);
  if (!fits) refuse(where, rule_of(spec, "an integer"), text);
  return std::to_string(*value);
}

std::string canonical_float(const OptionSpec& spec, const std::string& text,
                            const std::string& where) {
  const std::string_view word = trim(text);
  // Configurations in Python say so of what is off where nothing is said.
  const bool is_none = lower(word) == "none" || lower(word) == "null";
  if (is_none && spec.default_text == "0") return "0";
  if (is_none && spec.may_be_none) return kNoNumber;
  const auto value = parse_number<double>(word);
  const bool fits = value && !std::isnan(*value) && (!spec.range || spec.range->contains(*value));
  const bool is_infinite = value && std::isinf(*value);
  if (!fits) refuse(where, rule_of(spec, is_infinite ? "a finite number" : "a number"), text);
  return std::string(word);
}

/// The first number in it, for int4 and q4_0; "" without one.
std::string_view first_number(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const size_t begin = text.find_first_of(kDigits);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_first_not_of(kDigits, begin) - begin);
}

std::optional<std::string> likely_choice(const std::string& text,
                                         const std::vector<std::string>& choices) {
  if (auto near = nearest_name(text, choices)) return near;
  const std::string_view number = first_number(text);
  // Among several choices with the number the first is taken, since choices are listed from the
  // most usual one on.
  const auto with_number = std::find_if(choices.begin(), choices.end(), [&](const auto& choice) {
    return !number.empty() && first_number(choice) == number;
  });
  if (with_number == choices.end()) return std::nullopt;
  return *with_number;
}

std::string canonical_choice(const OptionSpec& spec, const std::string& text,
                             const std::string& where) {
  if (spec.choices.empty()) return text;
  for (const std::string& choice : spec.choices) {
    if (lower(choice) == lower(text)) return choice;
  }
  std::string hint;
  if (const auto near = likely_choice(text, spec.choices)) {
    hint = tr("did you mean '{}'?", *near);
  }
  throw UsageError(
      tr("{}: expected one of {}, got '{}'", where, fmt::join(spec.choices, " | "), text), hint);
}

std::string canonical_json(const std::string& text, const std::string& where) {
  const std::string_view word = trim(text);
  if (word.ends_with(".json")) return read_json_file(std::string(word)).dump();
  try {
    return parse_json(word, where).dump();
  } catch (const DataError& e) {
    throw UsageError(tr("{}; expected JSON or the path of a .json file", e.what()));
  }
}

/// File names are bytes, and JSON's library takes UTF-8 only: each byte as the character of its
/// number, and back.
std::string bytes_as_text(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) out += static_cast<char>(0xC0 | byte >> 6);
    out += byte < 0x80 ? c : static_cast<char>(0x80 | (byte & 0x3F));
  }
  return out;
}

std::string text_as_bytes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool leads = (text[i] & 0xFC) == 0xC0 && i + 1 < text.size();
    out += leads ? static_cast<char>((text[i] & 3) << 6 | (text[i + 1] & 0x3F)) : text[i];
    i += leads;
  }
  return out;
}

}  // namespace

bool is_inert(const OptionSpec& spec) {
  return !spec.ignored_because.empty() || !spec.unavailable_because.empty();
}

bool is_neutral(const OptionSpec& spec, std::string_view text) {
  static constexpr std::array<std::string_view, 5> kNothing{"", "none", "null", "{}", "[]"};
  const std::string word = lower(trim(text));
  if (std::find(kNothing.begin(), kNothing.end(), word) != kNothing.end()) return true;
  if (!spec.choices.empty()) {
    return std::any_of(spec.choices.begin(), spec.choices.end(),
                       [&](const std::string& choice) { return lower(choice) == word; });
  }
  return word == "0.0" || parse_bool(word) == false;
}

std::string normalise_name(std::string_view spelled) {
  while (spelled.starts_with('-')) spelled.remove_prefix(1);
  std::string out(spelled);
  for (char& c : out) {
    if (c == '-') c = '_';
  }
  return out;
}

std::optional<bool> parse_bool(std::string_view word) {
  static constexpr std::array<std::string_view, 6> kYes{"yes", "true", "t", "y", "1", "on"};
  static constexpr std::array<std::string_view, 6> kNo{"no", "false", "f", "n", "0", "off"};
  const std::string wanted = lower(trim(word));
  for (const std::string_view yes : kYes) {
    if (wanted == yes) return true;
  }
  for (const std::string_view no : kNo) {
    if (wanted == no) return false;
  }
  return std::nullopt;
}

std::vector<std::string> split_list(std::string_view text) {
  text = trim(text);
  if (text.starts_with('[') && text.ends_with(']')) {
    auto parsed = try_parse_json(text);
    const bool is_utf8 = parsed.has_value();
    if (!is_utf8) parsed = try_parse_json(bytes_as_text(text));
    if (parsed && parsed->is_array()) {
      std::vector<std::string> out;
      for (const Json& element : *parsed) {
        out.push_back(element.is_string() ? element.get<std::string>() : element.dump());
        if (!is_utf8) out.back() = text_as_bytes(out.back());
      }
      return out;
    }
  }
  if (text.starts_with('{') && text.ends_with('}') && try_parse_json(text))
    return {std::string(text)};
  std::vector<std::string> out;
  std::string element;
  int depth = 0;
  const auto close = [&] {
    if (const std::string_view kept = trim(element); !kept.empty()) out.emplace_back(kept);
    element.clear();
  };
  for (const char c : text) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == ',' && depth <= 0) {
      close();
    } else {
      element += c;
    }
  }
  close();
  return out;
}

std::vector<std::string> elements_of(const OptionSpec& spec, const std::string& text) {
  if (spec.keeps_words) {
    const auto json = try_parse_json(text);
    const bool is_list = json && json->is_array() &&
                         std::all_of(json->begin(), json->end(),
                                     [](const Json& element) { return element.is_string(); });
    if (!is_list) return {text};
    if (json->empty()) refuse("--" + spec.name, tr("words, or a JSON list of some"), text);
  }
  const std::string& beginning = spec.takes_rest_behind;
  if (beginning.empty() || text.starts_with('[')) return split_list(text);
  for (size_t at = text.find(beginning); at != std::string::npos;
       at = text.find(beginning, at + 1)) {
    const std::string_view before = trim(std::string_view(text).substr(0, at));
    if (!before.empty() && !before.ends_with(',')) continue;
    std::vector<std::string> elements = split_list(before);
    elements.emplace_back(trim(std::string_view(text).substr(at)));
    return elements;
  }
  return split_list(text);
}

std::string list_text(const std::vector<std::string>& elements) {
  try {
    return Json(elements).dump();
  } catch (const Json::type_error&) {
    Json mapped = Json::array();
    for (const std::string& element : elements) mapped.push_back(bytes_as_text(element));
    return text_as_bytes(mapped.dump());
  }
}

std::string canonical(const OptionSpec& spec, const std::string& text, const std::string& where) {
  if (is_inert(spec)) return text;
  switch (spec.type) {
    case OptionType::kString:
      if (const auto value = spec.may_be_alone ? parse_bool(text) : std::nullopt)
        return *value ? "true" : "false";
      return canonical_choice(spec, text, where);
    case OptionType::kInt:
      return canonical_choice(spec, canonical_int(spec, text, where), where);
    case OptionType::kFloat:
      return canonical_float(spec, text, where);
    case OptionType::kBool: {
      const auto value = parse_bool(text);
      if (!value) refuse(where, "true or false", text);
      return *value ? "true" : "false";
    }
    case OptionType::kList: {
      std::vector<std::string> elements = elements_of(spec, text);
      for (std::string& element : elements) element = canonical_choice(spec, element, where);
      return list_text(elements);
    }
    case OptionType::kJson:
      return canonical_json(text, where);
  }
  throw InternalError(fmt::format("[options] {} has no type", spec.name));
}

Json typed_value(const OptionSpec& spec, const std::string& text) {
  if (is_inert(spec)) return text;
  switch (spec.type) {
    case OptionType::kString:
      return text;
    case OptionType::kInt:
      return *parse_number<int64_t>(text);
    case OptionType::kFloat: {
      const double value = *parse_number<double>(text);
      if (std::isinf(value)) return text;  // JSON has no infinity; the text reads back as one
      return value;
    }
    case OptionType::kBool:
      return text == "true";
    case OptionType::kList:
      return split_list(text);
    case OptionType::kJson:
      return parse_json(text, spec.name);
  }
  throw InternalError(fmt::format("[options] {} has no type", spec.name));
}

std::string given_switch(const Options& options, const std::string& name) {
  const std::string given = options.given_as(name);
  const bool value = options.get_bool(name);
  const bool says_no = normalise_name(given).starts_with("no_") && !name.starts_with("no_");
  return says_no && !value ? given : given + (value ? " true" : " false");
}

}  // namespace danlu::option_text
