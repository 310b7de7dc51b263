#include <fmt/format.h>

#include <array>
#include <ctime>

#include "text/jinja/interpreter.h"
#include "text/jinja/methods.h"

namespace danlu::text::jinja {

namespace {

/// Python's sandbox allows no longer range().
constexpr int64_t kMaxRange = 100'000;

using GlobalFunction = Value (*)(Interpreter&, const Arguments&);

class BuiltinFunction final : public CallableObject {
 public:
  BuiltinFunction(std::string_view name, GlobalFunction function)
      : name_(name), function_(function) {
    references = kShared;
  }
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return function_(interpreter, arguments);
  }
  std::string name() const override { return std::string(name_); }

 private:
  std::string_view name_;
  GlobalFunction function_;
};

Value range(Interpreter& interpreter, const Arguments& arguments) {
  const Signature s("range", arguments, {"start", "stop", "step"});
  const auto whole = [&](size_t i) {
    const Value& v = s.required(i);
    if (!v.is_integral())
      throw EvalError(
          fmt::format("range(): '{}' object cannot be interpreted as an integer", type_name(v)));
    return v.as_int();
  };
  const int64_t start = s.has(1) ? whole(0) : 0;
  const int64_t stop = s.has(1) ? whole(1) : whole(0);
  const int64_t by = s.has(2) ? whole(2) : 1;
  if (by == 0) throw EvalError("range() arg 3 must not be zero");
  ValueList items;
  for (__int128 i = start; by > 0 ? i < stop : i > stop; i += by) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      throw EvalError(fmt::format("range() is too long: more than {} items", kMaxRange));
    }
    items.push_back(Value::integer(static_cast<int64_t>(i)));
  }
  interpreter.charge(items.size() * sizeof(Value));
  return Value::list(std::move(items));
}

Value make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  interpreter.charge(256);
  auto* space = interpreter.adopt(std::make_unique<NamespaceObject>());
  if (arguments.positional.size() > 1)
    throw EvalError("namespace() takes at most one dict beside named values");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (!from.is_dict())
      throw EvalError(fmt::format("namespace(): expected a dict, got {}", type_name(from)));
    for (const auto& [key, value] : from.entries()) space->set(to_text(key), value);
  }
  for (const auto& [name, value] : arguments.named) space->set(name, value);
  return Value::of(Kind::kNamespace, space);
}

Value make_dict(Interpreter& interpreter, const Arguments& arguments) {
  DictEntries entries;
  if (arguments.positional.size() > 1)
    throw EvalError("dict() takes at most one value beside named ones");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is_dict()) {
      entries = from.entries();
    } else {
      for (const Value& pair : interpreter.items_of(from)) {
        if (!pair.is_sequence() || pair.items().size() != 2)
          throw EvalError("dict() needs pairs of key and value");
        entries.emplace_back(pair.items()[0], pair.items()[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named)
    entries.emplace_back(Value::string(std::string(name)), value);
  interpreter.charge(entries.size() * 2 * sizeof(Value));
  return Value::dict(std::move(entries));
}

Value raise_exception(Interpreter&, const Arguments& arguments) {
  throw RaisedError(to_text(Signature("raise_exception", arguments, {"message"}).required(0)));
}

Value strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  const Signature s("strftime_now", arguments, {"format"});
  s.required(0);
  const std::string format = s.text(0, "") + ".";  // never empty, so that 0 means failure
  const std::time_t now = interpreter.now();
  std::tm local{};
  localtime_r(&now, &local);
  interpreter.charge(format.size() * 4 + 256);
  std::string text(format.size() * 4 + 256, '\0');
  const size_t size = std::strftime(text.data(), text.size(), format.c_str(), &local);
  if (size == 0) throw EvalError("strftime_now(): the text is too long");
  text.resize(size - 1);
  return Value::string(std::move(text));
}

/// joiner(sep): "" the first time it is called, sep afterwards.
class Joiner final : public CallableObject {
 public:
  explicit Joiner(std::string separator) : separator_(std::move(separator)) {}
  Value call(Interpreter& interpreter, const Arguments&) override {
    interpreter.charge(separator_.size());
    return Value::string(std::exchange(used_, true) ? separator_ : "");
  }
  std::string name() const override { return "joiner"; }

 private:
  std::string separator_;
  bool used_ = false;
};

Value make_joiner(Interpreter&, const Arguments& arguments) {
  return Value::of(Kind::kCallable,
                   new Joiner(Signature("joiner", arguments, {"sep"}).text(0, ", ")));
}

/// cycler(a, b, …): next() walks round, current looks, reset() starts over.
class Cycler final : public CallableObject {
 public:
  explicit Cycler(ValueList items) : items_(std::move(items)) {
    for (const Value& item : items_) include(extent, item);
  }
  Value call(Interpreter&, const Arguments&) override {
    throw EvalError("'Cycler' object is not callable; use next()");
  }
  std::string name() const override { return "cycler"; }
  Value attribute(const Value& name) override;

 private:
  friend Value cycler_next(Interpreter&, const Value&, const Arguments&);
  friend Value cycler_reset(Interpreter&, const Value&, const Arguments&);
  ValueList items_;
  size_t position_ = 0;
};

Value cycler_next(Interpreter&, const Value& self, const Arguments&) {
  auto& cycler = *static_cast<Cycler*>(self.object());
  Value item = cycler.items_[cycler.position_];
  cycler.position_ = (cycler.position_ + 1) % cycler.items_.size();
  return item;
}

Value cycler_reset(Interpreter&, const Value& self, const Arguments&) {
  static_cast<Cycler*>(self.object())->position_ = 0;
  return Value::none();
}

Value Cycler::attribute(const Value& name) {
  const Value self = Value::of(Kind::kCallable, this);
  if (name.as_string() == "current") return items_[position_];
  if (name.as_string() == "next") return bind_method(cycler_next, self, name);
  if (name.as_string() == "reset") return bind_method(cycler_reset, self, name);
  return Value::undefined(name, Kind::kCallable);
}

Value make_cycler(Interpreter& interpreter, const Arguments& arguments) {
  if (arguments.positional.empty()) throw EvalError("cycler() needs at least one item");
  interpreter.charge(arguments.positional.size() * sizeof(Value));
  return Value::of(Kind::kCallable,
                   new Cycler(ValueList(arguments.positional.begin(), arguments.positional.end())));
}

struct NamedGlobal {
  std::string_view name;
  BuiltinFunction function;
  Value value;
  NamedGlobal(std::string_view n, GlobalFunction f)
      : name(n), function(n, f), value(Value::of(Kind::kCallable, &function)) {}
};

}  // namespace

const Value* find_global(std::string_view name) {
  // Built on first use and never freed: templates of other threads may still hold them at exit.
  static auto* const globals =
      new std::array<NamedGlobal, 7>{NamedGlobal{"range", range},
                                     NamedGlobal{"namespace", make_namespace},
                                     NamedGlobal{"dict", make_dict},
                                     NamedGlobal{"raise_exception", raise_exception},
                                     NamedGlobal{"strftime_now", strftime_now},
                                     NamedGlobal{"joiner", make_joiner},
                                     NamedGlobal{"cycler", make_cycler}};
  for (const NamedGlobal& global : *globals) {
    if (global.name == name) return &global.value;
  }
  return nullptr;
}

}  // namespace danlu::text::jinja
