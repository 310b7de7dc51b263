// tests/grammar/validator.h: JSON Schema by its definition, as far as the tests write schemas.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>

#include "base/json.h"
#include "base/pattern.h"
#include "text/tokenizer/utf8.h"

namespace danlu::grammar {

class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}
  bool accepts(const Json& value) const { return fits(root_, value); }

 private:
  static bool is_type(const std::string& type, const Json& v) {
    if (type == "object") return v.is_object();
    if (type == "array") return v.is_array();
    if (type == "string") return v.is_string();
    if (type == "boolean") return v.is_boolean();
    if (type == "null") return v.is_null();
    if (type == "number") return v.is_number();
    return v.is_number() && std::trunc(v.get<double>()) == v.get<double>();
  }
  static size_t length(const std::string& text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  }

  bool fits(const Json& s, const Json& v) const {
    if (s.is_boolean()) return s.get<bool>();
    if (s.contains("$ref")) {
      const Json& target = root_[Json::json_pointer(s["$ref"].get<std::string>().substr(1))];
      if (!fits(target, v)) return false;
    }
    if (s.contains("type")) {
      const Json types = s["type"].is_array() ? s["type"] : Json::array({s["type"]});
      if (!std::any_of(types.begin(), types.end(), [&](const Json& t) { return is_type(t, v); }))
        return false;
    }
    if (s.contains("const") && v != s["const"]) return false;
    if (s.contains("enum") && std::find(s["enum"].begin(), s["enum"].end(), v) == s["enum"].end())
      return false;
    for (const char* key : {"anyOf", "oneOf"}) {
      if (s.contains(key) &&
          !std::any_of(s[key].begin(), s[key].end(), [&](const Json& one) { return fits(one, v); }))
        return false;
    }
    for (const Json& one : s.value("allOf", Json::array())) {
      if (!fits(one, v)) return false;
    }
    if (v.is_object()) return object_fits(s, v);
    if (v.is_array()) return array_fits(s, v);
    if (v.is_string()) return string_fits(s, v.get<std::string>());
    if (v.is_number()) return number_fits(s, v);
    return true;
  }

  bool object_fits(const Json& s, const Json& v) const {
    for (const Json& name : s.value("required", Json::array())) {
      if (!v.contains(name.get<std::string>())) return false;
    }
    const Json properties = s.value("properties", Json::object());
    const Json patterned = s.value("patternProperties", Json::object());
    for (const auto& [key, inner] : v.items()) {
      bool is_named = properties.contains(key);
      if (is_named && !fits(properties[key], inner)) return false;
      for (const auto& [pattern, schema] : patterned.items()) {
        if (!Pattern(pattern).is_found_in(key)) continue;
        is_named = true;
        if (!fits(schema, inner)) return false;
      }
      if (is_named) {
        continue;
      } else if (s.contains("additionalProperties") && !fits(s["additionalProperties"], inner)) {
        return false;
      }
    }
    return true;
  }

  bool array_fits(const Json& s, const Json& v) const {
    if (s.contains("minItems") && v.size() < s["minItems"].get<size_t>()) return false;
    if (s.contains("maxItems") && v.size() > s["maxItems"].get<size_t>()) return false;
    for (size_t i = 0; s.value("uniqueItems", false) && i < v.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (v[i] == v[k]) return false;
      }
    }
    const Json listed = s.value("prefixItems", Json::array());
    for (size_t i = 0; i < v.size(); ++i) {
      if (i < listed.size() ? !fits(listed[i], v[i])
                            : s.contains("items") && !fits(s["items"], v[i]))
        return false;
    }
    return true;
  }

  bool string_fits(const Json& s, const std::string& v) const {
    if (s.contains("minLength") && length(v) < s["minLength"].get<size_t>()) return false;
    if (s.contains("maxLength") && length(v) > s["maxLength"].get<size_t>()) return false;
    return !s.contains("pattern") || Pattern(s["pattern"].get<std::string>()).is_found_in(v);
  }

  bool number_fits(const Json& s, const Json& v) const {
    if (s.contains("multipleOf")) {
      const double times = v.get<double>() / s["multipleOf"].get<double>();
      if (std::abs(times - std::round(times)) > 1e-6) return false;
    }
    if (s.contains("minimum") && v < s["minimum"]) return false;
    if (s.contains("maximum") && v > s["maximum"]) return false;
    if (s.contains("exclusiveMinimum") && v <= s["exclusiveMinimum"]) return false;
    return !s.contains("exclusiveMaximum") || v < s["exclusiveMaximum"];
  }

  const Json& root_;
};

}  // namespace danlu::grammar
