// base/gguf_format.h: the words of the GGUF format: types of tensors, and metadata.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/number_blocks.h"

namespace danlu::gguf {

/// How a tensor's numbers are stored; values are the file's. Others exist (type_traits).
enum class TensorType : uint32_t { kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ8_0 = 8, kBF16 = 30 };

struct TypeTraits {
  std::string_view name;  ///< "Q4_K"
  uint32_t block = 1;     ///< numbers in a block
  uint32_t block_bytes = 0;
  std::optional<DType> plain;  ///< the element type where numbers are stored as they are
};
/// nullptr for a number that names no type.
const TypeTraits* type_traits(uint32_t type);
inline const TypeTraits& type_traits(TensorType type) {
  return *type_traits(static_cast<uint32_t>(type));
}

/// The block type that the file calls `type`, if its blocks can be read. Plain types and other
/// blocks: none.
std::optional<BlockType> block_type(uint32_t type);

struct Array;
/// The alternative's index is the type's number in the file.
using Value = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool,
                           std::string, Array, uint64_t, int64_t, double>;
inline constexpr uint32_t kBool = 7, kString = 8, kArray = 9, kNumValueTypes = 13;

/// A list whose items are all of one type. Numbers are kept packed, as in the file.
struct Array {
  uint32_t element = 0;  ///< index into Value
  uint64_t count = 0;
  std::string numbers = {};               ///< little-endian
  std::vector<std::string> strings = {};  ///< element == kString
  std::vector<Array> arrays = {};         ///< element == kArray

  /// The numbers as T; empty if they are of another type.
  template <typename T>
  std::vector<T> as() const;
};

/// The entries in the order of the file; keys are unique.
using Metadata = std::vector<std::pair<std::string, Value>>;
/// nullptr if there is no such key.
const Value* find(const Metadata& metadata, std::string_view key);

/// Bytes of a number of this type (a bool takes one); 0 for strings and arrays.
size_t number_bytes(uint32_t value_type);

/// The double of the shortest text that is this float: 1e-06, not 9.999999974752427e-07.
double shortest_double(float value);

template <typename T, size_t kIndex = 0>
constexpr uint32_t value_type_of() {
  if constexpr (std::is_same_v<T, std::variant_alternative_t<kIndex, Value>>) {
    return kIndex;
  } else {
    return value_type_of<T, kIndex + 1>();
  }
}

template <typename T>
Array number_array(const std::vector<T>& numbers);
Array string_array(std::vector<std::string> strings);

template <typename T>
std::vector<T> Array::as() const {
  std::vector<T> result;
  if (element != value_type_of<T>()) return result;
  result.resize(numbers.size() / sizeof(T));
  if (!result.empty()) std::memcpy(result.data(), numbers.data(), result.size() * sizeof(T));
  return result;
}

template <typename T>
Array number_array(const std::vector<T>& numbers) {
  static_assert(!std::is_same_v<T, bool>, "a vector<bool> holds no bytes");
  Array array{.element = value_type_of<T>(), .count = numbers.size()};
  array.numbers.resize(numbers.size() * sizeof(T));
  if (!numbers.empty()) std::memcpy(array.numbers.data(), numbers.data(), array.numbers.size());
  return array;
}

/// Tensor data begin at multiples of this unless general.alignment says otherwise.
inline constexpr uint64_t kDefaultAlignment = 32;
inline constexpr std::string_view kAlignmentKey = "general.alignment";

}  // namespace danlu::gguf
