#include "weights/torch/pickle_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "weights/torch/pickle_globals.h"
#include "weights/torch/pickle_reader.h"
#include "weights/torch/torch_contents.h"
#include "weights/torch/utf8.h"

namespace danlu::weights::torch_file {
namespace {

/// Python's pickle module splits containers into batches of this many items.
constexpr size_t kBatch = 1000;

/// Opcodes; Python's pickletools has their meaning.
namespace op {
constexpr char kMark = '(', kStop = '.', kNone = 'N', kTrue = '\x88', kFalse = '\x89',
               kByteInt = 'K', kShortInt = 'M', kInt = 'J', kLong1 = '\x8a', kLong4 = '\x8b',
               kFloat = 'G', kUnicode = 'X', kEmptyTuple = ')', kTuple = 't', kTuple1 = '\x85',
               kTuple2 = '\x86', kTuple3 = '\x87', kEmptyList = ']', kAppend = 'a', kAppends = 'e',
               kEmptyDict = '}', kSetItem = 's', kSetItems = 'u', kGlobal = 'c', kReduce = 'R',
               kNewObject = '\x81', kBuild = 'b', kPersistentId = 'Q', kPut = 'q', kLongPut = 'r',
               kGet = 'h', kLongGet = 'j';
}  // namespace op

/// The strides of a tensor whose elements lie in row-major order.
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  // Torch has it so: an extent of 0 counts as 1, so that no stride is 0.
  for (size_t d = shape.size(); d-- > 1;)
    strides[d - 1] = strides[d] * std::max<int64_t>(shape[d], 1);
  return strides;
}

/// The path of the value being written, for messages: a list on the stack, no string is built.
struct Path {
  const Path* above = nullptr;
  const PyValue* key = nullptr;
  size_t index = 0;
  int depth = 0;

  Path below(const PyValue& child_key) const { return {this, &child_key, 0, depth + 1}; }
  Path below(size_t child_index) const { return {this, nullptr, child_index, depth + 1}; }
  std::string text() const {
    if (!above) return "top level";
    const std::string own = key ? key->key_text() : std::to_string(index);
    return above->above ? above->text() + "." + own : own;
  }
};

class Writer {
 public:
  explicit Writer(const std::vector<TensorInfo>& tensors)
      : tensors_(tensors), used_(tensors.size()) {}

  WrittenPickle run(const PyValue& root) {
    out_ = "\x80\x02";
    write(root, {});
    out_ += op::kStop;
    return {std::move(out_), std::move(used_)};
  }

 private:
  [[noreturn]] static void fail(const Path& path, const std::string& what) {
    throw ModelError(tr("{} cannot be written to a .pt file: {}", path.text(), what));
  }

  // --- numbers and texts -------------------------------------------------------------------------
  void little_endian(uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) out_ += static_cast<char>(value >> (8 * i) & 0xff);
  }
  void integer(int64_t value) {
    if (value >= 0 && value <= 0xff) {
      out_ += op::kByteInt;
      little_endian(static_cast<uint64_t>(value), 1);
    } else if (value >= 0 && value <= 0xffff) {
      out_ += op::kShortInt;
      little_endian(static_cast<uint64_t>(value), 2);
    } else if (value >= std::numeric_limits<int32_t>::min() &&
               value <= std::numeric_limits<int32_t>::max()) {
      out_ += op::kInt;
      little_endian(static_cast<uint64_t>(value), 4);
    } else {
      int num_bytes = 8;  // as few as keep the sign
      while (value >= -(int64_t{1} << (8 * num_bytes - 9)) && value < int64_t{1}
                                                                          << (8 * num_bytes - 9)) {
        --num_bytes;
      }
      out_ += {op::kLong1, static_cast<char>(num_bytes)};
      little_endian(static_cast<uint64_t>(value), num_bytes);
    }
  }
  void big_integer(const std::string& digits, const Path& path) {
    if (digits.size() > PickleLimits{}.max_long_bytes) fail(path, "the integer is too large");
    if (digits.size() < 256) {
      out_ += {op::kLong1, static_cast<char>(digits.size())};
    } else {
      out_ += op::kLong4;
      little_endian(digits.size(), 4);
    }
    out_ += digits;
  }
  void real(double value) {
    out_ += op::kFloat;
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int i = 7; i >= 0; --i) out_ += static_cast<char>(bits >> (8 * i) & 0xff);
  }
  void unicode(const std::string& text, const Path& path) {
    if (!is_python_utf8(text)) fail(path, "the string is not UTF-8");
    if (text.size() > PickleLimits{}.max_string_bytes) fail(path, "the string is too long");
    out_ += op::kUnicode;
    little_endian(text.size(), 4);
    out_ += text;
  }
  void bytes(const std::string& content, const Path& path) {
    global("_codecs", "encode", path);
    std::string text;
    for (const char c : content) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte < 0x80) {
        text += c;
      } else {
        text += {static_cast<char>(0xc0 | byte >> 6), static_cast<char>(0x80 | (byte & 0x3f))};
      }
    }
    unicode(text, path);
    shared_text("latin1");
    out_ += {op::kTuple2, op::kReduce};
  }

  // --- the memo: what many tensors repeat is written once ----------------------------------------
  bool recall(const std::string& what) {
    const auto at = memo_.find(what);
    if (at == memo_.end()) return false;
    out_ += at->second < 256 ? op::kGet : op::kLongGet;
    little_endian(at->second, at->second < 256 ? 1 : 4);
    return true;
  }
  void remember(const std::string& what) {
    const size_t index = memo_.size();
    memo_[what] = index;
    out_ += index < 256 ? op::kPut : op::kLongPut;
    little_endian(index, index < 256 ? 1 : 4);
  }
  void global(const std::string& module, const std::string& name, const Path& path,
              bool may_name_a_member = false) {
    if (is_dangerous_global(module, name) && !may_name_a_member)
      fail(path, tr("{}.{} is no part of a weight file", module, name));
    for (const std::string& part : {module, name}) {
      if (part.empty() || part.find('\n') != std::string::npos || !is_python_utf8(part))
        fail(path, "the name of its class is not a Python name");
    }
    const std::string text = op::kGlobal + module + "\n" + name + "\n";
    if (recall(text)) return;
    out_ += text;
    remember(text);
  }
  void shared_text(const std::string& text) {
    if (recall("X" + text)) return;
    unicode(text, {});
    remember("X" + text);
  }

  // --- containers --------------------------------------------------------------------------------
  void tuple_end(size_t count) {
    constexpr char kShort[] = {op::kTuple1, op::kTuple2, op::kTuple3};
    out_ += count > 3 ? op::kTuple : kShort[count - 1];
  }
  void tuple(const PyValue::Items& items, const Path& path) {
    if (items.empty()) {
      out_ += op::kEmptyTuple;
      return;
    }
    if (items.size() > 3) out_ += op::kMark;
    for (size_t i = 0; i < items.size(); ++i) write(items[i], path.below(i));
    tuple_end(items.size());
  }
  void integers(const std::vector<int64_t>& numbers) {
    if (numbers.empty()) {
      out_ += op::kEmptyTuple;
      return;
    }
    if (numbers.size() > 3) out_ += op::kMark;
    for (const int64_t number : numbers) integer(number);
    tuple_end(numbers.size());
  }
  void append_all(const PyValue::Items& items, const Path& path) {
    for (size_t begin = 0; begin < items.size(); begin += kBatch) {
      const size_t end = std::min(items.size(), begin + kBatch);
      if (end - begin > 1) out_ += op::kMark;
      for (size_t i = begin; i < end; ++i) write(items[i], path.below(i));
      out_ += end - begin > 1 ? op::kAppends : op::kAppend;
    }
  }
  void set_all(const PyValue::Entries& entries, const Path& path) {
    for (size_t begin = 0; begin < entries.size(); begin += kBatch) {
      const size_t end = std::min(entries.size(), begin + kBatch);
      if (end - begin > 1) out_ += op::kMark;
      for (size_t i = begin; i < end; ++i) {
        const Path below = path.below(entries[i].key);
        check_hashable(entries[i].key, below);
        write(entries[i].key, below);
        write(entries[i].value, below);
      }
      out_ += end - begin > 1 ? op::kSetItems : op::kSetItem;
    }
  }
  void check_hashable(const PyValue& key, const Path& path) const;
  void set(const PyValue& value, const Path& path);
  void name_space(const PyValue& value, const Path& path);
  void object(const PyObject& object, const Path& path);
  void tensor(size_t index, const Path& path);
  void write(const PyValue& value, const Path& path);

  const std::vector<TensorInfo>& tensors_;
  std::vector<bool> used_;
  std::string out_;
  std::unordered_map<std::string, size_t> memo_;
};

void Writer::check_hashable(const PyValue& key, const Path& path) const {
  switch (key.kind()) {
    case PyKind::kList:
    case PyKind::kSet:
    case PyKind::kDict:
    case PyKind::kOrderedDict:
    case PyKind::kNamespace:
      fail(path, "Python takes no list, set, dict or Namespace as a key or into a set");
    case PyKind::kTuple:
      for (const PyValue& item : key.items()) check_hashable(item, path);
      return;
    default:
      return;
  }
}

void Writer::set(const PyValue& value, const Path& path) {
  global("__builtin__", value.is(PyKind::kSet) ? "set" : "frozenset", path);
  for (const PyValue& item : value.items()) check_hashable(item, path);
  out_ += op::kEmptyList;
  append_all(value.items(), path);
  out_ += {op::kTuple1, op::kReduce};
}

void Writer::name_space(const PyValue& value, const Path& path) {
  global("argparse", "Namespace", path);
  out_ += {op::kEmptyTuple, op::kNewObject, op::kEmptyDict};
  for (const PyItem& entry : value.entries()) {
    if (!entry.key.is(PyKind::kString)) fail(path.below(entry.key), "an attribute without a name");
  }
  set_all(value.entries(), path);
  out_ += op::kBuild;
}

/// In the order of Python's save_reduce: call, list items, dict items, state.
void Writer::object(const PyObject& object, const Path& path) {
  global(object.module, object.name, path, is_member(object));
  tuple(object.arguments, path);
  out_ += object.by_new ? op::kNewObject : op::kReduce;
  append_all(object.appended, path);
  set_all(object.set_entries, path);
  if (!object.has_state) return;
  write(object.state, path.below(0));
  out_ += op::kBuild;
}

/// _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks), or _v3 with a dtype at
/// the end for element types without a storage class.
void Writer::tensor(size_t index, const Path& path) {
  if (index >= tensors_.size()) {
    throw InternalError(
        fmt::format("[write_pickle] {} is tensor {} of {}", path.text(), index, tensors_.size()));
  }
  used_[index] = true;
  const TensorInfo& info = tensors_[index];
  const std::string storage_class(storage_class_name(info.dtype));
  global("torch._utils", storage_class.empty() ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2", path);
  out_ += {op::kMark, op::kMark};
  shared_text("storage");
  if (storage_class.empty()) {
    global("torch.storage", "UntypedStorage", path);
  } else {
    global("torch", storage_class, path);
  }
  unicode(std::to_string(index), path);
  shared_text("cpu");
  integer(storage_class.empty() ? static_cast<int64_t>(info.size_bytes()) : info.num_elements());
  out_ += {op::kTuple, op::kPersistentId};
  integer(0);
  integers(info.shape);
  integers(contiguous_strides(info.shape));
  out_ += op::kFalse;
  global("collections", "OrderedDict", path);
  out_ += {op::kEmptyTuple, op::kReduce};
  if (storage_class.empty()) global("torch", std::string(torch_dtype_name(info.dtype)), path);
  out_ += {op::kTuple, op::kReduce};
}

void Writer::write(const PyValue& value, const Path& path) {
  if (path.depth > kMaxDepth) fail(path, tr("nested deeper than {} levels", kMaxDepth));
  switch (value.kind()) {
    case PyKind::kNone:
      out_ += op::kNone;
      return;
    case PyKind::kBool:
      out_ += value.as_bool("") ? op::kTrue : op::kFalse;
      return;
    case PyKind::kInt:
      return integer(value.as_int(""));
    case PyKind::kBigInt:
      return big_integer(value.text(), path);
    case PyKind::kFloat:
      return real(value.as_float(""));
    case PyKind::kString:
      return unicode(value.text(), path);
    case PyKind::kBytes:
      return bytes(value.text(), path);
    case PyKind::kTuple:
      return tuple(value.items(), path);
    case PyKind::kList:
      out_ += op::kEmptyList;
      return append_all(value.items(), path);
    case PyKind::kSet:
    case PyKind::kFrozenSet:
      return set(value, path);
    case PyKind::kOrderedDict:
      global("collections", "OrderedDict", path);
      out_ += {op::kEmptyTuple, op::kReduce};
      return set_all(value.entries(), path);
    case PyKind::kDict:
      out_ += op::kEmptyDict;
      return set_all(value.entries(), path);
    case PyKind::kNamespace:
      return name_space(value, path);
    case PyKind::kDType:
      return global("torch", std::string(torch_dtype_name(value.as_dtype(""))), path);
    case PyKind::kSize:
      global("torch", "Size", path);
      tuple(value.items(), path);
      out_ += {op::kTuple1, op::kReduce};
      return;
    case PyKind::kGlobal:
      return global(value.object().module, value.object().name, path);
    case PyKind::kObject:
      return object(value.object(), path);
    case PyKind::kTensor:
      return tensor(value.as_tensor(""), path);
    case PyKind::kOmitted:
      fail(path, value.text());
  }
}

}  // namespace

WrittenPickle write_pickle(const PyValue& root, const std::vector<TensorInfo>& tensors) {
  return Writer(tensors).run(root);
}

}  // namespace danlu::weights::torch_file
