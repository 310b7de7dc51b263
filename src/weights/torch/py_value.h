// weights/torch/py_value.h: a Python object as data: what a `.pt` file holds beside its tensors, to
// be read, made and written back. Nothing is ever called.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"

namespace danlu::weights::torch_file {

enum class PyKind : uint8_t {
  kNone,
  kBool,
  kInt,     ///< fits 64 bits
  kBigInt,  ///< does not: two's complement, little-endian, kept as its bytes
  kFloat,
  kString,  ///< UTF-8
  kBytes,
  kTuple,
  kList,
  kSet,
  kFrozenSet,
  kDict,
  kOrderedDict,
  kNamespace,  ///< argparse.Namespace: entries with string keys
  kDType,      ///< torch.bfloat16 and kin
  kSize,       ///< torch.Size: ints
  kGlobal,     ///< a class or function by its name
  kObject,     ///< an instance of a class, by name, with what made it
  kTensor,     ///< the tensor of this index in a list that goes with the value
  kOmitted,    ///< something read that cannot be kept; the text says what. Not written.
};

struct PyItem;
struct PyObject;

/// A Python value. Copies are deep (objects are shared, they never change). Dicts keep their order.
class PyValue {
 public:
  using Items = std::vector<PyValue>;
  using Entries = std::vector<PyItem>;

  PyValue();  ///< None
  PyValue(const PyValue&);
  PyValue(PyValue&&) noexcept;
  PyValue& operator=(const PyValue&);
  PyValue& operator=(PyValue&&) noexcept;
  ~PyValue();

  static PyValue none();
  static PyValue boolean(bool truth);
  static PyValue integer(int64_t number);
  /// Little-endian two's complement of any length; becomes kInt where it fits.
  static PyValue big_integer(std::string digits);
  static PyValue real(double number);
  static PyValue string(std::string text);
  static PyValue bytes(std::string content);
  static PyValue tuple();
  static PyValue tuple(Items items);
  static PyValue list();
  static PyValue list(Items items);
  static PyValue set();
  static PyValue set(Items items);
  static PyValue frozen_set();
  static PyValue frozen_set(Items items);
  static PyValue dict();
  static PyValue dict(Entries entries);
  static PyValue ordered_dict();
  static PyValue ordered_dict(Entries entries);
  static PyValue name_space();
  static PyValue name_space(Entries entries);
  static PyValue dtype(DType dtype);
  static PyValue size(const std::vector<int64_t>& shape);
  static PyValue global(std::string module, std::string name);
  static PyValue object(PyObject object);
  /// Member of an Enum class, as Python writes it: the class called with the member's value.
  static PyValue enum_member(std::string module, std::string name, PyValue value);
  static PyValue tensor(size_t index);
  static PyValue omitted(std::string what);

  PyKind kind() const { return kind_; }
  bool is(PyKind kind) const { return kind_ == kind; }
  bool is_none() const { return kind_ == PyKind::kNone; }
  /// dict, OrderedDict, or Namespace.
  bool has_entries() const;
  /// list, tuple, set, frozenset or torch.Size.
  bool has_items() const;

  // Reading. `what` begins the message, e.g. "model.pt: iteration". Errors: ModelError
  // "<what> must be a whole number, got the string "x"".
  bool as_bool(std::string_view what) const;
  int64_t as_int(std::string_view what) const;
  double as_float(std::string_view what) const;  ///< ints too
  const std::string& as_string(std::string_view what) const;
  DType as_dtype(std::string_view what) const;
  size_t as_tensor(std::string_view what) const;  ///< the index
  const Items& as_items(std::string_view what) const;

  // REQUIRES: the kind fits (InternalError otherwise).
  const Items& items() const;
  const Entries& entries() const;
  const std::string& text() const;  ///< kString, kBytes, kBigInt (digits), kOmitted (what)
  const PyObject& object() const;   ///< kObject, kGlobal

  /// The value of a dict, OrderedDict or Namespace under a key; nullptr if absent or if this is
  /// none of them.
  const PyValue* find(std::string_view key) const;
  const PyValue* find(const PyValue& key) const;
  /// find(), but an absent key is a ModelError: `<where> has no "key"`.
  const PyValue& get(std::string_view key, std::string_view where = "the file") const;

  /// Replaces the value under the key or adds it at the end; returns *this to chain.
  /// REQUIRES: has_entries().
  PyValue& put(std::string_view key, PyValue value);
  PyValue& put(PyValue key, PyValue value);
  /// put() for a key known to be new: no search. Returns the place of the value.
  PyValue& add(PyValue key, PyValue value);
  /// REQUIRES: has_items(). Returns the place of the value.
  PyValue& append(PyValue value);

  /// The text that Python's repr prints, shortened where long: 'adam', (torch.bfloat16, 3), True,
  /// megatron.core.enums.ModelType(1).
  std::string repr() const;
  /// The text that stands for this value as a dict key in tensor names: strings and ints plain,
  /// everything else as repr().
  std::string key_text() const;

  /// Same kind and content; floats by their bits (nan == nan, 0.0 != -0.0).
  friend bool operator==(const PyValue& a, const PyValue& b);

 private:
  using Data = std::variant<std::monostate, bool, int64_t, double, DType, std::string, Items,
                            Entries, std::shared_ptr<const PyObject>>;
  PyValue(PyKind kind, Data data);
  [[noreturn]] void wrong(std::string_view what, std::string_view wanted) const;

  PyKind kind_ = PyKind::kNone;
  Data data_;
};

/// One entry of a dict.
struct PyItem {
  PyValue key, value;
  friend bool operator==(const PyItem&, const PyItem&) = default;
};

/// What the file says about an instance of a class Danlu does not know, enough to write it again.
struct PyObject {
  std::string module, name;
  PyValue::Items arguments = {};
  bool by_new = false;  ///< made by cls.__new__(cls, *arguments), not by cls(*arguments)
  bool has_state = false;
  PyValue state = {};                 ///< what BUILD (__setstate__, or __dict__) got
  PyValue::Items appended = {};       ///< of a subclass of list
  PyValue::Entries set_entries = {};  ///< of a subclass of dict
  friend bool operator==(const PyObject&, const PyObject&) = default;
};

/// Whether an object is a member of a class by name, getattr(class, "member"): how some Pythons
/// write members of an Enum. arguments[0] is then a kGlobal, arguments[1] a kString.
bool is_member(const PyObject& object);

/// For messages and for `inspect`: dicts and Namespaces as objects, sequences as arrays, everything
/// JSON has no word for (dtypes, enum members, nan, bytes, tensors) as its repr(). Valid UTF-8.
Json to_json(const PyValue& value);

}  // namespace danlu::weights::torch_file
