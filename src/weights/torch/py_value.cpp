#include "weights/torch/py_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "weights/torch/pickle_globals.h"

namespace danlu::weights::torch_file {
namespace {

const char* kind_name(PyKind kind) {
  switch (kind) {
    case PyKind::kNone:
      return "None";
    case PyKind::kBool:
      return "a bool";
    case PyKind::kInt:
      return "an int";
    case PyKind::kBigInt:
      return "an int beyond 64 bits";
    case PyKind::kFloat:
      return "a float";
    case PyKind::kString:
      return "the string";
    case PyKind::kBytes:
      return "bytes";
    case PyKind::kTuple:
      return "a tuple";
    case PyKind::kList:
      return "a list";
    case PyKind::kSet:
    case PyKind::kFrozenSet:
      return "a set";
    case PyKind::kDict:
    case PyKind::kOrderedDict:
      return "a dict";
    case PyKind::kNamespace:
      return "a Namespace";
    case PyKind::kDType:
      return "a dtype";
    case PyKind::kSize:
      return "a torch.Size";
    case PyKind::kGlobal:
      return "the Python name";
    case PyKind::kObject:
      return "an object";
    case PyKind::kTensor:
      return "a tensor";
    case PyKind::kOmitted:
      return "something that cannot be kept:";
  }
  return "?";
}

[[noreturn]] void bug(const char* accessor, PyKind kind) {
  throw InternalError(fmt::format("[PyValue] {}() of {}", accessor, kind_name(kind)));
}

}  // namespace

PyValue::PyValue() = default;
PyValue::PyValue(const PyValue&) = default;
PyValue::PyValue(PyValue&&) noexcept = default;
PyValue& PyValue::operator=(const PyValue&) = default;
PyValue& PyValue::operator=(PyValue&&) noexcept = default;
PyValue::~PyValue() = default;
PyValue::PyValue(PyKind kind, Data data) : kind_(kind), data_(std::move(data)) {}

// --- making --------------------------------------------------------------------------------------

PyValue PyValue::none() { return {}; }
PyValue PyValue::boolean(bool truth) { return {PyKind::kBool, truth}; }
PyValue PyValue::integer(int64_t number) { return {PyKind::kInt, number}; }
PyValue PyValue::real(double number) { return {PyKind::kFloat, number}; }
PyValue PyValue::string(std::string text) { return {PyKind::kString, std::move(text)}; }
PyValue PyValue::bytes(std::string content) { return {PyKind::kBytes, std::move(content)}; }
PyValue PyValue::tuple() { return tuple(Items()); }
PyValue PyValue::tuple(Items items) { return {PyKind::kTuple, std::move(items)}; }
PyValue PyValue::list() { return list(Items()); }
PyValue PyValue::list(Items items) { return {PyKind::kList, std::move(items)}; }
PyValue PyValue::set() { return set(Items()); }
PyValue PyValue::set(Items items) { return {PyKind::kSet, std::move(items)}; }
PyValue PyValue::frozen_set() { return frozen_set(Items()); }
PyValue PyValue::frozen_set(Items items) { return {PyKind::kFrozenSet, std::move(items)}; }
PyValue PyValue::dict() { return dict(Entries()); }
PyValue PyValue::dict(Entries entries) { return {PyKind::kDict, std::move(entries)}; }
PyValue PyValue::ordered_dict() { return ordered_dict(Entries()); }
PyValue PyValue::ordered_dict(Entries entries) {
  return {PyKind::kOrderedDict, std::move(entries)};
}
PyValue PyValue::name_space() { return name_space(Entries()); }
PyValue PyValue::name_space(Entries entries) { return {PyKind::kNamespace, std::move(entries)}; }
PyValue PyValue::dtype(DType dtype) { return {PyKind::kDType, dtype}; }
PyValue PyValue::tensor(size_t index) { return {PyKind::kTensor, static_cast<int64_t>(index)}; }
PyValue PyValue::omitted(std::string what) { return {PyKind::kOmitted, std::move(what)}; }

PyValue PyValue::big_integer(std::string digits) {
  // Bytes that only repeat the sign say nothing.
  while (digits.size() > 1) {
    const bool negative = digits[digits.size() - 2] & 0x80;
    if (static_cast<uint8_t>(digits.back()) != (negative ? 0xff : 0x00)) break;
    digits.pop_back();
  }
  if (digits.size() > 8) return {PyKind::kBigInt, std::move(digits)};
  const bool negative = !digits.empty() && (digits.back() & 0x80);
  uint64_t value = negative ? ~uint64_t{0} : 0;
  for (size_t i = digits.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(digits[i]);
  return integer(static_cast<int64_t>(value));
}

PyValue PyValue::size(const std::vector<int64_t>& shape) {
  Items items;
  for (const int64_t extent : shape) items.push_back(integer(extent));
  return {PyKind::kSize, std::move(items)};
}

PyValue PyValue::global(std::string module, std::string name) {
  return {PyKind::kGlobal,
          std::make_shared<const PyObject>(PyObject{std::move(module), std::move(name)})};
}

PyValue PyValue::object(PyObject object) {
  return {PyKind::kObject, std::make_shared<const PyObject>(std::move(object))};
}

PyValue PyValue::enum_member(std::string module, std::string name, PyValue value) {
  return object({std::move(module), std::move(name), {std::move(value)}});
}

bool PyValue::has_entries() const { return std::holds_alternative<Entries>(data_); }
bool PyValue::has_items() const { return std::holds_alternative<Items>(data_); }

// --- reading -------------------------------------------------------------------------------------

void PyValue::wrong(std::string_view what, std::string_view wanted) const {
  std::string got = kind_name(kind_);
  const bool shown = kind_ != PyKind::kNone && kind_ != PyKind::kTensor && !has_entries();
  if (shown) got += " " + repr();
  throw ModelError(tr("{} must be {}, got {}", what, wanted, got));
}

bool PyValue::as_bool(std::string_view what) const {
  if (kind_ != PyKind::kBool) wrong(what, "True or False");
  return std::get<bool>(data_);
}

int64_t PyValue::as_int(std::string_view what) const {
  if (kind_ != PyKind::kInt) wrong(what, "a whole number");
  return std::get<int64_t>(data_);
}

double PyValue::as_float(std::string_view what) const {
  if (kind_ == PyKind::kInt) return static_cast<double>(std::get<int64_t>(data_));
  if (kind_ != PyKind::kFloat) wrong(what, "a number");
  return std::get<double>(data_);
}

const std::string& PyValue::as_string(std::string_view what) const {
  if (kind_ != PyKind::kString) wrong(what, "a string");
  return std::get<std::string>(data_);
}

DType PyValue::as_dtype(std::string_view what) const {
  if (kind_ != PyKind::kDType) wrong(what, "a torch dtype");
  return std::get<DType>(data_);
}

size_t PyValue::as_tensor(std::string_view what) const {
  if (kind_ != PyKind::kTensor) wrong(what, "a tensor");
  return static_cast<size_t>(std::get<int64_t>(data_));
}

const PyValue::Items& PyValue::as_items(std::string_view what) const {
  if (!has_items()) wrong(what, "a list");
  return std::get<Items>(data_);
}

const PyValue::Items& PyValue::items() const {
  if (!has_items()) bug("items", kind_);
  return std::get<Items>(data_);
}

const PyValue::Entries& PyValue::entries() const {
  if (!has_entries()) bug("entries", kind_);
  return std::get<Entries>(data_);
}

const std::string& PyValue::text() const {
  if (!std::holds_alternative<std::string>(data_)) bug("text", kind_);
  return std::get<std::string>(data_);
}

const PyObject& PyValue::object() const {
  if (!std::holds_alternative<std::shared_ptr<const PyObject>>(data_)) bug("object", kind_);
  return *std::get<std::shared_ptr<const PyObject>>(data_);
}

// --- dicts and lists -----------------------------------------------------------------------------

const PyValue* PyValue::find(std::string_view key) const {
  if (!has_entries()) return nullptr;
  for (const PyItem& entry : std::get<Entries>(data_)) {
    if (entry.key.kind_ == PyKind::kString && entry.key.text() == key) return &entry.value;
  }
  return nullptr;
}

const PyValue* PyValue::find(const PyValue& key) const {
  if (!has_entries()) return nullptr;
  for (const PyItem& entry : std::get<Entries>(data_)) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

const PyValue& PyValue::get(std::string_view key, std::string_view where) const {
  const PyValue* value = find(key);
  if (value) return *value;
  if (!has_entries()) wrong(where, tr("a dict with \"{}\"", key));
  throw ModelError(tr("{} has no \"{}\"", where, key));
}

PyValue& PyValue::put(std::string_view key, PyValue value) {
  return put(string(std::string(key)), std::move(value));
}

PyValue& PyValue::put(PyValue key, PyValue value) {
  if (const PyValue* found = find(key)) {
    const_cast<PyValue&>(*found) = std::move(value);
  } else {
    add(std::move(key), std::move(value));
  }
  return *this;
}

PyValue& PyValue::add(PyValue key, PyValue value) {
  if (!has_entries()) bug("add", kind_);
  auto& entries = std::get<Entries>(data_);
  entries.push_back({std::move(key), std::move(value)});
  return entries.back().value;
}

PyValue& PyValue::append(PyValue value) {
  if (!has_items()) bug("append", kind_);
  auto& items = std::get<Items>(data_);
  items.push_back(std::move(value));
  return items.back();
}

bool is_member(const PyObject& object) {
  return is_getattr(object.module, object.name) && !object.by_new && !object.has_state &&
         object.appended.empty() && object.set_entries.empty() && object.arguments.size() == 2 &&
         object.arguments[0].is(PyKind::kGlobal) && object.arguments[1].is(PyKind::kString) &&
         is_member_name(object.arguments[1].text());
}

bool operator==(const PyValue& a, const PyValue& b) {
  if (a.kind_ != b.kind_) return false;
  if (a.kind_ == PyKind::kFloat) {
    return std::bit_cast<uint64_t>(std::get<double>(a.data_)) ==
           std::bit_cast<uint64_t>(std::get<double>(b.data_));
  }
  if (a.kind_ == PyKind::kObject || a.kind_ == PyKind::kGlobal) return a.object() == b.object();
  return a.data_ == b.data_;
}

}  // namespace danlu::weights::torch_file
