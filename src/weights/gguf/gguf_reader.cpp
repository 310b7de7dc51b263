// A GGUF file as a source of tensors.
#include "weights/gguf/gguf_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/error.h"
#include "base/lfs_pointer.h"
#include "base/number_blocks.h"
#include "weights/source_base.h"

namespace danlu::weights::gguf {
namespace {

/// Longer texts and lists are told by their size: vocabularies fill pages.
constexpr size_t kMaxShownText = 200, kMaxShownItems = 16;

template <typename T>
Json number_json(T value) {
  // JSON has no infinities.
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return fmt::format("{}", value);
  }
  if constexpr (std::is_same_v<T, float>) return shortest_double(value);
  return value;
}

Json text_json(const std::string& text) {
  if (text.size() <= kMaxShownText) return text;
  return fmt::format("({} bytes of text)", text.size());
}

template <typename T>
Json items_json(const Array& array) {
  Json items = Json::array();
  for (const T item : array.as<T>()) items.push_back(number_json(item));
  return items;
}

Json array_json(const Array& array) {
  constexpr const char* kNames[kNumValueTypes] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                                  "int32",  "float32", "bool",   "string", "array",
                                                  "uint64", "int64",   "float64"};
  if (array.count <= kMaxShownItems) {
    if (array.element == kString) {
      Json items = Json::array();
      for (const std::string& text : array.strings) items.push_back(text_json(text));
      return items;
    }
    if (array.element == value_type_of<int32_t>()) return items_json<int32_t>(array);
    if (array.element == value_type_of<uint32_t>()) return items_json<uint32_t>(array);
    if (array.element == value_type_of<float>()) return items_json<float>(array);
  }
  return fmt::format("({} of {})", array.count, kNames[array.element]);
}

Json value_json(const Value& value) {
  return std::visit(
      [](const auto& held) -> Json {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return text_json(held);
        } else if constexpr (std::is_same_v<T, Array>) {
          return array_json(held);
        } else {
          return number_json(held);
        }
      },
      value);
}

/// The type of a tensor whose bytes are given as they are; none in a file.
constexpr uint32_t kBytes = ~uint32_t{0};

struct Place {
  uint64_t offset = 0, size_bytes = 0;
  uint32_t type = 0;
};

class GgufSource final : public FileSource<Place> {
 public:
  explicit GgufSource(const std::filesystem::path& path, bool as_bytes) : FileSource(path) {
    Header header = parse_header(file_.bytes(), path.string());
    for (const auto& [key, value] : header.metadata) metadata_[key] = value_json(value);
    std::map<std::string, int64_t> types;
    std::vector<std::pair<TensorInfo, Place>> tensors;
    for (TensorEntry& entry : header.tensors) {
      const TypeTraits& traits = *type_traits(entry.type);
      ++types[std::string(traits.name)];
      if (as_bytes && !block_type(entry.type)) continue;
      if (as_bytes) {
        std::vector<int64_t>& shape = entry.shape;
        shape.back() = static_cast<int64_t>(
            block_bytes(*block_type(entry.type), static_cast<size_t>(shape.back())));
        const TensorInfo info{.name = std::move(entry.name), .dtype = DType::kU8, .shape = shape};
        tensors.emplace_back(info, Place{entry.offset, entry.size_bytes, kBytes});
        continue;
      }
      tensors.emplace_back(TensorInfo{.name = std::move(entry.name),
                                      .dtype = traits.plain.value_or(DType::kF32),
                                      .shape = std::move(entry.shape)},
                           Place{entry.offset, entry.size_bytes, entry.type});
    }
    metadata_["tensor types"] = types;
    set_tensors(std::move(tensors));
  }

  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const size_t index = index_of(name);
    check_range(infos_[index], begin, end, out.size());
    if (out.empty()) return;
    const Place& place = locations_[index];
    const std::byte* data = file_.bytes().data() + place.offset;
    if (is_plain(place)) {
      const size_t item = dtype_size_bytes(infos_[index].dtype);
      std::memcpy(out.data(), data + static_cast<size_t>(begin) * item, out.size());
      return;
    }
    decode(require_blocks(infos_[index], place), data, begin, end, out.data());
  }

  std::span<const std::byte> mapped(const std::string& name) const override {
    const size_t index = index_of(name);
    const Place& place = locations_[index];
    if (!is_plain(place)) return {};
    return file_.bytes().subspan(place.offset, place.size_bytes);
  }

  Storage storage(const std::string& name) const override {
    const Place& place = locations_[index_of(name)];
    if (place.type == kBytes) return FileSource::storage(name);
    return {std::string(type_traits(place.type)->name), place.size_bytes};
  }

 private:
  static bool is_plain(const Place& place) {
    return place.type == kBytes || type_traits(place.type)->plain.has_value();
  }

  BlockType require_blocks(const TensorInfo& info, const Place& place) const {
    if (const auto type = block_type(place.type)) return *type;
    throw ModelError(tr("{}: tensor {} is stored as {}; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "
                        "Q5_1 and Q2_K to "
                        "Q6_K are read",
                        file_.path().string(), info.name, type_traits(place.type)->name),
                     tr("take the file the quantised one was made from"));
  }

  static void decode(BlockType type, const std::byte* blocks, int64_t begin, int64_t end,
                     std::byte* out) {
    constexpr auto kGroup = static_cast<int64_t>(kBlockGroup);
    float numbers[kBlockGroup];
    for (int64_t at = begin; at < end;) {
      const int64_t from = at % kGroup, count = std::min(kGroup - from, end - at);
      numbers_of(type, block_group(type, blocks, static_cast<size_t>(at / kGroup)), numbers);
      std::memcpy(out, numbers + from, static_cast<size_t>(count) * sizeof(float));
      out += static_cast<size_t>(count) * sizeof(float);
      at += count;
    }
  }
};

}  // namespace

std::shared_ptr<const TensorSource> open(const std::filesystem::path& file) {
  refuse_lfs_pointer(file, "tensors");
  return std::make_shared<GgufSource>(file, /*as_bytes=*/false);
}

std::shared_ptr<const TensorSource> open_blocks(const std::filesystem::path& file) {
  return std::make_shared<GgufSource>(file, /*as_bytes=*/true);
}

}  // namespace danlu::weights::gguf
