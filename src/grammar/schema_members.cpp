// Objects of a schema: members in their order, those that patterns tell of, and the same between
// tags.
#include <algorithm>
#include <string_view>

#include "grammar/json_schema.h"
#include "grammar/pattern_text.h"
#include "grammar/regex.h"

namespace danlu::grammar {
namespace {

/// Keys of a JSON pointer.
std::string escaped_key(const std::string& key) {
  std::string text;
  for (const char c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

}  // namespace

/// Two chains go along the properties: before a key, and after a value. From a key that may be
/// absent the chain goes on to the next.
SchemaWriter::Members SchemaWriter::members_of(const Json& schema, const Path& path) const {
  static const Json kNone = Json::object();
  const auto found = schema.find("properties");
  const Json& properties = found == schema.end() ? kNone : *found;
  if (!properties.is_object()) fail(path, tr("\"{}\" must be an object", "properties"));
  const Json required = schema.value("required", Json::array());
  if (!required.is_array()) fail(path, tr("\"required\" must be a list of names"));
  const auto more = schema.find("additionalProperties");
  // Where members are named, others come only if the schema says so.
  static const Json kAny = true;
  Members members;
  members.patterned = patterned_members(schema, path);
  const bool says_none = properties.empty() && members.patterned.empty();
  members.further = more != schema.end() ? &*more : says_none ? &kAny : nullptr;
  if (members.further && *members.further == false) members.further = nullptr;
  if (members.further && !members.patterned.empty()) {
    fail(path, tr("additionalProperties beside patternProperties is not supported, unless it is "
                  "false"));
  }
  for (const auto& [name, inner] : properties.items()) {
    const bool must = std::find(required.begin(), required.end(), name) != required.end();
    // A member that nothing can be must be absent.
    members.names.insert(name);
    if (inner == false && !must) continue;
    members.named.push_back({name, &inner, path + "/properties/" + escaped_key(name), must});
  }
  for (const Json& name : required) {
    if (!name.is_string()) fail(path, tr("\"required\" must be a list of names"));
    if (!members.names.insert(name.get<std::string>()).second) continue;
    const auto like =
        std::find_if(members.patterned.begin(), members.patterned.end(),
                     [&](const Member& one) { return matches(one.name, name.get<std::string>()); });
    if (like != members.patterned.end()) {
      members.named.push_back({name.get<std::string>(), like->schema, like->path, true});
      continue;
    }
    if (!members.further)
      fail(path, tr("'{}' is required, but no member may be called so", name.get<std::string>()));
    members.named.push_back(
        {name.get<std::string>(), members.further, path + "/additionalProperties", true});
  }
  return members;
}

/// Members that only their names' patterns tell of; `name` is the pattern.
std::vector<SchemaWriter::Member> SchemaWriter::patterned_members(const Json& schema,
                                                                  const Path& path) const {
  std::vector<Member> patterned;
  const auto found = schema.find("patternProperties");
  if (found == schema.end()) return patterned;
  if (!found->is_object()) fail(path, tr("\"{}\" must be an object", "patternProperties"));
  for (const auto& [pattern, inner] : found->items()) {
    const Path place = path + "/patternProperties/" + escaped_key(pattern);
    try {
      (void)matches(pattern, "");
    } catch (const GrammarError& e) {
      fail(place, e.what());
    }
    patterned.push_back({pattern, &inner, place, false});
  }
  return patterned;
}

/// A member must satisfy all that its name is said of, and only one of them is followed.
void SchemaWriter::require_apart(const Members& members, const Path& path) const {
  const std::vector<Member>& patterned = members.patterned;
  for (size_t i = 0; i < patterned.size(); ++i) {
    for (const Member& named : members.named) {
      if (*named.schema != *patterned[i].schema && matches(patterned[i].name, named.name)) {
        fail(path, tr("'{}' is in properties and matches '{}' of patternProperties, which is not "
                      "supported",
                      named.name, patterned[i].name));
      }
    }
    for (size_t k = 0; k < i; ++k) {
      if (*patterned[i].schema != *patterned[k].schema &&
          have_common_text(patterned[i].name, patterned[k].name)) {
        fail(path,
             tr("a name may match both '{}' and '{}' of patternProperties, which is not supported",
                patterned[k].name, patterned[i].name));
      }
    }
  }
}

void SchemaWriter::object(const Json& schema, const Path& path, State from, State to) {
  const Members all = members_of(schema, path);
  require_apart(all, path);
  const std::vector<Member>& members = all.named;
  const bool has_further = all.further != nullptr || !all.patterned.empty();
  const auto state = [this] { return builder_.add_state(); };
  const State open = state(), close = state();
  builder_.literal(from, open, "{");
  State key = state();
  parts_.space(open, key);
  size_t last_required = 0;  // one more than its place
  for (size_t i = 0; i < members.size(); ++i)
    last_required = members[i].is_required ? i + 1 : last_required;
  if (last_required == 0) builder_.literal(key, to, "}");
  if (!members.empty() || has_further) {
    // The '}' of an empty object may not come after a comma.
    const State first = state();
    builder_.epsilon(key, first);
    key = first;
  }
  const State end_of_value = state();
  parts_.space(end_of_value, close);
  builder_.literal(close, to, "}");
  for (size_t i = 0; i < members.size(); ++i) {
    const Member& member = members[i];
    const State colon = state(), value = state(), behind = state(), next_key = state(),
                comma = state();
    builder_.literal(key, colon, parts_.spelled(member.name) + ":");
    parts_.space(colon, value);
    this->schema(*member.schema, member.path, value, behind);
    if (!member.is_required) builder_.epsilon(key, next_key);
    const bool may_continue = i + 1 < members.size() || has_further;
    if (may_continue) {
      builder_.literal(behind, comma, ",");
      parts_.space(comma, next_key);
    }
    if (i + 1 >= last_required) builder_.epsilon(behind, end_of_value);
    key = next_key;
  }
  if (has_further) further_members(all, path, key, end_of_value);
}

void SchemaWriter::further_members(const Members& members, const Path& path, State key,
                                   State behind) {
  const auto state = [this] { return builder_.add_state(); };
  const State again = state(), done = state(), comma = state();
  builder_.epsilon(key, again);
  const auto value_of = [&](State colon, const Json& schema, const Path& place) {
    const State spaced = state(), value = state();
    builder_.literal(colon, spaced, ":");
    parts_.space(spaced, value);
    this->schema(schema, place, value, done);
  };
  if (members.further) {
    const State colon = state();
    if (members.names.empty()) {
      parts_.string(again, colon);
    } else {
      parts_.other_key(again, colon, members.names);
    }
    value_of(colon, *members.further, path + "/additionalProperties");
  }
  for (const Member& member : members.patterned) {
    if (*member.schema == false) continue;
    const State colon = state();
    key_like(member, again, colon);
    value_of(colon, *member.schema, member.path);
  }
  builder_.literal(done, comma, ",");
  parts_.space(comma, again);
  builder_.epsilon(done, behind);
}

void SchemaWriter::key_like(const Member& member, State from, State to) {
  const State inside = builder_.add_state(), behind = builder_.add_state();
  builder_.literal(from, inside, "\"");
  builder_.literal(behind, to, "\"");
  try {
    add_regex(builder_, inside, behind, member.name, RegexUse::kSearch, parts_.spelling());
  } catch (const GrammarError& e) {
    fail(member.path, e.what());
  }
}

/// Text that does not hold `end`, in which '<' stands at the begin alone.
void SchemaWriter::tagged_string(const Json& schema, const Path& path, State from, State to,
                                 const std::string& end) {
  for (const char* key : {"anyOf", "oneOf", "allOf", "$ref"}) {
    if (schema.contains(key))
      fail(path, tr("'{}' beside the type of a string is not supported in this form", key));
  }
  if (schema.contains("const") || schema.contains("enum")) {
    std::vector<std::string> words;
    const Json values = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
    for (const Json& value : values) {
      if (value.is_string() && value.get_ref<const std::string&>().find(end) == std::string::npos)
        words.push_back(value);
    }
    if (words.empty()) fail(path, tr("no value of the enumeration is of the type"));
    return builder_.words(from, to, words);
  }
  if (schema.contains("pattern") || schema.contains("format"))
    return pattern_of(schema, path, from, to, Spelling::kTagged);
  const auto least = count(schema, "minLength", path), most = count(schema, "maxLength", path);
  if ((least && *least > 0) || most) {
    State at = from;
    for (uint64_t i = 0; i < most.value_or(*least); ++i) {
      if (i >= least.value_or(0)) builder_.epsilon(at, to);
      const State next = builder_.add_state();
      builder_.characters(at, next, CharSet::all(), Spelling::kTagged);
      at = next;
    }
    if (!most) builder_.characters(at, at, CharSet::all(), Spelling::kTagged);
    return builder_.epsilon(at, to);
  }
  // As many states as bytes of the tag may have come.
  std::vector<State> begun;
  for (size_t i = 0; i < end.size(); ++i) begun.push_back(builder_.add_state());
  builder_.epsilon(from, begun[0]);
  for (size_t i = 0; i < end.size(); ++i) {
    const auto next = static_cast<char32_t>(end[i]);
    CharSet others = CharSet::all().without({{next, next}});
    if (i > 0) {
      others = others.without({{'<', '<'}});
      builder_.bytes(begun[i], begun[1], '<', '<');
    }
    builder_.characters(begun[i], begun[0], others, Spelling::kPlain);
    if (i + 1 < end.size())
      builder_.bytes(begun[i], begun[i + 1], static_cast<uint8_t>(end[i]),
                     static_cast<uint8_t>(end[i]));
    builder_.epsilon(begun[i], to);
  }
}

void SchemaWriter::add_tagged(State from, State to, const TagMark& mark) {
  constexpr const char* kValueEnd = "</arg_value>";
  const Json whole = without_reference(root_, "#", 0);
  const Json type = whole.is_object() ? whole.value("type", Json("object")) : Json();
  for (const char* key : {"anyOf", "oneOf", "enum", "const"}) {
    if (type != "object" || whole.contains(key))
      fail("#", tr("in this form arguments are the properties of one object"));
  }
  const Members all = members_of(whole, "#");
  if (!all.patterned.empty())
    fail("#", tr("keyword '{}' is not supported in this form", "patternProperties"));
  const auto tag = [&](State begin, const char* text, const char* behind) {
    const State marked = builder_.add_state(), next = builder_.add_state();
    mark(begin, marked, text);
    builder_.literal(marked, next, behind);
    return next;
  };
  State key = from;
  for (const Member& member : all.named) {
    const bool is_readable = !member.name.empty() && member.name.front() > ' ' &&
                             member.name.back() > ' ' && member.name.find('<') == std::string::npos;
    if (!is_readable)
      fail(member.path, tr("'{}' cannot be the name of an argument in this form", member.name));
    State at = tag(key, "<arg_key>", member.name.c_str());
    at = tag(tag(at, "</arg_key>", "\n"), "<arg_value>", "");
    const State behind = builder_.add_state();
    // As the reader tells strings from others: by what is said of the name itself.
    const Json::json_pointer said("/properties/" + escaped_key(member.name) + "/type");
    if (root_.contains(said) && root_[said] == "string") {
      tagged_string(*member.schema, member.path, at, behind, kValueEnd);
    } else {
      this->schema(*member.schema, member.path, at, behind);
    }
    const State next = tag(behind, kValueEnd, "\n");
    if (!member.is_required) builder_.epsilon(key, next);
    key = next;
  }
  if (all.further) {
    const State inside = builder_.add_state(), named = builder_.add_state();
    mark(key, inside, "<arg_key>");
    // Readers trim names, and none is empty.
    std::set<std::string> taken = all.names;
    taken.insert("");
    parts_.other_text(inside, named, taken, CharSet{{0, 0x20}, {'<', '<'}}.complement());
    const State value = tag(tag(named, "</arg_key>", "\n"), "<arg_value>", "");
    const State behind = builder_.add_state();
    schema(*all.further, "#/additionalProperties", value, behind);
    builder_.epsilon(tag(behind, kValueEnd, "\n"), key);
  }
  builder_.epsilon(key, to);
  finish_rules();
}

}  // namespace danlu::grammar
