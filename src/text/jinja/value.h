// text/jinja/value.h: the values a template computes with, behaving as Python's do in Jinja2.
//
// Values are immutable (as in Hugging Face's sandbox) except namespaces and loop helpers, which an
// interpreter owns. Reference counts are not atomic: a value belongs to one render on one thread.
// Constants of a parsed template are shared between threads and therefore never counted.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace danlu::text::jinja {

/// A rule of the language was broken while evaluating; the interpreter adds template name and line.
class EvalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// A limit of steps, text or depth was passed (interpreter.h): a fault of the template, whatever it
/// was given.
class LimitError : public EvalError {
 public:
  using EvalError::EvalError;
};
/// Thrown by raise_exception(): the template refuses its input.
class RaisedError : public EvalError {
 public:
  using EvalError::EvalError;
};

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kLoop,
  kCallable
};

/// Base of everything on the heap. kShared objects are constants: never counted, never freed by
/// values.
struct Object {
  static constexpr int32_t kShared = -1;
  int32_t references = 0;
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  /// Lets go of held values: breaks cycles among mutable objects.
  virtual void release_contents() {}
};

class Value;
using ValueList = std::vector<Value>;
using DictEntries = std::vector<std::pair<Value, Value>>;

struct StringObject final : Object {
  explicit StringObject(std::string t) : text(std::move(t)) {}
  std::string text;
};

/// What a string of a few bytes takes in a list.
inline constexpr size_t kShortStringBytes = 16 + sizeof(StringObject) + 2 * sizeof(size_t);

/// 16 bytes: a kind and a number or a pointer to a counted object.
class Value {
 public:
  Value() = default;
  Value(const Value& other) : kind_(other.kind_), origin_(other.origin_), u_(other.u_) { retain(); }
  Value(Value&& other) noexcept : kind_(other.kind_), origin_(other.origin_), u_(other.u_) {
    other.kind_ = Kind::kNone;
  }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(origin_, other.origin_);
    std::swap(u_, other.u_);
    return *this;
  }
  ~Value() { release(); }

  static Value none();
  static Value boolean(bool b);
  static Value integer(int64_t i);
  static Value real(double d);
  static Value string(std::string text);
  static Value list(ValueList items);
  static Value tuple(ValueList items);
  /// Later duplicates of a key win, at the place of the first.
  static Value dict(DictEntries entries);
  /// `name`: what was looked up, for messages; origin: what it was looked up in (kUndefined: a
  /// variable).
  static Value undefined(const Value& name, Kind origin = Kind::kUndefined);
  /// Takes part in counting (REQUIRES: object matches kind).
  static Value of(Kind kind, Object* object);
  /// Errors: EvalError if nested deeper than kMaxNesting or an integer does not fit 64 bits.
  static Value from_json(const Json& json);

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  /// int or bool, as bool is an int in Python.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  bool as_bool() const { return u_.boolean; }
  int64_t as_int() const { return kind_ == Kind::kBool ? (u_.boolean ? 1 : 0) : u_.integer; }
  double as_double() const {
    return kind_ == Kind::kFloat ? u_.real : static_cast<double>(as_int());
  }
  const std::string& as_string() const { return static_cast<StringObject*>(u_.object)->text; }
  const ValueList& items() const;      ///< REQUIRES is_sequence()
  const DictEntries& entries() const;  ///< REQUIRES is_dict()
  Object* object() const { return has_object() ? u_.object : nullptr; }

  /// The string, to append to, if nobody else holds it; else nullptr.
  std::string* exclusive_string();
  /// "'x' is undefined" or "'dict object' has no attribute 'x'".
  std::string undefined_message() const;

 private:
  bool has_object() const {
    return kind_ >= Kind::kString || (kind_ == Kind::kUndefined && u_.object != nullptr);
  }
  // The analyzer does not follow counted references.
  // NOLINTBEGIN(clang-analyzer-cplusplus.NewDelete)
  void retain() {
    if (has_object() && u_.object->references != Object::kShared) ++u_.object->references;
  }
  void release() {
    if (!has_object() || u_.object->references == Object::kShared) return;
    --u_.object->references;
    if (u_.object->references == 0) delete u_.object;
  }
  // NOLINTEND(clang-analyzer-cplusplus.NewDelete)

  Kind kind_ = Kind::kUndefined;
  Kind origin_ = Kind::kUndefined;
  union Payload {
    bool boolean;
    int64_t integer;
    double real;
    Object* object;
  } u_ = {.object = nullptr};
};

/// Containers nested deeper are refused: printing and freeing them recurses.
inline constexpr const char* kTooLargeInteger = "integer result does not fit 64 bits";
/// Errors: EvalError if the truncated value is not an int64.
int64_t integer_of(double value);
inline constexpr int kMaxNesting = 100;
inline constexpr int64_t kMaxPrintedBytes = int64_t{1} << 28;

/// The value at a string key, or nullptr. REQUIRES dict.is_dict().
const Value* dict_find(const Value& dict, std::string_view key);
const Value* dict_find(const Value& dict, const Value& key);

bool truthy(const Value& v);
/// Python ==; never an error. 1 == 1.0 == true.
bool equals(const Value& a, const Value& b);
/// Python <. Errors: EvalError for kinds that have no order.
bool less_than(const Value& a, const Value& b);
/// Python's name of the type, for messages: "str", "int", "NoneType", …
std::string_view type_name(const Value& v);
/// str(v): what printing shows. Undefined is "".
std::string to_text(const Value& v);
void append_text(const Value& v, std::string& out);
/// repr(v): strings quoted as Python would.
void append_repr(const Value& v, std::string& out);

/// The elements `for` would see: list and tuple items, dict keys, characters, nothing for
/// undefined. Errors: EvalError "'int' object is not iterable".
ValueList iterate(const Value& v);
/// len(v). Errors: EvalError for kinds without length.
int64_t length_of(const Value& v);

}  // namespace danlu::text::jinja
