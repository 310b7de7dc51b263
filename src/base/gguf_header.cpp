#include "base/gguf_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/error.h"

namespace danlu::gguf {
namespace {

constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint32_t kMaxDims = 4;
constexpr int kMaxArrayDepth = 4;
/// Sizes beyond this overflow sums of a few of them.
constexpr uint64_t kMaxElements = uint64_t{1} << 60;

/// A name or key fit for a message.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out += c >= 0x20 && c < 0x7F ? c : '?';
  return text.size() > 80 ? out + "…" : out;
}

class HeaderParser {
 public:
  HeaderParser(std::span<const std::byte> file, const std::string& origin)
      : file_(file), origin_(origin) {}

  Header parse() {
    read_start();
    const uint64_t num_tensors = number<uint64_t>("the number of tensors");
    const uint64_t num_keys = number<uint64_t>("the number of metadata keys");
    read_metadata(num_keys);
    read_alignment();
    read_tensors(num_tensors);
    place_data();
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, std::string hint = {}) const {
    throw ModelError(tr("{}: {}", origin_, what), std::move(hint));
  }
  uint64_t left() const { return file_.size() - at_; }
  [[noreturn]] void cut_off(std::string_view what) const {
    fail(tr("the file ends within {} (at byte {})", what, file_.size()),
         tr("the file may be cut off: copy or download it again"));
  }
  std::string_view take(uint64_t count, std::string_view what) {
    if (count > left()) cut_off(what);
    const char* begin = reinterpret_cast<const char*>(file_.data()) + at_;
    at_ += count;
    return {begin, static_cast<size_t>(count)};
  }
  template <typename T>
  T number(std::string_view what) {
    const std::string_view bytes = take(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::string_view text(std::string_view what) { return take(number<uint64_t>(what), what); }

  void read_start() {
    if (file_.size() < 4 || take(4, "the magic bytes") != "GGUF")
      fail("not a GGUF file: it does not begin with \"GGUF\"");
    header_.version = number<uint32_t>("the version");
    if (header_.version == 2 || header_.version == 3) return;
    if ((header_.version & 0xFFFF) == 0) {
      fail("a big-endian GGUF file; little-endian ones are read",
           tr("convert it on the machine it was made on"));
    }
    fail(tr("GGUF version {}; versions 2 and 3 are read", header_.version),
         tr("write it anew with a current llama.cpp"));
  }

  Value read_number(uint32_t type, std::string_view key) {
    switch (type) {
      case 0:
        return number<uint8_t>(key);
      case 1:
        return number<int8_t>(key);
      case 2:
        return number<uint16_t>(key);
      case 3:
        return number<int16_t>(key);
      case 4:
        return number<uint32_t>(key);
      case 5:
        return number<int32_t>(key);
      case 6:
        return number<float>(key);
      case 10:
        return number<uint64_t>(key);
      case 11:
        return number<int64_t>(key);
      case 12:
        return number<double>(key);
      default:
        break;
    }
    const auto truth = number<uint8_t>(key);
    if (truth > 1) fail(tr("metadata key {}: a bool must be 0 or 1, got {}", key, truth));
    return truth == 1;
  }

  Array read_array(std::string_view key, int depth) {
    Array array;
    array.element = checked_type(number<uint32_t>(key), key);
    array.count = number<uint64_t>(key);
    if (const size_t size = number_bytes(array.element)) {
      if (array.count > left() / size) cut_off(key);
      array.numbers = take(array.count * size, key);
      if (array.element == kBool &&
          std::any_of(array.numbers.begin(), array.numbers.end(), [](char c) { return c & ~1; }))
        fail(tr("metadata key {}: a bool must be 0 or 1", key));
      return array;
    }
    // A string takes 8 bytes at least, an array 12.
    if (array.count > left() / 8) cut_off(key);
    if (array.element == kString) {
      for (uint64_t i = 0; i < array.count; ++i) array.strings.emplace_back(text(key));
      return array;
    }
    if (depth == kMaxArrayDepth)
      fail(tr("metadata key {}: arrays are nested more than {} deep", key, depth));
    for (uint64_t i = 0; i < array.count; ++i) array.arrays.push_back(read_array(key, depth + 1));
    return array;
  }

  uint32_t checked_type(uint32_t type, std::string_view key) const {
    if (type >= kNumValueTypes) fail(tr("metadata key {}: no such value type {}", key, type));
    return type;
  }

  void read_metadata(uint64_t count) {
    std::unordered_set<std::string> keys;
    for (uint64_t i = 0; i < count; ++i) {
      const std::string_view key = text("a metadata key");
      if (key.empty() || key.size() > kMaxKeyBytes ||
          std::any_of(key.begin(), key.end(), [](char c) { return c <= 0x20 || c >= 0x7F; }))
        fail(tr("metadata key \"{}\" must be 1 to {} printable ASCII characters", shown(key),
                kMaxKeyBytes));
      if (!keys.emplace(key).second) fail(tr("metadata key {} stands twice", key));
      const uint32_t type = checked_type(number<uint32_t>(key), key);
      Value value;
      if (type == kString) {
        value = std::string(text(key));
      } else if (type == kArray) {
        value = read_array(key, 1);
      } else {
        value = read_number(type, key);
      }
      header_.metadata.emplace_back(key, std::move(value));
    }
  }

  void read_alignment() {
    const Value* value = find(header_.metadata, kAlignmentKey);
    if (!value) return;
    const uint32_t* alignment = std::get_if<uint32_t>(value);
    if (!alignment || *alignment == 0 || (*alignment & (*alignment - 1)) != 0)
      fail(tr("{} must be a power of two, stored as a 32-bit number", kAlignmentKey));
    header_.alignment = *alignment;
  }

  void read_shape(TensorEntry& entry) {
    const auto num_dims = number<uint32_t>("the list of tensors");
    if (num_dims > kMaxDims)
      fail(tr("tensor {}: at most {} dimensions, got {}", shown(entry.name), kMaxDims, num_dims));
    uint64_t elements = 1;
    for (uint32_t i = 0; i < num_dims; ++i) {
      const auto size = number<uint64_t>("the list of tensors");
      if (size > kMaxElements || (size > 0 && elements > kMaxElements / size))
        fail(tr("tensor {}: more than 2^60 elements", shown(entry.name)));
      elements *= size;
      entry.shape.push_back(static_cast<int64_t>(size));
    }
    std::reverse(entry.shape.begin(), entry.shape.end());
    entry.type = number<uint32_t>("the list of tensors");
    const TypeTraits* traits = type_traits(entry.type);
    if (!traits) fail(tr("tensor {}: no such type {}", shown(entry.name), entry.type));
    const uint64_t row = entry.shape.empty() ? 1 : static_cast<uint64_t>(entry.shape.back());
    if (row % traits->block != 0)
      fail(tr("tensor {}: rows of {} numbers are no multiple of {}'s block of {}",
              shown(entry.name), row, traits->name, traits->block));
    entry.size_bytes = elements / traits->block * traits->block_bytes;
  }

  void read_tensors(uint64_t count) {
    std::unordered_set<std::string> names;
    for (uint64_t i = 0; i < count; ++i) {
      TensorEntry entry;
      entry.name = text("the list of tensors");
      if (entry.name.empty() || entry.name.size() > kMaxKeyBytes)
        fail(tr("the name of tensor {} has {} bytes", i, entry.name.size()));
      if (!names.insert(entry.name).second) fail(tr("tensor {} stands twice", shown(entry.name)));
      read_shape(entry);
      entry.offset = number<uint64_t>("the list of tensors");
      header_.tensors.push_back(std::move(entry));
    }
  }

  /// Turns offsets into places in the file and checks that data lie inside it, apart from another.
  void place_data() {
    const uint64_t alignment = header_.alignment;
    header_.data_offset = (at_ + alignment - 1) / alignment * alignment;
    const uint64_t size =
        file_.size() > header_.data_offset ? file_.size() - header_.data_offset : 0;
    std::vector<const TensorEntry*> by_place;
    for (TensorEntry& entry : header_.tensors) {
      if (entry.offset % alignment != 0)
        fail(tr("tensor {} begins at {}, which is no multiple of the alignment {}",
                shown(entry.name), entry.offset, alignment));
      if (entry.offset > size || entry.size_bytes > size - entry.offset) {
        fail(tr("tensor {} needs bytes {} to {} of the data, the file holds {}", shown(entry.name),
                entry.offset,
                fmt::format("{}", static_cast<unsigned __int128>(entry.offset) + entry.size_bytes),
                size),
             tr("the file may be cut off: copy or download it again"));
      }
      entry.offset += header_.data_offset;
      if (entry.size_bytes > 0) by_place.push_back(&entry);
    }
    std::sort(by_place.begin(), by_place.end(),
              [](const TensorEntry* a, const TensorEntry* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < by_place.size(); ++i) {
      const TensorEntry &before = *by_place[i - 1], &after = *by_place[i];
      if (before.offset + before.size_bytes > after.offset)
        fail(tr("the data of tensors {} and {} overlap", shown(before.name), shown(after.name)));
    }
  }

  std::span<const std::byte> file_;
  const std::string& origin_;
  uint64_t at_ = 0;
  Header header_;
};

}  // namespace

Header parse_header(std::span<const std::byte> file, const std::string& origin) {
  return HeaderParser(file, origin).parse();
}

}  // namespace danlu::gguf
