#include "text/jinja/methods.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

namespace danlu::text::jinja {

namespace {

using Self = const Value&;

Value text_value(Interpreter& interpreter, std::string_view text) {
  interpreter.charge(text.size() + kShortStringBytes);
  return Value::string(std::string(text));
}

Value strip_method(Interpreter& in, Self self, const Arguments& a, std::string_view name, bool left,
                   bool right) {
  const Signature s(name, a, {"chars"});
  const Value chars = s.get(0, Value::none());
  if (chars.is_none()) return text_value(in, strip(self.as_string(), left, right));
  return text_value(in, strip(self.as_string(), s.text(0, ""), left, right));
}

Value recased(Interpreter& in, std::string (*change)(std::string_view), Self self) {
  in.require_room(self.as_string().size() * kMaxCaseGrowth);
  return text_value(in, change(self.as_string()));
}

/// startswith / endswith: the affix may be a tuple of strings.
bool matches_affix(Self self, const Arguments& a, std::string_view name, bool at_start) {
  const Signature s(name, a, {"prefix"});
  const Value& affix = s.required(0);
  const std::string_view text = self.as_string();
  const auto matches = [&](const Value& v) {
    if (v.is_undefined()) throw EvalError(v.undefined_message());
    if (!v.is_string())
      throw EvalError(fmt::format("{}() needs a string, got {}", name, type_name(v)));
    return at_start ? text.starts_with(v.as_string()) : text.ends_with(v.as_string());
  };
  if (affix.kind() == Kind::kTuple)
    return std::any_of(affix.items().begin(), affix.items().end(), matches);
  return matches(affix);
}

/// split() on runs of white space.
ValueList split_space(Interpreter& in, std::string_view text, int64_t limit, bool from_right) {
  ValueList parts;
  text = strip(text, !from_right, from_right);
  while (!text.empty()) {
    if (limit == 0) {
      parts.push_back(text_value(in, text));
      break;
    }
    // The end of the word that begins (or ends) here.
    size_t cut = from_right ? 0 : text.size();
    for (size_t i = 0; i < text.size();) {
      const size_t start = i;
      if (!is_python_space(next_code_point(text, i))) continue;
      cut = from_right ? i : start;
      if (!from_right) break;
    }
    parts.push_back(text_value(in, from_right ? text.substr(cut) : text.substr(0, cut)));
    text =
        from_right ? strip(text.substr(0, cut), false, true) : strip(text.substr(cut), true, false);
    --limit;
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

ValueList split_at(Interpreter& in, std::string_view text, std::string_view separator,
                   int64_t limit, bool from_right) {
  if (separator.empty()) throw EvalError("empty separator");
  ValueList parts;
  while (limit != 0) {
    const size_t hit = from_right ? text.rfind(separator) : text.find(separator);
    if (hit == std::string_view::npos) break;
    const std::string_view after = text.substr(hit + separator.size());
    parts.push_back(text_value(in, from_right ? after : text.substr(0, hit)));
    text = from_right ? text.substr(0, hit) : after;
    --limit;
  }
  parts.push_back(text_value(in, text));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value split_method(Interpreter& in, Self self, const Arguments& a, bool from_right) {
  const Signature s(from_right ? "rsplit" : "split", a, {"sep", "maxsplit"});
  const int64_t limit = s.integer(1, -1);
  const Value separator = s.get(0, Value::none());
  return Value::list(separator.is_none()
                         ? split_space(in, self.as_string(), limit, from_right)
                         : split_at(in, self.as_string(), s.text(0, ""), limit, from_right));
}

Value splitlines_method(Interpreter& in, Self self, const Arguments& a) {
  const bool keep = Signature("splitlines", a, {"keepends"}).boolean(0, false);
  const std::string& text = self.as_string();
  ValueList lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = next_code_point(text, i);
    const bool breaks = (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
                        c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == U'\r' && i < text.size() && text[i] == '\n') ++i;
    lines.push_back(
        text_value(in, std::string_view(text).substr(begin, (keep ? i : start) - begin)));
    begin = i;
  }
  if (begin < text.size()) lines.push_back(text_value(in, std::string_view(text).substr(begin)));
  return Value::list(std::move(lines));
}

Value replace_method(Interpreter& in, Self self, const Arguments& a) {
  const Signature s("replace", a, {"old", "new", "count"});
  s.required(0);
  s.required(1);
  return replaced(in, self.as_string(), s.text(0, ""), s.text(1, ""), s.integer(2, -1));
}

Value find_text(Self self, const Arguments& a, std::string_view name, bool from_right,
                bool must_exist) {
  const Signature s(name, a, {"sub"});
  s.required(0);
  const std::string& text = self.as_string();
  const std::string wanted = s.text(0, "");
  const size_t hit = from_right ? text.rfind(wanted) : text.find(wanted);
  if (hit == std::string::npos) {
    if (must_exist) throw EvalError("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(
      static_cast<int64_t>(code_point_count(std::string_view(text).substr(0, hit))));
}

Value count_text(Interpreter&, Self self, const Arguments& a) {
  const Signature s("count", a, {"sub"});
  s.required(0);
  const std::string wanted = s.text(0, "");
  const std::string& text = self.as_string();
  if (wanted.empty()) return Value::integer(static_cast<int64_t>(code_point_count(text)) + 1);
  int64_t count = 0;
  for (size_t at = text.find(wanted); at != std::string::npos;
       at = text.find(wanted, at + wanted.size()))
    ++count;
  return Value::integer(count);
}

Value join_text(Interpreter& in, Self self, const Arguments& a) {
  const ValueList items = in.items_of(Signature("join", a, {"iterable"}).required(0));
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      throw EvalError(
          fmt::format("sequence item {}: expected str instance, {} found", i, type_name(items[i])));
    }
    in.charge(self.as_string().size() + items[i].as_string().size());
    if (i > 0) text += self.as_string();
    text += items[i].as_string();
  }
  return Value::string(std::move(text));
}

/// str.format with {}, {0} and {name}; format specifications beyond that are refused.
Value format_method(Interpreter& in, Self self, const Arguments& a) {
  const std::string_view text = self.as_string();
  std::string out;
  size_t next = 0, charged = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool doubled = i + 1 < text.size() && text[i + 1] == c;
    if ((c == '{' || c == '}') && doubled) {
      out += c;
      ++i;
    } else if (c == '}') {
      throw EvalError("Single '}' encountered in format string");
    } else if (c == '{') {
      const size_t end = text.find('}', i);
      if (end == std::string_view::npos) throw EvalError("Single '{' encountered in format string");
      const std::string_view field = text.substr(i + 1, end - i - 1);
      const Value* value = nullptr;
      if (field.empty() ||
          std::all_of(field.begin(), field.end(), [](char d) { return d >= '0' && d <= '9'; })) {
        const size_t place = field.empty()      ? next++
                             : field.size() > 4 ? a.positional.size()
                                                : std::stoul(std::string(field));
        if (place >= a.positional.size())
          throw EvalError("Replacement index out of range in format string");
        value = &a.positional[place];
      } else {
        for (const auto& [name, v] : a.named) value = name == field ? &v : value;
        if (!value)
          throw EvalError(
              fmt::format("format field '{{{}}}' is not supported or has no value", field));
      }
      append_text(*value, out);
      i = end;
    } else {
      out += c;
    }
    in.charge(out.size() - charged);
    charged = out.size();
  }
  return Value::string(std::move(out));
}

Value remove_affix(Interpreter& in, Self self, const Arguments& a, std::string_view name,
                   bool prefix) {
  const Signature s(name, a, {"affix"});
  s.required(0);
  const std::string affix = s.text(0, "");
  std::string_view text = self.as_string();
  if (prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return text_value(in, text);
}

Value dict_get(Interpreter&, Self self, const Arguments& a) {
  const Signature s("get", a, {"key", "default"});
  const Value* found = dict_find(self, s.required(0));
  return found ? *found : s.get(1, Value::none());
}

Value dict_items(Interpreter& in, Self self, const Arguments& a) {
  const Signature s("items", a, {});
  ValueList items;
  in.charge(self.entries().size() * 4 * sizeof(Value));
  for (const auto& [key, value] : self.entries()) items.push_back(Value::tuple({key, value}));
  return Value::list(std::move(items));
}

Value dict_keys(Interpreter& in, Self self, const Arguments& a) {
  const Signature s("keys", a, {});
  return Value::list(in.items_of(self));
}

Value dict_values(Interpreter& in, Self self, const Arguments& a) {
  const Signature s("values", a, {});
  ValueList items;
  in.charge(self.entries().size() * sizeof(Value));
  for (const auto& entry : self.entries()) items.push_back(entry.second);
  return Value::list(std::move(items));
}

Value copy_method(Interpreter&, Self self, const Arguments&) { return self; }

Value count_items(Interpreter&, Self self, const Arguments& a) {
  const Value wanted = Signature("count", a, {"value"}).required(0);
  return Value::integer(std::count_if(self.items().begin(), self.items().end(),
                                      [&](const Value& v) { return equals(v, wanted); }));
}

Value index_of_item(Interpreter&, Self self, const Arguments& a) {
  const Value wanted = Signature("index", a, {"value"}).required(0);
  const auto found = std::find_if(self.items().begin(), self.items().end(),
                                  [&](const Value& v) { return equals(v, wanted); });
  if (found == self.items().end()) throw EvalError("value is not in list");
  return Value::integer(found - self.items().begin());
}

Value refuse_change(Interpreter&, Self self, const Arguments&) {
  throw EvalError(
      fmt::format("a {} cannot be changed (Hugging Face's sandbox refuses this too); "
                  "make a new one with + or use namespace()",
                  type_name(self)));
}

Value loop_cycle(Interpreter&, Self self, const Arguments& a) {
  if (a.positional.empty()) throw EvalError("no items for cycling given");
  return a.positional[static_cast<LoopObject*>(self.object())->index0 % a.positional.size()];
}

Value loop_changed(Interpreter&, Self self, const Arguments& a) {
  auto* loop = static_cast<LoopObject*>(self.object());
  const bool same =
      loop->has_changed && std::equal(a.positional.begin(), a.positional.end(),
                                      loop->last_changed.begin(), loop->last_changed.end(), equals);
  loop->has_changed = true;
  loop->last_changed.assign(a.positional.begin(), a.positional.end());
  return Value::boolean(!same);
}

struct NamedMethod {
  std::string_view name;
  MethodFunction function;
};

#define DANLU_METHOD(body)                                       \
  +[](Interpreter& in, Self self, const Arguments& a) -> Value { \
    (void)in;                                                    \
    (void)a;                                                     \
    return body;                                                 \
  }

constexpr NamedMethod kStringMethods[] = {
    {"strip", DANLU_METHOD(strip_method(in, self, a, "strip", true, true))},
    {"lstrip", DANLU_METHOD(strip_method(in, self, a, "lstrip", true, false))},
    {"rstrip", DANLU_METHOD(strip_method(in, self, a, "rstrip", false, true))},
    {"startswith", DANLU_METHOD(Value::boolean(matches_affix(self, a, "startswith", true)))},
    {"endswith", DANLU_METHOD(Value::boolean(matches_affix(self, a, "endswith", false)))},
    {"split", DANLU_METHOD(split_method(in, self, a, false))},
    {"rsplit", DANLU_METHOD(split_method(in, self, a, true))},
    {"splitlines", splitlines_method},
    {"replace", replace_method},
    {"upper", DANLU_METHOD(recased(in, to_upper, self))},
    {"lower", DANLU_METHOD(recased(in, to_lower, self))},
    {"title", DANLU_METHOD(recased(in, to_title, self))},
    {"capitalize", DANLU_METHOD(recased(in, to_capitalized, self))},
    {"find", DANLU_METHOD(find_text(self, a, "find", false, false))},
    {"rfind", DANLU_METHOD(find_text(self, a, "rfind", true, false))},
    {"index", DANLU_METHOD(find_text(self, a, "index", false, true))},
    {"count", count_text},
    {"join", join_text},
    {"format", format_method},
    {"removeprefix", DANLU_METHOD(remove_affix(in, self, a, "removeprefix", true))},
    {"removesuffix", DANLU_METHOD(remove_affix(in, self, a, "removesuffix", false))},
    {"isdigit", DANLU_METHOD(Value::boolean(is_digit(self.as_string())))},
    {"isalpha", DANLU_METHOD(Value::boolean(is_alpha(self.as_string())))},
    {"isupper", DANLU_METHOD(Value::boolean(is_upper(self.as_string())))},
    {"islower", DANLU_METHOD(Value::boolean(is_lower(self.as_string())))},
    {"isspace",
     DANLU_METHOD(Value::boolean(!self.as_string().empty() && strip(self.as_string()).empty()))},
};

constexpr NamedMethod kListMethods[] = {
    {"count", count_items},    {"index", index_of_item},   {"copy", copy_method},
    {"append", refuse_change}, {"extend", refuse_change},  {"insert", refuse_change},
    {"pop", refuse_change},    {"remove", refuse_change},  {"clear", refuse_change},
    {"sort", refuse_change},   {"reverse", refuse_change},
};

constexpr NamedMethod kDictMethods[] = {
    {"get", dict_get},        {"items", dict_items},
    {"keys", dict_keys},      {"values", dict_values},
    {"copy", copy_method},    {"update", refuse_change},
    {"pop", refuse_change},   {"popitem", refuse_change},
    {"clear", refuse_change}, {"setdefault", refuse_change},
};

constexpr NamedMethod kLoopMethods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};

#undef DANLU_METHOD

MethodFunction find_in(std::span<const NamedMethod> table, std::string_view name) {
  for (const NamedMethod& method : table) {
    if (method.name == name) return method.function;
  }
  return nullptr;
}

class BoundMethod final : public CallableObject {
 public:
  BoundMethod(MethodFunction function, Value self, Value name)
      : function_(function), self_(std::move(self)), name_(std::move(name)) {
    include(extent, self_);
  }
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return function_(interpreter, self_, arguments);
  }
  std::string name() const override { return name_.as_string(); }

 private:
  MethodFunction function_;
  Value self_, name_;
};

}  // namespace

MethodFunction find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kString:
      return find_in(kStringMethods, name);
    case Kind::kList:
    case Kind::kTuple:
      return find_in(kListMethods, name);
    case Kind::kDict:
      return find_in(kDictMethods, name);
    case Kind::kLoop:
      return find_in(kLoopMethods, name);
    default:
      return nullptr;
  }
}

Value bind_method(MethodFunction function, const Value& self, const Value& name) {
  return Value::of(Kind::kCallable, new BoundMethod(function, self, name));
}

}  // namespace danlu::text::jinja
