// text/jinja/objects.h: what lives behind a Value's pointer, beside strings.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace danlu::text::jinja {

class Interpreter;

/// How deep a container goes and about how long its text is, with shared parts counted each time
/// they appear: x = [x, x] doubles it, so that printing and comparing stay bounded.
struct Extent {
  int nesting = 1;
  int64_t printed_bytes = 2;
};

/// Grows `total`, the extent of a container, by one child. Errors: EvalError beyond kMaxNesting or
/// kMaxPrintedBytes.
void include(Extent& total, const Value& child);

struct ListObject final : Object {
  ValueList items;
  Extent extent;
};

struct DictObject final : Object {
  DictEntries entries;
  Extent extent;
};

/// namespace(): the only value whose attributes templates may set.
struct NamespaceObject final : Object {
  void release_contents() override { attributes.clear(); }
  std::vector<std::pair<std::string, Value>> attributes;
  Value* find(std::string_view name);
  void set(std::string_view name, Value value);
};

/// `loop` inside a for block.
struct LoopObject final : Object {
  void release_contents() override { last_changed.clear(); }
  const ValueList* items = nullptr;  ///< null once the loop has ended
  size_t index0 = 0;
  ValueList last_changed;  ///< arguments of the latest loop.changed()
  bool has_changed = false;
};

/// Values given in a call: f(1, x=2).
struct Arguments {
  std::span<const Value> positional;
  std::span<const std::pair<std::string_view, Value>> named;
};

/// Anything that can be called.
struct CallableObject : Object {
  Extent extent;  ///< of the values it holds
  virtual Value call(Interpreter& interpreter, const Arguments& arguments) = 0;
  virtual std::string name() const = 0;
  /// Undefined if there is none of this name.
  virtual Value attribute(const Value& name) { return Value::undefined(name, Kind::kCallable); }
};

/// Reads call arguments by name and place, as a Python signature does.
/// Errors: EvalError for unknown or repeated names and for too many values.
class Signature {
 public:
  Signature(std::string_view function, const Arguments& arguments,
            std::initializer_list<std::string_view> names);
  bool has(size_t i) const { return values_[i] != nullptr; }
  /// Errors: EvalError if the argument is missing.
  const Value& required(size_t i) const;
  const Value& get(size_t i, const Value& fallback) const {
    return values_[i] ? *values_[i] : fallback;
  }
  int64_t integer(size_t i, int64_t fallback) const;
  bool boolean(size_t i, bool fallback) const;
  std::string text(size_t i, std::string_view fallback) const;

 private:
  static constexpr size_t kMaxArguments = 6;
  std::string_view function_;
  std::string_view names_[kMaxArguments];
  const Value* values_[kMaxArguments] = {};
};

}  // namespace danlu::text::jinja
