#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "text/jinja/objects.h"
#include "text/jinja/python_text.h"

namespace danlu::text::jinja {

namespace {

Extent extent_of(const Value& v) {
  if (v.is_sequence()) return static_cast<ListObject*>(v.object())->extent;
  if (v.is_dict()) return static_cast<DictObject*>(v.object())->extent;
  if (v.kind() == Kind::kCallable) return static_cast<CallableObject*>(v.object())->extent;
  if (v.is_string()) return {0, static_cast<int64_t>(v.as_string().size()) + 1};
  return {0, 8};
}

Value sequence(Kind kind, ValueList items) {
  Extent extent;
  for (const Value& item : items) include(extent, item);
  auto* object = new ListObject;
  object->items = std::move(items);
  object->extent = extent;
  return Value::of(kind, object);
}

Value json_at_depth(const Json& json, int depth) {
  if (depth > kMaxNesting)
    throw EvalError(fmt::format("values are nested deeper than {} levels", kMaxNesting));
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        throw EvalError(fmt::format("integer {} does not fit 64 bits", number));
      }
      return Value::integer(static_cast<int64_t>(number));
    }
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return Value::string(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      ValueList items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(json_at_depth(item, depth + 1));
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      DictEntries entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        entries.emplace_back(Value::string(key), json_at_depth(item, depth + 1));
      }
      return Value::dict(std::move(entries));
    }
    default:
      return Value::none();
  }
}

}  // namespace

void include(Extent& total, const Value& child) {
  const Extent extent = extent_of(child);
  total.nesting = std::max(total.nesting, extent.nesting + 1);
  total.printed_bytes += extent.printed_bytes;
  if (total.nesting > kMaxNesting)
    throw EvalError(fmt::format("values are nested deeper than {} levels", kMaxNesting));
  if (total.printed_bytes > kMaxPrintedBytes) throw LimitError("a value grew too large");
}

Value Value::none() {
  Value v;
  v.kind_ = Kind::kNone;
  return v;
}

Value Value::boolean(bool b) {
  Value v;
  v.kind_ = Kind::kBool;
  v.u_.boolean = b;
  return v;
}

Value Value::integer(int64_t i) {
  Value v;
  v.kind_ = Kind::kInt;
  v.u_.integer = i;
  return v;
}

Value Value::real(double d) {
  Value v;
  v.kind_ = Kind::kFloat;
  v.u_.real = d;
  return v;
}

Value Value::of(Kind kind, Object* object) {
  Value v;
  v.kind_ = kind;
  v.u_.object = object;
  v.retain();
  return v;
}

Value Value::string(std::string text) {
  return of(Kind::kString, new StringObject(std::move(text)));
}

Value Value::list(ValueList items) { return sequence(Kind::kList, std::move(items)); }
Value Value::tuple(ValueList items) { return sequence(Kind::kTuple, std::move(items)); }

Value Value::dict(DictEntries entries) {
  Extent extent;
  for (const auto& [key, value] : entries) {
    include(extent, key);
    include(extent, value);
  }
  auto* object = new DictObject;
  Value result = of(Kind::kDict, object);
  object->extent = extent;
  object->entries.reserve(entries.size());
  for (auto& [key, value] : entries) {
    if (const Value* old = dict_find(result, key)) {
      *const_cast<Value*>(old) = std::move(value);
    } else {
      object->entries.emplace_back(std::move(key), std::move(value));
    }
  }
  return result;
}

Value Value::undefined(const Value& name, Kind origin) {
  Value v;
  if (name.is_string()) {
    v = name;
    v.kind_ = Kind::kUndefined;
  }
  v.origin_ = origin;
  return v;
}

Value Value::from_json(const Json& json) { return json_at_depth(json, 0); }

const ValueList& Value::items() const { return static_cast<ListObject*>(u_.object)->items; }
const DictEntries& Value::entries() const { return static_cast<DictObject*>(u_.object)->entries; }

std::string* Value::exclusive_string() {
  if (kind_ != Kind::kString || u_.object->references != 1) return nullptr;
  return &static_cast<StringObject*>(u_.object)->text;
}

std::string Value::undefined_message() const {
  const std::string name = u_.object ? static_cast<StringObject*>(u_.object)->text : "value";
  if (origin_ == Kind::kUndefined) return fmt::format("'{}' is undefined", name);
  Value holder;
  holder.kind_ = origin_;
  const std::string_view holder_type = type_name(holder);
  holder.kind_ = Kind::kNone;  // it never had an object
  return fmt::format("'{} object' has no attribute '{}'", holder_type, name);
}

const Value* dict_find(const Value& dict, std::string_view key) {
  for (const auto& [k, v] : dict.entries()) {
    if (k.is_string() && k.as_string() == key) return &v;
  }
  return nullptr;
}

const Value* dict_find(const Value& dict, const Value& key) {
  if (key.is_string()) return dict_find(dict, std::string_view(key.as_string()));
  for (const auto& [k, v] : dict.entries()) {
    if (equals(k, key)) return &v;
  }
  return nullptr;
}

int64_t integer_of(double value) {
  // -2^63 is an int64, 2^63 is not; NaN is on neither side.
  if (!(value >= -0x1p63 && value < 0x1p63)) throw EvalError(kTooLargeInteger);
  return static_cast<int64_t>(value);
}

bool truthy(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return v.as_bool();
    case Kind::kInt:
      return v.as_int() != 0;
    case Kind::kFloat:
      return v.as_double() != 0;
    case Kind::kString:
      return !v.as_string().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !v.items().empty();
    case Kind::kDict:
      return !v.entries().empty();
    default:
      return true;
  }
}

bool equals(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.as_string() == b.as_string();
    case Kind::kList:
    case Kind::kTuple:
      return a.object() == b.object() || std::equal(a.items().begin(), a.items().end(),
                                                    b.items().begin(), b.items().end(), equals);
    case Kind::kDict: {
      if (a.object() == b.object()) return true;
      if (a.entries().size() != b.entries().size()) return false;
      for (const auto& [key, value] : a.entries()) {
        const Value* other = dict_find(b, key);
        if (!other || !equals(value, *other)) return false;
      }
      return true;
    }
    default:
      return a.object() == b.object();
  }
}

bool less_than(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
    return a.as_double() < b.as_double();
  }
  if (a.is_undefined()) throw EvalError(a.undefined_message());
  if (b.is_undefined()) throw EvalError(b.undefined_message());
  if (a.kind() == b.kind() && a.is_string()) return a.as_string() < b.as_string();
  if (a.kind() == b.kind() && a.is_sequence()) {
    return std::lexicographical_compare(a.items().begin(), a.items().end(), b.items().begin(),
                                        b.items().end(), less_than);
  }
  throw EvalError(fmt::format("'<' not supported between instances of '{}' and '{}'", type_name(a),
                              type_name(b)));
}

std::string_view type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCallable:
      return "function";
  }
  return "object";
}

std::string to_text(const Value& v) {
  if (v.is_string()) return v.as_string();
  std::string out;
  append_text(v, out);
  return out;
}

void append_text(const Value& v, std::string& out) {
  if (v.is_string()) {
    out += v.as_string();
  } else if (!v.is_undefined()) {
    append_repr(v, out);
  }
}

namespace {
void append_items_repr(const Value& v, std::string& out) {
  const char* brackets = v.kind() == Kind::kList ? "[]" : "()";
  out += brackets[0];
  bool first = true;
  for (const Value& item : v.items()) {
    if (!std::exchange(first, false)) out += ", ";
    append_repr(item, out);
  }
  if (v.kind() == Kind::kTuple && v.items().size() == 1) out += ',';
  out += brackets[1];
}

void append_dict_repr(const Value& v, std::string& out) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : v.entries()) {
    if (!std::exchange(first, false)) out += ", ";
    append_repr(key, out);
    out += ": ";
    append_repr(value, out);
  }
  out += '}';
}
}  // namespace

void append_repr(const Value& v, std::string& out) {
  switch (v.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      return;
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += v.as_bool() ? "True" : "False";
      return;
    case Kind::kInt:
      fmt::format_to(std::back_inserter(out), "{}", v.as_int());
      return;
    case Kind::kFloat:
      out += float_repr(v.as_double());
      return;
    case Kind::kString:
      append_string_repr(v.as_string(), out);
      return;
    case Kind::kList:
    case Kind::kTuple:
      append_items_repr(v, out);
      return;
    case Kind::kDict:
      append_dict_repr(v, out);
      return;
    case Kind::kNamespace:
      out += "<Namespace>";
      return;
    case Kind::kLoop: {
      const auto* loop = static_cast<const LoopObject*>(v.object());
      fmt::format_to(std::back_inserter(out), "<LoopContext {}/{}>", loop->index0 + 1,
                     loop->items ? loop->items->size() : 0);
      return;
    }
    case Kind::kCallable:
      fmt::format_to(std::back_inserter(out), "<function {}>",
                     static_cast<const CallableObject*>(v.object())->name());
      return;
  }
}

ValueList iterate(const Value& v) {
  ValueList items;
  switch (v.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kList:
    case Kind::kTuple:
      return v.items();
    case Kind::kDict:
      items.reserve(v.entries().size());
      for (const auto& entry : v.entries()) items.push_back(entry.first);
      return items;
    case Kind::kString: {
      const std::string& text = v.as_string();
      for (size_t i = 0; i < text.size();) {
        const size_t start = i;
        next_code_point(text, i);
        items.push_back(Value::string(text.substr(start, i - start)));
      }
      return items;
    }
    default:
      throw EvalError(fmt::format("'{}' object is not iterable", type_name(v)));
  }
}

int64_t length_of(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(code_point_count(v.as_string()));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(v.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(v.entries().size());
    default:
      throw EvalError(fmt::format("object of type '{}' has no len()", type_name(v)));
  }
}

}  // namespace danlu::text::jinja
