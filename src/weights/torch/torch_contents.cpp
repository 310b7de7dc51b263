#include "weights/torch/torch_contents.h"

#include <fmt/format.h>

#include <unordered_map>

#include "base/error.h"
#include "weights/torch/pickle_globals.h"
#include "weights/torch/pickle_reader.h"
#include "weights/torch/storage_table.h"
#include "weights/torch/tensor_walk.h"
#include "weights/torch/zip_reader.h"

namespace danlu::weights::torch_file {
namespace {

/// expand()ed tensors may be larger than the file, within reason.
constexpr uint64_t kExpandAllowance = uint64_t{4} << 30;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] void fail(const std::string& origin, const std::string& what) {
  throw ModelError(tr("{}: not a valid torch file: {}", origin, what));
}

/// Bytes that `num_elements` from `view_offset` on need. Errors: ModelError on overflow.
uint64_t bytes_needed(const StorageRef& ref, const std::string& origin) {
  uint64_t elements = 0, bytes = 0;
  if (__builtin_add_overflow(static_cast<uint64_t>(ref.view_offset),
                             static_cast<uint64_t>(ref.num_elements), &elements) ||
      __builtin_mul_overflow(elements, static_cast<uint64_t>(dtype_size_bytes(ref.dtype)),
                             &bytes)) {
    fail(origin, tr("storage {} has an impossible size", ref.key));
  }
  return bytes;
}

std::span<const std::byte> checked_storage(std::span<const std::byte> bytes, const StorageRef& ref,
                                           const std::string& origin) {
  const uint64_t needed = bytes_needed(ref, origin);
  if (needed > bytes.size()) {
    fail(origin, tr("storage {} has {} bytes, its tensors need {}", ref.key, bytes.size(), needed));
  }
  return bytes.subspan(static_cast<size_t>(ref.view_offset) * dtype_size_bytes(ref.dtype));
}

// --- zip container -------------------------------------------------------------------------------

std::string top_folder(const ZipReader& zip, const std::string& origin) {
  if (zip.entries().empty()) fail(origin, "the zip is empty");
  const std::string& first = zip.entries().front().name;
  const std::string top = first.substr(0, first.find('/') + 1);
  if (top.size() < 2) fail(origin, tr("entry {} lies in no folder", first));
  for (const ZipEntry& entry : zip.entries()) {
    if (entry.name.rfind(top, 0) != 0)
      fail(origin, tr("entry {} lies outside the folder {}", entry.name, top));
    if (entry.name == top + "constants.pkl" || entry.name.rfind(top + "code/", 0) == 0) {
      throw ModelError(tr("{}: a TorchScript program, not a weight file", origin),
                       tr("save the state_dict with torch.save instead"));
    }
  }
  return top;
}

std::vector<StridedTensor> read_zip(std::span<const std::byte> file, const std::string& origin,
                                    PyValue* document) {
  const ZipReader zip(file, origin);
  const std::string top = top_folder(zip, origin);
  if (const ZipEntry* order = zip.find(top + "byteorder");
      order && as_text(zip.bytes(*order)) != "little") {
    fail(origin, "it was written on a big-endian machine");
  }
  const ZipEntry* program = zip.find(top + "data.pkl");
  if (!program) fail(origin, tr("there is no {}data.pkl", top));
  if (program->size > PickleLimits{}.max_bytes) {
    fail(origin, tr("data.pkl of {} bytes is beyond the limit of {}", program->size,
                    PickleLimits{}.max_bytes));
  }
  const Pickle pickle = read_pickle(zip.checked_bytes(*program), origin);
  const auto storage = [&](const StorageRef& ref) {
    const ZipEntry* entry = zip.find(top + "data/" + ref.key);
    if (!entry) fail(origin, tr("storage {}data/{} is missing", top, ref.key));
    return checked_storage(zip.bytes(*entry), ref, origin);
  };
  return collect_tensors(pickle, origin, storage, file.size() + kExpandAllowance, document);
}

// --- legacy stream of pickles --------------------------------------------------------------------

class LegacyStream {
 public:
  LegacyStream(std::span<const std::byte> file, const std::string& origin)
      : rest_(file), origin_(origin) {}

  std::vector<StridedTensor> read(uint64_t max_tensor_bytes, PyValue* document) {
    check_preamble();
    const Pickle object = next();
    const Pickle keys = next();
    locate_storages(object, keys);
    const auto storage = [&](const StorageRef& ref) {
      const auto at = storages_.find(ref.key);
      if (at == storages_.end()) fail(origin_, tr("storage {} is missing", ref.key));
      return checked_storage(at->second, ref, origin_);
    };
    return collect_tensors(object, origin_, storage, max_tensor_bytes, document);
  }

 private:
  Pickle next() {
    Pickle pickle = read_pickle(rest_, origin_);
    rest_ = rest_.subspan(pickle.consumed_bytes);
    return pickle;
  }

  void check_preamble() {
    // 0x1950a86a20f9469cfc6c, little-endian.
    constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
    const Pickle magic = next();
    const Value& number = magic.at(magic.root);
    if (number.kind != Kind::kBigInt || number.text != kMagic) {
      throw ModelError(tr("{}: a Python pickle that torch.save did not write", origin_));
    }
    const Pickle protocol = next();
    if (protocol.at(protocol.root).integer != 1001) fail(origin_, "its protocol is not 1001");
    const Pickle system = next();
    const ValueId little = dict_get(system, system.root, "little_endian");
    if (little == kNoValue || !system.at(little).truth)
      fail(origin_, "it was written on a big-endian machine");
  }

  /// After the pickles: for each key in order an element count and the raw bytes. How wide an
  /// element is stands only in the references to the storage.
  void locate_storages(const Pickle& object, const Pickle& keys) {
    std::unordered_map<std::string, DType> dtypes;
    for (ValueId id = 0; id < object.values.size(); ++id) {
      if (object.at(id).kind != Kind::kPersistent) continue;
      const StorageRef ref = parse_storage_ref(object, id, origin_);
      dtypes[ref.key] = ref.dtype;
    }
    if (keys.at(keys.root).kind != Kind::kList) fail(origin_, "the list of storages is not a list");
    for (const ValueId id : keys.at(keys.root).items) {
      const std::string key(keys.at(id).text);
      const auto dtype = dtypes.find(key);
      if (keys.at(id).kind != Kind::kString || dtype == dtypes.end()) {
        fail(origin_, tr("storage \"{}\" belongs to no tensor", key));
      }
      if (rest_.size() < 8) fail(origin_, tr("it ends before storage {}", key));
      uint64_t count = 0, bytes = 0;
      for (int i = 7; i >= 0; --i) count = count << 8 | std::to_integer<uint64_t>(rest_[i]);
      rest_ = rest_.subspan(8);
      if (__builtin_mul_overflow(count, static_cast<uint64_t>(dtype_size_bytes(dtype->second)),
                                 &bytes) ||
          bytes > rest_.size()) {
        fail(origin_, tr("storage {} of {} elements reaches beyond the end", key, count));
      }
      storages_[key] = rest_.first(bytes);
      rest_ = rest_.subspan(bytes);
    }
  }

  std::span<const std::byte> rest_;
  const std::string& origin_;
  std::unordered_map<std::string, std::span<const std::byte>> storages_;
};

}  // namespace

StorageRef parse_storage_ref(const Pickle& pickle, ValueId persistent, const std::string& origin) {
  const auto& items = pickle.at(pickle.at(persistent).items[0]).items;
  const auto kind_of = [&](size_t i) { return pickle.at(items[i]).kind; };
  if (items.size() < 5 || kind_of(0) != Kind::kString || pickle.at(items[0]).text != "storage" ||
      kind_of(1) != Kind::kGlobal || kind_of(2) != Kind::kString || kind_of(4) != Kind::kInt ||
      pickle.at(items[4]).integer < 0) {
    fail(origin, "a storage reference has another form than (storage, class, key, location, size)");
  }
  const Value& storage_class = pickle.at(items[1]);
  const auto dtype = storage_dtype(storage_class.text, storage_class.name);
  if (!dtype) {
    throw ModelError(tr("{}: storage class {}.{} is not one Danlu reads", origin,
                        storage_class.text, storage_class.name));
  }
  StorageRef ref{std::string(pickle.at(items[2]).text), *dtype, pickle.at(items[4]).integer, 0};
  if (items.size() > 5 && kind_of(5) == Kind::kTuple) {
    // Legacy view metadata: (key of the view, offset, elements) into the storage named above.
    const auto& view = pickle.at(items[5]).items;
    if (view.size() != 3 || pickle.at(view[1]).kind != Kind::kInt ||
        pickle.at(view[2]).kind != Kind::kInt || pickle.at(view[1]).integer < 0 ||
        pickle.at(view[2]).integer < 0) {
      fail(origin, "a storage view has another form than (key, offset, size)");
    }
    ref.view_offset = pickle.at(view[1]).integer;
    ref.num_elements = pickle.at(view[2]).integer;
  }
  return ref;
}

std::vector<StridedTensor> read_torch_contents(std::span<const std::byte> file,
                                               const std::string& origin, PyValue* document) {
  const std::string_view start = as_text(file.first(std::min<size_t>(file.size(), 4)));
  if (start == "PK\x03\x04") return read_zip(file, origin, document);
  if (!start.empty() && start[0] == '\x80')
    return LegacyStream(file, origin).read(file.size() + kExpandAllowance, document);
  fail(origin, file.empty() ? "it is empty" : "it begins like neither a zip nor a pickle");
}

}  // namespace danlu::weights::torch_file
