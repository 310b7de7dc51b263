#include <fmt/format.h>

#include <cctype>
#include <cstdio>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

namespace danlu::text::jinja {

namespace {

/// Pads to `width` code points.
std::string padded(std::string text, int width, bool left) {
  const int length = static_cast<int>(code_point_count(text));
  if (length >= width) return text;
  const std::string blanks(static_cast<size_t>(width - length), ' ');
  return left ? text + blanks : blanks + text;
}

struct Conversion {
  std::string flags;
  int width = 0;
  int precision = -1;
  char kind = 's';
};

std::string convert_number(const Conversion& c, const Value& value) {
  if (!value.is_number()) {
    throw EvalError(
        fmt::format("%{} format: a real number is required, not {}", c.kind, type_name(value)));
  }
  std::string spec = "%" + c.flags + "*";
  char buffer[512];
  int length;
  const bool integral = c.kind == 'd' || c.kind == 'i' || c.kind == 'u' || c.kind == 'x' ||
                        c.kind == 'X' || c.kind == 'o';
  if (integral) {
    const long long number = value.is_integral() ? value.as_int() : integer_of(value.as_double());
    const bool based = c.kind == 'x' || c.kind == 'X' || c.kind == 'o';
    spec += std::string(".*ll") + (based ? c.kind : 'd');
    length = std::snprintf(buffer, sizeof buffer, spec.c_str(), c.width, c.precision, number);
  } else {
    spec += std::string(".*") + c.kind;
    length = std::snprintf(buffer, sizeof buffer, spec.c_str(), c.width,
                           c.precision < 0 ? 6 : c.precision, value.as_double());
  }
  if (length < 0 || length >= static_cast<int>(sizeof buffer))
    throw EvalError("a formatted number is too long");
  return buffer;
}

std::string convert(const Conversion& c, const Value& value) {
  std::string text;
  switch (c.kind) {
    case 's':
      text = to_text(value);
      break;
    case 'r':
      append_repr(value, text);
      break;
    case 'c':
      text = to_text(value);
      break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
      return convert_number(c, value);
    default:
      throw EvalError(fmt::format("unsupported format character '{}'", c.kind));
  }
  if (c.precision >= 0) text.resize(byte_offset(text, c.precision));
  return padded(std::move(text), c.width, c.flags.find('-') != std::string::npos);
}

int read_number(std::string_view text, size_t& i) {
  int number = 0;
  while (i < text.size() && std::isdigit(static_cast<unsigned char>(text[i]))) {
    number = number * 10 + (text[i++] - '0');
    if (number > 100000) throw EvalError("a format width is too large");
  }
  return number;
}

}  // namespace

Value printf_format(Interpreter& interpreter, std::string_view text, const ValueList& values,
                    const Value* mapping) {
  std::string out;
  size_t used = 0, charged = 0;
  const auto cut_short = [] { throw EvalError("incomplete format"); };
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '%') {
      out += text[i++];
      continue;
    }
    if (++i >= text.size()) cut_short();
    const Value* named = nullptr;
    if (text[i] == '(') {
      const size_t end = text.find(')', i);
      if (end == std::string_view::npos || !mapping) throw EvalError("format requires a mapping");
      named = dict_find(*mapping, text.substr(i + 1, end - i - 1));
      if (!named)
        throw EvalError(fmt::format("format needs the key '{}'", text.substr(i + 1, end - i - 1)));
      i = end + 1;
    }
    Conversion c;
    while (i < text.size() && std::string_view("-+ #0").find(text[i]) != std::string_view::npos)
      c.flags += text[i++];
    if (c.flags.size() > 8) throw EvalError("too many format flags");
    c.width = read_number(text, i);
    if (i < text.size() && text[i] == '.') c.precision = read_number(text, ++i);
    if (i >= text.size()) cut_short();
    c.kind = text[i++];
    if (c.kind == '%') {
      out += '%';
      continue;
    }
    if (!named && used >= values.size()) throw EvalError("not enough arguments for format string");
    out += convert(c, named ? *named : values[used++]);
    interpreter.charge(out.size() - charged);
    charged = out.size();
  }
  if (used < values.size() && !mapping)
    throw EvalError("not all arguments converted during string formatting");
  interpreter.charge(out.size() - charged);
  return Value::string(std::move(out));
}

}  // namespace danlu::text::jinja
