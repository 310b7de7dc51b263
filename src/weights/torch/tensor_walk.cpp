#include "weights/torch/tensor_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "weights/torch/pickle_globals.h"
#include "weights/torch/tensor_rebuild.h"
#include "weights/torch/torch_document.h"

namespace danlu::weights::torch_file {
namespace {

constexpr size_t kMaxVisits = 8'000'000;
constexpr size_t kMaxNameBytes = 4096;

/// Keys below which training scripts keep objects of their own classes.
constexpr std::array<std::string_view, 10> kSettingsKeys = {"args",
                                                            "config",
                                                            "model_args",
                                                            "hparams",
                                                            "hyper_parameters",
                                                            "rng_state",
                                                            "random_rng_state",
                                                            "np_rng_state",
                                                            "rng_tracker_states",
                                                            "cfg"};

bool is_settings_key(std::string_view key) {
  return std::find(kSettingsKeys.begin(), kSettingsKeys.end(), key) != kSettingsKeys.end();
}

/// Where in the tree a value stands.
struct Place {
  std::string name;
  bool in_settings = false;  ///< any class may stand here
  bool in_object = false;    ///< part of an object that is kept as it is
  int depth = 0;

  Place below(const std::string& key) const {
    return {name.empty() ? key : name + "." + key, in_settings, in_object, depth + 1};
  }
  std::string shown() const { return name.empty() ? "top level" : name; }
};

/// Functions that visit a value take `out`: where its PyValue goes, or nullptr if only the tensors
/// are wanted.
class Walk {
 public:
  Walk(const Pickle& pickle, const std::string& origin, const StorageBytes& storage_bytes,
       uint64_t max_tensor_bytes, bool makes_document)
      : pickle_(pickle),
        origin_(origin),
        tensors_(pickle, origin, storage_bytes, max_tensor_bytes),
        max_visits_(makes_document ? kMaxDocumentValues : kMaxVisits),
        is_open_(pickle.values.size()) {}

  std::vector<StridedTensor> run(PyValue* document) {
    visit(pickle_.root, {}, document);
    return std::move(found_);
  }

 private:
  [[noreturn]] void fail(const Place& place, const std::string& what) const {
    throw ModelError(tr("{}: {}: {}", origin_, place.shown(), what));
  }
  std::string copied(std::string_view text, const Place& place) {
    text_bytes_ += text.size();
    if (text_bytes_ > kMaxDocumentTextBytes) fail(place, "the texts are too large");
    return std::string(text);
  }
  bool is_call_of(const Value& call, std::string_view module, std::string_view name) const {
    return pickle_.is_global(call.items[0], module, name);
  }
  const std::vector<ValueId>& arguments(const Value& call) const {
    return pickle_.at(call.items[1]).items;
  }
  static bool is_built_in(const Value& global) {
    return global.text == "__builtin__" || global.text == "builtins";
  }
  /// The only argument of a call, if it has just one.
  const Value* only_argument(const Value& call) const {
    return arguments(call).size() == 1 ? &pickle_.at(arguments(call)[0]) : nullptr;
  }

  void visit(ValueId id, const Place& place, PyValue* out);
  void visit_kind(ValueId id, const Place& place, PyValue* out);
  void visit_items(const std::vector<ValueId>& items, const Place& place, PyValue* out);
  void visit_dict(const Value& dict, const Place& place, PyValue* out);
  void visit_call(ValueId id, const Place& place, PyValue* out);
  void check_known(const Value& global, const Place& place) const;
  std::string key_text(ValueId key, const Place& place, PyValue* out);
  void check_new(const PyValue& key, std::unordered_set<std::string>& seen, const Place& place);
  void add_tensor(const TensorRebuilder::Rebuild& rebuild, const Place& place, PyValue* out);
  PyValue scalar(const Value& value, const Place& place);
  std::optional<PyKind> set_class(const Value& call) const;
  PyValue made_by(ValueId call, const Place& place);
  PyValue object(ValueId call, const Place& place);
  std::string latin1(std::string_view utf8, const Place& place) const;

  const Pickle& pickle_;
  const std::string& origin_;
  TensorRebuilder tensors_;
  size_t max_visits_, num_visits_ = 0, text_bytes_ = 0;
  std::vector<bool> is_open_;  ///< values on the way from the root to the one being visited
  std::vector<StridedTensor> found_;
  std::unordered_set<std::string> names_;
};

void Walk::visit(ValueId id, const Place& place, PyValue* out) {
  if (place.depth > kMaxDepth) fail(place, tr("nested deeper than {} levels", kMaxDepth));
  if (++num_visits_ > max_visits_) fail(place, "the object graph is too large");
  if (place.name.size() > kMaxNameBytes) {
    fail({.name = place.name.substr(0, 60) + "…"}, "a name is longer than 4096 bytes");
  }
  if (is_open_[id]) fail(place, "it contains itself");
  is_open_[id] = true;
  visit_kind(id, place, out);
  is_open_[id] = false;
}

void Walk::visit_kind(ValueId id, const Place& place, PyValue* out) {
  const Value& value = pickle_.at(id);
  switch (value.kind) {
    case Kind::kDict:
      if (out) *out = value.is_ordered ? PyValue::ordered_dict() : PyValue::dict();
      return visit_dict(value, place, out);
    case Kind::kList:
      if (out) *out = PyValue::list();
      return visit_items(value.items, place, out);
    case Kind::kTuple:
      if (out) *out = PyValue::tuple();
      return visit_items(value.items, place, out);
    case Kind::kSet:
      if (out) *out = PyValue::set();
      return visit_items(value.items, place, out);
    case Kind::kFrozenSet:
      if (out) *out = PyValue::frozen_set();
      return visit_items(value.items, place, out);
    case Kind::kCall:
      return visit_call(id, place, out);
    case Kind::kGlobal:
      check_known(value, place);
      [[fallthrough]];
    default:
      if (out) *out = scalar(value, place);
  }
}

void Walk::visit_items(const std::vector<ValueId>& items, const Place& place, PyValue* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    visit(items[i], place.below(std::to_string(i)), out ? &out->append({}) : nullptr);
  }
}

void Walk::visit_dict(const Value& dict, const Place& place, PyValue* out) {
  std::unordered_set<std::string> seen;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    PyValue key;
    const std::string text = key_text(dict.items[i], place, out ? &key : nullptr);
    Place below = place.below(text);
    below.in_settings |= is_settings_key(text);
    if (out) check_new(key, seen, below);
    visit(dict.items[i + 1], below, out ? &out->add(std::move(key), {}) : nullptr);
  }
}

/// What a key adds to the names below it.
std::string Walk::key_text(ValueId id, const Place& place, PyValue* out) {
  const Value& key = pickle_.at(id);
  if (out || (key.kind != Kind::kString && key.kind != Kind::kInt)) {
    PyValue value;
    Place below = place.below("key");
    below.in_object = true;  // a tensor as a key has no name
    visit(id, below, &value);
    std::string text = value.key_text();
    if (out) *out = std::move(value);
    return text;
  }
  return key.kind == Kind::kString ? std::string(key.text) : std::to_string(key.integer);
}

void Walk::check_new(const PyValue& key, std::unordered_set<std::string>& seen,
                     const Place& place) {
  const bool plain = key.is(PyKind::kString) || key.is(PyKind::kInt);
  if (plain && !seen.insert((key.is(PyKind::kInt) ? "i" : "s") + key.key_text()).second)
    fail(place, "this key stands twice");
}

/// A class or function standing alone (a dtype, say) or called: fine if it is on the list.
void Walk::check_known(const Value& global, const Place& place) const {
  const bool known =
      is_plain_object(global.text, global.name) || is_dict_class(global.text, global.name) ||
      dtype_global(global.text, global.name) || storage_dtype(global.text, global.name);
  if (known || place.in_settings) return;
  throw ModelError(tr("{}: {}: holds a Python object {}.{}, which is not part of a weight "
                      "file",
                      origin_, place.shown(), global.text, global.name),
                   tr("save the state_dict alone: torch.save(model.state_dict(), file)"));
}

void Walk::visit_call(ValueId id, const Place& place, PyValue* out) {
  const Value& call = pickle_.at(id);
  if (const auto rebuild = tensors_.unwrap(id, place.shown())) {
    if (!place.in_object) return add_tensor(*rebuild, place, out);
    *out = PyValue::omitted("a tensor inside an object");
    return;
  }
  check_known(pickle_.at(is_member(pickle_, id) ? arguments(call)[0] : call.items[0]), place);
  if (is_call_of(call, "argparse", "Namespace") && arguments(call).empty() &&
      (call.state == kNoValue || pickle_.at(call.state).kind == Kind::kDict)) {
    if (out) *out = PyValue::name_space();
    Place inside = place;
    inside.in_settings = true;
    if (call.state != kNoValue) visit_dict(pickle_.at(call.state), inside, out);
    return;
  }
  if (const auto set_kind = set_class(call)) {
    if (out) *out = *set_kind == PyKind::kSet ? PyValue::set() : PyValue::frozen_set();
    return visit_items(only_argument(call)->items, place, out);
  }
  if (out) *out = made_by(id, place);
}

/// set([…]) and frozenset([…]), as protocol 2 has them; nullopt for other calls.
std::optional<PyKind> Walk::set_class(const Value& call) const {
  const Value* argument = only_argument(call);
  const Value& callable = pickle_.at(call.items[0]);
  if (!argument || argument->kind != Kind::kList || !is_built_in(callable)) return std::nullopt;
  if (callable.name == "set") return PyKind::kSet;
  if (callable.name == "frozenset") return PyKind::kFrozenSet;
  return std::nullopt;
}

void Walk::add_tensor(const TensorRebuilder::Rebuild& rebuild, const Place& place, PyValue* out) {
  const std::string name = place.name.empty() ? "tensor" : place.name;
  StridedTensor tensor = tensors_.locate(rebuild, name);
  if (!names_.insert(name).second) fail({.name = name}, "two tensors have this name");
  if (out) *out = PyValue::tensor(found_.size());
  found_.push_back(std::move(tensor));
}

PyValue Walk::scalar(const Value& value, const Place& place) {
  switch (value.kind) {
    case Kind::kBool:
      return PyValue::boolean(value.truth);
    case Kind::kInt:
      return PyValue::integer(value.integer);
    case Kind::kBigInt:
      return PyValue::big_integer(copied(value.text, place));
    case Kind::kFloat:
      return PyValue::real(value.real);
    case Kind::kString:
      return PyValue::string(copied(value.text, place));
    case Kind::kBytes:
      return PyValue::bytes(copied(value.text, place));
    case Kind::kGlobal:
      if (const auto dtype = dtype_global(value.text, value.name)) return PyValue::dtype(*dtype);
      return PyValue::global(copied(value.text, place), copied(value.name, place));
    case Kind::kPersistent:
      return PyValue::omitted("a storage that is no tensor's");
    default:
      return PyValue::none();
  }
}

/// The value that a call of a harmless or unknown class stands for.
PyValue Walk::made_by(ValueId id, const Place& place) {
  const Value& call = pickle_.at(id);
  const Value& callable = pickle_.at(call.items[0]);
  const Value* argument = only_argument(call);
  if (is_call_of(call, "torch", "Size") && argument && argument->kind == Kind::kTuple) {
    std::vector<int64_t> shape;
    for (const ValueId extent : argument->items) {
      if (pickle_.at(extent).kind != Kind::kInt) fail(place, "a torch.Size of no whole numbers");
      shape.push_back(pickle_.at(extent).integer);
    }
    return PyValue::size(shape);
  }
  if (is_call_of(call, "_codecs", "encode") && arguments(call).size() == 2 &&
      pickle_.at(arguments(call)[0]).kind == Kind::kString &&
      pickle_.at(arguments(call)[1]).text == "latin1") {
    return PyValue::bytes(latin1(copied(pickle_.at(arguments(call)[0]).text, place), place));
  }
  if (is_built_in(callable) && callable.name == "bytes" && arguments(call).empty())
    return PyValue::bytes({});
  return object(id, place);
}

PyValue Walk::object(ValueId id, const Place& place) {
  const Value& call = pickle_.at(id);
  const Value& callable = pickle_.at(call.items[0]);
  Place inside = place;
  inside.in_object = true;
  PyValue arguments = PyValue::tuple();
  visit_items(this->arguments(call), inside, &arguments);
  PyObject object{copied(callable.text, place), copied(callable.name, place)};
  object.arguments = arguments.items();
  object.by_new = call.by_new;
  object.has_state = call.state != kNoValue;
  if (object.has_state) visit(call.state, inside.below("state"), &object.state);
  if (const auto items = pickle_.call_items.find(id); items != pickle_.call_items.end()) {
    PyValue appended = PyValue::list(), set = PyValue::dict();
    visit_items(items->second.appended, inside, &appended);
    visit_dict({.kind = Kind::kDict, .items = items->second.set}, inside, &set);
    object.appended = appended.items();
    object.set_entries = set.entries();
  }
  return PyValue::object(std::move(object));
}

/// Python writes bytes in protocol 2 as the text whose code points they are.
std::string Walk::latin1(std::string_view utf8, const Place& place) const {
  std::string bytes;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto lead = static_cast<uint8_t>(utf8[i]);
    if (lead < 0x80) {
      bytes += utf8[i];
    } else if ((lead == 0xc2 || lead == 0xc3) && i + 1 < utf8.size() &&
               (static_cast<uint8_t>(utf8[i + 1]) & 0xc0) == 0x80) {
      bytes += static_cast<char>((lead & 3) << 6 | (utf8[++i] & 0x3f));
    } else {
      fail(place, "its bytes are not latin1 text");
    }
  }
  return bytes;
}

}  // namespace

std::vector<StridedTensor> collect_tensors(const Pickle& pickle, const std::string& origin,
                                           const StorageBytes& storage_bytes,
                                           uint64_t max_tensor_bytes, PyValue* document) {
  return Walk(pickle, origin, storage_bytes, max_tensor_bytes, document != nullptr).run(document);
}

}  // namespace danlu::weights::torch_file
