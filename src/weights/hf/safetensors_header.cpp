#include "weights/hf/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

/// All element types of the format, by ascending rank in the reference writer's order.
struct FormatType {
  std::string_view name;
  std::optional<DType> dtype;  ///< none: legal in the format, unknown to Danlu
};
constexpr std::array<FormatType, 22> kTypes = {{
    {"BOOL", DType::kBool},
    {"F4", {}},
    {"F6_E2M3", {}},
    {"F6_E3M2", {}},
    {"U8", DType::kU8},
    {"I8", DType::kI8},
    {"F8_E5M2", {}},
    {"F8_E4M3", {}},
    {"F8_E8M0", {}},
    {"F8_E4M3FNUZ", {}},
    {"F8_E5M2FNUZ", {}},
    {"I16", DType::kI16},
    {"U16", DType::kU16},
    {"F16", DType::kF16},
    {"BF16", DType::kBF16},
    {"I32", DType::kI32},
    {"U32", DType::kU32},
    {"F32", DType::kF32},
    {"C64", {}},
    {"F64", DType::kF64},
    {"I64", DType::kI64},
    {"U64", DType::kU64},
}};

size_t alignment_rank(DType dtype) {
  for (size_t rank = 0; rank < kTypes.size(); ++rank) {
    if (kTypes[rank].dtype == dtype) return rank;
  }
  throw InternalError("[safetensors] element type has no name in the format");
}

/// Receives the JSON text piece by piece. A DOM would drop duplicate keys silently, which the
/// format forbids, and cost several times the header in memory.
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  HeaderHandler(SafetensorsHeader& header, const std::string& origin)
      : header_(header), origin_(origin) {}

  bool key(string_t& name) override {
    if (place_ == Place::kTop) {
      if (!names_.insert(name).second) fail(tr("tensor {} stands twice in the header", name));
      current_ = {};
      current_.info.name = name;
      seen_ = {};
      dtype_name_.clear();
      next_ = name == "__metadata__" ? Next::kMetadata : Next::kTensor;
    } else if (place_ == Place::kTensor) {
      next_ = name == "dtype"          ? Next::kDtype
              : name == "shape"        ? Next::kShape
              : name == "data_offsets" ? Next::kOffsets
                                       : Next::kIgnored;
      mark_seen();
    } else {
      key_ = name;
      if (header_.metadata.contains(name)) fail(tr("__metadata__ has the key {} twice", name));
    }
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kStart)
      place_ = Place::kTop;
    else if (place_ == Place::kTop)
      place_ = next_ == Next::kMetadata ? Place::kMetadata : Place::kTensor;
    else
      misplaced("an object");
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) finish_tensor();
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kTensor || (next_ != Next::kShape && next_ != Next::kOffsets))
      misplaced("an array");
    place_ = Place::kArray;
    return true;
  }
  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kArray) misplaced("a number");
    if (next_ == Next::kShape) {
      if (value > static_cast<uint64_t>(INT64_MAX)) fail_tensor("has a dimension beyond 2^63");
      current_.info.shape.push_back(static_cast<int64_t>(value));
    } else {
      if (num_offsets_ >= 2) fail_tensor("must have exactly two data_offsets");
      (num_offsets_++ == 0 ? current_.begin : current_.end) = value;
    }
    return true;
  }
  bool number_integer(number_integer_t value) override {
    misplaced(tr("the negative number {}", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    misplaced(tr("the number {}", text));
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata[key_] = value;
    } else if (place_ == Place::kTensor && next_ == Next::kDtype) {
      dtype_name_ = value;
    } else {
      misplaced("a string");
    }
    return true;
  }
  bool null() override { misplaced("null"); }
  bool boolean(bool) override { misplaced("a boolean"); }
  bool binary(binary_t&) override { misplaced("binary data"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail(tr("the header is not valid JSON at byte {}", position));
  }

 private:
  enum class Place { kStart, kTop, kTensor, kArray, kMetadata, kEnd };
  enum class Next { kTensor, kMetadata, kDtype, kShape, kOffsets, kIgnored };

  [[noreturn]] void fail(const std::string& what) const {
    throw ModelError(tr("{}: not a valid safetensors file: {}", origin_, what));
  }
  [[noreturn]] void fail_tensor(const std::string& what) const {
    fail(fmt::format("tensor {} {}", current_.info.name, what));
  }
  [[noreturn]] void misplaced(const std::string& what) const {
    if (place_ == Place::kStart) fail("the header must be a JSON object");
    if (place_ == Place::kMetadata) fail(tr("__metadata__ values must be strings, got {}", what));
    fail(tr("{} stands where tensor {} should have dtype, shape or data_offsets", what,
            current_.info.name));
  }
  void mark_seen() {
    if (next_ == Next::kIgnored) fail_tensor("has a key other than dtype, shape and data_offsets");
    bool& seen = seen_[static_cast<size_t>(next_) - static_cast<size_t>(Next::kDtype)];
    if (seen) fail_tensor("has a key twice");
    seen = true;
    num_offsets_ = next_ == Next::kOffsets ? 0 : num_offsets_;
  }
  void finish_tensor();

  SafetensorsHeader& header_;
  const std::string& origin_;
  Place place_ = Place::kStart;
  Next next_ = Next::kTensor;
  SafetensorsEntry current_;
  std::array<bool, 3> seen_{};
  std::string dtype_name_, key_;
  size_t num_offsets_ = 0;
  std::unordered_set<std::string> names_;
};

void HeaderHandler::finish_tensor() {
  if (!seen_[0] || dtype_name_.empty()) fail_tensor("has no dtype");
  if (!seen_[1]) fail_tensor("has no shape");
  if (!seen_[2] || num_offsets_ != 2) fail_tensor("must have exactly two data_offsets");
  const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const FormatType& t) { return t.name == dtype_name_; });
  if (type == kTypes.end()) fail_tensor(tr("has the unknown dtype {}", dtype_name_));
  current_.is_fp8 = dtype_name_ == "F8_E4M3";
  if (!type->dtype && !current_.is_fp8) {
    throw ModelError(tr("{}: tensor {} has dtype {}, which Danlu does not read", origin_,
                        current_.info.name, dtype_name_),
                     tr("convert it to BF16, F16 or F32 first"));
  }
  current_.info.dtype = type->dtype.value_or(DType::kF32);
  uint64_t bytes = current_.is_fp8 ? 1 : dtype_size_bytes(*type->dtype);
  for (const int64_t size : current_.info.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes) ||
        bytes > static_cast<uint64_t>(INT64_MAX)) {
      fail_tensor(tr("has the impossible shape {}", shape_text(current_.info.shape)));
    }
  }
  if (current_.begin > current_.end) {
    fail_tensor(tr("has data_offsets [{}, {}] in the wrong order", current_.begin, current_.end));
  }
  if (current_.end - current_.begin != bytes) {
    fail_tensor(tr("of {} {} takes {} bytes, its data_offsets hold {}", dtype_name_,
                   shape_text(current_.info.shape), bytes, current_.end - current_.begin));
  }
  header_.entries.push_back(std::move(current_));
}

[[noreturn]] void fail_file(const std::string& origin, const std::string& what) {
  throw ModelError(tr("{}: not a valid safetensors file: {}", origin, what),
                   tr("the file may be cut off or damaged: download or copy it again"));
}

void check_layout(SafetensorsHeader& header, uint64_t data_bytes, const std::string& origin) {
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.info.name) < std::tie(b.begin, b.end, b.info.name);
  });
  uint64_t position = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != position) {
      fail_file(origin, tr("tensor {} begins at byte {}, {} the {} bytes before it",
                           entry.info.name, entry.begin,
                           entry.begin < position ? "inside" : "leaving a hole after", position));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    fail_file(origin,
              tr("the header describes {} bytes of data, the file holds {}", position, data_bytes));
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& origin) {
  if (file.size() < 8) {
    fail_file(origin, tr("it has {} bytes, the smallest one has 8 and a header", file.size()));
  }
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i)
    header_bytes = header_bytes << 8 | std::to_integer<uint64_t>(file[i]);
  if (header_bytes > kMaxHeaderBytes) {
    fail_file(origin,
              tr("a header of {} bytes is beyond the limit of {}", header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > file.size() - 8) {
    fail_file(origin,
              tr("the header needs {} bytes, {} follow its length", header_bytes, file.size() - 8));
  }
  const char* text = reinterpret_cast<const char*>(file.data()) + 8;
  if (header_bytes == 0 || text[0] != '{') fail_file(origin, "the header must begin with {");
  SafetensorsHeader header;
  header.data_offset = 8 + header_bytes;
  HeaderHandler handler(header, origin);
  Json::sax_parse(text, text + header_bytes, &handler);
  check_layout(header, file.size() - header.data_offset, origin);
  return header;
}

std::string build_safetensors_header(const std::vector<TensorInfo>& tensors, const Json& metadata) {
  Json header = Json::object();
  header["__metadata__"] = metadata;
  uint64_t position = 0;
  for (const TensorInfo& info : tensors) {
    const uint64_t end = position + info.size_bytes();
    header.push_back({info.name,
                      {{"dtype", dtype_name(info.dtype)},
                       {"shape", info.shape},
                       {"data_offsets", {position, end}}}});
    position = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  for (uint64_t length = text.size(), i = 0; i < 8; ++i, length >>= 8)
    bytes.push_back(static_cast<char>(length & 0xff));
  return bytes + text;
}

std::vector<size_t> safetensors_file_order(const std::vector<TensorInfo>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const size_t rank_a = alignment_rank(tensors[a].dtype),
                 rank_b = alignment_rank(tensors[b].dtype);
    return rank_a != rank_b ? rank_a > rank_b : tensors[a].name < tensors[b].name;
  });
  return order;
}

}  // namespace danlu::weights
