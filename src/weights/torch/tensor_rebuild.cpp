// Tensors among the calls that a pickle records: which call makes one, and where its elements lie.
#include "weights/torch/tensor_rebuild.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "weights/source_base.h"
#include "weights/torch/pickle_globals.h"

namespace danlu::weights::torch_file {
namespace {

/// How often a tensor may be wrapped as a parameter or a subclass.
constexpr int kMaxWrappers = 64;

}  // namespace

void TensorRebuilder::fail(const std::string& name, const std::string& what) const {
  throw ModelError(tr("{}: {}: {}", origin_, name, what));
}

/// nullopt: the call makes no tensor.
std::optional<TensorRebuilder::Rebuild> TensorRebuilder::unwrap(ValueId id,
                                                                const std::string& name) const {
  ValueId callable = pickle_.at(id).items[0], arguments = pickle_.at(id).items[1];
  for (int level = 0; level < kMaxWrappers; ++level) {
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

int64_t TensorRebuilder::integer(ValueId id, const std::string& name, const char* what) const {
  const Value& value = pickle_.at(id);
  if (value.kind != Kind::kInt || value.integer < 0)
    fail(name, tr("its {} is not a whole number ≥ 0", what));
  return value.integer;
}

std::vector<int64_t> TensorRebuilder::integers(ValueId id, const std::string& name,
                                               const char* what) const {
  const Value* value = &pickle_.at(id);
  if (value->kind == Kind::kCall && pickle_.is_global(value->items[0], "torch", "Size")) {
    const auto& arguments = pickle_.at(value->items[1]).items;
    if (arguments.size() == 1) value = &pickle_.at(arguments[0]);
  }
  if (value->kind != Kind::kTuple) fail(name, tr("its {} is not a tuple", what));
  std::vector<int64_t> numbers;
  for (const ValueId item : value->items) numbers.push_back(integer(item, name, what));
  return numbers;
}

void TensorRebuilder::check_inside(const StridedTensor& tensor, int64_t storage_elements) const {
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
    fail(name, tr("impossible shape {} with strides {}", shape, shape_text(tensor.strides)));
  if (!empty && last >= storage_elements) {
    fail(name, tr("shape {}, strides {}, offset {} reach element {} of a storage of {}", shape,
                  shape_text(tensor.strides), tensor.offset, last, storage_elements));
  }
  if (static_cast<uint64_t>(elements) > max_tensor_bytes_ / dtype_size_bytes(tensor.info.dtype)) {
    fail(name,
         tr("shape {} repeats a storage of {} elements beyond reason", shape, storage_elements));
  }
}

StridedTensor TensorRebuilder::locate(const Rebuild& rebuild, const std::string& name) const {
  const auto& arguments = *rebuild.arguments;
  const bool has_dtype = rebuild.function == "_rebuild_tensor_v3";
  if (arguments.size() < (has_dtype ? 7u : 4u) ||
      pickle_.at(arguments[0]).kind != Kind::kPersistent) {
    fail(name, tr("{} has wrong arguments", rebuild.function));
  }
  StorageRef ref = parse_storage_ref(pickle_, arguments[0], origin_ + ": " + name);
  StridedTensor tensor;
  tensor.info.name = name;
  tensor.info.dtype = ref.dtype;
  if (has_dtype) {
    const Value& dtype = pickle_.at(arguments[6]);
    const auto known =
        dtype.kind == Kind::kGlobal ? dtype_global(dtype.text, dtype.name) : std::nullopt;
    if (!known) fail(name, tr("element type torch.{} is not one Danlu reads", dtype.name));
    // The storage of such a tensor counts bytes.
    tensor.info.dtype = *known;
  }
  tensor.offset = integer(arguments[1], name, "offset");
  tensor.info.shape = integers(arguments[2], name, "size");
  tensor.strides = integers(arguments[3], name, "stride");
  if (tensor.info.shape.size() != tensor.strides.size()) {
    fail(name, tr("{} sizes but {} strides", tensor.info.shape.size(), tensor.strides.size()));
  }
  tensor.storage = storage_bytes_(ref);
  const auto item_bytes = static_cast<int64_t>(dtype_size_bytes(tensor.info.dtype));
  const int64_t declared =
      ref.num_elements * static_cast<int64_t>(dtype_size_bytes(ref.dtype)) / item_bytes;
  check_inside(tensor, declared);
  return tensor;
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
