#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/pattern.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

namespace danlu::text::jinja {

namespace {

using Input = const Value&;

Value made(Interpreter& in, std::string text) {
  in.charge(text.size());
  return Value::string(std::move(text));
}

Value trim(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("trim", a, {"chars"});
  const std::string text = to_text(v);
  const Value chars = s.get(0, Value::none());
  return made(in,
              std::string(chars.is_none() ? strip(text) : strip(text, s.text(0, ""), true, true)));
}

/// str(v) of what will be rewritten to at most `growth` times its bytes.
std::string text_to_grow(Interpreter& in, Input v, size_t growth) {
  std::string text = to_text(v);
  in.require_room(text.size() * growth);
  return text;
}

Value upper(Interpreter& in, Input v, const Arguments&) {
  return made(in, to_upper(text_to_grow(in, v, kMaxCaseGrowth)));
}
Value lower(Interpreter& in, Input v, const Arguments&) {
  return made(in, to_lower(text_to_grow(in, v, kMaxCaseGrowth)));
}
Value title(Interpreter& in, Input v, const Arguments&) {
  return made(in, jinja_title(text_to_grow(in, v, kMaxCaseGrowth)));
}
Value capitalize(Interpreter& in, Input v, const Arguments&) {
  return made(in, to_capitalized(text_to_grow(in, v, kMaxCaseGrowth)));
}

Value replace(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("replace", a, {"old", "new", "count"});
  return replaced(in, to_text(v), to_text(s.required(0)), to_text(s.required(1)), s.integer(2, -1));
}

/// Python's re.sub, which evaluation harnesses add to Jinja2.
Value regex_replace(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("regex_replace", a, {"pattern", "repl", "count"});
  const std::string text = to_text(v);
  try {
    return made(in,
                Pattern(to_text(s.required(0)))
                    .replaced(text, to_text(s.required(1)), std::max<int64_t>(s.integer(2, 0), 0)));
  } catch (const PatternError& error) {
    throw EvalError(error.what());
  }
}

Value escape(Interpreter& in, Input v, const Arguments&) {
  std::string out;
  for (const char c : text_to_grow(in, v, std::string_view("&#34;").size())) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return made(in, std::move(out));
}

/// Automatic escaping is off for chat templates, so that text is as safe as it is.
Value safe(Interpreter& in, Input v, const Arguments&) {
  return v.is_string() ? v : made(in, to_text(v));
}
Value string(Interpreter& in, Input v, const Arguments&) {
  return v.is_string() ? v : made(in, to_text(v));
}

Value indent(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("indent", a, {"width", "first", "blank"});
  std::string margin;
  if (s.has(0) && s.get(0, v).is_string()) {
    margin = s.text(0, "");
  } else {
    margin.assign(static_cast<size_t>(std::clamp<int64_t>(s.integer(0, 4), 0, 10000)), ' ');
  }
  const bool first = s.boolean(1, false), blank = s.boolean(2, false);
  const std::string text = to_text(v);
  std::string out = first ? margin : "";
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    const bool line_is_blank = i + 1 >= text.size() || text[i + 1] == '\n';
    if (text[i] == '\n' && (blank || !line_is_blank)) {
      out += margin;
      in.charge(margin.size());
    }
  }
  return made(in, std::move(out));
}

Value center(Interpreter& in, Input v, const Arguments& a) {
  const int64_t width =
      std::min<int64_t>(Signature("center", a, {"width"}).integer(0, 80), 100'000);
  const std::string text = to_text(v);
  const int64_t missing = width - static_cast<int64_t>(code_point_count(text));
  if (missing <= 0) return made(in, text);
  // Python puts the odd blank on the left exactly when the width is odd.
  const int64_t left = missing / 2 + (missing & width & 1);
  return made(in, std::string(static_cast<size_t>(left), ' ') + text +
                      std::string(static_cast<size_t>(missing - left), ' '));
}

Value format(Interpreter& in, Input v, const Arguments& a) {
  if (!a.named.empty() && !a.positional.empty())
    throw EvalError("can't handle positional and keyword arguments at the same time");
  DictEntries entries;
  for (const auto& [name, value] : a.named)
    entries.emplace_back(Value::string(std::string(name)), value);
  const Value mapping = Value::dict(std::move(entries));
  return printf_format(in, to_text(v), ValueList(a.positional.begin(), a.positional.end()),
                       a.named.empty() ? nullptr : &mapping);
}

Value truncate(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("truncate", a, {"length", "killwords", "end", "leeway"});
  const std::string text = to_text(v), end = s.text(2, "...");
  const int64_t length = s.integer(0, 255), leeway = s.integer(3, 5);
  const int64_t end_length = static_cast<int64_t>(code_point_count(end));
  if (length < end_length)
    throw EvalError(fmt::format("expected length >= {}, got {}", end_length, length));
  if (static_cast<int64_t>(code_point_count(text)) - leeway <= length) return made(in, text);
  std::string cut = text.substr(0, byte_offset(text, length - end_length));
  if (!s.boolean(1, false)) cut.resize(std::min(cut.rfind(' '), cut.size()));
  return made(in, cut + end);
}

Value wordcount(Interpreter&, Input v, const Arguments&) {
  const std::string text = to_text(v);
  int64_t count = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    const auto word = [&] {
      return c == U'_' || c >= 0x80 ? !is_python_space(c) : std::isalnum(static_cast<int>(c)) != 0;
    };
    const bool now = word();
    count += now && !inside;
    inside = now;
  }
  return Value::integer(count);
}

/// in_query: a slash is quoted and a blank becomes +.
void append_url_quoted(std::string_view text, bool in_query, std::string& out) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || std::string_view("_.-~").find(c) != std::string_view::npos ||
        (c == '/' && !in_query)) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      fmt::format_to(std::back_inserter(out), "%{:02X}", byte);
    }
  }
}

Value urlencode(Interpreter& in, Input v, const Arguments&) {
  std::string out;
  if (!v.is_dict() && !v.is_sequence()) {
    append_url_quoted(text_to_grow(in, v, std::string_view("%20").size()), false, out);
    return made(in, std::move(out));
  }
  const auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    append_url_quoted(to_text(key), true, out);
    out += '=';
    append_url_quoted(to_text(value), true, out);
  };
  if (v.is_dict()) {
    for (const auto& [key, value] : v.entries()) add(key, value);
  } else {
    for (const Value& pair : v.items()) {
      if (!pair.is_sequence() || pair.items().size() != 2) throw EvalError("urlencode needs pairs");
      add(pair.items()[0], pair.items()[1]);
    }
  }
  return made(in, std::move(out));
}

Value tojson(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("tojson", a, {"ensure_ascii", "indent", "separators", "sort_keys"});
  // Jinja2's own tojson takes indent as its first argument; Hugging Face's takes ensure_ascii.
  const Value first = s.get(0, Value::boolean(false));
  const bool first_is_indent = first.kind() == Kind::kInt;
  const int64_t width = first_is_indent ? first.as_int() : s.integer(1, -1);
  std::string item_separator, key_separator = ": ";
  if (const Value separators = s.get(2, Value::none());
      separators.is_sequence() && separators.items().size() == 2) {
    item_separator = to_text(separators.items()[0]);
    key_separator = to_text(separators.items()[1]);
  }
  return made(in, to_json_text(v, static_cast<int>(std::clamp<int64_t>(width, -1, 64)),
                               !first_is_indent && truthy(first), s.boolean(3, false),
                               item_separator, key_separator, in.bytes_left()));
}

Value int_filter(Interpreter&, Input v, const Arguments& a) {
  const Signature s("int", a, {"default", "base"});
  const Value fallback = s.get(0, Value::integer(0));
  if (v.is_integral()) return Value::integer(v.as_int());
  if (v.kind() == Kind::kFloat) {
    const double d = std::trunc(v.as_double());
    return std::isfinite(d) && std::abs(d) < 9.2e18 ? Value::integer(static_cast<int64_t>(d))
                                                    : fallback;
  }
  if (!v.is_string()) return fallback;
  std::string text(strip(v.as_string()));
  std::erase(text, '_');
  std::string_view digits = text;
  if (digits.starts_with("+")) digits.remove_prefix(1);
  const int64_t base = s.integer(1, 10);
  if (base < 2 || base > 36) throw EvalError("int() base must be >= 2 and <= 36");
  if ((base == 16 && (digits.starts_with("0x") || digits.starts_with("0X"))))
    digits.remove_prefix(2);
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, static_cast<int>(base));
  if (error == std::errc() && end == digits.data() + digits.size()) return Value::integer(number);
  char* stop = nullptr;
  const double d = std::strtod(text.c_str(), &stop);
  const bool whole = !text.empty() && *stop == '\0' && std::isfinite(d) && std::abs(d) < 9.2e18;
  return whole ? Value::integer(static_cast<int64_t>(d)) : fallback;
}

Value float_filter(Interpreter&, Input v, const Arguments& a) {
  Value fallback = Signature("float", a, {"default"}).get(0, Value::real(0.0));
  if (v.is_number()) return Value::real(v.as_double());
  if (!v.is_string()) return fallback;
  const std::string text(strip(v.as_string()));
  char* stop = nullptr;
  const double d = std::strtod(text.c_str(), &stop);
  return !text.empty() && *stop == '\0' ? Value::real(d) : fallback;
}

Value round_filter(Interpreter&, Input v, const Arguments& a) {
  const Signature s("round", a, {"precision", "method"});
  if (!v.is_number()) throw EvalError(fmt::format("round() needs a number, got {}", type_name(v)));
  const int64_t precision = std::clamp<int64_t>(s.integer(0, 0), -300, 300);
  const std::string method = s.text(1, "common");
  if (method == "common") {
    if (v.is_integral() && precision >= 0) return Value::integer(v.as_int());
    if (precision < 0) {
      const double scale = std::pow(10.0, static_cast<double>(-precision));
      const double d = std::nearbyint(v.as_double() / scale) * scale;
      return v.is_integral() ? Value::integer(integer_of(d)) : Value::real(d);
    }
    // Correct rounding of the decimal expansion, ties to even, as Python's round().
    return Value::real(
        std::strtod(fmt::format("{:.{}f}", v.as_double(), precision).c_str(), nullptr));
  }
  if (method != "ceil" && method != "floor")
    throw EvalError("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = v.as_double() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value abs_filter(Interpreter&, Input v, const Arguments&) {
  if (v.is_integral()) {
    if (v.as_int() == INT64_MIN) throw EvalError(kTooLargeInteger);
    return Value::integer(std::abs(v.as_int()));
  }
  if (v.kind() == Kind::kFloat) return Value::real(std::abs(v.as_double()));
  throw EvalError(fmt::format("bad operand type for abs(): '{}'", type_name(v)));
}

Value default_filter(Interpreter&, Input v, const Arguments& a) {
  const Signature s("default", a, {"default_value", "boolean"});
  const bool missing = v.is_undefined() || (s.boolean(1, false) && !truthy(v));
  return missing ? s.get(0, Value::string("")) : v;
}

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, FilterFunction> kTable[] = {
      {"trim", trim},
      {"upper", upper},
      {"lower", lower},
      {"title", title},
      {"capitalize", capitalize},
      {"replace", replace},
      {"regex_replace", regex_replace},
      {"escape", escape},
      {"e", escape},
      {"forceescape", escape},
      {"safe", safe},
      {"string", string},
      {"indent", indent},
      {"center", center},
      {"format", format},
      {"truncate", truncate},
      {"wordcount", wordcount},
      {"urlencode", urlencode},
      {"tojson", tojson},
      {"int", int_filter},
      {"float", float_filter},
      {"round", round_filter},
      {"abs", abs_filter},
      {"default", default_filter},
      {"d", default_filter},
  };
  for (const auto& [known, function] : kTable) {
    if (known == name) return function;
  }
  return nullptr;
}

FilterFunction find_filter(std::string_view name) {
  const FilterFunction text = find_text_filter(name);
  return text ? text : find_sequence_filter(name);
}

}  // namespace danlu::text::jinja
