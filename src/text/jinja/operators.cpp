#include "text/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/methods.h"
#include "text/jinja/python_text.h"

namespace danlu::text::jinja {

namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**", "~"};

[[noreturn]] void unsupported(BinaryOp op, const Value& left, const Value& right) {
  if (left.is_undefined()) throw EvalError(left.undefined_message());
  if (right.is_undefined()) throw EvalError(right.undefined_message());
  if (op == BinaryOp::kAdd && left.is_string()) {
    throw EvalError(fmt::format("can only concatenate str (not \"{}\") to str", type_name(right)));
  }
  throw EvalError(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'",
                              kSigns[static_cast<int>(op)], type_name(left), type_name(right)));
}

[[noreturn]] void overflow() { throw EvalError(kTooLargeInteger); }

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == -1) {
    int64_t result;
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) overflow();
    return result;
  }
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return Value::integer(result);
}

Value integer_operation(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case BinaryOp::kPower:
      if (a == 0 && b < 0) throw EvalError("0.0 cannot be raised to a negative power");
      return integer_power(a, b);
    default:
      break;
  }
  if (b == 0)
    throw EvalError(op == BinaryOp::kDivide ? "division by zero"
                                            : "integer division or modulo by zero");
  if (op == BinaryOp::kDivide) return Value::real(static_cast<double>(a) / static_cast<double>(b));
  const int64_t quotient = floor_divide(a, b);
  return Value::integer(op == BinaryOp::kFloorDivide ? quotient : b == -1 ? 0 : a - quotient * b);
}

Value real_operation(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::real(a + b);
    case BinaryOp::kSubtract:
      return Value::real(a - b);
    case BinaryOp::kMultiply:
      return Value::real(a * b);
    case BinaryOp::kPower:
      return Value::real(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) throw EvalError("float division by zero");
  if (op == BinaryOp::kDivide) return Value::real(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  return op == BinaryOp::kModulo ? Value::real(remainder)
                                 : Value::real(std::floor((a - remainder) / b + 0.5));
}

Value repeat(Interpreter& interpreter, const Value& what, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const size_t size =
      what.is_string() ? what.as_string().size() : what.items().size() * sizeof(Value);
  if (count > 0 && size > (size_t{1} << 40) / static_cast<size_t>(count))
    throw EvalError("a repetition is too long");
  interpreter.charge(size * static_cast<size_t>(count));
  if (what.is_string()) {
    std::string text;
    text.reserve(size * static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) text += what.as_string();
    return Value::string(std::move(text));
  }
  ValueList items;
  if (what.items().empty()) count = 0;
  for (int64_t i = 0; i < count; ++i)
    items.insert(items.end(), what.items().begin(), what.items().end());
  return what.kind() == Kind::kList ? Value::list(std::move(items))
                                    : Value::tuple(std::move(items));
}

Value append(Interpreter& interpreter, Value left, const std::string& right) {
  if (std::string* text = left.exclusive_string(); text && &right != text) {
    interpreter.charge(right.size());
    *text += right;
    return left;
  }
  std::string text;
  interpreter.charge(left.as_string().size() + right.size());
  text.reserve((left.as_string().size() + right.size()) * 3 / 2 +
               64);  // chains of + keep appending
  text += left.as_string();
  text += right;
  return Value::string(std::move(text));
}

Value join_lists(Interpreter& interpreter, const Value& left, const Value& right) {
  interpreter.charge((left.items().size() + right.items().size()) * sizeof(Value));
  ValueList items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.kind() == Kind::kList ? Value::list(std::move(items))
                                    : Value::tuple(std::move(items));
}

}  // namespace

Value binary_operation(Interpreter& interpreter, BinaryOp op, Value left, const Value& right) {
  if (op == BinaryOp::kConcat) {
    if (!left.is_string()) left = Value::string(to_text(left));
    return append(interpreter, std::move(left),
                  right.is_string() ? right.as_string() : to_text(right));
  }
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral())
      return integer_operation(op, left.as_int(), right.as_int());
    return real_operation(op, left.as_double(), right.as_double());
  }
  if (op == BinaryOp::kAdd) {
    if (left.is_string() && right.is_string())
      return append(interpreter, std::move(left), right.as_string());
    if (left.is_sequence() && left.kind() == right.kind())
      return join_lists(interpreter, left, right);
  } else if (op == BinaryOp::kMultiply) {
    if ((left.is_string() || left.is_sequence()) && right.is_integral())
      return repeat(interpreter, left, right.as_int());
    if ((right.is_string() || right.is_sequence()) && left.is_integral())
      return repeat(interpreter, right, left.as_int());
  } else if (op == BinaryOp::kModulo && left.is_string()) {
    const Value* mapping = right.is_dict() ? &right : nullptr;
    const ValueList values = right.kind() == Kind::kTuple ? right.items() : ValueList{right};
    return printf_format(interpreter, left.as_string(), values, mapping);
  }
  unsupported(op, left, right);
}

Value replaced(Interpreter& interpreter, std::string_view text, std::string_view from,
               std::string_view to, int64_t limit) {
  size_t count = 0;
  if (from.empty()) {
    count = code_point_count(text) + 1;
  } else {
    for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + from.size()))
      ++count;
  }
  if (limit >= 0) count = std::min(count, static_cast<size_t>(limit));
  interpreter.charge(text.size() - count * from.size() + count * to.size());
  return Value::string(replace_all(text, from, to, limit));
}

bool contains(const Value& haystack, const Value& needle) {
  switch (haystack.kind()) {
    case Kind::kString:
      if (needle.is_undefined()) throw EvalError(needle.undefined_message());
      if (!needle.is_string()) {
        throw EvalError(fmt::format("'in <string>' requires string as left operand, not {}",
                                    type_name(needle)));
      }
      return haystack.as_string().find(needle.as_string()) != std::string::npos;
    case Kind::kList:
    case Kind::kTuple:
      return std::any_of(haystack.items().begin(), haystack.items().end(),
                         [&](const Value& v) { return equals(v, needle); });
    case Kind::kDict:
      return dict_find(haystack, needle) != nullptr;
    case Kind::kUndefined:
      return false;
    default:
      throw EvalError(fmt::format("argument of type '{}' is not iterable", type_name(haystack)));
  }
}

bool compare(CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEqual:
      return equals(left, right);
    case CompareOp::kNotEqual:
      return !equals(left, right);
    case CompareOp::kLess:
      return less_than(left, right);
    case CompareOp::kGreater:
      return less_than(right, left);
    case CompareOp::kLessEqual:
      return equals(left, right) || less_than(left, right);
    case CompareOp::kGreaterEqual:
      return equals(left, right) || less_than(right, left);
    case CompareOp::kIn:
      return contains(right, left);
    case CompareOp::kNotIn:
      return !contains(right, left);
  }
  return false;
}

namespace {

Value loop_attribute(const LoopObject& loop, const Value& name) {
  const std::string& key = name.as_string();
  const size_t size = loop.items ? loop.items->size() : 0;
  const auto item_at = [&](size_t i) {
    return i < size ? (*loop.items)[i] : Value::undefined(name, Kind::kLoop);
  };
  const auto number = [](size_t n) { return Value::integer(static_cast<int64_t>(n)); };
  if (key == "index0") return number(loop.index0);
  if (key == "index") return number(loop.index0 + 1);
  if (key == "first") return Value::boolean(loop.index0 == 0);
  if (key == "last") return Value::boolean(loop.index0 + 1 >= size);
  if (key == "length") return number(size);
  if (key == "revindex")
    return Value::integer(static_cast<int64_t>(size) - static_cast<int64_t>(loop.index0));
  if (key == "revindex0")
    return Value::integer(static_cast<int64_t>(size) - static_cast<int64_t>(loop.index0) - 1);
  if (key == "previtem")
    return loop.index0 == 0 ? Value::undefined(name, Kind::kLoop) : item_at(loop.index0 - 1);
  if (key == "nextitem") return item_at(loop.index0 + 1);
  // Jinja2 counts recursive loops only, and there are none here.
  if (key == "depth") return Value::integer(1);
  if (key == "depth0") return Value::integer(0);
  return Value::undefined(name, Kind::kLoop);
}

Value attribute_without_items(const Value& object, const Value& name) {
  if (object.kind() == Kind::kLoop) {
    const Value found = loop_attribute(*static_cast<LoopObject*>(object.object()), name);
    if (!found.is_undefined()) return found;
  }
  if (object.kind() == Kind::kNamespace) {
    const Value* found = static_cast<NamespaceObject*>(object.object())->find(name.as_string());
    if (found) return *found;
  }
  if (object.kind() == Kind::kCallable) {
    return static_cast<CallableObject*>(object.object())->attribute(name);
  }
  if (const MethodFunction method = find_method(object.kind(), name.as_string()))
    return bind_method(method, object, name);
  return Value::undefined(name, object.kind());
}

Value item_at(const Value& object, const Value& key) {
  int64_t index = key.as_int();
  if (object.is_string()) {
    const std::string& text = object.as_string();
    if (index < 0) index += static_cast<int64_t>(code_point_count(text));
    if (index < 0) return Value::undefined(key, object.kind());
    const size_t begin = byte_offset(text, index);
    if (begin == text.size()) return Value::undefined(key, object.kind());
    size_t end = begin;
    next_code_point(text, end);
    return Value::string(text.substr(begin, end - begin));
  }
  const int64_t size = static_cast<int64_t>(object.items().size());
  if (index < 0) index += size;
  return index < 0 || index >= size
             ? Value::undefined(Value::string(fmt::format("{}", key.as_int())), object.kind())
             : object.items()[static_cast<size_t>(index)];
}

}  // namespace

Value get_attribute(const Value& object, const Value& name) {
  if (object.is_undefined()) throw EvalError(object.undefined_message());
  if (object.is_dict()) {
    if (const MethodFunction method = find_method(Kind::kDict, name.as_string()))
      return bind_method(method, object, name);
    const Value* found = dict_find(object, std::string_view(name.as_string()));
    return found ? *found : Value::undefined(name, Kind::kDict);
  }
  return attribute_without_items(object, name);
}

Value get_item(const Value& object, const Value& key) {
  if (object.is_undefined()) throw EvalError(object.undefined_message());
  if (object.is_dict()) {
    if (const Value* found = dict_find(object, key)) return *found;
  } else if (key.is_integral() && (object.is_sequence() || object.is_string())) {
    return item_at(object, key);
  }
  return key.is_string() ? attribute_without_items(object, key)
                         : Value::undefined(Value::string(to_text(key)), object.kind());
}

namespace {
/// Python's slice.indices(): start and stop clipped to the sequence, for either direction.
std::pair<int64_t, int64_t> slice_bounds(const Value& start, const Value& stop, int64_t by,
                                         int64_t size) {
  const auto bound = [&](const Value& v, int64_t if_none) {
    if (v.is_none()) return if_none;
    if (!v.is_integral()) throw EvalError("slice indices must be integers or None");
    const int64_t i = v.as_int() < 0 ? v.as_int() + size : v.as_int();
    return by > 0 ? std::clamp<int64_t>(i, 0, size) : std::clamp<int64_t>(i, -1, size - 1);
  };
  return {bound(start, by > 0 ? 0 : size - 1), bound(stop, by > 0 ? size : -1)};
}
}  // namespace

Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) throw EvalError(object.undefined_message());
  if (!object.is_string() && !object.is_sequence()) {
    throw EvalError(fmt::format("'{}' object cannot be sliced", type_name(object)));
  }
  if (!step.is_none() && !step.is_integral())
    throw EvalError("slice indices must be integers or None");
  // A stride beyond any sequence behaves as that of one element and cannot overflow below.
  const int64_t by =
      step.is_none() ? 1
                     : std::clamp<int64_t>(step.as_int(), -(int64_t{1} << 40), int64_t{1} << 40);
  if (by == 0) throw EvalError("slice step cannot be zero");
  if (object.is_sequence()) {
    const ValueList& items = object.items();
    const auto [from, to] = slice_bounds(start, stop, by, static_cast<int64_t>(items.size()));
    ValueList result;
    for (int64_t i = from; by > 0 ? i < to : i > to; i += by)
      result.push_back(items[static_cast<size_t>(i)]);
    return object.kind() == Kind::kList ? Value::list(std::move(result))
                                        : Value::tuple(std::move(result));
  }
  const std::string& text = object.as_string();
  const std::vector<size_t> offsets = code_point_offsets(text);
  const auto [from, to] = slice_bounds(start, stop, by, static_cast<int64_t>(offsets.size()) - 1);
  std::string result;
  for (int64_t i = from; by > 0 ? i < to : i > to; i += by) {
    const size_t at = static_cast<size_t>(i);
    result += text.substr(offsets[at], offsets[at + 1] - offsets[at]);
  }
  return Value::string(std::move(result));
}

}  // namespace danlu::text::jinja
