#include "data/megatron/python_json.h"

#include <fmt/format.h>

#include <cmath>

#include "text/jinja/python_text.h"

namespace danlu::data {
namespace {

std::string json_string(const Json& text) {
  return text.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

void write_value(const Json& value, int depth, std::string& out) {
  const auto line = [&](int levels) {
    out += '\n';
    out.append(static_cast<size_t>(levels) * 4, ' ');
  };
  if (value.is_object() || value.is_array()) {
    const char open = value.is_object() ? '{' : '[', close = value.is_object() ? '}' : ']';
    out += open;
    bool first = true;
    for (const auto& item : value.items()) {
      if (!first) out += ',';
      first = false;
      line(depth + 1);
      if (value.is_object()) {
        out += json_string(item.key());
        out += ": ";
      }
      write_value(item.value(), depth + 1, out);
    }
    if (!first) line(depth);
    out += close;
  } else if (value.is_string()) {
    out += json_string(value);
  } else if (value.is_number_float()) {
    out += python_float(value.get<double>());
  } else {
    out += value.dump();
  }
}

}  // namespace

std::string python_float(double value) {
  // json.dumps writes these as JavaScript does; every other float as repr().
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return text::jinja::float_repr(value);
}

std::string python_json(const Json& value) {
  std::string out;
  write_value(value, 0, out);
  return out;
}

}  // namespace danlu::data
