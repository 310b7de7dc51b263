#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/tests.h"

namespace danlu::text::jinja {

namespace {

using Input = const Value&;

/// The items, with room for the few lists as long that a filter makes of them.
ValueList items_of(Interpreter& in, Input v) {
  ValueList items = in.items_of(v);
  in.require_room(items.size() * 6 * sizeof(Value));
  return items;
}

Value length(Interpreter&, Input v, const Arguments&) { return Value::integer(length_of(v)); }
Value list(Interpreter& in, Input v, const Arguments&) { return Value::list(items_of(in, v)); }

/// attribute="a.b.0": dots walk down, numbers index.
Value walk(const Value& item, const Value& path) {
  if (path.is_integral()) return get_item(item, path);
  const std::string& text = path.as_string();
  Value current = item;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const bool is_index = !part.empty() && part.size() < 10 && is_ascii(part) && is_digit(part);
    current = get_item(current, is_index ? Value::integer(std::stol(part)) : Value::string(part));
    begin = end + 1;
  }
  return current;
}

/// What `attribute=` of a filter extracts; the item itself if it is not given.
Value keyed(const Value& item, const Value& attribute, bool ignore_case) {
  Value key = attribute.is_none() ? item : walk(item, attribute);
  return ignore_case && key.is_string() ? Value::string(to_lower(key.as_string())) : key;
}

Value join(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("join", a, {"d", "attribute"});
  const std::string separator = to_text(s.get(0, Value::string("")));
  const Value attribute = s.get(1, Value::none());
  std::string out;
  bool first = true;
  for (const Value& item : items_of(in, v)) {
    const size_t before = out.size();
    if (!std::exchange(first, false)) out += separator;
    append_text(attribute.is_none() ? item : walk(item, attribute), out);
    in.charge(out.size() - before);
  }
  return Value::string(std::move(out));
}

Value first(Interpreter& in, Input v, const Arguments&) {
  if (v.is_sequence())
    return v.items().empty() ? Value::undefined(Value::string("first item")) : v.items().front();
  const ValueList items = in.items_of(v);
  return items.empty() ? Value::undefined(Value::string("first item")) : items.front();
}

Value last(Interpreter& in, Input v, const Arguments&) {
  if (v.is_sequence())
    return v.items().empty() ? Value::undefined(Value::string("last item")) : v.items().back();
  const ValueList items = in.items_of(v);
  return items.empty() ? Value::undefined(Value::string("last item")) : items.back();
}

Value reverse(Interpreter& in, Input v, const Arguments&) {
  ValueList items = items_of(in, v);
  std::reverse(items.begin(), items.end());
  if (!v.is_string()) return Value::list(std::move(items));
  std::string text;
  for (const Value& item : items) text += item.as_string();
  return Value::string(std::move(text));
}

Value sort(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("sort", a, {"reverse", "case_sensitive", "attribute"});
  const bool descending = s.boolean(0, false), ignore_case = !s.boolean(1, false);
  const Value attribute = s.get(2, Value::none());
  std::vector<std::pair<Value, Value>> keys;
  for (Value& item : items_of(in, v)) {
    Value key = keyed(item, attribute, ignore_case);
    keys.emplace_back(std::move(key), std::move(item));
  }
  std::stable_sort(keys.begin(), keys.end(), [&](const auto& x, const auto& y) {
    in.step();
    return descending ? less_than(y.first, x.first) : less_than(x.first, y.first);
  });
  ValueList sorted;
  for (auto& [key, item] : keys) sorted.push_back(std::move(item));
  return Value::list(std::move(sorted));
}

Value unique(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("unique", a, {"case_sensitive", "attribute"});
  const bool ignore_case = !s.boolean(0, false);
  const Value attribute = s.get(1, Value::none());
  ValueList seen, kept;
  for (Value& item : items_of(in, v)) {
    Value key = keyed(item, attribute, ignore_case);
    const auto is_same = [&](const Value& other) {
      in.step();
      return equals(other, key);
    };
    if (std::any_of(seen.begin(), seen.end(), is_same)) continue;
    seen.push_back(std::move(key));
    kept.push_back(std::move(item));
  }
  return Value::list(std::move(kept));
}

Value extreme(Interpreter& in, Input v, const Arguments& a, std::string_view name, bool greatest) {
  const Signature s(name, a, {"case_sensitive", "attribute"});
  const bool ignore_case = !s.boolean(0, false);
  const Value attribute = s.get(1, Value::none());
  std::optional<std::pair<Value, Value>> best;
  for (Value& item : items_of(in, v)) {
    Value key = keyed(item, attribute, ignore_case);
    if (!best || (greatest ? less_than(best->first, key) : less_than(key, best->first))) {
      best.emplace(std::move(key), std::move(item));
    }
  }
  return best ? best->second : Value::undefined(Value::string("item of an empty sequence"));
}

Value min_filter(Interpreter& in, Input v, const Arguments& a) {
  return extreme(in, v, a, "min", false);
}
Value max_filter(Interpreter& in, Input v, const Arguments& a) {
  return extreme(in, v, a, "max", true);
}

Value sum(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("sum", a, {"attribute", "start"});
  const Value attribute = s.get(0, Value::none());
  Value total = s.get(1, Value::integer(0));
  for (const Value& item : items_of(in, v)) {
    total = binary_operation(in, BinaryOp::kAdd, std::move(total),
                             attribute.is_none() ? item : walk(item, attribute));
  }
  return total;
}

Value items(Interpreter& in, Input v, const Arguments&) {
  if (v.is_undefined()) return Value::list({});
  if (!v.is_dict()) throw EvalError("Can only get item pairs from a mapping.");
  ValueList pairs;
  in.charge(v.entries().size() * 4 * sizeof(Value));
  for (const auto& [key, value] : v.entries()) pairs.push_back(Value::tuple({key, value}));
  return Value::list(std::move(pairs));
}

Value dictsort(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("dictsort", a, {"case_sensitive", "by", "reverse"});
  const bool ignore_case = !s.boolean(0, false), descending = s.boolean(2, false);
  const std::string by = s.text(1, "key");
  if (by != "key" && by != "value")
    throw EvalError("You can only sort by either \"key\" or \"value\"");
  if (!v.is_dict()) throw EvalError(fmt::format("dictsort needs a mapping, got {}", type_name(v)));
  ValueList pairs = items(in, v, {}).items();
  const Value place = Value::integer(by == "key" ? 0 : 1);
  std::stable_sort(pairs.begin(), pairs.end(), [&](const Value& x, const Value& y) {
    in.step();
    const Value kx = keyed(x, place, ignore_case), ky = keyed(y, place, ignore_case);
    return descending ? less_than(ky, kx) : less_than(kx, ky);
  });
  return Value::list(std::move(pairs));
}

/// map(attribute=…, default=…) or map('filter', arguments…).
Value map(Interpreter& in, Input v, const Arguments& a) {
  ValueList mapped;
  if (a.positional.empty()) {
    const Signature s("map", a, {"attribute", "default"});
    const Value& attribute = s.required(0);
    for (const Value& item : items_of(in, v)) {
      in.step();
      Value found = walk(item, attribute);
      if (found.is_undefined()) found = s.get(1, found);
      mapped.push_back(std::move(found));
    }
    return Value::list(std::move(mapped));
  }
  const std::string name = to_text(a.positional[0]);
  const FilterFunction filter = find_filter(name);
  if (!filter) throw EvalError(fmt::format("there is no filter '{}'", name));
  const Arguments rest{a.positional.subspan(1), a.named};
  for (const Value& item : items_of(in, v)) {
    in.step();
    mapped.push_back(filter(in, item, rest));
  }
  return Value::list(std::move(mapped));
}

/// select/reject and their attr forms: keeps items whose test result equals `wanted`.
Value select_items(Interpreter& in, Input v, Arguments a, std::string_view filter,
                   bool by_attribute, bool wanted) {
  Value attribute = Value::none();
  if (by_attribute) {
    if (a.positional.empty()) throw EvalError(fmt::format("{}() needs an attribute name", filter));
    attribute = a.positional[0];
    a.positional = a.positional.subspan(1);
  }
  TestFunction test = nullptr;
  if (!a.positional.empty()) {
    const std::string name = to_text(a.positional[0]);
    test = find_test(name);
    if (!test) throw EvalError(fmt::format("there is no test '{}'", name));
    a.positional = a.positional.subspan(1);
  }
  ValueList kept;
  for (Value& item : items_of(in, v)) {
    in.step();
    const Value subject = by_attribute ? walk(item, attribute) : item;
    if ((test ? test(in, subject, a) : truthy(subject)) == wanted) kept.push_back(std::move(item));
  }
  return Value::list(std::move(kept));
}

Value select(Interpreter& in, Input v, const Arguments& a) {
  return select_items(in, v, a, "select", false, true);
}
Value reject(Interpreter& in, Input v, const Arguments& a) {
  return select_items(in, v, a, "reject", false, false);
}
Value selectattr(Interpreter& in, Input v, const Arguments& a) {
  return select_items(in, v, a, "selectattr", true, true);
}
Value rejectattr(Interpreter& in, Input v, const Arguments& a) {
  return select_items(in, v, a, "rejectattr", true, false);
}

Value batch(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("batch", a, {"linecount", "fill_with"});
  const int64_t size = s.integer(0, 0);
  if (size < 1) throw EvalError("batch() needs a positive linecount");
  const Value fill = s.get(1, Value::none());
  ValueList rows, row;
  for (Value& item : items_of(in, v)) {
    row.push_back(std::move(item));
    if (static_cast<int64_t>(row.size()) == size)
      rows.push_back(Value::list(std::exchange(row, {})));
  }
  if (!row.empty()) {
    while (!fill.is_none() && static_cast<int64_t>(row.size()) < size) {
      in.charge(sizeof(Value));
      row.push_back(fill);
    }
    rows.push_back(Value::list(std::move(row)));
  }
  return Value::list(std::move(rows));
}

Value slice(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("slice", a, {"slices", "fill_with"});
  const int64_t columns = s.integer(0, 0);
  if (columns < 1 || columns > 100'000)
    throw EvalError("slice() needs between 1 and 100000 slices");
  const Value fill = s.get(1, Value::none());
  const ValueList all = items_of(in, v);
  const int64_t size = static_cast<int64_t>(all.size()), per_column = size / columns,
                longer = size % columns;
  in.charge(static_cast<size_t>(columns) * 64);
  ValueList result;
  auto next = all.begin();
  for (int64_t i = 0; i < columns; ++i) {
    const auto end = next + per_column + (i < longer);
    ValueList column(next, end);
    next = end;
    if (!fill.is_none() && i >= longer) column.push_back(fill);
    result.push_back(Value::list(std::move(column)));
  }
  return Value::list(std::move(result));
}

Value groupby(Interpreter& in, Input v, const Arguments& a) {
  const Signature s("groupby", a, {"attribute", "default", "case_sensitive"});
  const Value& attribute = s.required(0);
  const bool ignore_case = !s.boolean(2, false);
  std::vector<std::pair<Value, Value>> keys;
  for (Value& item : items_of(in, v)) {
    Value key = walk(item, attribute);
    if (key.is_undefined()) key = s.get(1, key);
    if (ignore_case && key.is_string()) key = Value::string(to_lower(key.as_string()));
    keys.emplace_back(std::move(key), std::move(item));
  }
  std::stable_sort(keys.begin(), keys.end(), [&](const auto& x, const auto& y) {
    in.step();
    return less_than(x.first, y.first);
  });
  ValueList groups;
  for (size_t i = 0; i < keys.size();) {
    ValueList members;
    const size_t begin = i;
    for (; i < keys.size() && equals(keys[i].first, keys[begin].first); ++i)
      members.push_back(keys[i].second);
    const Value& member = members.front();
    Value label = walk(member, attribute);
    if (label.is_undefined()) label = s.get(1, label);
    groups.push_back(Value::tuple({std::move(label), Value::list(std::move(members))}));
  }
  return Value::list(std::move(groups));
}

Value attr(Interpreter&, Input v, const Arguments& a) {
  const Value name = Signature("attr", a, {"name"}).required(0);
  return name.is_string() ? get_attribute(v, name) : Value::undefined(name);
}

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, FilterFunction> kTable[] = {
      {"length", length},
      {"count", length},
      {"list", list},
      {"join", join},
      {"first", first},
      {"last", last},
      {"reverse", reverse},
      {"sort", sort},
      {"unique", unique},
      {"min", min_filter},
      {"max", max_filter},
      {"sum", sum},
      {"items", items},
      {"dictsort", dictsort},
      {"map", map},
      {"select", select},
      {"reject", reject},
      {"selectattr", selectattr},
      {"rejectattr", rejectattr},
      {"batch", batch},
      {"slice", slice},
      {"groupby", groupby},
      {"attr", attr},
  };
  for (const auto& [known, function] : kTable) {
    if (known == name) return function;
  }
  return nullptr;
}

}  // namespace danlu::text::jinja
