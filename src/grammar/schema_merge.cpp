#include "grammar/schema_merge.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"

namespace danlu::grammar {
namespace {

constexpr std::array<std::string_view, 15> kAnnotations = {
    "title",     "description", "default",     "examples",         "example",
    "$comment",  "$schema",     "$id",         "deprecated",       "readOnly",
    "writeOnly", "$defs",       "definitions", "contentMediaType", "contentEncoding"};

Json as_list(const Json& value) { return value.is_array() ? value : Json::array({value}); }

Json in_both(const Json& a, const Json& b) {
  Json result = Json::array();
  for (const Json& value : a) {
    if (std::find(b.begin(), b.end(), value) != b.end()) result.push_back(value);
  }
  return result;
}

Json merged_types(const Json& a, const Json& b) {
  Json result = Json::array();
  const Json list_a = as_list(a), list_b = as_list(b);
  const auto has = [](const Json& list, const char* type) {
    return std::find(list.begin(), list.end(), type) != list.end();
  };
  for (const Json& type : list_a) {
    const bool also =
        has(list_b, type.is_string() ? type.get_ref<const std::string&>().c_str() : "");
    if (also || (type == "integer" && has(list_b, "number"))) result.push_back(type);
    if (type == "number" && has(list_b, "integer") && !has(list_b, "number") &&
        !has(list_a, "integer")) {
      result.push_back("integer");
    }
  }
  return result;
}

Json merged_required(const Json& a, const Json& b) {
  Json result = a;
  for (const Json& name : b) {
    if (std::find(result.begin(), result.end(), name) == result.end()) result.push_back(name);
  }
  return result;
}

bool is_low_bound(const std::string& key) {
  return key == "minimum" || key == "exclusiveMinimum" || key == "minLength" || key == "minItems";
}
bool is_high_bound(const std::string& key) {
  return key == "maximum" || key == "exclusiveMaximum" || key == "maxLength" || key == "maxItems";
}

Json merged_members(const Json& a, const Json& b, const SchemaError& fail) {
  Json result = a;
  for (const auto& [name, schema] : b.items()) {
    if (result.contains(name)) {
      result[name] = merge_schemas(result[name], schema, fail);
    } else {
      result[name] = schema;
    }
  }
  return result;
}

/// A closed object knows nothing of members that only the other names.
void refuse_closed_objects(const Json& a, const Json& b, const SchemaError& fail) {
  const auto closes = [](const Json& schema) {
    const auto found = schema.find("additionalProperties");
    return found != schema.end() && *found != true;
  };
  const auto names = [](const Json& schema) {
    std::vector<std::string> result;
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [name, unused] : properties.items()) result.push_back(name);
    std::sort(result.begin(), result.end());
    return result;
  };
  if ((closes(a) || closes(b)) && names(a) != names(b))
    fail(tr("schemas with additionalProperties and other members are not merged"));
}

}  // namespace

bool is_annotation(const std::string& keyword) {
  return std::find(kAnnotations.begin(), kAnnotations.end(), keyword) != kAnnotations.end();
}

Json merge_schemas(const Json& a, const Json& b, const SchemaError& fail) {
  if (a == true || b == false) return b;
  if (b == true || a == false) return a;
  if (!a.is_object() || !b.is_object()) fail(tr("a schema must be an object or true or false"));
  refuse_closed_objects(a, b, fail);
  Json result = a;
  for (const auto& [key, value] : b.items()) {
    const auto mine = result.find(key);
    if (mine == result.end()) {
      result[key] = value;
    } else if (*mine == value || is_annotation(key)) {
      continue;
    } else if (key == "type") {
      *mine = merged_types(*mine, value);
      if (mine->empty()) fail(tr("no type is in both schemas"));
    } else if (key == "enum" && mine->is_array() && value.is_array()) {
      *mine = in_both(*mine, value);
      if (mine->empty()) fail(tr("no value is in both enumerations"));
    } else if (key == "required" && mine->is_array() && value.is_array()) {
      *mine = merged_required(*mine, value);
    } else if (key == "properties" && mine->is_object() && value.is_object()) {
      *mine = merged_members(*mine, value, fail);
    } else if (key == "items") {
      *mine = merge_schemas(*mine, value, fail);
    } else if (is_low_bound(key) && mine->is_number() && value.is_number()) {
      if (*mine < value) *mine = value;
    } else if (is_high_bound(key) && mine->is_number() && value.is_number()) {
      if (value < *mine) *mine = value;
    } else {
      fail(tr("two schemas with different '{}' are not merged", key));
    }
  }
  return result;
}

}  // namespace danlu::grammar
