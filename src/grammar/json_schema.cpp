#include "grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "grammar/formats.h"
#include "grammar/regex.h"
#include "grammar/schema_merge.h"

namespace danlu::grammar {
namespace {

constexpr int kMaxSchemaDepth = 100;
/// References that lead to themselves would be merged for ever, and twice as often a level.
constexpr int kMaxMerges = 2000;
constexpr size_t kMaxSchemaBytes = 1 << 20;

struct TypeKeyword {
  std::string_view keyword, type;
};
constexpr TypeKeyword kTypeKeywords[] = {
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"patternProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"additionalItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"uniqueItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},
};
constexpr std::string_view kOtherKeywords[] = {"type",  "enum",  "const", "anyOf",
                                               "oneOf", "allOf", "$ref",  "nullable"};
constexpr std::string_view kTypes[] = {"object",  "array",   "string", "number",
                                       "integer", "boolean", "null"};

std::string_view type_of_keyword(const std::string& keyword) {
  for (const TypeKeyword& known : kTypeKeywords) {
    if (known.keyword == keyword) return known.type;
  }
  return "";
}

template <typename List>
bool is_one_of(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

bool is_of_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (!value.is_number()) return false;
  return type == "number" || value.is_number_integer() ||
         std::trunc(value.get<double>()) == value.get<double>();
}

Json without(Json schema, std::string_view key) {
  schema.erase(std::string(key));
  return schema;
}

bool only_describes(const Json& schema, std::string_view beside) {
  for (const auto& [key, value] : schema.items()) {
    if (key != beside && !is_annotation(key)) return false;
  }
  return true;
}

bool has_type(const Json& schema, std::string_view type) {
  const Json named = schema.value("type", Json());
  return named == type ||
         (named.is_array() && std::find(named.begin(), named.end(), type) != named.end());
}

/// A bound as the next whole number inside it.
std::optional<int64_t> whole_bound(const Json& value, bool is_low, bool exclusive) {
  const double bound = value.get<double>();
  if (!value.is_number_integer()) {
    if (std::abs(bound) > 9e15) return std::nullopt;
    const auto whole = static_cast<int64_t>(is_low ? std::ceil(bound) : std::floor(bound));
    const bool is_whole = static_cast<double>(whole) == bound;
    return whole + (exclusive && is_whole ? (is_low ? 1 : -1) : 0);
  }
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  const int64_t whole = value.get<int64_t>();
  if (exclusive && whole == (is_low ? INT64_MAX : INT64_MIN)) return std::nullopt;
  return whole + (exclusive ? (is_low ? 1 : -1) : 0);
}

}  // namespace

SchemaWriter::SchemaWriter(AutomatonBuilder& builder, JsonParts& parts, const Json& root,
                           std::string where)
    : builder_(builder), parts_(parts), root_(root), where_(std::move(where)) {}

void SchemaWriter::fail(const Path& path, const std::string& what) const {
  throw GrammarError(tr("[{}] {}: {}", where_, path, what));
}

void SchemaWriter::add(State from, State to) {
  if (dump_text(root_).size() > kMaxSchemaBytes)
    fail("#", tr("the schema is longer than {} bytes", kMaxSchemaBytes));
  schema(root_, "#", from, to);
  finish_rules();
}

void SchemaWriter::finish_rules() {
  while (!waiting_.empty()) {
    const Waiting next = std::move(waiting_.back());
    waiting_.pop_back();
    schema(next.schema, next.path, next.rule.begin, next.rule.end);
  }
}

Rule SchemaWriter::rule_of(const Json& schema, const std::string& key, const Path& path) {
  const auto known = rules_.find(key);
  if (known != rules_.end()) return known->second;
  const Rule rule = builder_.add_rule();
  rules_.emplace(key, rule);
  waiting_.push_back({schema, path, rule});
  return rule;
}

void SchemaWriter::schema(const Json& schema, const Path& path, State from, State to) {
  if (schema == true) return parts_.any_value(from, to);
  if (schema == false) return;  // nothing satisfies it
  if (!schema.is_object()) fail(path, tr("a schema must be an object or true or false"));
  if (depth_ == kMaxSchemaDepth)
    fail(path, tr("schemas are nested more than {} deep", kMaxSchemaDepth));
  ++depth_;
  keywords(schema, path, from, to);
  --depth_;
}

void SchemaWriter::keywords(const Json& schema, const Path& path, State from, State to) {
  for (const auto& [key, value] : schema.items()) {
    if (!is_annotation(key) && type_of_keyword(key).empty() && !is_one_of(kOtherKeywords, key))
      fail(path, tr("keyword '{}' is not supported", key));
  }
  if (schema.value("nullable", Json(false)) == true) {
    builder_.literal(from, to, "null");
    return keywords(without(schema, "nullable"), path, from, to);
  }
  if (schema.contains("allOf") || (schema.contains("$ref") && !only_describes(schema, "$ref")))
    return keywords(merged_all_of(schema, path, 0), path, from, to);
  if (schema.contains("$ref")) return reference(schema["$ref"], path, from, to);
  for (const char* key : {"anyOf", "oneOf"}) {
    if (schema.contains(key)) return any_of(schema, key, path, from, to);
  }
  if (enumeration(schema, path, from, to)) return;
  const auto types = types_of(schema, path);
  if (types.empty()) return parts_.any_value(from, to);
  for (const std::string& type : types) typed(type, schema, path, from, to);
}

const Json& SchemaWriter::target_of(const Json& reference, const Path& path) const {
  if (!reference.is_string()) fail(path, tr("\"$ref\" must be a string"));
  const std::string& text = reference.get_ref<const std::string&>();
  if (!text.starts_with("#"))
    fail(path, tr("\"$ref\": '{}' is outside of the schema; only '#/…' is followed", text));
  if (text != "#" && !text.starts_with("#/"))
    fail(path, tr("\"$ref\": '{}' is no JSON pointer", text));
  try {
    const Json::json_pointer pointer(text.substr(1));
    if (root_.contains(pointer)) return root_[pointer];
  } catch (const Json::exception&) {
  }
  fail(path, tr("\"$ref\": '{}' leads nowhere", text));
}

void SchemaWriter::reference(const Json& target, const Path& path, State from, State to) {
  const Json& schema = target_of(target, path);
  const auto pointer = target.get<std::string>();
  builder_.call(from, to, rule_of(schema, pointer, pointer));
}

/// A schema in place of a reference to it, as merging needs it.
Json SchemaWriter::without_reference(const Json& schema, const Path& path, int depth) const {
  if (!schema.is_object()) return schema;
  if (depth > kMaxSchemaDepth)
    fail(path, tr("schemas are nested more than {} deep", kMaxSchemaDepth));
  if (schema.contains("$ref") || schema.contains("allOf"))
    return merged_all_of(schema, path, depth);
  return schema;
}

/// One schema without allOf and $ref that says what all say.
Json SchemaWriter::merged_all_of(const Json& schema, const Path& path, int depth) const {
  const SchemaError cannot = [&](const std::string& what) { fail(path, what); };
  if (++merges_ > kMaxMerges) fail(path, tr("more than {} schemas are merged", kMaxMerges));
  Json result = without(without(schema, "allOf"), "$ref");
  if (schema.contains("$ref"))
    result = merge_schemas(
        result, without_reference(target_of(schema["$ref"], path), path, depth + 1), cannot);
  if (!schema.contains("allOf")) return result;
  const Json& all = schema["allOf"];
  if (!all.is_array() || all.empty()) fail(path, tr("\"{}\" must be a list of schemas", "allOf"));
  for (size_t i = 0; i < all.size(); ++i) {
    const Path inner = path + "/allOf/" + std::to_string(i);
    result = merge_schemas(result, without_reference(all[i], inner, depth + 1), cannot);
  }
  return result;
}

void SchemaWriter::any_of(const Json& schema, const char* key, const Path& path, State from,
                          State to) {
  const Json& choices = schema[key];
  if (!choices.is_array() || choices.empty())
    fail(path, tr("\"{}\" must be a list of schemas", key));
  const Json rest = without(schema, key);
  const bool is_alone = only_describes(rest, "");
  const SchemaError cannot = [&](const std::string& what) { fail(path, what); };
  for (size_t i = 0; i < choices.size(); ++i) {
    const Path inner = path + "/" + key + "/" + std::to_string(i);
    // What stands beside the list holds for each of it.
    if (is_alone) {
      this->schema(choices[i], inner, from, to);
    } else {
      this->schema(merge_schemas(rest, without_reference(choices[i], inner, 0), cannot), inner,
                   from, to);
    }
  }
}

/// False if there is none.
bool SchemaWriter::enumeration(const Json& schema, const Path& path, State from, State to) {
  const bool has_const = schema.contains("const");
  if (!has_const && !schema.contains("enum")) return false;
  if (!has_const && (!schema["enum"].is_array() || schema["enum"].empty()))
    fail(path, tr("\"enum\" must be a list of values"));
  for (const auto& [key, value] : schema.items()) {
    if (!is_annotation(key) && key != "type" && key != "enum" && key != "const")
      fail(path, tr("'{}' beside enum or const is not supported", key));
  }
  Json values = has_const ? Json::array({schema["const"]}) : schema["enum"];
  if (has_const && schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), schema["const"]) ==
          schema["enum"].end()) {
    fail(path, tr("the constant is not in the enumeration"));
  }
  const auto types = types_of(schema, path);
  std::vector<std::string> words;
  bool has_any = false;
  for (const Json& value : values) {
    const bool fits = types.empty() || std::any_of(types.begin(), types.end(), [&](const auto& t) {
                        return is_of_type(value, t);
                      });
    if (!fits) continue;
    has_any = true;
    if (value.is_structured()) {
      parts_.constant(from, to, value);
    } else {
      words.push_back(parts_.spelled(value));
    }
  }
  if (!has_any) fail(path, tr("no value of the enumeration is of the type"));
  builder_.words(from, to, words);
  return true;
}

std::vector<std::string> SchemaWriter::types_of(const Json& schema, const Path& path) const {
  std::vector<std::string> types;
  if (const auto type = schema.find("type"); type != schema.end()) {
    for (const Json& one : type->is_array() ? *type : Json::array({*type})) {
      if (!one.is_string() || !is_one_of(kTypes, one.get<std::string>()))
        fail(path, tr("'{}' is no type", dump_text(one)));
      types.push_back(one.get<std::string>());
    }
    if (types.empty()) fail(path, tr("\"type\" names none"));
    return types;
  }
  for (const auto& [key, value] : schema.items()) {
    const std::string type(type_of_keyword(key));
    if (!type.empty() && !is_one_of(types, type)) types.push_back(type);
  }
  return types;
}

void SchemaWriter::typed(const std::string& type, const Json& schema, const Path& path, State from,
                         State to) {
  if (type == "object") return object(schema, path, from, to);
  if (type == "array") return array(schema, path, from, to);
  if (type == "string") return string(schema, path, from, to);
  if (type == "integer") return integer(schema, path, from, to);
  if (type == "number") return number(schema, path, from, to);
  if (type == "boolean") return parts_.boolean(from, to);
  builder_.literal(from, to, "null");
}

std::optional<uint64_t> SchemaWriter::count(const Json& schema, const char* key,
                                            const Path& path) const {
  const auto found = schema.find(key);
  if (found == schema.end()) return std::nullopt;
  const bool is_count = found->is_number() && found->get<double>() >= 0 &&
                        found->get<double>() < 1e15 &&
                        std::trunc(found->get<double>()) == found->get<double>();
  if (!is_count) fail(path, tr("\"{}\" must be a whole number from 0 on", key));
  return found->get<uint64_t>();
}

/// False where items may be alike. What differs from a value that came before needs a memory, so
/// there may be but a few values.
bool SchemaWriter::distinct_array(const Json& schema, const Path& path, State from, State to) {
  const auto unique = schema.find("uniqueItems");
  if (unique == schema.end() || *unique == false) return false;
  const uint64_t least = count(schema, "minItems", path).value_or(0);
  const auto most = count(schema, "maxItems", path);
  if (most && *most < 2) return false;
  const Path inner = path + "/items";
  const Json items = without_reference(schema.value("items", Json()), inner, 0);
  Json values = Json::array();
  if (items.is_object() && items.contains("const")) values.push_back(items["const"]);
  if (items.is_object() && !items.contains("const") && items.value("enum", Json()).is_array()) {
    for (const Json& value : items["enum"]) {
      if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    }
  }
  if (values.empty() || values.size() > kMaxDistinct || schema.contains("prefixItems")) {
    fail(path, tr("uniqueItems is followed where all items are of one enumeration of at most {} "
                  "values",
                  kMaxDistinct));
  }
  std::vector<Rule> rules;
  for (const Json& value : values) {
    Json one = without(items, "enum");
    one["const"] = value;
    const auto types = types_of(one, inner);
    const bool fits = types.empty() || std::any_of(types.begin(), types.end(), [&](const auto& t) {
                        return is_of_type(value, t);
                      });
    if (fits) rules.push_back(rule_of(one, dump_text(one), inner));
  }
  if (least > rules.size()) fail(path, tr("there are fewer values than items that must differ"));
  parts_.distinct_items(from, to, rules, least, most);
  return true;
}

void SchemaWriter::array(const Json& schema, const Path& path, State from, State to) {
  if (distinct_array(schema, path, from, to)) return;
  static const Json kAny = true;
  const auto items = schema.find("items");
  const bool is_old = items != schema.end() && items->is_array();
  const char* listed_key = is_old ? "items" : "prefixItems";
  const auto listed = schema.find(listed_key);
  const char* rest_key = is_old ? "additionalItems" : "items";
  const auto rest_at = schema.find(rest_key);
  const Json& rest = rest_at == schema.end() ? kAny : *rest_at;
  const size_t num_listed = listed == schema.end() ? 0 : listed->size();
  if (listed != schema.end() && !listed->is_array())
    fail(path, tr("\"{}\" must be a list of schemas", listed_key));

  const uint64_t least = count(schema, "minItems", path).value_or(0);
  const auto most = count(schema, "maxItems", path);
  if (most && *most < least) fail(path, tr("the lower bound is above the upper one"));
  JsonParts::Add add_rest;
  if (rest != false) {
    add_rest = [&](State a, State b) {
      if (rest == true) return parts_.any_value(a, b);
      // By what it says: a schema that was merged stands nowhere.
      builder_.call(a, b, rule_of(rest, dump_text(rest), path + "/" + rest_key));
    };
  }
  parts_.array(
      from, to, num_listed,
      [&](size_t i, State a, State b) {
        this->schema((*listed)[i], path + "/" + listed_key + "/" + std::to_string(i), a, b);
      },
      add_rest, least, most);
}

void SchemaWriter::string(const Json& schema, const Path& path, State from, State to) {
  const auto least = count(schema, "minLength", path), most = count(schema, "maxLength", path);
  const auto pattern = schema.find("pattern"), format = schema.find("format");
  const bool has_length = (least && *least > 0) || most;
  if ((pattern != schema.end()) + (format != schema.end()) + has_length > 1)
    fail(path, tr("of pattern, format and a length only one at a time is supported"));
  if (most && least.value_or(0) > *most) fail(path, tr("the lower bound is above the upper one"));
  if (has_length) return parts_.string(from, to, least.value_or(0), most);
  if (pattern == schema.end() && format == schema.end()) return parts_.string(from, to);
  const State inside = builder_.add_state(), behind = builder_.add_state();
  builder_.literal(from, inside, "\"");
  builder_.literal(behind, to, "\"");
  pattern_of(schema, path, inside, behind, parts_.spelling());
}

/// What "pattern" or "format" says.
void SchemaWriter::pattern_of(const Json& schema, const Path& path, State from, State to,
                              Spelling spelling) {
  const bool has_pattern = schema.contains("pattern");
  const Json& said = schema[has_pattern ? "pattern" : "format"];
  if (!said.is_string())
    fail(path, tr("\"{}\" must be a string", has_pattern ? "pattern" : "format"));
  std::string text = said;
  if (!has_pattern) {
    const auto known = pattern_of_format(text);
    if (!known) fail(path, tr("format '{}' is not known; known: {}", text, format_names()));
    text = *known;
  }
  try {
    add_regex(builder_, from, to, text, has_pattern ? RegexUse::kSearch : RegexUse::kWhole,
              spelling);
  } catch (const GrammarError& e) {
    fail(path, e.what());
  }
}

double SchemaWriter::factor_of(const Json& schema, const Path& path) const {
  const auto found = schema.find("multipleOf");
  if (found == schema.end()) return 1;
  if (!found->is_number() || !(found->get<double>() > 0))
    fail(path, tr("\"{}\" must be a number above 0", "multipleOf"));
  return found->get<double>();
}

void SchemaWriter::integer(const Json& schema, const Path& path, State from, State to) {
  std::optional<int64_t> least, most;
  if (const Json format = schema.value("format", Json()); format == "int32") {
    least = INT32_MIN;
    most = INT32_MAX;
  } else if (!format.is_null() && format != "int64" && !has_type(schema, "string")) {
    fail(path, tr("format '{}' is not known; known: {}", dump_text(format), "int32, int64"));
  }
  for (const auto& [key, value] : schema.items()) {
    if (type_of_keyword(key) != "number") continue;
    if (key == "multipleOf") continue;
    if (!value.is_number()) fail(path, tr("\"{}\" must be a number", key));
    const bool is_low = key == "minimum" || key == "exclusiveMinimum";
    const auto bound = whole_bound(value, is_low, key.starts_with("exclusive"));
    if (!bound) fail(path, tr("\"{}\": {} is too large", key, dump_text(value)));
    if (is_low) least = std::max(least.value_or(INT64_MIN), *bound);
    if (!is_low) most = std::min(most.value_or(INT64_MAX), *bound);
  }
  if (least && most && *least > *most) fail(path, tr("the lower bound is above the upper one"));
  const double factor = factor_of(schema, path);
  // Whole numbers are multiples of 0.5 or 0.01 all the same.
  if (std::trunc(1 / factor) == 1 / factor) return parts_.integer(from, to, least, most);
  add_multiples(factor, least, most, path, from, to);
}

void SchemaWriter::add_multiples(double factor, std::optional<int64_t> least,
                                 std::optional<int64_t> most, const Path& path, State from,
                                 State to) {
  constexpr int64_t kMostListed = 1000;
  constexpr double kLargest = 1e15;
  if (std::trunc(factor) != factor || factor > kLargest)
    fail(path, tr("multipleOf {} is not supported: it must be whole", factor));
  const auto whole = static_cast<int64_t>(factor);
  const bool is_listed = least && most && std::abs(*least) < kLargest &&
                         std::abs(*most) < kLargest && (*most - *least) / whole < kMostListed;
  if (is_listed) {
    std::vector<std::string> words;
    int64_t first = *least / whole * whole;
    if (first < *least) first += whole;
    for (int64_t value = first; value <= *most; value += whole)
      words.push_back(std::to_string(value));
    if (words.empty()) fail(path, tr("no multiple of {} is between the bounds", whole));
    return builder_.words(from, to, words);
  }
  if (static_cast<uint64_t>(whole) > kMaxFactor) {
    fail(path, tr("multipleOf {} is followed up to {}, or between bounds with at most {} values",
                  whole, kMaxFactor, kMostListed));
  }
  parts_.multiples(from, to, least, most, static_cast<uint64_t>(whole));
}

/// How many decimals numbers have that this divides: 1 of 0.1, 2 of 0.01; none for others.
std::optional<size_t> SchemaWriter::decimals_of(double factor) {
  double power = 10;
  for (size_t decimals = 1; decimals <= 10; ++decimals, power *= 10) {
    if (factor == 1 / power) return decimals;
  }
  return std::nullopt;
}

void SchemaWriter::number(const Json& schema, const Path& path, State from, State to) {
  const double factor = factor_of(schema, path);
  const auto decimals = decimals_of(factor);
  if (schema.contains("multipleOf") && !decimals) return integer(schema, path, from, to);
  std::optional<NumberBound> least, most;
  const Json format = schema.value("format", Json());
  if (!format.is_null() && format != "float" && format != "double" && !has_type(schema, "string"))
    fail(path, tr("format '{}' is not known; known: {}", dump_text(format), "float, double"));
  for (const auto& [key, value] : schema.items()) {
    if (type_of_keyword(key) != "number") continue;
    if (key == "multipleOf") continue;
    if (!value.is_number()) fail(path, tr("\"{}\" must be a number", key));
    const auto whole = whole_bound(value, true, false);
    if (!whole || static_cast<double>(*whole) != value.get<double>())
      fail(path, tr("\"{}\": {} is no whole number, which a bound of numbers must be", key,
                    dump_text(value)));
    const bool exclusive = key.starts_with("exclusive");
    std::optional<NumberBound>& bound = key.ends_with("inimum") ? least : most;
    const bool is_tighter = !bound ||
                            (&bound == &least ? *whole > bound->value : *whole < bound->value) ||
                            (*whole == bound->value && exclusive);
    if (is_tighter) bound = NumberBound{*whole, exclusive};
  }
  if (!least && !most && !decimals) return parts_.number(from, to);
  if (least && most && least->value > most->value)
    fail(path, tr("the lower bound is above the upper one"));
  parts_.number(from, to, least, most, decimals.value_or(JsonParts::kFractionDigits));
}

}  // namespace danlu::grammar
