#include "eval/scoring/python_str.h"

#include "text/jinja/python_text.h"

namespace danlu::eval {
namespace {

void append_repr(const Json& value, std::string& out) {
  if (value.is_string()) {
    text::jinja::append_string_repr(value.get_ref<const std::string&>(), out);
  } else if (value.is_array()) {
    out += '[';
    for (size_t i = 0; i < value.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(value[i], out);
    }
    out += ']';
  } else if (value.is_object()) {
    out += '{';
    bool is_first = true;
    for (const auto& [key, element] : value.items()) {
      if (!is_first) out += ", ";
      is_first = false;
      text::jinja::append_string_repr(key, out);
      out += ": ";
      append_repr(element, out);
    }
    out += '}';
  } else {
    out += python_str(value);
  }
}

}  // namespace

std::string python_str(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return value.get<std::string>();
    case Json::value_t::boolean:
      return value.get<bool>() ? "True" : "False";
    case Json::value_t::null:
      return "None";
    case Json::value_t::number_float:
      return text::jinja::float_repr(value.get<double>());
    case Json::value_t::array:
    case Json::value_t::object: {
      std::string out;
      append_repr(value, out);
      return out;
    }
    default:
      return value.dump();
  }
}

}  // namespace danlu::eval
