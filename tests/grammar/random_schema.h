// tests/grammar/random_schema.h: schemas drawn by chance, and documents that satisfy them.
#pragma once
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"

namespace danlu::grammar {

class RandomSchemas {
 public:
  explicit RandomSchemas(unsigned seed) : random_(seed) {}
  size_t below(size_t bound) { return random_() % bound; }

  Json schema() {
    Json result = node(0);
    if (result.is_object()) {
      result["$defs"] =
          Json{{"leaf", {{"type", "integer"}, {"minimum", -3}, {"maximum", 120}}},
               {"tree",
                {{"type", "object"},
                 {"properties",
                  {{"v", {{"type", "string"}}},
                   {"next", {{"anyOf", {{{"type", "null"}}, {{"$ref", "#/$defs/tree"}}}}}}}},
                 {"required", {"v"}},
                 {"additionalProperties", false}}}};
    }
    return result;
  }

  /// A document that satisfies `s`, with members in its order and spelled as the automaton does.
  Json document(const Json& s, const Json& root, int depth = 0) {
    if (s == true) return any(depth);
    if (s.contains("$ref"))
      return document(root[Json::json_pointer(s["$ref"].get<std::string>().substr(1))], root,
                      depth);
    for (const char* key : {"anyOf", "oneOf"}) {
      if (s.contains(key)) {
        const size_t choice = depth > 8 ? 0 : below(s[key].size());
        return document(s[key][choice], root, depth + 1);
      }
    }
    if (s.contains("const")) return s["const"];
    if (s.contains("enum")) return s["enum"][below(s["enum"].size())];
    const std::string type = s["type"].is_array() ? s["type"][below(s["type"].size())] : s["type"];
    if (type == "object") return object(s, root, depth);
    if (type == "array") return array(s, root, depth);
    if (type == "string") return string(s);
    if (type == "boolean") return below(2) == 0;
    if (type == "null") return nullptr;
    return number(s, type == "integer");
  }

  std::string word() {
    static const std::vector<std::string> kWords = {"a",  "é", "\"", "\\", "\n",  "中",
                                                    "😀", " ", "/",  "b1", "\x01"};
    std::string text;
    for (size_t i = below(5); i > 0; --i) text += kWords[below(kWords.size())];
    return text;
  }

 private:
  Json node(int depth) {
    switch (below(depth > 2 ? 11 : 16)) {
      case 0:
        return {{"type", "string"}};
      case 1:
        return {{"type", "string"}, {"minLength", below(3)}, {"maxLength", 3 + below(4)}};
      case 2:
        return {{"type", "string"}, {"pattern", below(2) ? "^[a-c]{2,4}x?$" : "b1"}};
      case 3: {
        const int low = static_cast<int>(below(2000)) - 1000;
        return {
            {"type", "integer"},
            {below(2) ? "minimum" : "exclusiveMinimum", low},
            {below(2) ? "maximum" : "exclusiveMaximum", low + 2 + static_cast<int>(below(3000))}};
      }
      case 4:
        return below(2) ? Json{{"type", "number"}}
                        : Json{{"type", "number"}, {"minimum", -2}, {"exclusiveMaximum", 3}};
      case 5:
        return {{"type", {"boolean", "null"}}};
      case 6:
        return {{"enum", {"one", 2, 3.5, nullptr, true, {{"k", {1, "x"}}}, "o\"ne"}}};
      case 7:
        return {{"const", word()}};
      case 8:
        return {{"$ref", below(2) ? "#/$defs/leaf" : "#/$defs/tree"}};
      case 9: {
        Json result = {{"type", "integer"}, {"multipleOf", 1 + below(40)}};
        if (below(2)) result["minimum"] = -500;
        if (below(2)) result["maximum"] = 500 + static_cast<int>(below(100000));
        return result;
      }
      case 10:
        return {{"type", "array"},
                {"items", {{"enum", {"x", "y\"", 1, nullptr, {1, 2}}}}},
                {"uniqueItems", true},
                {"minItems", below(3)},
                {"maxItems", 3 + below(5)}};
      case 11:
        return {{"type", "object"},
                {"patternProperties", {{"^a[0-9]", node(depth + 1)}, {"^b$", node(depth + 1)}}},
                {"required", below(2) ? Json::array({"a1"}) : Json::array()}};
      case 12: {
        Json choices = Json::array();
        for (size_t i = 1 + below(3); i > 0; --i) choices.push_back(node(depth + 1));
        return {{below(2) ? "anyOf" : "oneOf", choices}};
      }
      case 13: {
        Json result = {{"type", "array"}, {"items", node(depth + 1)}, {"minItems", below(3)}};
        if (below(2)) result["maxItems"] = 2 + below(4);
        if (below(3) == 0) result["prefixItems"] = {node(depth + 1), node(depth + 1)};
        return result;
      }
      default: {
        Json properties = Json::object(), required = Json::array();
        for (size_t i = below(5); i > 0; --i) {
          const std::string name = word() + std::to_string(i);
          properties[name] = node(depth + 1);
          if (below(2)) required.push_back(name);
        }
        Json result = {{"type", "object"}, {"properties", properties}, {"required", required}};
        switch (below(3)) {
          case 0:
            result["additionalProperties"] = false;
            break;
          case 1:
            result["additionalProperties"] = node(depth + 1);
            break;
          default:
            if (properties.empty() || below(2)) result["additionalProperties"] = true;
        }
        return result;
      }
    }
  }

  Json any(int depth) {
    switch (below(depth > 4 ? 4 : 6)) {
      case 0:
        return word();
      case 1:
        return static_cast<int>(below(1000)) - 500;
      case 2:
        return 0.25;
      case 3:
        return nullptr;
      case 4:
        return Json::array({any(depth + 1), any(depth + 1)});
      default:
        return Json{{word(), any(depth + 1)}};
    }
  }

  Json object(const Json& s, const Json& root, int depth) {
    Json result = Json::object();
    const Json properties = s.value("properties", Json::object());
    for (const auto& [name, inner] : properties.items()) {
      const Json required = s.value("required", Json::array());
      const bool must = std::find(required.begin(), required.end(), name) != required.end();
      if (must || (depth < 8 && below(2))) result[name] = document(inner, root, depth + 1);
    }
    if (s.contains("patternProperties")) {
      const Json& patterned = s["patternProperties"];
      const bool must = s.contains("required") && !s["required"].empty();
      if (must) result["a1"] = document(patterned["^a[0-9]"], root, depth + 1);
      if (depth < 6 && below(2)) result["a7\""] = document(patterned["^a[0-9]"], root, depth + 1);
      if (depth < 6 && below(2)) result["b"] = document(patterned["^b$"], root, depth + 1);
      return result;
    }
    const Json more =
        s.value("additionalProperties", Json(s.value("properties", Json::object()).empty()));
    if (more == false || depth > 6) return result;
    for (size_t i = below(3); i > 0; --i)
      result["more " + std::to_string(i)] = document(more, root, depth + 1);
    return result;
  }

  Json array(const Json& s, const Json& root, int depth) {
    const size_t least = s.value("minItems", size_t{0});
    const size_t most = s.value("maxItems", least + 3);
    const Json listed = s.value("prefixItems", Json::array());
    Json result = Json::array();
    if (s.value("uniqueItems", false)) {
      result = s["items"]["enum"];
      std::shuffle(result.begin(), result.end(), random_);
      const size_t kept = least + below(std::min(most, result.size()) - least + 1);
      while (result.size() > kept) result.erase(result.size() - 1);
      return result;
    }
    const size_t size = depth > 8 ? least : least + below(most - least + 1);
    for (size_t i = 0; i < size; ++i)
      result.push_back(document(i < listed.size() ? listed[i] : s["items"], root, depth + 1));
    return result;
  }

  Json string(const Json& s) {
    if (s.contains("pattern"))
      return s["pattern"] == "b1" ? word() + "b1" + word() : std::string(below(2) ? "abx" : "cccc");
    if (!s.contains("maxLength")) return word();
    static const std::vector<std::string> kOne = {"a", "é", "\"", "😀", "\n"};
    const size_t least = s["minLength"], most = s["maxLength"];
    std::string text;
    for (size_t i = least + below(most - least + 1); i > 0; --i) text += kOne[below(kOne.size())];
    return text;
  }

  Json number(const Json& s, bool whole) {
    if (!whole && !s.contains("minimum")) return std::vector<Json>{-0.5, 1e10, 3, 12.25}[below(4)];
    if (!whole) return std::vector<Json>{-2, -1.5, 0, 2.75}[below(4)];
    if (s.contains("multipleOf")) {
      const int factor = s["multipleOf"].get<int>(), times = 490 / factor;
      return factor * (static_cast<int>(below(2 * times + 1)) - times);
    }
    const int low =
        s.contains("minimum") ? s["minimum"].get<int>() : s["exclusiveMinimum"].get<int>() + 1;
    const int high =
        s.contains("maximum") ? s["maximum"].get<int>() : s["exclusiveMaximum"].get<int>() - 1;
    return low + static_cast<int>(below(high - low + 1));
  }

  std::mt19937 random_;
};

/// As Python's json.dumps.
inline std::string python_spelling(const Json& value) {
  if (!value.is_structured()) return value.dump();
  std::string text(1, value.is_object() ? '{' : '[');
  for (const auto& [key, inner] : value.items()) {
    if (text.size() > 1) text += ", ";
    if (value.is_object()) text += Json(key).dump() + ": ";
    text += python_spelling(inner);
  }
  return text + (value.is_object() ? '}' : ']');
}

}  // namespace danlu::grammar
