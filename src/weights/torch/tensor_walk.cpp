#include "weights/torch/tensor_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "weights/source_base.h"
#include "weights/torch/pickle_globals.h"

namespace danlu::weights::torch_file {
namespace {

constexpr int kMaxDepth = 64;
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

/// The call that makes a tensor, once parameters and subclasses are unwrapped.
struct Rebuild {
  std::string_view function;
  const std::vector<ValueId>* arguments = nullptr;
};

class Walk {
 public:
  Walk(const Pickle& pickle, const std::string& origin, const StorageBytes& storage_bytes,
       uint64_t max_tensor_bytes)
      : pickle_(pickle),
        origin_(origin),
        storage_bytes_(storage_bytes),
        max_tensor_bytes_(max_tensor_bytes) {}

  std::vector<StridedTensor> run() {
    visit(pickle_.root, "", false, 0);
    return std::move(found_);
  }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw ModelError(fmt::format("{}: {}: {}", origin_, name.empty() ? "top level" : name, what));
  }

  void visit(ValueId id, const std::string& name, bool in_settings, int depth) {
    if (depth > kMaxDepth) fail(name, fmt::format("nested deeper than {} levels", kMaxDepth));
    if (++num_visits_ > kMaxVisits) fail(name, "the object graph is too large");
    if (name.size() > kMaxNameBytes)
      fail(name.substr(0, 60) + "…", "a name is longer than 4096 bytes");
    const Value& value = pickle_.at(id);
    switch (value.kind) {
      case Kind::kDict:
        return visit_dict(value, name, in_settings, depth);
      case Kind::kList:
      case Kind::kTuple:
        for (size_t i = 0; i < value.items.size(); ++i) {
          visit(value.items[i], join(name, std::to_string(i)), in_settings, depth + 1);
        }
        return;
      case Kind::kCall:
        return visit_call(id, name, in_settings);
      case Kind::kGlobal:
        return check_known(value, name, in_settings);
      default:
        return;
    }
  }

  void visit_dict(const Value& dict, const std::string& name, bool in_settings, int depth) {
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const Value& key = pickle_.at(dict.items[i]);
      std::string text;
      if (key.kind == Kind::kString)
        text = key.text;
      else if (key.kind == Kind::kInt)
        text = std::to_string(key.integer);
      else
        text = "?";
      visit(dict.items[i + 1], join(name, text), in_settings || is_settings_key(text), depth + 1);
    }
  }

  static std::string join(const std::string& name, const std::string& key) {
    return name.empty() ? key : name + "." + key;
  }

  /// A class or function standing alone (a dtype, say) or called: fine if it is on the list.
  void check_known(const Value& global, const std::string& name, bool in_settings) const {
    const bool known =
        is_plain_object(global.text, global.name) || is_dict_class(global.text, global.name) ||
        dtype_global(global.text, global.name) || storage_dtype(global.text, global.name);
    if (known || in_settings) return;
    throw ModelError(
        fmt::format("{}: {}: holds a Python object {}.{}, which is not part of a weight file",
                    origin_, name.empty() ? "top level" : name, global.text, global.name),
        {"save the state_dict alone: torch.save(model.state_dict(), file)",
         "请只保存 state_dict：torch.save(model.state_dict(), file)"});
  }

  void visit_call(ValueId id, const std::string& name, bool in_settings) {
    if (const auto rebuild = unwrap(id, name))
      return add_tensor(*rebuild, name.empty() ? "tensor" : name);
    check_known(pickle_.at(pickle_.at(id).items[0]), name, in_settings);
  }

  std::optional<Rebuild> unwrap(ValueId id, const std::string& name) const;
  void add_tensor(const Rebuild& rebuild, const std::string& name);
  std::vector<int64_t> integers(ValueId id, const std::string& name, const char* what) const;
  int64_t integer(ValueId id, const std::string& name, const char* what) const;
  void check_inside(const StridedTensor& tensor, int64_t storage_elements) const;

  const Pickle& pickle_;
  const std::string& origin_;
  const StorageBytes& storage_bytes_;
  uint64_t max_tensor_bytes_;
  size_t num_visits_ = 0;
  std::vector<StridedTensor> found_;
  std::unordered_set<std::string> names_;
};

/// nullopt: the call makes no tensor.
std::optional<Rebuild> Walk::unwrap(ValueId id, const std::string& name) const {
  ValueId callable = pickle_.at(id).items[0], arguments = pickle_.at(id).items[1];
  for (int level = 0; level < kMaxDepth; ++level) {
    const Value& function = pickle_.at(callable);
    const auto& items = pickle_.at(arguments).items;
    if (pickle_.is_global(callable, "torch._tensor", "_rebuild_from_type_v2")) {
      // (function, class, arguments, attributes): a tensor that carries Python attributes.
      if (items.size() != 4 || pickle_.at(items[0]).kind != Kind::kGlobal ||
          pickle_.at(items[2]).kind != Kind::kTuple) {
        fail(name, "_rebuild_from_type_v2 has wrong arguments");
      }
      callable = items[0];
      arguments = items[2];
    } else if (pickle_.is_global(callable, "torch._utils", "_rebuild_parameter") ||
               pickle_.is_global(callable, "torch._utils", "_rebuild_parameter_with_state")) {
      if (items.empty() || pickle_.at(items[0]).kind != Kind::kCall)
        fail(name, "a parameter without a tensor");
      callable = pickle_.at(items[0]).items[0];
      arguments = pickle_.at(items[0]).items[1];
    } else if (function.text == "torch._utils" &&
               (function.name == "_rebuild_tensor" || function.name == "_rebuild_tensor_v2" ||
                function.name == "_rebuild_tensor_v3")) {
      return Rebuild{function.name, &items};
    } else {
      return std::nullopt;
    }
  }
  fail(name, "a parameter wrapped too often");
}

int64_t Walk::integer(ValueId id, const std::string& name, const char* what) const {
  const Value& value = pickle_.at(id);
  if (value.kind != Kind::kInt || value.integer < 0)
    fail(name, fmt::format("its {} is not a whole number ≥ 0", what));
  return value.integer;
}

std::vector<int64_t> Walk::integers(ValueId id, const std::string& name, const char* what) const {
  const Value* value = &pickle_.at(id);
  if (value->kind == Kind::kCall && pickle_.is_global(value->items[0], "torch", "Size")) {
    const auto& arguments = pickle_.at(value->items[1]).items;
    if (arguments.size() == 1) value = &pickle_.at(arguments[0]);
  }
  if (value->kind != Kind::kTuple) fail(name, fmt::format("its {} is not a tuple", what));
  std::vector<int64_t> numbers;
  for (const ValueId item : value->items) numbers.push_back(integer(item, name, what));
  return numbers;
}

void Walk::check_inside(const StridedTensor& tensor, int64_t storage_elements) const {
  const std::string& name = tensor.info.name;
  int64_t elements = 1, last = tensor.offset;
  bool overflow = false, empty = false;
  for (size_t d = 0; d < tensor.strides.size(); ++d) {
    const int64_t size = tensor.info.shape[d];
    overflow |= __builtin_mul_overflow(elements, size, &elements);
    empty |= size == 0;
    int64_t reach = 0;
    if (size > 0) overflow |= __builtin_mul_overflow(size - 1, tensor.strides[d], &reach);
    overflow |= __builtin_add_overflow(last, reach, &last);
  }
  const std::string shape = shape_text(tensor.info.shape);
  if (overflow)
    fail(name,
         fmt::format("impossible shape {} with strides {}", shape, shape_text(tensor.strides)));
  if (!empty && last >= storage_elements) {
    fail(name,
         fmt::format("shape {}, strides {}, offset {} reach element {} of a storage of {}", shape,
                     shape_text(tensor.strides), tensor.offset, last, storage_elements));
  }
  if (static_cast<uint64_t>(elements) > max_tensor_bytes_ / dtype_size_bytes(tensor.info.dtype)) {
    fail(name, fmt::format("shape {} repeats a storage of {} elements beyond reason", shape,
                           storage_elements));
  }
}

void Walk::add_tensor(const Rebuild& rebuild, const std::string& name) {
  const auto& arguments = *rebuild.arguments;
  const bool has_dtype = rebuild.function == "_rebuild_tensor_v3";
  if (arguments.size() < (has_dtype ? 7u : 4u) ||
      pickle_.at(arguments[0]).kind != Kind::kPersistent) {
    fail(name, fmt::format("{} has wrong arguments", rebuild.function));
  }
  StorageRef ref = parse_storage_ref(pickle_, arguments[0], origin_ + ": " + name);
  StridedTensor tensor;
  tensor.info.name = name;
  tensor.info.dtype = ref.dtype;
  if (has_dtype) {
    const Value& dtype = pickle_.at(arguments[6]);
    const auto known =
        dtype.kind == Kind::kGlobal ? dtype_global(dtype.text, dtype.name) : std::nullopt;
    if (!known) fail(name, fmt::format("element type torch.{} is not one Danlu reads", dtype.name));
    // The storage of such a tensor counts bytes.
    tensor.info.dtype = *known;
  }
  tensor.offset = integer(arguments[1], name, "offset");
  tensor.info.shape = integers(arguments[2], name, "size");
  tensor.strides = integers(arguments[3], name, "stride");
  if (tensor.info.shape.size() != tensor.strides.size()) {
    fail(name,
         fmt::format("{} sizes but {} strides", tensor.info.shape.size(), tensor.strides.size()));
  }
  tensor.storage = storage_bytes_(ref);
  const auto item_bytes = static_cast<int64_t>(dtype_size_bytes(tensor.info.dtype));
  const int64_t declared =
      ref.num_elements * static_cast<int64_t>(dtype_size_bytes(ref.dtype)) / item_bytes;
  check_inside(tensor, declared);
  if (!names_.insert(name).second) fail(name, "two tensors have this name");
  found_.push_back(std::move(tensor));
}

}  // namespace

std::vector<StridedTensor> collect_tensors(const Pickle& pickle, const std::string& origin,
                                           const StorageBytes& storage_bytes,
                                           uint64_t max_tensor_bytes) {
  return Walk(pickle, origin, storage_bytes, max_tensor_bytes).run();
}

bool StridedTensor::is_contiguous() const {
  // An empty tensor first: the product of its other dimensions may be anything.
  if (std::find(info.shape.begin(), info.shape.end(), 0) != info.shape.end()) return true;
  int64_t expected = 1;
  for (size_t d = strides.size(); d-- > 0;) {
    if (info.shape[d] != 1 && strides[d] != expected) return false;
    expected *= info.shape[d];
  }
  return true;
}

}  // namespace danlu::weights::torch_file
